"""maintain: the whole maintenance of a table, one step after another in the safe order, each only if it is due.

Every step judges the table as the steps before it have left it, takes the lease for itself and has its own record. One that
fails does not keep the others from being done, except those that its failure makes unsafe or vain. A run that was killed is
gone on with by running again: steps that are done are not due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from neve.commit.failure import Failure
from neve.commit.process import this_process
from neve.context.runs import OWNER, is_maintenance_over
from neve.context.table import TableContext
from neve.errors import (
    AccessDeniedError,
    CatalogUnreachableError,
    CommitIncidentError,
    LeaseHeldError,
    NeveError,
    RunTakenOverError,
    StateError,
    TableGoneError,
    TableNotFoundError,
)
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.maintenance.steps import BAD, RAN, Judgement, MaintainRecord, Step, StepOutcome, StepRecord, left_out, outcome_of
from neve.operations import inspect
from neve.operations.registry import registered
from neve.operations.requests import MaintainRequest
from neve.render.records import line_of
from neve.rewrite.record import Record, RunOutcome

log = logging.getLogger(__name__)

_VAIN = (
    LeaseHeldError,
    RunTakenOverError,
    TableGoneError,
    TableNotFoundError,
    CommitIncidentError,
    CatalogUnreachableError,
    AccessDeniedError,
    StateError,
)
"""After these the next step would fail in the same way; after an incident a person must roll back before anyone writes."""
_AFTER_REWRITES = frozenset({Step.CONVERT, Step.REWRITE, Step.PRUNE, Step.MANIFESTS, Step.STATS})
"""Steps for which a compaction changes what there is to do."""
_OUTCOMES = {
    RunOutcome.DONE: StepOutcome.DONE,
    RunOutcome.NOTHING_TO_DO: StepOutcome.NOTHING,
    RunOutcome.PARTLY_DONE: StepOutcome.PARTLY,
    RunOutcome.FAILED: StepOutcome.FAILED,
}


@dataclass(frozen=True)
class Ended:
    """What an operation came to."""

    outcome: RunOutcome
    told: str
    run_id: str | None = None
    seconds: float = 0.0
    not_due: tuple[NotDue, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One step as it can be carried out."""

    judge: Callable[[], Judgement]
    carry_out: Callable[[], Ended]


def run(context: TableContext, request: MaintainRequest) -> MaintainRecord:
    """Carries out what is due, or shows what that is. Recorded unless there was nothing to do."""
    if not request.dry_run:
        context.require_free()
    left = left_out(context.policy(), request.only, request.skip)
    return maintain(context, _stages(context), left, dry_run=request.dry_run)


def maintain(
    context: TableContext,
    stages: Mapping[Step, Stage],
    left: Mapping[Step, str],
    *,
    dry_run: bool = False,
    health: Callable[[], int | None] | None = None,
) -> MaintainRecord:
    """Goes through all steps, or shows which are due. Raises nothing that a step raises: it is in the record.

    `left` are steps that are not wanted, and who said so.
    """
    health = health or partial(_health, context)
    maintenance = _Maintenance(context, stages, left, dry_run, health, uuid4().hex, context.clock.now_ms())
    try:
        record = maintenance.run()
    except Exception as error:
        if maintenance.is_begun:  # a run that could not even be recorded must not look as if it were at work
            _end_failed(context, maintenance.run_id, error)
        raise
    if not maintenance.is_begun:
        return record.unrecorded()
    record = context.timed(record)  # by the context that the request began with: the next one begins now
    with context.fresh() as now:
        now.end(record)
    return record


def _end_failed(context: TableContext, run_id: str, error: Exception) -> None:
    failure = Failure.of(error)
    told = {"reason": failure.reason, "traceback": failure.traceback}
    with suppress(Exception), context.fresh() as now:
        now.store.finish_run(run_id, finished_ms=context.clock.now_ms(), outcome="failed", record=told)


