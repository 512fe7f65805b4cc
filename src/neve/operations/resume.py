"""resume: takes a run over that was interrupted, and finishes it.

The table as it is now decides what is left (`rewrite.remaining`); a dry run decides by the same code and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

from neve.commit import takeover
from neve.commit.failure import Failure
from neve.commit.lease import Held, is_over
from neve.commit.process import this_process
from neve.commit.takeover import given_up, leased_run, take_over
from neve.commit.tools import TableView, Tools
from neve.context.runs import pausing
from neve.context.table import TableContext
from neve.errors import NeveError, TableGoneError, TableNotFoundError
from neve.operations.compact import ended, tools_of
from neve.operations.execute import orders_or_failures
from neve.operations.rewrite_run import CompactionRun, paths_of, planned_files
from neve.rewrite.journal import JournaledRun
from neve.rewrite.live_files import Ancestor
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.remaining import NextStep, Remaining, TableNow, remaining
from neve.rewrite.run_summary import keep
from neve.table.state import RUN_ID

log = logging.getLogger(__name__)


def run(context: TableContext, journalled: JournaledRun) -> RunRecord:
    """Takes a run over, finishes it and records it. `context` is of the plan's table.

    A table that is not found may be in another catalog of the same name, so that the run is kept then.
    """
    with pausing(context.store):
        with _naming_the_way_out(journalled):
            context.require_free()
            record = resume(journalled, tools_of(context, journalled.plan, context.state))
        return ended(context, record, journalled.plan)


def run_preview(context: TableContext, journalled: JournaledRun) -> Remaining:
    """What `run` would do now. Starts no Spark."""
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


def abandon(context: TableContext, journalled: JournaledRun) -> RunRecord:
    """Ends an interrupted run without committing anything of it; its files stay. Starts no Spark."""
    with pausing(context.store):
        why = "given up by request; its files were not removed"
        record = takeover.abandon(journalled, context.store, context.clock, why)
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


def resume(journalled: JournaledRun, tools: Tools) -> RunRecord:
    """Takes a run over and finishes it: commits what was written and still holds, redoes only what was not written.

    Raises LeaseHeldError while the run's owner is at work on it, or may be. Groups are redone under names of their own, so that
    no file of this process is taken for one of the owner before.
    """
    resumed_ms = tools.clock.now_ms()
    with leased_run(journalled.plan, journalled.run_id, tools) as held:
        journalled = take_over(journalled, tools.journal, tools.clock) if tools.journal else journalled
        try:
            return _resumed(journalled, tools, held, resumed_ms)
        except NeveError:
            raise  # such as a catalog that does not answer: another resume may find out more
        except Exception as error:
            # It would be raised again by every resume. What the run wrote stays: nobody has found out what of it landed.
            log.exception("run %s cannot be resumed and is given up", journalled.run_id)
            return given_up(journalled, tools.clock, Failure.of(error), resumed_ms=resumed_ms)


def preview(journalled: JournaledRun, table: TableView) -> Remaining:
    """What `resume` would do now. Changes nothing, and takes no lease."""
    table.refresh()
    planned = {file.path for file in planned_files(journalled.plan, table)}
    return remaining(journalled, look(table, journalled, planned, _is_of(journalled))[0])


def _resumed(journalled: JournaledRun, tools: Tools, held: Held, resumed_ms: int) -> RunRecord:
    plan = journalled.plan
    run = CompactionRun(journalled.run_id, plan, tools, held.assert_held, journalled.started_ms, resumed_ms)
    now, run.snapshots = look(tools.writer, journalled, run.planned.keys(), _is_of(journalled))
    left = remaining(journalled, now)
    results = {group.group_id: group.result for group in journalled.groups if group.result is not None}
    for group in left.of(NextStep.NONE):
        run.note_ended(group, results.get(group.group_id))
    redone = {group.group_id for group in left.of(NextStep.REWRITE)}
    unreported = [g for g in journalled.groups if g.state is GroupState.PLANNED or g.group_id in redone]
    run.set_leftovers_aside(unreported, journalled.owner)
    written = [results[group.group_id] for group in left.of(NextStep.COMMIT)]
    run.sent_before = {result.group_id for result in written}
    groups = [plan.groups[group_id] for group_id in sorted(redone)]
    orders, failed = orders_or_failures(plan, groups, run.planned, tools.writer, tools.specs)
    if tools.journal:
        tools.journal.redone(run.run_id, {order.group_id: order.output_prefix for order in orders})
    return run.carry_out(written, orders, failed)


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
