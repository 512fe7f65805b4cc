"""resume: takes a run over that was interrupted, and finishes it. Called by `compose`.

The table as it is now decides what is left (`rewrite.remaining`); a dry run decides by the same code and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from neve.commit.failure import Failure
from neve.commit.lease import Held
from neve.commit.takeover import given_up, leased_run, take_over
from neve.commit.tools import TableView, Tools
from neve.errors import NeveError
from neve.operations.execute import orders_or_failures
from neve.operations.rewrite_run import CompactionRun, paths_of, planned_files
from neve.rewrite.journal import JournaledRun
from neve.rewrite.live_files import Ancestor
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.remaining import NextStep, Remaining, TableNow, remaining
from neve.table.state import RUN_ID

log = logging.getLogger(__name__)


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
    for ended in left.of(NextStep.NONE):
        run.note_ended(ended, results.get(ended.group_id))
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
