"""rollback: takes a run's commits back by moving the branch to where it was before them. Never at the cost of others' commits.

Nothing is deleted: the run's snapshots stay in the table's history until they are expired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from pydantic import ValidationError

from neve.commit.access import TableView
from neve.commit.lease import leased
from neve.context.connection import Connection
from neve.context.runs import find_run, pausing
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitConflictError, StateError
from neve.maintenance.delete_files import UpkeepRecord
from neve.maintenance.manifests import ManifestsRecord
from neve.maintenance.record import Operation
from neve.operations.requests import RollbackRequest
from neve.ports import TableWriter
from neve.rewrite.elapsed import Timed
from neve.rewrite.group import RunKind
from neve.rewrite.live_files import Ancestor
from neve.rewrite.preview import Preview
from neve.rewrite.record import Record, RunRecord
from neve.rewrite.versions import NEWER, UPGRADE, unknown_parts
from neve.state.rows import Run
from neve.table.spark_sql import move_back, read_snapshot
from neve.table.state import RUN_ID
from neve.table.units import counted


class RolledBack(Preview, Timed):
    """What a rollback did, or would do where it is a `dry_run`."""

    run_id: str
    table: str
    branch: str
    from_snapshot: int
    to_snapshot: int
    dry_run: bool = False


_KINDS: dict[str, type[Record]] = {
    **dict.fromkeys(RunKind, RunRecord),
    "deletes": UpkeepRecord,
    Operation.MANIFESTS.value: ManifestsRecord,
}
"""Runs that can be rolled back, by their kind in the state store."""


def committed(found: Run) -> Record:
    """The record of a run. Raises BadRequestError for one that committed no snapshot."""
    wish = f"Cannot roll back run {found.run_id[:8]}"
    if found.kind == "maintain":
        raise BadRequestError(f"{wish}: it is made of steps", hint="`neve runs` lists the run of each step; roll that back.")
    if found.kind == Operation.TTL.value:
        if not found.record.get("snapshots") or (before := found.record.get("snapshot_before")) is None:
            raise BadRequestError(f"{wish}: it committed nothing")
        hint = f"To read them until that snapshot is expired, in Spark SQL: `{read_snapshot(found.table_name, before)}`."
        raise BadRequestError(f"{wish}: the rows that it deleted would come back", hint=hint)
    if found.kind not in _KINDS:
        reason = f"a run of kind {found.kind} leaves no snapshot behind that the table could return to"
        hint = "If it put files into the quarantine, `neve restore RUN` brings them back."
        raise BadRequestError(f"{wish}: {reason}", hint=hint)
    if not found.record:
        raise BadRequestError(f"{wish}: it has no record of commits", hint="Try `neve resume` first.")
    try:
        return _KINDS[found.kind].model_validate(found.record)
    except ValidationError as error:
        if not (unknown := unknown_parts(error)):
            raise
        hint = f"{UPGRADE} use the version that wrote it."
        raise StateError(f"{wish}: its record was {NEWER} (unknown: {', '.join(unknown)})", hint=hint) from error


def table_of(connection: Connection, request: RollbackRequest) -> str:
    """The table of the run that is named."""
    return committed(find_run(connection.records(), connection.clock, request.run)).table


def run(context: TableContext, request: RollbackRequest) -> RolledBack:
    """Rolls back what a run committed, or shows what that would do. `context` is of the run's table."""
    record = committed(find_run(context.records, context.clock, request.run))
    started, run_id = context.clock.now_ms(), uuid4().hex
    context.require_free()
    context.connection.check_commits(context.name)
    if request.dry_run:
        records = context.records
        return preview(record, context.view(), find_run=records.run if records is not None else _unknown)
    writer, store, table = context.writer, context.store, (record.table, record.table_uuid)
    with pausing(store), leased(*table, run_id, leases=store, writer=writer, clock=context.clock) as lease:
        done = roll_back(record, writer, lease.assert_held, find_run=store.run)
        commits = store.compaction_commits(record.table_uuid)
        store.withdraw_compactions(commit for commit in commits if commit.run_id == record.run_id)
        store.start_run(Run(run_id, record.table_uuid, record.table, "rollback", started))
        done = context.timed(done)
        document = done.model_dump(mode="json")
        store.finish_run(run_id, finished_ms=context.clock.now_ms(), outcome="done", record=document)
    return done


