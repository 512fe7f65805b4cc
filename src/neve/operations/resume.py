"""resume: takes a run over that was interrupted, and finishes it.

The table as it is now decides what is left (`rewrite.remaining`); a dry run decides by the same code and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

from neve.commit.access import TableView
from neve.commit.failure import Failure
from neve.commit.lease import Held, is_over
from neve.commit.process import this_process
from neve.commit.takeover import abandon, given_up, leased_run, take_over
from neve.context.connection import Connection
from neve.context.runs import pausing, unfinished
from neve.context.table import TableContext
from neve.errors import BadRequestError, NeveError, TableGoneError, TableNotFoundError
from neve.health.not_due import NotDue
from neve.maintenance.steps import Judgement
from neve.operations.compact import ended
from neve.operations.requests import ResumeRequest
from neve.operations.rewrite_run import CompactionRun, PlannedRun, paths_of, planned_files
from neve.rewrite.journal import JournaledRun
from neve.rewrite.live_files import Ancestor
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.remaining import NextStep, Remaining, TableNow, remaining
from neve.rewrite.run_summary import keep
from neve.table.state import RUN_ID

log = logging.getLogger(__name__)


def run(context: TableContext, request: ResumeRequest) -> RunRecord | Remaining:
    """Takes a run over, finishes it and records it; a dry run shows what that would do with each group.

    `context` is of the table of the run that is named, else its first interrupted run is meant.
    """
    require_sensible(request)
    found = unfinished(context.records, request.run) if request.run is not None else interrupted(context)
    if request.abandon:
        return _abandoned(context, found[0])
    return _preview(context, found[0]) if request.dry_run else finish(context, found[0])


def table_of(connection: Connection, request: ResumeRequest) -> str:
    """The table of the run that is named."""
    require_sensible(request)
    if request.run is None:
        raise BadRequestError("Cannot resume every run at once", hint="Name one. `neve runs` lists them.")
    return str(unfinished(connection.records(), request.run)[0].plan.table)


def require_sensible(request: ResumeRequest) -> None:
    """Raises BadRequestError for a request that would end more than it may."""
    if request.abandon and request.dry_run:
        raise BadRequestError("Cannot abandon a run in a dry run", hint="Leave --abandon or --dry-run out.")
    if request.abandon and request.run is None:
        raise BadRequestError("Cannot abandon every run", hint="Name one: `neve resume RUN --abandon`. `neve runs` lists them.")


def is_due(context: TableContext) -> Judgement:
    """Whether a run of the table was interrupted."""
    if found := interrupted(context):
        return Judgement(due=True, why=f"run {found[0].run_id[:8]} was interrupted")
    what = "interrupted runs"
    return Judgement.unmet(NotDue(rule="resume", what=what, measured=0, threshold=1, until="a run is interrupted"))


def interrupted(context: TableContext) -> list[JournaledRun]:
    """Runs of the table that were begun and never ended."""
    return [run for run in unfinished(context.records) if run.plan.table_uuid == context.uuid]


def finish(context: TableContext, journalled: JournaledRun) -> RunRecord:
    """Finishes an interrupted run. A table that is not found may be in another catalog of the same name: the run is kept."""
    with pausing(context.store):
        with _naming_the_way_out(journalled):
            context.require_free()
            record = resume(journalled, context)
        return ended(context, record, journalled.plan)


def _preview(context: TableContext, journalled: JournaledRun) -> Remaining:
    """What `finish` would do now. Starts no Spark."""
    with _naming_the_way_out(journalled):
        context.require_free()
        if context.uuid != journalled.plan.table_uuid:
            raise TableGoneError(f"Cannot work on {context.name}: it was replaced by another table")
        return preview(journalled, context.view())


def require_resumable(context: TableContext, journalled: JournaledRun) -> None:
    """Raises LeaseHeldError while the owner of an interrupted run is at work on it, or may be. Starts no Spark."""
    before = journalled.owner
    gone = before if is_over(before, journalled.run_id) else None
    owner, now = this_process().text, context.clock.now_ms()
    context.store.require_resumable(journalled.run_id, owner=owner, gone=gone, now_ms=now)


def _abandoned(context: TableContext, journalled: JournaledRun) -> RunRecord:
    """Ends an interrupted run without committing anything of it; its files stay. Starts no Spark."""
    with pausing(context.store):
        why = "given up by request; its files were not removed"
        record = context.timed(abandon(journalled, context.store, context.clock, why))
        keep(context.store, record, journalled.plan)
        return record


@contextmanager
def _naming_the_way_out(journalled: JournaledRun) -> Iterator[None]:
    """Says how to end the run if its table is gone."""
    try:
        yield
    except (TableNotFoundError, TableGoneError) as error:
        name = journalled.run_id[:8]
        hint = f"If the table was dropped, renamed or replaced, end the run: `neve resume {name} --abandon`."
        raise type(error)(f"Cannot resume run {name}: {error}", hint=hint) from error


def resume(journalled: JournaledRun, context: TableContext) -> RunRecord:
    """Takes a run over and finishes it: commits what was written and still holds, redoes only what was not written.

    Raises LeaseHeldError while the run's owner is at work on it, or may be. Groups are redone under names of their own, so that
    no file of this process is taken for one of the owner before.
    """
    resumed_ms = context.clock.now_ms()
    with leased_run(journalled.plan, journalled.run_id, context) as held:
        journalled = take_over(journalled, context.journal, context.clock) if context.journal else journalled
        try:
            run = _taken_up(journalled, context, held, resumed_ms)
            with run.settling():
                run.commit(run.verify(run.execute()))
            return run.record()
        except NeveError:
            raise  # such as a catalog that does not answer: another resume may find out more
        except Exception as error:
            # It would be raised again by every resume. What the run wrote stays: nobody has found out what of it landed.
            log.exception("run %s cannot be resumed and is given up", journalled.run_id)
            return given_up(journalled, context.clock, Failure.of(error), resumed_ms=resumed_ms)


def preview(journalled: JournaledRun, table: TableView) -> Remaining:
    """What `resume` would do now. Changes nothing, and takes no lease."""
    table.refresh()
    planned = {file.path for file in planned_files(journalled.plan, table)}
    return remaining(journalled, look(table, journalled, planned, _is_of(journalled))[0])


def _taken_up(journalled: JournaledRun, context: TableContext, held: Held, resumed_ms: int) -> CompactionRun:
    """The run with what is left of it to be done."""
    planned = PlannedRun(journalled.plan, context.specs)
    run = CompactionRun(journalled.run_id, planned, context, held.assert_held, journalled.started_ms, resumed_ms)
    now, run.snapshots = look(context.writer, journalled, run.inputs.keys(), _is_of(journalled))
    left = remaining(journalled, now)
    results = {group.group_id: group.result for group in journalled.groups if group.result is not None}
    for group in left.of(NextStep.NONE):
        run.note_ended(group, results.get(group.group_id))
    redone = {group.group_id for group in left.of(NextStep.REWRITE)}
    unreported = [g for g in journalled.groups if g.state is GroupState.PLANNED or g.group_id in redone]
    run.set_leftovers_aside(unreported, journalled.owner)
    run.written = [results[group.group_id] for group in left.of(NextStep.COMMIT)]
    run.sent_before = {result.group_id for result in run.written}
    run.order([run.plan.groups[group_id] for group_id in sorted(redone)])
    if context.journal:
        context.journal.redone(run.run_id, {order.group_id: order.output_prefix for order in run.orders})
    return run


def _is_of(journalled: JournaledRun) -> Callable[[Ancestor], bool]:
    return lambda ancestor: ancestor.summary.get(RUN_ID) == journalled.run_id


def look(
    table: TableView, journalled: JournaledRun, planned: Set[str], is_ours: Callable[[Ancestor], bool]
) -> tuple[TableNow, list[int]]:
    """The table as it is now, and the snapshots since the plan that may have committed groups of the run, oldest first.

    `planned` are the files of the plan's snapshot.
    """
    plan = journalled.plan
    head = table.head(plan.branch)
    ancestors = table.ancestry(head, plan.snapshot_id) if head is not None else []
    ours = [ancestor.snapshot_id for ancestor in reversed(ancestors) if is_ours(ancestor)]
    at_head = {file.path for file in table.scan(head, statistics=False)}
    # The oldest snapshot with a file is the one that committed it; it is unknown where that was expired.
    landed: dict[str, int | None] = dict.fromkeys(at_head)
    landed |= {file.path: found for found in reversed(ours) for file in table.scan(found, statistics=False)}
    # A journal may be older than the files, if the store was restored: some may be in the trash or purged by now.
    results = [group.result for group in journalled.groups if group.result and group.state is GroupState.WRITTEN]
    missing = table.missing(path for result in results for path in paths_of(result) if path not in landed)
    reached = ancestors[-1].parent_id if ancestors else head
    is_whole = plan.snapshot_id is not None and reached == plan.snapshot_id
    return TableNow(at_head & planned, landed, missing, is_whole), ours
