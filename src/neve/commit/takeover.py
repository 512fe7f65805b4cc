"""takeover: who owns a run: its lease while it works, its takeover by another process, and its end without being finished.

Called by `operations.rewrite_run` and `operations.resume`. A run has one owner at a time, known by a token in the journal
(`commit.process`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from neve.commit.access import RunContext
from neve.commit.failure import Failure
from neve.commit.lease import Held, is_over, leased
from neve.commit.lease_terms import LEASE_MS
from neve.commit.process import this_process
from neve.errors import NeveError
from neve.ports import Clock, Journal
from neve.rewrite.journal import JournaledRun
from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupRecord, GroupState, RunRecord
from neve.rewrite.run_summary import record_of

log = logging.getLogger(__name__)


@contextmanager
def leased_run(plan: Plan, run_id: str, context: RunContext) -> Iterator[Held]:
    """The table, for as long as the run lasts. A run that stops before its end may then be resumed from anywhere."""
    words = {"leases": context.leases, "writer": context.writer, "clock": context.clock}
    try:
        with leased(str(plan.table), plan.table_uuid, run_id, **words) as held:  # type: ignore[arg-type]
            yield held
    except BaseException:
        _pause(run_id, context)
        raise


def _pause(run_id: str, context: RunContext) -> None:
    try:
        if context.journal:
            context.journal.pause(run_id)
    except NeveError as error:  # the heartbeat ends by itself
        log.warning("run %s: its heartbeat was not ended: %s", run_id, error)


def take_over(journalled: JournaledRun, journal: Journal, clock: Clock) -> JournaledRun:
    """Makes this process the run's owner, and returns the run as the owner before left it."""
    before = journalled.owner
    return journal.take_over(
        journalled.run_id,
        owner=this_process().text,
        gone=before if is_over(before, journalled.run_id) else None,
        now_ms=clock.now_ms(),
        lease_ms=LEASE_MS,
    )


def abandon(journalled: JournaledRun, journal: Journal, clock: Clock, why: str) -> RunRecord:
    """The record of an interrupted run that is not to be finished: nothing more of it is committed, and no file is removed."""
    journalled = take_over(journalled, journal, clock)
    return given_up(journalled, clock, Failure(why, ""), unwritten=GroupState.FAILED)


def given_up(
    journalled: JournaledRun,
    clock: Clock,
    failure: Failure,
    *,
    unwritten: GroupState = GroupState.IN_DOUBT,
    resumed_ms: int | None = None,
) -> RunRecord:
    """The end of a run that cannot be finished: what was written may have been sent, so it is in doubt, and every file stays.

    `unwritten` is the state of groups of which the journal has no result; it may be older than the table. `resumed_ms` is when
    the run was resumed, if it was before it was given up.
    """
    records = {}
    for group in journalled.groups:
        is_open = group.state in (GroupState.PLANNED, GroupState.WRITTEN)
        ended = unwritten if group.result is None else GroupState.IN_DOUBT
        records[group.group_id] = GroupRecord(
            group_id=group.group_id,
            partition=journalled.plan.groups[group.group_id].partition,
            state=ended if is_open else group.state,
            reason=failure.reason if is_open else "settled before the run was interrupted",
            outputs=group.result.outputs if group.result else (),
            traceback=failure.traceback or None if is_open else None,
        )
    now = clock.now_ms()
    times = {"started_ms": journalled.started_ms, "resumed_ms": resumed_ms or now, "finished_ms": now}
    return record_of(journalled.plan, records, [], run_id=journalled.run_id, **times)
