"""Leases, when the store was last tidied, and files and partitions that are known for longer than the run that wrote them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.create_table(
        "leases",
        sa.Column("table_uuid", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("table_uuid", name="pk_leases"),
    )
    op.create_table(
        "chores",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("done_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_chores"),
    )
    op.execute("INSERT INTO chores (name, done_ms) VALUES ('prune', 0)")
    for table in ("partitions_compacted", "outputs"):
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(f"fk_{table}_run_id", type_="foreignkey")
    # The newest compaction of a partition is looked for by plans, and once for each one that is to be forgotten.
    op.drop_index("ix_partitions_compacted_table_uuid", "partitions_compacted")
    newest = ["table_uuid", "spec_id", "partition", "committed_ms"]
    op.create_index("ix_partitions_compacted_newest", "partitions_compacted", newest)