def _begin(context: TableContext, run_id: str) -> None:
    """Records that it began; ends what an earlier one left open, unless that may be at work: this one goes on with it."""
    with context.fresh() as now:
        for run in now.unended(Operation.MAINTAIN.value):
            if is_maintenance_over(run, now.clock.now_ms()):
                told = {"reason": f"it was interrupted; run {run_id[:8]} went on with it", "interrupted": True}
                now.store.finish_run(run.run_id, finished_ms=now.clock.now_ms(), outcome="failed", record=told)
        now.begin(run_id, Operation.MAINTAIN.value, {OWNER: this_process().text})


def _health(context: TableContext) -> int | None:
    """The score, None where the table cannot be inspected: a run is not lost for that."""
    try:
        return inspect.inspect(TableContext(context.connection, context.table)).health.score
    except Exception as error:
        log.warning("the health of %s is not in the record: %s", context.name, error)
        return None


def _stages(context: TableContext) -> dict[Step, Stage]:
    """Every step. Each judges and changes the table as the steps before it have left it."""

    def stage(name: str, due: str = "is_due", **options: Any) -> Stage:
        found = registered(name)

        def carry_out() -> Ended:
            with context.fresh(part_of_another=True) as now:
                return _ended(found.run(now, found.request(**options)))

        return Stage(lambda: found.due(context.fresh(), due), carry_out)

    return {
        Step.RESUME: stage("resume"),
        Step.TAGS: stage("tags"),
        Step.EXPIRE: stage("expire"),
        Step.TTL: stage("ttl", enforce=True),
        Step.COMPACT: stage("compact"),
        Step.CONVERT: stage("deletes", "is_convert_due", operation="convert"),
        Step.REWRITE: stage("deletes", "is_rewrite_due", operation="rewrite"),
        Step.PRUNE: stage("deletes", "is_prune_due", operation="prune"),
        Step.MANIFESTS: stage("manifests"),
        Step.STATS: stage("stats"),
        Step.ORPHANS: stage("orphans"),
        Step.SETTLE: stage("settle", "is_settle_due"),
        Step.PURGE: stage("purge", "is_purge_due"),
    }


def _ended(record: Record) -> Ended:
    return Ended(record.outcome, line_of(record), record.run_id, record.seconds, record.not_due)