def _unknown(_: str) -> None:
    """Finds no run."""


FindRun = Callable[[str], Run | None]
"""Looks a run up in the state store by its id."""


def roll_back(
    record: Record, writer: TableWriter, assert_held: Callable[[], None] = lambda: None, *, find_run: FindRun = _unknown
) -> RolledBack:
    """Moves the branch to the snapshot before the run's first. Refuses where that would lose later commits.

    `find_run` tells which of these are of other runs of ours, which can be rolled back first.
    """
    writer.refresh()
    head, to = _way_back(record, writer, find_run)
    assert_held()
    if not writer.roll_back(head, to, record.branch):
        raise CommitConflictError(
            f"Cannot roll back run {record.recorded_id[:8]}: somebody committed to {record.table} at this moment",
            hint="Try again.",
        )
    return RolledBack(run_id=record.run_id, table=record.table, branch=record.branch, from_snapshot=head, to_snapshot=to)


def preview(record: Record, table: TableView, *, find_run: FindRun = _unknown) -> RolledBack:
    """What `roll_back` would do now. Raises where that would refuse."""
    table.refresh()
    head, to = _way_back(record, table, find_run)
    facts = {"run_id": record.run_id, "table": record.table, "branch": record.branch}
    return RolledBack(**facts, from_snapshot=head, to_snapshot=to, dry_run=True)


def _way_back(record: Record, writer: TableView, find_run: FindRun) -> tuple[int, int]:
    """The head to leave and the snapshot to go to."""
    wish = f"Cannot roll back run {record.recorded_id[:8]}"
    if not record.snapshots:
        raise BadRequestError(f"{wish}: it committed nothing")
    head, first = writer.head(record.branch), record.snapshots[0]
    lineage = writer.ancestry(head, None) if head is not None else []
    depth = next((i for i, ancestor in enumerate(lineage) if ancestor.snapshot_id == first), None)
    if head is None or depth is None:
        hint = "It may be rolled back already."
        raise BadRequestError(f"{wish}: snapshot {first} is not on branch {record.branch} any more", hint=hint)
    to = lineage[depth].parent_id
    if to is None or not writer.knows(to):
        raise BadRequestError(f"{wish}: snapshot {to}, the one before it, has been expired")
    if later := [ancestor for ancestor in lineage[:depth] if ancestor.snapshot_id not in record.snapshots]:
        raise _in_the_way(record, later, to, find_run)
    return head, to


def _in_the_way(record: Record, later: Sequence[Ancestor], to: int, find_run: FindRun) -> BadRequestError:
    """The error for commits that came after a run, newest first: whose they are, and what to do."""
    this, newest = record.recorded_id[:8], later[0]
    ids = list(dict.fromkeys(ancestor.summary.get(RUN_ID) for ancestor in later))
    runs = {run_id: find_run(run_id) for run_id in ids if run_id is not None}
    reason = (
        f"{counted(len(later), 'later commit')} would be lost, the newest being snapshot {newest.snapshot_id} "
        f"({newest.operation}{_author(newest.summary.get(RUN_ID), runs)})"
    )
    if None not in ids and all(run is not None and run.kind in _KINDS and run.record for run in runs.values()):
        which = "the later run first" if len(runs) == 1 else "the later runs first, the newest first"
        commands = ", ".join(f"`neve rollback {run_id[:8]}`" for run_id in runs)
        hint = f"Roll back {which}: {commands}, then `neve rollback {this}`."
    else:
        hint = (
            "The run changed no row, so queries return the same rows either way. In Spark SQL, "
            f"`{read_snapshot(record.table, to)}` reads the files as they were, and "
            f"`{move_back(record.table, record.branch, to)}` discards the later commits as well."
        )
    return BadRequestError(f"Cannot roll back run {this}: {reason}", hint=hint)


def _author(run_id: str | None, runs: Mapping[str, Run | None]) -> str:
    if run_id is None:
        return ""
    run = runs[run_id]
    if run is None:
        return f", by run {run_id[:8]}, which this state store does not know"
    return f", by the {run.kind} run {run_id[:8]}"
