"""maintain: the whole upkeep of a table, one step after another in the safe order, each only if it is due. Called by `compose`.

Every step judges the table as the steps before it have left it, takes the lease for itself and has its own record. One that
fails does not keep the others from being done, except those that its failure makes unsafe or vain. A run that was killed is
gone on with by running again: steps that are done are not due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from neve.commit.failure import Failure
from neve.errors import (
    AccessDeniedError,
    CatalogUnreachableError,
    CommitIncidentError,
    LeaseHeldError,
    NeveError,
    RunTakenOverError,
    StateError,
    TableGoneError,
)
from neve.health.not_due import NotDue
from neve.maintenance.record import Operation
from neve.maintenance.steps import BAD, RAN, Judgement, MaintainRecord, Step, StepOutcome, StepRecord, outcome_of
from neve.ports import Clock, Progress
from neve.rewrite.record import RunOutcome
from neve.table.state import TableName

log = logging.getLogger(__name__)

_VAIN = (
    LeaseHeldError,
    RunTakenOverError,
    TableGoneError,
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


@dataclass(frozen=True)
class MaintainRequest:
    """What is asked for; `left_out` are steps that are not wanted, and who said so."""

    table: TableName
    table_uuid: str
    left_out: Mapping[Step, str] = field(default_factory=dict)
    dry_run: bool = False


@dataclass(frozen=True)
class MaintainTools:
    """Made by `compose` for one table."""

    stages: Mapping[Step, Stage]
    health: Callable[[], int | None]
    clock: Clock
    begin: Callable[[str], None] = lambda _: None
    """Told the run's id before the first step that is due."""
    progress: Progress | None = None


def maintain(request: MaintainRequest, tools: MaintainTools) -> MaintainRecord:
    """Goes through all steps, or tells which are due. Raises nothing that a step raises: it is in the record."""
    return _Upkeep(request, tools, uuid4().hex, tools.clock.now_ms()).run()


@dataclass
class _Upkeep:
    request: MaintainRequest
    tools: MaintainTools
    run_id: str
    started_ms: int
    steps: list[StepRecord] = field(default_factory=list)
    hopeless: str | None = None
    """Why no further step is tried."""

    def run(self) -> MaintainRecord:
        before = None
        for step in Step:
            record = self._judged(step)
            if record.outcome is StepOutcome.DUE and not self.request.dry_run:
                if not any(taken.outcome in RAN for taken in self.steps):
                    before = self.tools.health()
                    self.tools.begin(self.run_id)
                record = self._carried_out(record)
            self.steps.append(record)
        return self._record(before)

    def _judged(self, step: Step) -> StepRecord:
        """Whether it is due. What cannot be judged is told as a failure."""
        if (why := self.request.left_out.get(step)) is not None:
            return StepRecord(step=step, outcome=StepOutcome.LEFT_OUT, why=why)
        try:
            judged = self.tools.stages[step].judge() if self.hopeless is None else Judgement(due=True, why="")
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
        is_told = self.request.dry_run and step in _AFTER_REWRITES and first is not None
        return f"; checked again after {first}" if is_told else ""

    def _unsafe(self, step: Step) -> str | None:
        """A rewrite that has not ended well may have files that no snapshot has yet."""
        rewrites = (taken for taken in self.steps if taken.step in (Step.RESUME, Step.COMPACT) and taken.outcome in BAD)
        open_one = next(rewrites, None) if step is Step.ORPHANS else None
        return f"{open_one.step} has not ended well, and its files must not be taken for orphans" if open_one else None

    def _carried_out(self, due: StepRecord) -> StepRecord:
        started = self.tools.clock.now_ms()
        try:
            if self.tools.progress:
                self.tools.progress(due.step, 0, None)
            ended = self.tools.stages[due.step].carry_out()
        except Exception as error:
            return self._failed(due, error, (self.tools.clock.now_ms() - started) / 1000)
        log.info("%s of %s: %s", due.step, self.request.table, ended.told)
        facts = {"told": ended.told, "run_id": ended.run_id, "seconds": ended.seconds, "not_due": ended.not_due}
        return due.model_copy(update={"outcome": _OUTCOMES[ended.outcome], **facts})

    def _failed(self, step: StepRecord, error: Exception, seconds: float = 0.0) -> StepRecord:
        """A step that raised. Whatever it raised, the others go on, unless they would fail in the same way."""
        failed = {"outcome": StepOutcome.FAILED, "seconds": seconds}
        if not isinstance(error, NeveError):
            failure = Failure.of(error)
            log.warning("%s of %s raised", step.step, self.request.table, exc_info=error)
            return step.model_copy(update={**failed, "told": failure.reason, "traceback": failure.traceback})
        log.warning("%s of %s: %s", step.step, self.request.table, error)
        if isinstance(error, _VAIN):
            self.hopeless = f"after {step.step}: {error}"
        return step.model_copy(update={**failed, "told": f"{error} {error.hint}" if error.hint else str(error)})

    def _next_due(self) -> tuple[NotDue, ...]:
        """Of each step that is not due by itself, the closest rule, the earliest first."""
        closest = [step.not_due[0].model_copy(update={"rule": step.step.value}) for step in self.steps if step.not_due]
        return tuple(sorted(closest, key=lambda rule: (rule.due_ms is None or rule.more is not None, rule.due_ms or 0)))

    def _record(self, before: int | None) -> MaintainRecord:
        request, outcome = self.request, outcome_of(self.steps, dry_run=self.request.dry_run)
        changed = any(step.outcome in (StepOutcome.DONE, StepOutcome.PARTLY) for step in self.steps)
        return MaintainRecord(
            run_id=self.run_id,
            table=str(request.table),
            table_uuid=request.table_uuid,
            operation=Operation.MAINTAIN,
            dry_run=request.dry_run,
            outcome=outcome,
            reason="no step is due" if outcome is RunOutcome.NOTHING_TO_DO else None,
            not_due=self._next_due() if outcome is RunOutcome.NOTHING_TO_DO else (),
            started_ms=self.started_ms,
            finished_ms=self.tools.clock.now_ms(),
            steps=tuple(self.steps),
            health_before=before,
            health_after=self.tools.health() if changed else before,
        )
