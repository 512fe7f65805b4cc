"""The upkeep as a whole: steps in their order, judged one after another, and what a failure of one means for the others."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest

from neve.errors import (
    CatalogUnreachableError,
    CommitIncidentError,
    InDoubtError,
    LeaseHeldError,
    NeveError,
    StorageError,
    TableGoneError,
    TableNotFoundError,
)
from neve.health.not_due import NotDue
from neve.maintenance.steps import Judgement, MaintainRecord, Step, StepOutcome
from neve.operations.maintain import Ended, Stage, maintain
from neve.rewrite.record import RunOutcome
from neve.table.state import TableName
from tests.builders.contexts import FakeContext

TABLE = TableName(catalog="local", namespace=("db",), name="events")
DONE = Ended(RunOutcome.DONE, "it is done", "run1", 2.0)


class Ticking:
    """A clock that is a second later each time."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        self.now += 1000
        return self.now


class Upkeep:
    """Steps that end as a test says; all others are not due."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ends: dict[Step, Callable[[], Ended]] = {}
        self.judges: dict[Step, Callable[[], Judgement]] = {}
        self.begun: list[str] = []
        self.scores = iter([40, 90])

    def due(self, step: Step, end: Ended | NeveError = DONE) -> None:
        def carry_out() -> Ended:
            self.calls.append(step)
            if isinstance(end, NeveError):
                raise end
            return end

        self.ends[step] = carry_out
        self.judges[step] = lambda: Judgement(due=True, why="it hurts")

    def run(self, **asked: Any) -> MaintainRecord:
        def stage(step: Step) -> Stage:
            return Stage(
                self.judges.get(step, lambda: Judgement(due=False, why="all is well")), self.ends.get(step, pytest.fail)
            )

        stages = {step: stage(step) for step in Step}
        made: Any = FakeContext(None, Ticking(), name=TABLE)
        options: dict[str, Any] = {"dry_run": asked.get("dry_run", False), "health": lambda: next(self.scores)}
        record = maintain(made, stages, asked.get("left_out", {}), **options)
        self.begun += [run_id for run_id, _ in made.begun]
        return record


@pytest.fixture
def upkeep() -> Upkeep:
    return Upkeep()


def outcomes(record: MaintainRecord) -> dict[Step, StepOutcome]:
    return {step.step: step.outcome for step in record.steps if step.outcome is not StepOutcome.NOT_DUE}


def test_steps_are_done_in_their_order_whatever_the_order_of_their_stages(upkeep: Upkeep) -> None:
    for step in reversed(Step):
        upkeep.due(step)
    record = upkeep.run()
    assert upkeep.calls == list(Step)
    assert record.outcome is RunOutcome.DONE
    assert {step.outcome for step in record.steps} == {StepOutcome.DONE}
    assert upkeep.begun == [record.run_id]
    assert (record.health_before, record.health_after) == (40, 90)


def test_nothing_is_begun_and_nobody_looks_where_nothing_is_due(upkeep: Upkeep) -> None:
    record = upkeep.run()
    assert (record.outcome, record.reason) == (RunOutcome.NOTHING_TO_DO, "no step is due")
    assert (upkeep.begun, record.run_id, record.health_before, record.health_after) == ([], None, None, None)
    assert {step.why for step in record.steps} == {"all is well"}
    assert record.not_due == ()


def test_where_nothing_is_due_the_record_says_which_step_is_due_next(upkeep: Upkeep) -> None:
    later, soon = (NotDue(rule="r", what="age", knob="k", due_ms=at) for at in (20, 10))
    never = NotDue(rule="r", what="deletes", until="rows are deleted")
    upkeep.judges |= {
        Step.PRUNE: lambda: Judgement.unmet(never),
        Step.ORPHANS: lambda: Judgement.unmet(later, never),
        Step.PURGE: lambda: Judgement.unmet(soon),
    }
    record = upkeep.run()
    assert [(rule.rule, rule.due_ms) for rule in record.not_due] == [("purge", 10), ("orphans", 20), ("deletes prune", None)]
    steps = {step.step: step for step in record.steps}
    assert (steps[Step.ORPHANS].not_due, steps[Step.ORPHANS].why) == (
        (later, never),
        "age, due at 1970-01-01 00:00:01 UTC",
    )


def test_a_step_that_found_nothing_is_next_due_by_the_rule_by_which_it_is_started(upkeep: Upkeep) -> None:
    """A search for orphans says when a young file is old enough, but the next one is not before orphan-interval."""
    old_enough, interval = (NotDue(rule="r", what="age", knob="k", due_ms=at) for at in (10, 20))
    upkeep.due(Step.ORPHANS, Ended(RunOutcome.NOTHING_TO_DO, "1 file is too young", "run1", 2.0, (old_enough,)))
    upkeep.judges[Step.ORPHANS] = lambda: (
        Judgement.unmet(interval) if Step.ORPHANS in upkeep.calls else Judgement(due=True, why="no search yet")
    )
    record = upkeep.run()
    assert [(rule.rule, rule.due_ms) for rule in record.not_due] == [("orphans", 20)]
    [step] = [step for step in record.steps if step.step is Step.ORPHANS]
    assert (step.outcome, step.not_due) == (StepOutcome.NOTHING, (interval, old_enough))


def test_a_step_that_found_nothing_and_cannot_be_judged_again_keeps_its_own_rules(upkeep: Upkeep) -> None:
    rule = NotDue(rule="r", what="age", knob="k", due_ms=10)
    upkeep.due(Step.ORPHANS, Ended(RunOutcome.NOTHING_TO_DO, "1 file is too young", "run1", 2.0, (rule,)))

    def judge() -> Judgement:
        if Step.ORPHANS in upkeep.calls:
            raise StorageError("Cannot read the table")
        return Judgement(due=True, why="no search yet")

    upkeep.judges[Step.ORPHANS] = judge
    record = upkeep.run()
    assert [(one.rule, one.due_ms) for one in record.not_due] == [("orphans", 10)]


def test_a_step_judges_what_those_before_it_have_left(upkeep: Upkeep) -> None:
    upkeep.due(Step.COMPACT)
    upkeep.judges[Step.MANIFESTS] = lambda: Judgement(due=Step.COMPACT not in upkeep.calls, why="by then")
    assert outcomes(upkeep.run()) == {Step.COMPACT: StepOutcome.DONE}


def test_a_dry_run_says_which_steps_are_checked_again_after_a_compaction(upkeep: Upkeep) -> None:
    for step in (Step.EXPIRE, Step.COMPACT, Step.PRUNE, Step.ORPHANS):
        upkeep.due(step)
    told = {step.step: step.why for step in upkeep.run(dry_run=True).steps}
    assert told[Step.EXPIRE] == told[Step.COMPACT] == told[Step.ORPHANS] == "it hurts"
    assert told[Step.PRUNE] == "it hurts; checked again after compact"
    assert told[Step.MANIFESTS] == "all is well; checked again after compact"


def test_a_real_run_does_not_say_that_steps_are_checked_again(upkeep: Upkeep) -> None:
    upkeep.due(Step.COMPACT)
    told = {step.step: step.why for step in upkeep.run().steps}
    assert told[Step.PRUNE] == told[Step.MANIFESTS] == "all is well"


def test_a_dry_run_tells_and_does_nothing(upkeep: Upkeep) -> None:
    upkeep.due(Step.EXPIRE)
    record = upkeep.run(dry_run=True)
    assert (outcomes(record), upkeep.calls, upkeep.begun) == ({Step.EXPIRE: StepOutcome.DUE}, [], [])
    assert (record.outcome, record.dry_run, record.run_id) == (RunOutcome.DONE, True, None)


def test_a_step_that_is_left_out_is_not_even_judged(upkeep: Upkeep) -> None:
    upkeep.judges[Step.ORPHANS] = pytest.fail
    record = upkeep.run(left_out={Step.ORPHANS: "--skip"})
    assert outcomes(record) == {Step.ORPHANS: StepOutcome.LEFT_OUT}


def test_a_step_that_fails_is_told_and_the_others_are_done(upkeep: Upkeep) -> None:
    upkeep.due(Step.EXPIRE, StorageError("Cannot read a manifest: it is gone", hint="Look."))
    upkeep.due(Step.MANIFESTS)
    record = upkeep.run()
    assert outcomes(record) == {Step.EXPIRE: StepOutcome.FAILED, Step.MANIFESTS: StepOutcome.DONE}
    assert record.steps[2].told == "Cannot read a manifest: it is gone Look."
    assert record.steps[2].seconds > 0
    assert record.outcome is RunOutcome.PARTLY_DONE


@pytest.mark.parametrize(
    "error",
    [
        LeaseHeldError("Cannot: held"),
        CatalogUnreachableError("Cannot: silent"),
        CommitIncidentError("Cannot: roll back first"),
        TableGoneError("Cannot: replaced"),
        TableNotFoundError("Cannot: dropped"),
    ],
)
def test_after_a_failure_that_all_would_share_no_step_is_tried(upkeep: Upkeep, error: NeveError) -> None:
    upkeep.due(Step.EXPIRE, error)
    upkeep.due(Step.PURGE)
    record = upkeep.run(left_out={Step.STATS: "--skip"})
    assert upkeep.calls == [Step.EXPIRE]
    assert outcomes(record)[Step.PURGE] is StepOutcome.NOT_TRIED
    assert record.steps[-1].why == f"after expire: {error}"
    assert record.outcome is RunOutcome.FAILED


@pytest.mark.parametrize("rewrite", [Step.RESUME, Step.COMPACT])
@pytest.mark.parametrize(
    "end", [StorageError("Cannot write"), Ended(RunOutcome.PARTLY_DONE, "some"), Ended(RunOutcome.FAILED, "none")]
)
def test_no_orphan_is_looked_for_while_a_rewrite_has_not_ended_well(
    upkeep: Upkeep, rewrite: Step, end: Ended | NeveError
) -> None:
    upkeep.due(rewrite, end)
    upkeep.due(Step.ORPHANS)
    upkeep.due(Step.PURGE)
    record = upkeep.run()
    assert upkeep.calls == [rewrite, Step.PURGE]
    told = next(step for step in record.steps if step.step is Step.ORPHANS)
    assert told.outcome is StepOutcome.NOT_TRIED
    assert told.why == f"{rewrite} has not ended well, and its files must not be taken for orphans"


def test_doubt_about_orphans_does_not_keep_the_trash_from_being_purged(upkeep: Upkeep) -> None:
    upkeep.due(Step.ORPHANS, InDoubtError("Cannot tell orphans: another table is there"))
    upkeep.due(Step.PURGE)
    assert outcomes(upkeep.run()) == {Step.ORPHANS: StepOutcome.FAILED, Step.PURGE: StepOutcome.DONE}


def test_what_cannot_be_judged_is_a_failure_of_that_step(upkeep: Upkeep) -> None:
    def unreadable() -> Judgement:
        raise StorageError("Cannot read the manifest list")

    upkeep.judges[Step.MANIFESTS] = unreadable
    record = upkeep.run()
    assert outcomes(record) == {Step.MANIFESTS: StepOutcome.FAILED}
    assert (record.outcome, record.run_id, upkeep.begun) == (RunOutcome.FAILED, None, [])


def test_a_step_that_looked_and_found_nothing_is_no_change(upkeep: Upkeep) -> None:
    upkeep.due(Step.TTL, Ended(RunOutcome.NOTHING_TO_DO, "no row is past its time", "run2"))
    record = upkeep.run()
    assert outcomes(record) == {Step.TTL: StepOutcome.NOTHING}
    assert (record.outcome, record.health_after) == (RunOutcome.NOTHING_TO_DO, 40)


@pytest.mark.parametrize("error", [ZeroDivisionError("division by zero"), MemoryError(), RecursionError("too deep")])
def test_an_exception_that_nobody_expected_in_one_step_does_not_stop_the_others(upkeep: Upkeep, error: Exception) -> None:
    upkeep.due(Step.EXPIRE)

    def carry_out() -> Ended:
        raise error

    upkeep.due(Step.COMPACT)
    upkeep.ends[Step.COMPACT] = carry_out
    upkeep.due(Step.MANIFESTS)
    record = upkeep.run()
    assert record.outcome is RunOutcome.PARTLY_DONE
    assert outcomes(record) == {
        Step.EXPIRE: StepOutcome.DONE,
        Step.COMPACT: StepOutcome.FAILED,
        Step.MANIFESTS: StepOutcome.DONE,
    }
    failed = next(step for step in record.steps if step.step is Step.COMPACT)
    assert failed.told is not None
    assert failed.told.startswith(type(error).__name__)
    assert failed.traceback is not None
    assert "carry_out" in failed.traceback


def test_a_step_that_cannot_even_be_judged_does_not_stop_the_others(upkeep: Upkeep) -> None:
    def judge() -> Judgement:
        raise OverflowError("date value out of range")

    upkeep.judges[Step.COMPACT] = judge
    upkeep.due(Step.MANIFESTS)
    record = upkeep.run()
    assert outcomes(record) == {Step.COMPACT: StepOutcome.FAILED, Step.MANIFESTS: StepOutcome.DONE}
    failed = next(step for step in record.steps if step.step is Step.COMPACT)
    assert failed.told == "OverflowError: date value out of range"
    assert failed.traceback is not None


def test_after_a_compaction_that_raised_its_files_are_not_taken_for_orphans(upkeep: Upkeep) -> None:
    def carry_out() -> Ended:
        raise ZeroDivisionError

    upkeep.due(Step.COMPACT)
    upkeep.ends[Step.COMPACT] = carry_out
    upkeep.due(Step.ORPHANS)
    assert outcomes(upkeep.run()) == {
        Step.COMPACT: StepOutcome.FAILED,
        Step.ORPHANS: StepOutcome.NOT_TRIED,
    }


class LateContext(FakeContext):
    """Its request began 20 s ago; a fresh one begins now."""

    seconds = 20.0

    def timed(self, record: Any) -> Any:
        known = record.elapsed_seconds is not None
        return record if known else record.model_copy(update={"elapsed_seconds": self.seconds})

    def fresh(self, branch: str | None = None) -> LateContext:  # noqa: ARG002
        later = copy(self)
        later.seconds = 0.0
        return later

    def end(self, record: Any) -> None:
        super().end(self.timed(record))


def test_the_time_of_the_run_is_counted_from_its_request(upkeep: Upkeep) -> None:
    upkeep.due(Step.COMPACT)
    stage = Stage(upkeep.judges[Step.COMPACT], upkeep.ends[Step.COMPACT])
    context: Any = LateContext(None, Ticking(), name=TABLE)
    left: dict[Step, str] = {step: "not wanted" for step in Step if step is not Step.COMPACT}
    record = maintain(context, {Step.COMPACT: stage}, left, health=lambda: 50)
    assert (record.elapsed_seconds, context.ended[0].elapsed_seconds) == (20.0, 20.0)
