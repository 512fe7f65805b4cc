"""Runs, the partitions they compacted, and the files they wrote."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("outcome", sa.String(32)),
        sa.Column("record", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_table_uuid_started_ms", "runs", ["table_uuid", "started_ms"])
    op.create_table(
        "partitions_compacted",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("spec_id", sa.Integer, nullable=False),
        sa.Column("partition", sa.Text, nullable=False),
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("committed_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "spec_id", "partition", name="pk_partitions_compacted"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_partitions_compacted_run_id", ondelete="CASCADE"),
    )
    op.create_index("ix_partitions_compacted_table_uuid", "partitions_compacted", ["table_uuid"])
    op.create_table(
        "outputs",
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("row_groups", sa.Integer, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("table_uuid", "path", name="pk_outputs"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_outputs_run_id", ondelete="CASCADE"),
    )
    op.create_index("ix_outputs_run_id", "outputs", ["run_id"])
