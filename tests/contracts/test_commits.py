"""One contract for every operation that commits: whatever the catalog answers, a change lands once or not at all.

Each operation runs through the same faults (`commit_faults`) on a table in memory (`commit_scenarios`). Whatever happens, the
content of the table is right, and no file is set aside that a snapshot needs, be it one that arrives when the run is over.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import CatalogUnreachableError, RunTakenOverError, TableGoneError
from tests.contracts.commit_faults import (
    CONFLICT,
    CONFLICT_LANDED,
    CRASH,
    CRASH_LANDED,
    CTRL_C,
    CTRL_C_DEAD,
    CTRL_C_LANDED,
    CTRL_C_LANDED_DEAD,
    FOREVER,
    LOCAL,
    LOOKS,
    LOST,
    LOST_AWAY,
    LOST_LANDED,
    LOST_LANDED_AWAY,
    ROLLED_BACK,
    SENDS,
    WELL,
    WELL_AWAY,
    Reply,
    Script,
    Strike,
)
from tests.contracts.commit_scenarios import SCENARIOS, Compaction, Report, Scenario, run

RETRIES = 2
"""`commit.retry.num-retries` of every table here."""
AWAY = CatalogUnreachableError.__name__
NO_SNAPSHOT = "a change of metadata makes no snapshot that anyone could roll back"
PLANNED_ON = "the first attempt uses the metadata that was planned on; whether that can be loaded is settled before the commit"
LOOKS_AFTER = "what was expired is measured after the commit; the files of a run that raises here are found by the next run"


@dataclass(frozen=True)
class Case:
    """A script of answers, and what must come of it."""

    replies: tuple[Reply, ...] = ()
    then: Reply = WELL
    sends: int = 1
    outcome: str = "done"
    landed: int = 1


CASES = {
    "no fault": Case(),
    "a conflict": Case((CONFLICT,), sends=2),
    "a conflict although it landed": Case((CONFLICT_LANDED,)),
    "an answer lost after it landed": Case((LOST_LANDED,)),
    "an answer lost before it landed": Case((LOST,), sends=2),
    "an unknown exception after it landed": Case((CRASH_LANDED,)),
    "an unknown exception before it landed": Case((CRASH,), sends=2),
    "landed, and the catalog is away at the next look": Case((LOST_LANDED_AWAY,)),
    "not landed, and the catalog is away at the next look": Case((LOST_AWAY,), sends=2),
    "answered, and the catalog is away at the next look": Case((WELL_AWAY,)),
    "landed at last, and the catalog is away at the next look": Case((CONFLICT, CONFLICT, LOST_LANDED_AWAY), sends=RETRIES + 1),
    "conflicts for ever": Case(then=CONFLICT, sends=RETRIES + 1, outcome="failed", landed=0),
    "lost answers for ever": Case(then=LOST, sends=RETRIES + 1, outcome="failed", landed=0),
    "unknown exceptions for ever": Case(then=CRASH, sends=RETRIES + 1, outcome="failed", landed=0),
    "a lost answer, then conflicts for ever": Case((LOST,), CONFLICT, sends=RETRIES + 1, outcome="failed", landed=0),
    "landed, and the catalog stays away": Case((Reply(LOST.error, away=FOREVER),), outcome="failed"),
    "rolled back by others, then all is well": Case((ROLLED_BACK,), sends=2),
    "rolled back by others, then conflicts for ever": Case((ROLLED_BACK,), CONFLICT, RETRIES + 1, "failed", 0),
}
ENDS = {
    "not landed": CTRL_C,
    "landed": CTRL_C_LANDED,
    "not landed, and nothing answers any more": CTRL_C_DEAD,
    "landed, and nothing answers any more": CTRL_C_LANDED_DEAD,
}
"""What Ctrl-C finds."""
LEFT_OUT = {
    ("answered, and the catalog is away at the next look", "expire"): LOOKS_AFTER,
    ("landed, and the catalog stays away", "expire"): LOOKS_AFTER,
    ("the last look before the first attempt", "rewrite"): PLANNED_ON,
    ("the last look before the first attempt", "prune"): PLANNED_ON,
    ("the last look before the first attempt", "statistics"): PLANNED_ON,
} | {(case, name): NO_SNAPSHOT for case in CASES if case.startswith("rolled") for name in ("expire", "statistics", "tags")}
"""Faults that an operation cannot have, and why."""
AFTER_THE_COMMIT = {
    "expire": {(AWAY, 1): LOOKS_AFTER, ("partly-done", 1): "files that could not be found are left for orphan removal"},
    "ttl delete": {("failed", 0): "a delete whose rows cannot be counted is rolled back"},
}
"""Other ends than `done` of a catalog that is away for one call after a change was sent."""

every_operation = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def ran(scenario: type[Scenario], script: Script, **properties: str) -> Report:
    return run(scenario(), script, **{"num_retries": str(RETRIES), **properties})


def left_out(fault: str, scenario: type[Scenario]) -> bool:
    return (fault, scenario.name) in LEFT_OUT


def pairs() -> list[object]:
    """Every fault with every operation that can have it."""
    found = [(case, scenario) for case in CASES for scenario in SCENARIOS if not left_out(case, scenario)]
    return [pytest.param(scenario, CASES[case], id=f"{scenario.name}: {case}") for case, scenario in found]


def last_look(calls: list[str]) -> int:
    """The last look before the first commit was sent."""
    sent = next(i for i, name in enumerate(calls) if name in SENDS)
    return max(i for i, name in enumerate(calls[:sent]) if name in LOOKS)


@pytest.mark.parametrize(("scenario", "case"), pairs())
def test_whatever_the_catalog_answers_a_change_lands_once_or_not_at_all(scenario: type[Scenario], case: Case) -> None:
    report = ran(scenario, Script(list(case.replies), case.then))
    assert (report.outcome, report.landed, report.sends) == (case.outcome, case.landed, case.sends)
    assert report.content_is_right
    assert report.set_aside & report.referenced == set()


@every_operation
def test_retries_are_as_many_and_as_far_apart_as_the_table_says(scenario: type[Scenario]) -> None:
    report = ran(scenario, Script(then=CONFLICT), num_retries="3", min_wait_ms="1000", max_wait_ms="2000")
    assert (report.sends, len(report.slept)) == (4, 3)
    assert all(most / 2 <= slept <= most for slept, most in zip(report.slept, (1, 2, 2), strict=True))


@every_operation
def test_no_attempt_is_made_after_the_total_timeout_of_the_table(scenario: type[Scenario]) -> None:
    report = ran(scenario, Script(then=CONFLICT, send_ms=600), num_retries="9", total_timeout_ms="1000")
    assert (report.outcome, report.landed, report.sends) == ("failed", 0, 2)
    assert report.is_safe


@every_operation
def test_a_catalog_that_is_away_before_the_first_attempt_is_asked_again(scenario: type[Scenario]) -> None:
    look = last_look(ran(scenario, Script()).calls)
    report = ran(scenario, Script(strike=Strike(look)))
    ended = (AWAY, 0, 0) if left_out("the last look before the first attempt", scenario) else ("done", 1, 1)
    assert (report.outcome, report.landed, report.sends) == ended
    assert report.is_safe


@every_operation
def test_a_catalog_that_is_away_at_the_lease_check_is_asked_again(scenario: type[Scenario]) -> None:
    report = ran(scenario, Script(lease=[CatalogUnreachableError]))
    assert (report.outcome, report.landed, report.sends) == ("done", 1, 1)
    assert report.is_safe


@every_operation
@pytest.mark.parametrize("error", [RunTakenOverError, TableGoneError])
def test_nothing_is_sent_or_set_aside_once_the_lease_or_the_table_is_lost(
    scenario: type[Scenario], error: type[Exception]
) -> None:
    report = ran(scenario, Script(lease=[error] * 9))
    # A compaction whose table is gone says in its record what became of its groups.
    is_recorded = issubclass(scenario, Compaction) and error is TableGoneError
    assert report.outcome == ("failed" if is_recorded else error.__name__)
    assert (report.landed, report.sends, report.set_aside) == (0, 0, set())
    assert report.content_is_right


@every_operation
def test_a_table_that_is_gone_at_the_last_look_is_left_alone(scenario: type[Scenario]) -> None:
    look = last_look(ran(scenario, Script()).calls)
    report = ran(scenario, Script(strike=Strike(look, error=TableGoneError)))
    assert report.outcome == ("failed" if issubclass(scenario, Compaction) else TableGoneError.__name__)
    assert (report.landed, report.sends) == (0, 0)
    assert report.is_safe


@every_operation
@pytest.mark.parametrize("reply", ENDS.values(), ids=ENDS)
def test_ctrl_c_while_a_commit_is_under_way_stops_the_run_and_keeps_its_files(scenario: type[Scenario], reply: Reply) -> None:
    report = ran(scenario, Script([reply]))
    assert (report.outcome, report.landed, report.sends) == ("KeyboardInterrupt", int(reply.lands), 1)
    assert report.is_safe


@every_operation
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_catalog_that_is_away_at_any_one_call_costs_nothing(scenario: type[Scenario], after: bool) -> None:
    calls = ran(scenario, Script()).calls
    sent = next(i for i, name in enumerate(calls) if name in SENDS)
    for number, name in enumerate(calls):
        if name in LOCAL:
            continue
        report, where = ran(scenario, Script(strike=Strike(number, after))), f"{name}, call {number}"
        assert report.is_safe, where
        if number < sent:
            assert (report.outcome, report.landed) in {("done", 1), ("failed", 0), (AWAY, 0)}, where
        else:
            assert (report.outcome, report.landed) in {("done", 1), *AFTER_THE_COMMIT.get(scenario.name, {})}, where


ANSWERS = [WELL, WELL_AWAY, CONFLICT, CONFLICT_LANDED, LOST, LOST_LANDED, LOST_AWAY, LOST_LANDED_AWAY, CRASH, CRASH_LANDED]


@every_operation
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_whatever_comes_one_after_the_other_the_table_is_right(scenario: type[Scenario], data: st.DataObject) -> None:
    undone = [] if left_out("rolled back by others, then all is well", scenario) else [ROLLED_BACK]
    replies = data.draw(st.lists(st.sampled_from([*ANSWERS, *ENDS.values(), *undone]), max_size=4))
    report = ran(scenario, Script(list(replies), data.draw(st.sampled_from([WELL, CONFLICT, LOST]))))
    assert report.is_safe
    assert report.sends <= RETRIES + 1
    if report.outcome == "done":
        assert report.landed == 1
    elif report.outcome == "failed":
        assert report.landed == 0
