"""Keeps the statistics of a table's columns and partitions fresh: plans, counts, publishes. Called by `compose`; main only.

The files are written first and belong to one snapshot for ever, so publishing them can be tried again as often as others get in
between; nothing is counted twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import uuid4

from neve.core.maintenance import Operation
from neve.core.model import StatisticsFile, TableState
from neve.core.policy import Policy
from neve.core.quarantine import Doomed
from neve.core.record import RunOutcome
from neve.core.table_statistics import Distinct, StatisticsPlan, StatisticsRecord, plan_statistics
from neve.errors import CommitUnknownError
from neve.flow.commit import Retry
from neve.flow.lease import leased
from neve.maintenance.means import Means
from neve.ports import Clock, StatisticsWriter

ATTEMPTS = 20
"""Every commit of others costs one, and they are cheap."""


def foretell(
    state: TableState, policy: Policy, *, columns: Sequence[str] = (), force: bool = False, clock: Clock
) -> StatisticsRecord:
    """What would be made. Nothing is read but metadata."""
    now = clock.now_ms()
    plan = plan_statistics(state, policy, columns=columns, force=force)
    return _record(state, plan, uuid4().hex, now, now).model_copy(update={"dry_run": True})


def keep_statistics(
    means: Means, writer: StatisticsWriter, policy: Policy, *, columns: Sequence[str] = (), force: bool = False
) -> StatisticsRecord:
    """Makes statistics of the current snapshot, if they are worth it."""
    run_id, started = uuid4().hex, means.clock.now_ms()
    table = (str(means.table), means.table_uuid)
    with leased(*table, run_id, leases=means.leases, writer=means.writer, clock=means.clock):
        state = means.look().state()
        plan = plan_statistics(state, policy, columns=columns, force=force)
        if plan.is_empty or plan.snapshot_id is None:
            return _record(state, plan, run_id, started, means.clock.now_ms())
        means.tell("count")
        means.writer.refresh()
        files = writer.write(plan.snapshot_id, columns=plan.columns, partitions=plan.partitions)
        means.tell("commit")
        done = _published(means, writer, state, files)
        if done is False and means.quarantine is not None:
            doomed = [Doomed(path=file.path, reason="never published", size_bytes=file.size_bytes) for file in files]
            means.quarantine.record_doomed(means.table_uuid, run_id, doomed, means.clock.now_ms())
    record = _record(state, plan, run_id, started, means.clock.now_ms(), files)
    if done:
        return record
    reason = f"snapshot {plan.snapshot_id} is gone or was given other statistics, or the catalog does not answer"
    return record.model_copy(update={"outcome": RunOutcome.FAILED, "reason": reason})


def _published(means: Means, writer: StatisticsWriter, state: TableState, files: Sequence[StatisticsFile]) -> bool | None:
    """Whether the table names them; None if nobody knows. Statistics that it had when it was looked at may give way to them,
    those that came since may not."""
    retry = Retry.of(means.writer.properties())
    known = {file.path for file in (*state.statistics, *state.partition_statistics, *files)}
    answer: bool | None = False
    for attempt in range(ATTEMPTS):
        if attempt:
            means.sleep(retry.wait_seconds(min(attempt - 1, 5), random.random()))  # noqa: S311
            now = means.look().state()
            there = {file.path for file in (*now.statistics, *now.partition_statistics)}
            if there >= {file.path for file in files}:
                return True  # the answer was lost, not the change
            if state.snapshot_id not in {snapshot.snapshot_id for snapshot in now.snapshots}:
                return False
        try:
            if writer.publish(files, in_place_of=known):
                return True
        except CommitUnknownError:
            answer = None
    return answer


def _record(
    state: TableState, plan: StatisticsPlan, run_id: str, started: int, finished: int, files: Sequence[StatisticsFile] = ()
) -> StatisticsRecord:
    names = {column.field_id: column.name for column in state.fields}
    counted = [sketch for file in files for sketch in file.sketches]
    return StatisticsRecord(
        run_id=run_id,
        table=str(state.name),
        table_uuid=state.uuid,
        operation=Operation.STATS,
        outcome=RunOutcome.NOTHING_TO_DO if plan.is_empty else RunOutcome.DONE,
        reason=plan.reason,
        started_ms=started,
        finished_ms=finished,
        snapshot_before=state.snapshot_id,
        columns=plan.columns,
        partitions=plan.partitions,
        changed=plan.changed,
        distinct=tuple(Distinct(column=names[s.field_ids[0]], values=s.distinct) for s in counted),
        files=tuple(files),
    )
