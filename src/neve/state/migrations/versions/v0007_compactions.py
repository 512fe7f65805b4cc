"""Compactions by branch and snapshot, so that one that was rolled back, or made on another branch, does not count."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_runs = sa.table("runs", sa.column("run_id"), sa.column("kind"), sa.column("record", sa.JSON))
_compacted = sa.table(
    "partitions_compacted", sa.column("run_id"), sa.column("partition"), sa.column("branch"), sa.column("snapshot_id")
)
_BATCH = 500


def upgrade() -> None:
    """Forward only: going back means restoring the copy."""
    op.add_column("partitions_compacted", sa.Column("branch", sa.Text, nullable=False, server_default="main"))
    op.add_column("partitions_compacted", sa.Column("snapshot_id", sa.BigInteger))
    op.drop_index("ix_partitions_compacted_newest", "partitions_compacted")
    newest = ["table_uuid", "spec_id", "partition", "committed_ms", "branch", "snapshot_id", "run_id"]
    op.create_index("ix_partitions_compacted_newest", "partitions_compacted", newest)
    _fill()


def _fill() -> None:
    """Takes branch and snapshot from the records of runs. Rows whose run was pruned keep branch main and no snapshot."""
    connection = op.get_bind()
    of_run, of_partition = _compacted.c.run_id == sa.bindparam("run"), _compacted.c.partition == sa.bindparam("home")
    set_branch = sa.update(_compacted).where(of_run).values(branch=sa.bindparam("on"), snapshot_id=sa.bindparam("last"))
    set_snapshot = sa.update(_compacted).where(of_run, of_partition).values(snapshot_id=sa.bindparam("last"))
    known = sa.select(_compacted.c.run_id).distinct()
    ids = list(connection.execute(sa.select(_runs.c.run_id).where(_runs.c.run_id.in_(known))).scalars())
    for start in range(0, len(ids), _BATCH):  # records are long: not all of them at once
        wanted = sa.select(_runs.c.run_id, _runs.c.record).where(_runs.c.run_id.in_(ids[start : start + _BATCH]))
        for run_id, record in connection.execute(wanted).all():
            branch, snapshots = record.get("branch") or "main", record.get("snapshots") or [None]
            connection.execute(set_branch, {"run": run_id, "on": branch, "last": snapshots[-1]})
            if homes := _snapshots(record):
                connection.execute(set_snapshot, [{"run": run_id, "home": home, "last": last} for home, last in homes.items()])


def _snapshots(record: dict[str, Any]) -> dict[str, int]:
    """The last snapshot that committed a group of each partition."""
    order = {snapshot: number for number, snapshot in enumerate(record.get("snapshots") or ())}
    groups = [group for group in record.get("groups") or () if group.get("snapshot_id") is not None]
    groups.sort(key=lambda group: order.get(group["snapshot_id"], -1))
    return {group.get("partition", ""): group["snapshot_id"] for group in groups}
