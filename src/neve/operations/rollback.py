"""rollback: takes a run's commits back by moving the branch to where it was before them. Never at the cost of others' commits.

Nothing is deleted: the run's snapshots stay in the table's history until they are expired.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from neve.commit.lease import leased
from neve.commit.tools import TableView
from neve.context.runs import pausing
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitConflictError
from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.manifests import ManifestsRecord
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.ports import TableWriter
from neve.rewrite.group import RunKind
from neve.rewrite.record import RunRecord
from neve.state.rows import Run
from neve.table.frozen import Frozen
from neve.table.units import counted

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


_KINDS: dict[str, type[Committed]] = {
    **dict.fromkeys(RunKind, RunRecord),
    "deletes": UpkeepRecord,
    Operation.MANIFESTS.value: ManifestsRecord,
}
"""Runs that can be rolled back, by their kind in the state store."""


def committed(found: Run) -> Committed:
    """The record of a run. Raises BadRequestError for one that committed no snapshot."""
    wish = f"Cannot roll back run {found.run_id[:8]}"
    if found.kind == "maintain":
        raise BadRequestError(f"{wish}: it is made of steps", hint="`neve runs` lists the run of each step; roll that back.")
    if found.kind not in _KINDS:
        reason = f"a run of kind {found.kind} leaves no snapshot behind that the table could return to"
        hint = "If it put files into the quarantine, `neve restore RUN` brings them back."
        raise BadRequestError(f"{wish}: {reason}", hint=hint)
    if not found.record:
        raise BadRequestError(f"{wish}: it has no record of commits", hint="Try `neve resume` first.")
    return _KINDS[found.kind].model_validate(found.record)


def run(context: TableContext, record: Committed, *, dry_run: bool) -> RolledBack:
    """Rolls back what a run committed, or shows what that would do. `context` is of the record's table."""
    started, run_id = context.clock.now_ms(), uuid4().hex
    context.require_free()
    context.connection.check_commits(context.name)
    if dry_run:
        return preview(record, context.view())
    writer, store, table = context.writer, context.store, (record.table, record.table_uuid)
    with pausing(store), leased(*table, run_id, leases=store, writer=writer, clock=context.clock) as lease:
        done = roll_back(record, writer, lease.assert_held)
        commits = store.compaction_commits(record.table_uuid)
        store.withdraw_compactions(commit for commit in commits if commit.run_id == record.run_id)
        store.start_run(Run(run_id, record.table_uuid, record.table, "rollback", started))
        document = done.model_dump(mode="json")
        store.finish_run(run_id, finished_ms=context.clock.now_ms(), outcome="done", record=document)
    return done


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
            f"{wish}: {counted(len(later), 'later commit')} would be lost, the newest being snapshot "
            f"{later[0].snapshot_id} ({later[0].operation})",
            hint=f"The run changed no row, so there is nothing to mend for readers. To read the files as they were: "
            f"SELECT ... VERSION AS OF {to}. To throw the later commits away as well: CALL system.rollback_to_snapshot.",
        )
    if to is None or not writer.knows(to):
        raise BadRequestError(f"{wish}: snapshot {to}, the one before it, has been expired")
    return head, to
