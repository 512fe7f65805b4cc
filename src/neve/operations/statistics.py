"""stats: keeps the statistics of a table's columns and partitions fresh: plans, counts, publishes. Main only.

The files are written first and belong to one snapshot for ever, so publishing them can be tried again as often as others get in
between; nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from neve.commit.lease import Held, leased
from neve.commit.protocol import Change, Retry, Settled, Terms, commit_or_raise
from neve.context.table import TableContext
from neve.errors import CommitConflictError
from neve.health.not_due import NotDue
from neve.maintenance.quarantine import Candidate
from neve.maintenance.record import Operation
from neve.maintenance.statistics import Distinct, StatisticsPlan, StatisticsRecord, plan_statistics
from neve.maintenance.steps import Judgement
from neve.operations.due import judged_by
from neve.operations.requests import StatsRequest
from neve.ports import StatisticsWriter
from neve.rewrite.record import RunOutcome
from neve.table.state import StatisticsFile, TableState

ATTEMPTS = 20
"""Unless the table sets a number of retries: every commit of others costs one attempt, and attempts are cheap."""


def run(context: TableContext, request: StatsRequest) -> StatisticsRecord:
    """Counts the distinct values of columns, and rows by partition, where the statistics are out of date."""
    if request.dry_run:
        return preview(context, request)
    context.require_free()
    from neve.spark.maintenance.statistics import SparkStatistics

    return context.recorded(keep_statistics(context, SparkStatistics(context.spark, context.writer), request))


def is_due(context: TableContext) -> Judgement:
    """Whether statistics that the table has, or that the policy asks for, are out of date."""
    state = context.state
    if context.policy().stats_columns is None and not state.statistics and not state.partition_statistics:
        what = "the table has no statistics, and stats-columns is not set"
        return Judgement.unmet(NotDue(rule="stats", what=what, knob="stats-columns", until="it is set"))
    return judged_by(run(context, StatsRequest(dry_run=True)))


def preview(context: TableContext, request: StatsRequest) -> StatisticsRecord:
    """What would be made. Reads nothing but metadata."""
    now, state = context.clock.now_ms(), context.state
    plan = plan_statistics(state, context.policy(), columns=request.columns, force=request.force)
    return _record(state, plan, None, now, now).model_copy(update={"dry_run": True})


def keep_statistics(context: TableContext, writer: StatisticsWriter, request: StatsRequest) -> StatisticsRecord:
    """Makes statistics of the current snapshot, if they are worth it."""
    run_id, started = uuid4().hex, context.clock.now_ms()
    table = (str(context.name), context.uuid)
    with leased(*table, run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        state = context.reader().state()
        plan = plan_statistics(state, context.policy(), columns=request.columns, force=request.force)
        if plan.is_empty or plan.snapshot_id is None:
            return _record(state, plan, run_id, started, context.clock.now_ms())
        context.report("count")
        context.writer.refresh()
        files = writer.write(plan.snapshot_id, columns=plan.columns, partitions=plan.partitions)
        context.report("commit")
        renamed = _other_columns(state, plan, files)
        done = _published(_Publication(context, writer, state, files), context, lease) if renamed is None else False
        if done is False and context.quarantine is not None:
            doomed = [Candidate(path=file.path, reason="never published", size_bytes=file.size_bytes) for file in files]
            context.quarantine.record_candidates(context.uuid, run_id, doomed, context.clock.now_ms())
    record = _record(state, plan, run_id, started, context.clock.now_ms(), files)
    if done:
        return record
    reason = renamed or f"snapshot {plan.snapshot_id} is gone or was given other statistics, or the catalog does not answer"
    return record.model_copy(update={"outcome": RunOutcome.FAILED, "reason": reason})


def _other_columns(state: TableState, plan: StatisticsPlan, files: Sequence[StatisticsFile]) -> str | None:
    """Why these are not the statistics that were planned: the engine finds columns by name, the plan meant field ids."""
    ids = {column.name: column.field_id for column in state.fields}
    counted = {field_id for file in files for sketch in file.sketches for field_id in sketch.field_ids}
    wrong = sorted(name for name in plan.columns if ids[name] not in counted)
    strange = counted - {ids[name] for name in plan.columns}
    if not wrong and not strange:
        return None
    return f"columns were renamed since snapshot {plan.snapshot_id}: nothing was counted for {', '.join(wrong) or 'some'}"


class _Publication(Change[Sequence[StatisticsFile], bool]):
    """Names statistics files in the table's metadata. Statistics that it had when they were planned may give way to them, those
    that came since may not."""

    def __init__(
        self, context: TableContext, writer: StatisticsWriter, state: TableState, files: Sequence[StatisticsFile]
    ) -> None:
        super().__init__()
        self._context, self._writer, self._files = context, writer, files
        self._planned = self._newest = state
        self._known = {file.path for file in (*state.statistics, *state.partition_statistics, *files)}
        self._is_fresh = True

    def refresh(self) -> None:
        if not self._is_fresh:
            self._newest = self._context.reader().state()
        self._is_fresh = False

    def prepare(self) -> Sequence[StatisticsFile] | Settled[bool]:
        there = {snapshot.snapshot_id for snapshot in self._newest.snapshots}
        return self._files if self._planned.snapshot_id in there else Settled(False)

    def send(self, files: Sequence[StatisticsFile]) -> Settled[bool]:
        if not self._writer.publish(files, in_place_of=self._known):
            raise CommitConflictError("another writer changed the table at the same moment")
        return Settled(True)

    def landed(self) -> Settled[bool] | None:
        there = {file.path for file in (*self._newest.statistics, *self._newest.partition_statistics)}
        return Settled(True) if there >= {file.path for file in self._files} else None


def _published(change: _Publication, context: TableContext, lease: Held) -> bool | None:
    """Whether the table names them; None if nobody knows."""
    retry = Retry.of(context.writer.properties(), attempts=ATTEMPTS)
    what = f"statistics of {context.name}"
    ended = commit_or_raise(change, Terms(what, retry, context.clock, context.sleep, lease.assert_held))
    if ended.settled is not None:
        return ended.settled.result
    return None if change.open else False


def _record(
    state: TableState,
    plan: StatisticsPlan,
    run_id: str | None,
    started: int,
    finished: int,
    files: Sequence[StatisticsFile] = (),
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
        not_due=plan.not_due,
        started_ms=started,
        finished_ms=finished,
        snapshot_before=state.snapshot_id,
        columns=plan.columns,
        partitions=plan.partitions,
        changed=plan.changed,
        distinct=tuple(Distinct(column=names.get(s.field_ids[0], "?"), values=s.distinct) for s in counted),
        files=tuple(files),
    )