@dataclass
class _Maintenance:
    context: TableContext
    stages: Mapping[Step, Stage]
    left_out: Mapping[Step, str]
    dry_run: bool
    health: Callable[[], int | None]
    run_id: str
    started_ms: int
    steps: list[StepRecord] = field(default_factory=list)
    is_begun: bool = False
    hopeless: str | None = None
    """Why no further step is tried."""

    def run(self) -> MaintainRecord:
        before = None
        for step in Step:
            record = self._judged(step)
            if record.outcome is StepOutcome.DUE and not self.dry_run:
                if not any(taken.outcome in RAN for taken in self.steps):
                    before = self.health()
                    _begin(self.context, self.run_id)
                    self.is_begun = True
                record = self._carried_out(record)
            self.steps.append(record)
        return self._record(before)

    def _judged(self, step: Step) -> StepRecord:
        """Whether it is due. What cannot be judged is told as a failure."""
        if (why := self.left_out.get(step)) is not None:
            return StepRecord(step=step, outcome=StepOutcome.LEFT_OUT, why=why)
        try:
            judged = self.stages[step].judge() if self.hopeless is None else Judgement(due=True, why="")
        except Exception as error:
            return self._failed(StepRecord(step=step, outcome=StepOutcome.FAILED, why="it cannot be told"), error)
        if judged.due and (against := self.hopeless or self._unsafe(step)) is not None:
            return StepRecord(step=step, outcome=StepOutcome.NOT_TRIED, why=against)
        outcome = StepOutcome.DUE if judged.due else StepOutcome.NOT_DUE
        return StepRecord(step=step, outcome=outcome, why=judged.why + self._again(step), not_due=judged.not_due)

    def _again(self, step: Step) -> str:
        """In a dry run: that the step is judged by a table that a rewrite before it would have changed."""
        due = {taken.step for taken in self.steps if taken.outcome is StepOutcome.DUE}
        first = next((one for one in (Step.RESUME, Step.COMPACT) if one in due), None)
        is_told = self.dry_run and step in _AFTER_REWRITES and first is not None
        return f"; checked again after {first}" if is_told else ""

    def _unsafe(self, step: Step) -> str | None:
        """A rewrite that has not ended well may have files that no snapshot has yet."""
        rewrites = (taken for taken in self.steps if taken.step in (Step.RESUME, Step.COMPACT) and taken.outcome in BAD)
        open_one = next(rewrites, None) if step is Step.ORPHANS else None
        return f"{open_one.step} has not ended well, and its files must not be taken for orphans" if open_one else None

    def _carried_out(self, due: StepRecord) -> StepRecord:
        started = self.context.clock.now_ms()
        try:
            self.context.report(due.step)
            ended = self.stages[due.step].carry_out()
        except Exception as error:
            return self._failed(due, error, (self.context.clock.now_ms() - started) / 1000)
        log.info("%s of %s: %s", due.step, self.context.name, ended.told)
        not_due = self._not_due_after(due.step, ended)
        facts = {"told": ended.told, "run_id": ended.run_id, "seconds": ended.seconds, "not_due": not_due}
        return due.model_copy(update={"outcome": _OUTCOMES[ended.outcome], **facts})

    def _not_due_after(self, step: Step, ended: Ended) -> tuple[NotDue, ...]:
        """The rules of a step that found nothing. First come those by which the next maintenance would start it."""
        if ended.outcome is not RunOutcome.NOTHING_TO_DO:
            return ended.not_due
        try:
            return (*self.stages[step].judge().not_due, *ended.not_due)
        except Exception as error:
            log.warning("when %s of %s is due again is not in the record: %s", step, self.context.name, error)
            return ended.not_due

    def _failed(self, step: StepRecord, error: Exception, seconds: float = 0.0) -> StepRecord:
        """A step that raised. Whatever it raised, the others go on, unless they would fail in the same way."""
        failed = {"outcome": StepOutcome.FAILED, "seconds": seconds}
        if not isinstance(error, NeveError):
            failure = Failure.of(error)
            log.warning("%s of %s raised", step.step, self.context.name, exc_info=error)
            return step.model_copy(update={**failed, "told": failure.reason, "traceback": failure.traceback})
        log.warning("%s of %s: %s", step.step, self.context.name, error)
        if isinstance(error, _VAIN):
            self.hopeless = f"after {step.step}: {error}"
        return step.model_copy(update={**failed, "told": f"{error} {error.hint}" if error.hint else str(error)})

    def _next_due(self) -> tuple[NotDue, ...]:
        """Of each step that is not due by itself, the closest rule, the earliest first."""
        closest = [step.not_due[0].model_copy(update={"rule": step.step.value}) for step in self.steps if step.not_due]
        return tuple(sorted(closest, key=lambda rule: (rule.due_ms is None or rule.more is not None, rule.due_ms or 0)))

    def _record(self, before: int | None) -> MaintainRecord:
        outcome = outcome_of(self.steps, dry_run=self.dry_run)
        changed = any(step.outcome in (StepOutcome.DONE, StepOutcome.PARTLY) for step in self.steps)
        return MaintainRecord(
            run_id=self.run_id,
            table=str(self.context.name),
            table_uuid=self.context.uuid,
            operation=Operation.MAINTAIN,
            dry_run=self.dry_run,
            outcome=outcome,
            reason="no step is due" if outcome is RunOutcome.NOTHING_TO_DO else None,
            not_due=self._next_due() if outcome is RunOutcome.NOTHING_TO_DO else (),
            started_ms=self.started_ms,
            finished_ms=self.context.clock.now_ms(),
            steps=tuple(self.steps),
            health_before=before,
            health_after=self.health() if changed else before,
        )
