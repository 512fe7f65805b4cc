"""rollback: takes a run's commits back by moving the branch to where it was before them. Never at the cost of others' commits.

Called by `compose`. Nothing is deleted: the run's snapshots stay in the table's history until they are expired.
"""

from __future__ import annotations

from collections.abc import Callable

from neve.commit.tools import TableView
from neve.errors import BadRequestError, CommitConflictError
from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.record import MaintenanceRecord
from neve.ports import TableWriter
from neve.rewrite.record import RunRecord
from neve.table.frozen import Frozen

Committed = RunRecord | UpkeepRecord | MaintenanceRecord
"""Whatever knows which snapshots a run committed."""


class RolledBack(Frozen):
    """What a rollback did, or would do where it is a `dry_run`."""

    run_id: str
    table: str
    branch: str
    from_snapshot: int
    to_snapshot: int
    dry_run: bool = False


def roll_back(record: Committed, writer: TableWriter, assert_held: Callable[[], None] = lambda: None) -> RolledBack:
    """Moves the branch to the snapshot before the run's first. Refuses where that would lose what others committed since."""
    writer.refresh()
    head, to = _way_back(record, writer)
    assert_held()
    if not writer.roll_back(head, to, record.branch):
        raise CommitConflictError(
            f"Cannot roll back run {record.run_id[:8]}: somebody committed to {record.table} at this moment", hint="Try again."
        )
    return RolledBack(run_id=record.run_id, table=record.table, branch=record.branch, from_snapshot=head, to_snapshot=to)


def preview(record: Committed, table: TableView) -> RolledBack:
    """What `roll_back` would do now. Raises where that would refuse."""
    table.refresh()
    head, to = _way_back(record, table)
    facts = {"run_id": record.run_id, "table": record.table, "branch": record.branch}
    return RolledBack(**facts, from_snapshot=head, to_snapshot=to, dry_run=True)


def _way_back(record: Committed, writer: TableView) -> tuple[int, int]:
    """The head to leave and the snapshot to go to."""
    wish = f"Cannot roll back run {record.run_id[:8]}"
    if not record.snapshots:
        raise BadRequestError(f"{wish}: it committed nothing")
    head, first = writer.head(record.branch), record.snapshots[0]
    lineage = writer.ancestry(head, None) if head is not None else []
    depth = next((i for i, ancestor in enumerate(lineage) if ancestor.snapshot_id == first), None)
    if head is None or depth is None:
        hint = "It may be undone already."
        raise BadRequestError(f"{wish}: snapshot {first} is not on branch {record.branch} any more", hint=hint)
    later = [ancestor for ancestor in lineage[:depth] if ancestor.snapshot_id not in record.snapshots]
    to = lineage[depth].parent_id
    if later:
        raise BadRequestError(
            f"{wish}: {len(later)} commits of others came after it and would be lost, the newest being snapshot "
            f"{later[0].snapshot_id} ({later[0].operation})",
            hint=f"The run changed no row, so there is nothing to mend for readers. To read the files as they were: "
            f"SELECT ... VERSION AS OF {to}. To throw the later commits away as well: CALL system.rollback_to_snapshot.",
        )
    if to is None or not writer.knows(to):
        raise BadRequestError(f"{wish}: snapshot {to}, the one before it, has been expired")
    return head, to
