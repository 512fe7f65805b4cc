"""The journal: a run's plan, who runs it, and how far each of its groups has come."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.add_column("runs", sa.Column("owner", sa.Text))
    op.add_column("runs", sa.Column("plan", sa.JSON))
    op.create_table(
        "run_groups",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("group_id", sa.Integer, nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("output_prefix", sa.Text, nullable=False),
        sa.Column("result", sa.JSON),
        sa.PrimaryKeyConstraint("run_id", "group_id", name="pk_run_groups"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_run_groups_run_id", ondelete="CASCADE"),
    )
