"""What is left of an interrupted run, decided from its journal and the table: one case per row."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.record import GroupState
from neve.rewrite.remaining import NextStep, TableNow, remaining
from neve.rewrite.work_order import WorkResult
from tests.builders.stored_runs import PLAN, RESULT

INPUTS = frozenset(PLAN.paths(PLAN.groups[0]))
OUTPUT = RESULT.outputs[0].path
NO_FILES = RESULT.model_copy(update={"outputs": ()})

PLANNED, WRITTEN, COMMITTED = GroupState.PLANNED, GroupState.WRITTEN, GroupState.COMMITTED
SUPERSEDED, IN_DOUBT = GroupState.SUPERSEDED, GroupState.IN_DOUBT


def decide(
    state: GroupState,
    result: WorkResult | None,
    live: Iterable[str],
    *,
    landed: bool = False,
    missing: bool = False,
    is_whole: bool = True,
) -> tuple[NextStep, GroupState, int | None]:
    group = JournaledGroup(group_id=0, output_prefix="/wh/data/neve-x", state=state, result=result)
    run = JournaledRun(run_id="r1", owner="host:1", started_ms=5, plan=PLAN, groups=(group,))
    now = TableNow({*live}, {OUTPUT: 7} if landed else {}, {OUTPUT} if missing else set(), is_whole)
    (left,) = remaining(run, now).groups
    return left.step, left.state, left.snapshot_id


@pytest.mark.parametrize(
    ("state", "result", "table", "expected"),
    [
        (PLANNED, None, {}, (NextStep.REWRITE, PLANNED, None)),
        (WRITTEN, RESULT, {}, (NextStep.COMMIT, WRITTEN, None)),
        (WRITTEN, NO_FILES, {}, (NextStep.COMMIT, WRITTEN, None)),
        (WRITTEN, RESULT, {"missing": True}, (NextStep.REWRITE, WRITTEN, None)),
        (WRITTEN, RESULT, {"landed": True}, (NextStep.NONE, COMMITTED, 7)),
        (COMMITTED, RESULT, {}, (NextStep.NONE, COMMITTED, None)),
        (GroupState.FAILED, RESULT, {}, (NextStep.NONE, GroupState.FAILED, None)),
        (GroupState.DROPPED, RESULT, {}, (NextStep.NONE, GroupState.DROPPED, None)),
    ],
)
def test_a_group_whose_inputs_are_live_goes_on_where_it_stopped(
    state: GroupState, result: WorkResult | None, table: dict[str, bool], expected: tuple[NextStep, GroupState, int | None]
) -> None:
    assert decide(state, result, INPUTS, **table) == expected


@pytest.mark.parametrize(
    ("state", "result", "table", "expected"),
    [
        (PLANNED, None, {}, SUPERSEDED),
        (PLANNED, None, {"is_whole": False}, SUPERSEDED),
        (WRITTEN, RESULT, {}, SUPERSEDED),
        (WRITTEN, RESULT, {"missing": True}, SUPERSEDED),
        (WRITTEN, RESULT, {"is_whole": False}, IN_DOUBT),
        (WRITTEN, NO_FILES, {}, IN_DOUBT),
        (WRITTEN, RESULT, {"landed": True}, COMMITTED),
        (COMMITTED, RESULT, {}, COMMITTED),
        (GroupState.FAILED, None, {}, GroupState.FAILED),
    ],
)
def test_a_group_with_an_input_that_is_gone_is_neither_executed_nor_committed(
    state: GroupState, result: WorkResult | None, table: dict[str, bool], expected: GroupState
) -> None:
    step, ended, _ = decide(state, result, sorted(INPUTS)[1:], **table)
    assert (step, ended) == (NextStep.NONE, expected)
