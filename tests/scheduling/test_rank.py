"""The order of the queue: nothing starves."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.scheduling.job import Decision, Job
from neve.scheduling.rank import MAX_PASSED, NEVER_RAN_MS, admission, is_ranked, queue_clock, rank, waited_ms
from neve.scheduling.value import MAX_WEIGHT, MIN_WEIGHT
from tests.builders.scheduling import DAY, HOUR, NOW, last_run, waiting_job

weights = st.floats(MIN_WEIGHT, MAX_WEIGHT)


def job(name: str, weight: float, clock: float, *, policy: str = "p") -> Job:
    decision = Decision(
        table=name, table_uuid=name, operation="compact", reason="", policy=policy, rank=rank(weight, clock), queue_clock=clock
    )
    return waiting_job(decision)


@pytest.mark.parametrize(
    ("ago", "since", "expected"),
    [
        (HOUR, 0, HOUR),
        (-HOUR, 0, 0),
        (-400 * DAY, 0, NEVER_RAN_MS),
        (None, NOW - DAY, DAY),
        (None, 0, NEVER_RAN_MS),
        (None, NOW + 400 * DAY, NEVER_RAN_MS),
    ],
)
def test_an_operation_waits_since_it_ran_or_since_it_was_wanted(ago: int | None, since: int, expected: int) -> None:
    assert waited_ms(None if ago is None else last_run(ago=ago), NOW, since_ms=since) == expected


@settings(deadline=None)
@given(weights, weights, st.integers(1, 10**10))
def test_nothing_is_passed_by_what_ran_less_than_an_eighth_as_long_ago(light: float, heavy: float, waited: int) -> None:
    assert admission(light, 8 * waited) >= admission(heavy, waited)


def test_an_empty_queue_begins_at_zero_and_the_clock_never_goes_back() -> None:
    assert queue_clock([], []) == 0.0
    first, second = job("a", 8.0, 0.0), job("b", 1.0, 0.0)
    assert queue_clock([first, second], []) == 1.0
    assert queue_clock([second], [first]) == 8.0
    assert queue_clock([job("c", 8.0, 5.0)], []) == 6.0


def test_jobs_that_cannot_start_and_jobs_of_people_do_not_hold_the_clock() -> None:
    blocked, free = job("a", 8.0, 0.0), job("b", 1.0, 0.0)
    assert queue_clock([blocked, free], [], can_start=[free]) == 8.0
    asked = job("c", 1.0, 0.0, policy="")
    assert not is_ranked(asked)
    assert not is_ranked(job("d", 1.0, inf))
    assert queue_clock([asked, free], []) == 8.0


@settings(deadline=None)
@given(st.lists(weights, min_size=2, max_size=12), st.data())
def test_while_a_job_waits_each_other_is_served_at_most_eight_times(of: list[float], data: st.DataObject) -> None:
    """Every operation is due again as soon as it was served; one job is served at a time."""
    names = [str(number) for number in range(len(of))]
    waiting = {name: job(name, weight, 0.0) for name, weight in zip(names, of, strict=True)}
    served_since: dict[str, dict[str, int]] = {name: dict.fromkeys(names, 0) for name in names}
    for _ in range(10 * len(of)):
        name = min(waiting, key=lambda one: (-waiting[one].rank, one))
        running = waiting.pop(name)
        for other in waiting:
            served_since[other][name] += 1
            assert served_since[other][name] <= MAX_PASSED
        served_since[name] = dict.fromkeys(names, 0)
        weight = data.draw(weights)
        waiting[name] = job(name, weight, queue_clock(waiting.values(), [running]))
