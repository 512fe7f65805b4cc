"""The quarantine: files that nothing seems to need, and how far each has come on its way out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.create_table(
        "quarantine",
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("fate", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger),
        sa.Column("recorded_ms", sa.BigInteger, nullable=False),
        sa.Column("changed_ms", sa.BigInteger, nullable=False),
        sa.Column("trash_path", sa.Text),
        sa.PrimaryKeyConstraint("table_uuid", "path", name="pk_quarantine"),
    )
    op.create_index("ix_quarantine_due", "quarantine", ["table_uuid", "fate", "changed_ms", "path"])
