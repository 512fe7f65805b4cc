"""The whole upkeep of a table: when each step is due by metadata and by our own records, and the operation that does it.

Nothing here starts Spark to find out that there is nothing to do, but for rows past their time, which nobody else can count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from neve.compose.interrupted import OWNER, is_maintenance_over
from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.table.depth import Depth
from neve.table.properties import GC_ENABLED, files_may_be_removed

if TYPE_CHECKING:
    from neve.compose.operations import Neve
    from neve.health.inspection import Inspection
    from neve.maintenance.quarantine import Fate
    from neve.maintenance.steps import Judgement, MaintainRecord, Step
    from neve.operations.maintain import Ended, MaintainRequest, Stage
    from neve.policy.model import Policy
    from neve.ports import Clock, Progress
    from neve.rewrite.record import RunOutcome
    from neve.table.state import TableState

log = logging.getLogger(__name__)

KIND = Operation.MAINTAIN.value
"""What such a run is called in the state store."""
Due = Callable[[str], "Judgement"]
"""Whether a step of a table is due."""
_SEARCHED = 100


class _Record(Protocol):
    """Of any operation."""

    @property
    def run_id(self) -> str: ...
    @property
    def outcome(self) -> RunOutcome: ...
    @property
    def seconds(self) -> float: ...
    @property
    def not_due(self) -> tuple[NotDue, ...]: ...


class Maintaining:
    """Calls operations of `Neve` in the order of the upkeep."""

    def __init__(self, neve: Neve, place: Place, looking: Looking, clock: Clock, *, due: tuple[Due, Due]) -> None:
        """`due` judges the expiry, and then the rows past their time."""
        self._neve, self._place, self._looking, self._clock, self._due = neve, place, looking, clock, due

    def run(
        self, table: str, *, only: Sequence[str], skip: Sequence[str], dry_run: bool, progress: Progress | None
    ) -> MaintainRecord:
        """Carries the upkeep out, or tells what is due; remembered unless there was nothing to do."""
        from neve.maintenance.steps import left_out
        from neve.operations.maintain import MaintainRequest, MaintainTools, maintain

        state = self._looking.reader(table).state()
        if not dry_run:
            self._looking.require_free(state)
        request = MaintainRequest(state.name, state.uuid, left_out(self._looking.policy(state), only, skip), dry_run)
        upkeep = _Table(self._neve, self._place, self._looking, self._clock, self._due, str(state.name), progress)
        begun = list[str]()
        tools = MaintainTools(
            stages=upkeep.stages(),
            health=upkeep.health,
            clock=self._clock,
            begin=lambda run_id: begun.append(self._begin(request, run_id)),
            progress=progress,
        )
        try:
            record = maintain(request, tools)
        except Exception as error:
            self._end_failed(begun, error)
            raise
        if begun:
            self._end(record)
        return record

    def _end_failed(self, begun: Sequence[str], error: Exception) -> None:
        """Ends a run that could not even be recorded, so that it does not look as if it were at work."""
        from neve.commit.failure import Failure

        failure = Failure.of(error)
        told = {"reason": failure.reason, "traceback": failure.traceback}
        for run_id in begun:
            with suppress(Exception), self._place.store() as store:
                store.finish_run(run_id, finished_ms=self._clock.now_ms(), outcome="failed", record=told)

    def _begin(self, request: MaintainRequest, run_id: str) -> str:
        """Notes that it began; what an earlier one left open is ended, unless that may be at work: this one goes on with it."""
        from neve.commit.process import this_process
        from neve.state.rows import Run

        with self._place.store() as store:
            now = self._clock.now_ms()
            for run in store.runs(request.table_uuid, kind=KIND, limit=_SEARCHED):
                if run.finished_ms is None and is_maintenance_over(run, now):
                    told = {"reason": f"it was interrupted; run {run_id[:8]} went on with it", "interrupted": True}
                    store.finish_run(run.run_id, finished_ms=now, outcome="failed", record=told)
            store.start_run(Run(run_id, request.table_uuid, str(request.table), KIND, now, record={OWNER: this_process().text}))
        return run_id

    def _end(self, record: MaintainRecord) -> None:
        with self._place.store() as store:
            document = record.model_dump(mode="json")
            store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)


class _Table:
    """The steps of one table."""

    def __init__(
        self,
        neve: Neve,
        place: Place,
        looking: Looking,
        clock: Clock,
        due: tuple[Due, Due],
        name: str,
        progress: Progress | None,
    ) -> None:
        self._neve, self._place, self._looking, self._clock = neve, place, looking, clock
        self._name, self._progress = name, progress
        self._expiry_due, self._ttl_due = due

    def stages(self) -> dict[Step, Stage]:
        """Every step."""
        from neve.maintenance.steps import Step
        from neve.operations.maintain import Stage

        neve, name, progress = self._neve, self._name, self._progress
        return {
            Step.RESUME: Stage(self._resume_due, self._resume),
            Step.TAGS: Stage(self._tags_due, lambda: _ended(neve.tags(name, progress=progress))),
            Step.EXPIRE: Stage(lambda: self._expiry_due(name), lambda: _ended(neve.expire(name, progress=progress))),
            Step.TTL: Stage(lambda: self._ttl_due(name), lambda: _ended(neve.ttl(name, enforce=True, progress=progress))),
            Step.COMPACT: Stage(self._compact_due, lambda: _ended(neve.compact(name, progress=progress))),
            Step.CONVERT: self._deletes("convert"),
            Step.REWRITE: self._deletes("rewrite"),
            Step.PRUNE: self._deletes("prune"),
            Step.MANIFESTS: Stage(
                lambda: _foretold(neve.manifests(name, dry_run=True)), lambda: _ended(neve.manifests(name, progress=progress))
            ),
            Step.STATS: Stage(self._stats_due, lambda: _ended(neve.stats(name, progress=progress))),
            Step.ORPHANS: Stage(self._orphans_due, lambda: _ended(neve.orphans(name, progress=progress))),
            Step.SETTLE: Stage(self._settle_due, lambda: _ended(neve.settle(name, progress=progress))),
            Step.PURGE: Stage(self._purge_due, lambda: _ended(neve.purge(name, progress=progress))),
        }

    def health(self) -> int | None:
        """The score, None where the table cannot be looked at: an upkeep is not lost for that."""
        try:
            return self._inspection().health.score
        except Exception as error:
            log.warning("the health of %s is not in the record: %s", self._name, error)
            return None

    def _inspection(self) -> Inspection:
        return self._looking.inspect(self._name, depth=Depth.FILES, sample=0, progress=None)

    def _state(self) -> tuple[TableState, Policy]:
        state = self._looking.reader(self._name).state()
        return state, self._looking.policy(state)

    def _resume_due(self) -> Judgement:
        from neve.maintenance.steps import Judgement

        uuid = self._state()[0].uuid
        found = [run for run in self._neve.unfinished() if run.plan.table_uuid == uuid]
        if found:
            return Judgement(due=True, why=f"run {found[0].run_id[:8]} was interrupted")
        what = "interrupted runs"
        return Judgement.unmet(NotDue(rule="resume", what=what, measured=0, threshold=1, until="a run is interrupted"))

    def _resume(self) -> Ended:
        uuid = self._state()[0].uuid
        run = next(run for run in self._neve.unfinished() if run.plan.table_uuid == uuid)
        return _ended(self._neve.resume(run, progress=self._progress))

    def _tags_due(self) -> Judgement:
        from neve.maintenance.steps import Judgement

        if self._state()[1].auto_tags is None:
            return Judgement.unmet(NotDue(rule="auto-tags", what="auto-tags is not set", knob="auto-tags", until="it is set"))
        return _foretold(self._neve.tags(self._name, dry_run=True))

    def _compact_due(self) -> Judgement:
        from neve.render.plan import plan_line

        plan = self._neve.plan(self._name)
        return _judged(due=bool(plan.groups), line=plan_line(plan), rules=() if plan.groups else plan.not_due)

    def _deletes(self, operation: str) -> Stage:
        from neve.operations.maintain import Stage

        return Stage(
            lambda: self._deletes_due(operation),
            lambda: _ended(self._neve.deletes(self._name, operation, progress=self._progress)),
        )

    def _deletes_due(self, operation: str) -> Judgement:
        from neve.maintenance.delete_files import Upkeep
        from neve.maintenance.delete_work import DeleteWork, by_deletes
        from neve.operations import inspect

        state = inspect.read(self._looking.reader(self._name), Depth.FILES)
        work = DeleteWork.of(state, state.files) if state.files is not None else DeleteWork()
        return by_deletes(work, Upkeep(operation))

    def _stats_due(self) -> Judgement:
        from neve.maintenance.steps import Judgement

        state, policy = self._state()
        if policy.stats_columns is None and not state.statistics and not state.partition_statistics:
            what = "the table has no statistics, and stats-columns is not set"
            return Judgement.unmet(NotDue(rule="stats", what=what, knob="stats-columns", until="it is set"))
        return _foretold(self._neve.stats(self._name, dry_run=True))

    def _orphans_due(self) -> Judgement:
        from neve.maintenance.steps import Judgement, by_interval

        state, policy = self._state()
        if not files_may_be_removed(state.properties):
            what = f"the table property gc.enabled is {state.properties[GC_ENABLED]}"
            return Judgement.unmet(NotDue(rule=GC_ENABLED, what=what, knob=GC_ENABLED, until="it is true"))
        records = self._place.records()
        runs = records.runs(state.uuid, kind=Operation.ORPHANS.value, limit=_SEARCHED) if records is not None else ()
        last = next((run.finished_ms for run in runs if run.finished_ms is not None), None)
        return by_interval(last, self._clock.now_ms(), policy.orphan_interval_seconds, "orphan-interval")

    def _settle_due(self) -> Judgement:
        from neve.maintenance.quarantine import Fate

        return self._waited(Fate.RECORDED, "quarantine-grace", lambda p: p.quarantine_grace_seconds, "in the quarantine")

    def _purge_due(self) -> Judgement:
        from neve.maintenance.quarantine import Fate

        return self._waited(Fate.TRASHED, "trash-keep", lambda p: p.trash_keep_seconds, "in the trash")

    def _waited(self, fate: Fate, knob: str, seconds: Callable[[Policy], float], where: str) -> Judgement:
        """Whether a file has been there for long enough."""
        from neve.maintenance.quarantine import waits_for
        from neve.maintenance.steps import Judgement
        from neve.table.units import counted, exact_seconds

        state, policy = self._state()
        records, wait, now = self._place.records(), seconds(policy), self._clock.now_ms()
        before = now - round(wait * 1000)
        if records is not None and next(records.quarantined(state.uuid, fates=[fate], changed_before_ms=before), None):
            there = sum(row.files for row in records.quarantined_runs(state.uuid) if row.fate is fate)
            return Judgement(due=True, why=f"{counted(there, 'file')} {where}, some for {exact_seconds(wait)}")
        oldest = next(records.quarantined(state.uuid, fates=[fate]), None) if records is not None else None
        return Judgement.unmet(waits_for(oldest.changed_ms if oldest else None, wait, now, knob=knob, where=where))


def _foretold(record: _Record) -> Judgement:
    """By an operation's own dry run."""
    from neve.render.records import line_of
    from neve.rewrite.record import RunOutcome

    return _judged(due=record.outcome is not RunOutcome.NOTHING_TO_DO, line=line_of(record), rules=record.not_due)


def _judged(*, due: bool, line: str, rules: Sequence[NotDue]) -> Judgement:
    from neve.maintenance.steps import Judgement

    if not due and rules:
        return Judgement.unmet(*rules)
    return Judgement(due=due, why=line.removeprefix("Nothing to do: "))


def _ended(record: Any) -> Ended:
    from neve.operations.maintain import Ended
    from neve.render.records import line_of

    return Ended(record.outcome, line_of(record), record.run_id, record.seconds, record.not_due)
