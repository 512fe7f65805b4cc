"""The steps of an upkeep: their order, who leaves them out, when they are due, and what the whole came to."""

from __future__ import annotations

import pytest

from neve.errors import BadRequestError
from neve.maintenance.record import Operation
from neve.maintenance.steps import (
    MaintainRecord,
    Step,
    StepOutcome,
    StepRecord,
    by_interval,
    left_out,
    outcome_of,
    step_words,
)
from neve.policy.model import Policy
from neve.rewrite.record import RunOutcome

DAY = 86_400_000


def test_metadata_goes_first_then_rewrites_then_what_removes_files() -> None:
    order = list(Step)
    assert order.index(Step.TAGS) < order.index(Step.EXPIRE) < order.index(Step.COMPACT)
    assert order.index(Step.COMPACT) < order.index(Step.CONVERT) < order.index(Step.PRUNE) < order.index(Step.MANIFESTS)
    assert order[-3:] == [Step.ORPHANS, Step.SETTLE, Step.PURGE]
    assert order[0] is Step.RESUME


def test_the_words_name_the_three_steps_of_deletes_at_once() -> None:
    assert step_words() == [
        "resume",
        "tags",
        "expire",
        "ttl",
        "compact",
        "deletes",
        "manifests",
        "stats",
        "orphans",
        "settle",
        "purge",
    ]
    assert left_out(Policy(), [], ["deletes"]) == dict.fromkeys([Step.CONVERT, Step.REWRITE, Step.PRUNE], "--skip")


def test_by_default_no_step_is_left_out() -> None:
    assert left_out(Policy(), [], []) == {}


def test_knobs_turn_steps_off_unless_they_are_asked_for_by_name() -> None:
    policy = Policy(maintain_orphans=False, maintain_compact=False)
    assert left_out(policy, [], []) == {
        Step.ORPHANS: "maintain-orphans is off",
        Step.COMPACT: "maintain-compact is off",
    }
    named = left_out(policy, ["orphans"], [])
    assert Step.ORPHANS not in named
    assert set(named.values()) == {"--only names others"}
    assert left_out(policy, ["orphans"], ["orphans"])[Step.ORPHANS] == "--skip"


def test_a_step_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadRequestError, match=r"Cannot find step 'vacuum'") as refused:
        left_out(Policy(), ["vacuum"], [])
    assert refused.value.hint == f"There are {', '.join(step_words())}."


@pytest.mark.parametrize(("ago", "due"), [(None, True), (6 * DAY, False), (7 * DAY, True), (-DAY, False)])
def test_a_search_is_due_after_its_interval(ago: int | None, due: bool) -> None:
    now = 100 * DAY
    assert by_interval(None if ago is None else now - ago, now, 7 * 86_400, "orphan-interval").due is due


def test_a_search_that_is_not_due_says_when_it_is() -> None:
    found = by_interval(94 * DAY, 100 * DAY, 7 * 86_400, "orphan-interval")
    assert found.not_due[0].due_ms == 101 * DAY
    assert found.why == ("time since the last search: 6 days, due after 7 days (orphan-interval), at 1970-04-12 00:00:00 UTC")


def step(outcome: StepOutcome) -> StepRecord:
    return StepRecord(step=Step.EXPIRE, outcome=outcome, why="")


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [
        ([StepOutcome.NOT_DUE, StepOutcome.LEFT_OUT], RunOutcome.NOTHING_TO_DO),
        ([StepOutcome.NOTHING], RunOutcome.NOTHING_TO_DO),
        ([StepOutcome.DONE, StepOutcome.NOTHING], RunOutcome.DONE),
        ([StepOutcome.DONE, StepOutcome.FAILED], RunOutcome.PARTLY_DONE),
        ([StepOutcome.PARTLY], RunOutcome.PARTLY_DONE),
        ([StepOutcome.NOTHING, StepOutcome.FAILED], RunOutcome.PARTLY_DONE),
        ([StepOutcome.FAILED, StepOutcome.NOT_TRIED], RunOutcome.FAILED),
    ],
)
def test_the_whole_is_as_good_as_its_steps(outcomes: list[StepOutcome], whole: RunOutcome) -> None:
    assert outcome_of([step(outcome) for outcome in outcomes], dry_run=False) is whole


def test_a_dry_run_tells_whether_anything_is_due() -> None:
    assert outcome_of([step(StepOutcome.DUE)], dry_run=True) is RunOutcome.DONE
    assert outcome_of([step(StepOutcome.NOT_DUE)], dry_run=True) is RunOutcome.NOTHING_TO_DO


def test_only_steps_that_changed_something_count_as_done() -> None:
    record = MaintainRecord(
        run_id="r",
        table="t",
        table_uuid="u",
        operation=Operation.MAINTAIN,
        outcome=RunOutcome.DONE,
        started_ms=0,
        finished_ms=1,
        steps=tuple(step(outcome) for outcome in StepOutcome),
    )
    assert [found.outcome for found in record.done] == [StepOutcome.DONE, StepOutcome.PARTLY]
