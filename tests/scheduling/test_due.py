"""Whether an operation is due on a table, and why or why not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.effective import OperationRule
from neve.scheduling.due import Due, judge
from neve.scheduling.hold import PAUSED_BY_HAND, HoldCode
from neve.scheduling.observation import Counters, LastRun, Observation
from neve.table.units import MIB
from tests.builders.scheduling import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    counters,
    inspected,
    last_run,
    observation,
    policy,
    rule_of,
)


def rule(*, schedule: Any = None, **triggers: Any) -> OperationRule:
    named = {name.replace("_", "-"): value for name, value in triggers.items()}
    return rule_of(policy(operations=["compact"], triggers=named, schedule=schedule or {}))


def at(zone: str, *moment: int) -> int:
    return int(datetime(*moment, tzinfo=ZoneInfo(zone)).timestamp()) * 1000  # type: ignore[arg-type,misc]


def found(
    of: OperationRule, seen: Observation | None = None, last: LastRun | None = None, now: int = NOW, since: int = 0
) -> Due:
    return judge(of, seen or observation(), last, now, since_ms=since)


# Triggers

SMALL = inspected(small_files=50, small_bytes=MIB, health=60)


@pytest.mark.parametrize(
    ("triggers", "values", "is_due", "reason"),
    [
        ({"small_files": 50}, {"inspected": SMALL}, True, "50 small files (50 are enough)"),
        ({"small_files": 51}, {"inspected": SMALL}, False, "50 small files (51 are needed)"),
        ({"small_files": 1}, {}, False, "small files are unknown: the table has not been inspected"),
        ({"health_below": 61}, {"inspected": SMALL}, True, "health 60 (below 61)"),
        ({"health_below": 60}, {"inspected": SMALL}, False, "health 60 (due below 60)"),
        ({"health_below": 60}, {}, False, "health is unknown: the table has not been inspected"),
        (
            {"average_file_size_below": "64 MB"},
            {"data_files": 2, "total_bytes": 127 * MIB},
            True,
            "average file size 63.5 MB (below 64 MB)",
        ),
        (
            {"average_file_size_below": "64 MB"},
            {"data_files": 2, "total_bytes": 128 * MIB},
            False,
            "average file size 64 MB (due below 64 MB)",
        ),
        ({"average_file_size_below": "64 MB"}, {"data_files": 1, "total_bytes": 1}, False, "1 data file (2 are needed)"),
        (
            {"average_file_size_below": "64 MB"},
            {"data_files": None, "total_bytes": 1},
            False,
            "average file size is unknown: the snapshot's summary lacks it",
        ),
        ({"delete_files": 3}, {"delete_files": 3}, True, "3 delete files (3 are enough)"),
        ({"delete_files": 3}, {}, False, "number of delete files is unknown: the snapshot's summary lacks it"),
        ({"delete_files": 3}, {"inspected": inspected(delete_files=4)}, True, "4 delete files (3 are enough)"),
        ({"delete_ratio": 0.1}, {"data_files": 10, "delete_files": 1}, True, "0.1 delete files per data file (0.1 is enough)"),
        ({"delete_ratio": 0.2}, {"data_files": 10, "delete_files": 1}, False, "0.1 delete files per data file (due at 0.2)"),
        ({"delete_ratio": 0.2}, {"data_files": 10}, False, "ratio of delete files is unknown: the snapshot's summary lacks it"),
        ({"delete_ratio": 0.2}, {"data_files": 0, "delete_files": 1}, True, "1 delete files per data file (0.2 is enough)"),
        ({"commits": 5}, {"counters": counters(5)}, True, "5 commits since the table was first seen (5 are enough)"),
        ({"commits": 6}, {"counters": counters(5)}, False, "5 commits since the table was first seen (6 are needed)"),
        (
            {"bytes_added": "1 MB"},
            {"counters": counters(1, 2 * MIB)},
            True,
            "2 MB added since the table was first seen (1 MB is enough)",
        ),
        ({"since_last_run": "1 day"}, {}, True, "it never ran here"),
        ({"hint": True}, {"hinted_ms": NOW - MINUTE}, True, "a writer asked for it at 2026-09-21 14:12 UTC"),
        ({"hint": True}, {}, False, "no writer asked for it"),
        ({}, {}, False, "the policy has no trigger and no cron time for it"),
    ],
)
def test_a_trigger_fires_by_its_threshold_and_says_what_was_measured(
    triggers: Any, values: Any, is_due: bool, reason: str
) -> None:
    answer = found(rule(**triggers), observation(**values))
    assert (answer.is_due, answer.reason, answer.code) == (is_due, reason, None if is_due else HoldCode.NOT_DUE)


def test_one_trigger_is_enough() -> None:
    answer = found(rule(small_files=10, commits=5), observation(inspected=SMALL, counters=counters(1)))
    assert (answer.is_due, answer.reason) == (True, "50 small files (10 are enough)")


def test_what_is_counted_begins_with_the_last_run() -> None:
    last = last_run(counters=counters(7))
    assert not found(rule(commits=5), observation(counters=counters(11)), last).is_due
    assert (
        found(rule(commits=5), observation(counters=counters(12)), last).reason == "5 commits since the last run (5 are enough)"
    )


def test_counters_that_were_reset_count_from_the_start() -> None:
    answer = found(rule(commits=5), observation(counters=counters(6)), last_run(counters=counters(100)))
    assert answer.reason == "6 commits since the last run (5 are enough)"


def test_an_inspection_from_before_the_last_run_is_no_reason_for_another() -> None:
    last = last_run(ago=HOUR)
    old = observation(inspected=inspected(small_files=50, inspected_ms=NOW - 2 * HOUR))
    assert found(rule(small_files=10), old, last).reason == (
        "small files are unknown: the table has not been inspected since the last run"
    )
    assert found(rule(small_files=10), observation(inspected=SMALL), last).is_due


def test_an_observation_from_before_the_last_run_is_no_reason_for_another() -> None:
    answer = found(rule(delete_files=1), observation(delete_files=5, observed_ms=NOW - 2 * HOUR), last_run(ago=HOUR))
    assert answer.reason == "number of delete files is unknown: the table has not been observed since the last run"


def test_after_a_run_that_found_nothing_the_state_is_no_reason_for_a_day_unless_someone_writes() -> None:
    idle = last_run(ago=HOUR, outcome="nothing-to-do", counters=counters(3))
    seen = observation(inspected=SMALL, counters=counters(3))
    answer = found(rule(small_files=10), seen, idle)
    assert answer.reason == (
        "the last run found nothing to do, and nobody has written since (checked again at 2026-09-22 13:13 UTC)"
    )
    assert answer.next_ms == NOW - HOUR + DAY
    assert found(rule(small_files=10), observation(inspected=SMALL, counters=counters(4)), idle).is_due
    assert found(rule(small_files=10), seen, idle, now=NOW - HOUR + DAY).is_due


BEFORE = observation(inspected=inspected(small_files=50, inspected_ms=NOW - 2 * HOUR))


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "too-long", "worker-died", "catalog-unreachable"])
def test_what_was_inspected_before_a_run_that_changed_nothing_still_holds(outcome: str) -> None:
    """Such as a failure whose pause a person has ended, or a job that was cancelled while it ran."""
    assert found(rule(small_files=10), BEFORE, last_run(ago=HOUR, outcome=outcome)).is_due


def test_what_was_inspected_before_a_run_that_found_nothing_holds_when_its_wait_is_over() -> None:
    idle = last_run(ago=HOUR, outcome="nothing-to-do")
    assert not found(rule(small_files=10), BEFORE, idle).is_due
    assert found(rule(small_files=10), BEFORE, idle, now=NOW - HOUR + DAY).is_due


@pytest.mark.parametrize("outcome", ["nothing-to-do", "limited"])
def test_who_asks_for_a_look_or_changes_the_policy_ends_the_wait(outcome: str) -> None:
    idle = last_run(ago=HOUR, outcome=outcome, idle_until_ms=NOW + HOUR)
    assert not found(rule(small_files=10), BEFORE, idle, since=NOW - 3 * HOUR).is_due
    assert found(rule(small_files=10), BEFORE, idle, since=NOW - MINUTE).is_due
    hinted = BEFORE.model_copy(update={"hinted_ms": NOW - MINUTE})
    assert found(rule(small_files=10), hinted, idle).is_due
    earlier = BEFORE.model_copy(update={"hinted_ms": NOW - 3 * HOUR})
    assert not found(rule(small_files=10), earlier, idle).is_due


def test_a_run_says_itself_how_long_it_waits_but_no_longer_than_a_day() -> None:
    def waits(outcome: str, until_ms: int | None) -> int | None:
        return found(rule(small_files=10), BEFORE, last_run(ago=HOUR, outcome=outcome, idle_until_ms=until_ms)).next_ms

    assert waits("nothing-to-do", NOW + MINUTE) == NOW + MINUTE
    assert waits("nothing-to-do", NOW + 9 * DAY) == NOW - HOUR + DAY
    assert waits("nothing-to-do", NOW - MINUTE) is None
    limited = found(rule(small_files=10), BEFORE, last_run(ago=HOUR, outcome="limited", idle_until_ms=NOW + MINUTE))
    assert limited.reason == (
        "the last run did nothing, since its limits did not allow it (checked again at 2026-09-21 14:14 UTC)"
    )


def test_a_failed_run_is_tried_again_after_its_pause_although_no_trigger_fires() -> None:
    failed = last_run(outcome="failed", failures=2, paused_until_ms=NOW + MINUTE)
    paused = found(rule(small_files=10), None, failed)
    assert (paused.reason, paused.next_ms, paused.code) == (
        "paused until 2026-09-21 14:14 UTC after 2 failures",
        NOW + MINUTE,
        HoldCode.PAUSED,
    )
    assert found(rule(small_files=10), None, failed, now=NOW + MINUTE).reason == "trying again after 2 failures"


def test_a_pause_by_hand_is_no_run() -> None:
    by_hand = last_run(started_ms=0, finished_ms=None, outcome=PAUSED_BY_HAND, paused_until_ms=NOW + HOUR)
    assert found(rule(since_last_run="1 day"), None, by_hand).reason == "paused until 2026-09-21 15:13 UTC"
    assert found(rule(since_last_run="1 day"), None, by_hand, now=NOW + HOUR).reason == "it never ran here"


# What holds back


def test_at_most_every_counts_from_the_beginning_of_the_last_run() -> None:
    of = rule(commits=1, at_most_every="2 h")
    answer = found(of, observation(counters=counters(9)), last_run(ago=HOUR))
    assert (answer.is_due, answer.code, answer.next_ms) == (False, HoldCode.RECENT, NOW + HOUR)
    assert answer.reason.endswith("last ran 60 min ago (at most every 2 h, so from 2026-09-21 15:13 UTC)")
    assert found(of, observation(counters=counters(9)), last_run(ago=2 * HOUR)).is_due


def test_a_failure_is_not_held_back_by_at_most_every() -> None:
    of = rule(commits=1, at_most_every="2 h")
    assert found(of, observation(counters=counters(9)), last_run(ago=HOUR, failures=1, outcome="failed")).is_due


def test_quiet_for_waits_until_nobody_has_written_for_so_long() -> None:
    of = rule(commits=1, quiet_for="30 min")
    written = observation(counters=counters(9), last_write_ms=NOW - 20 * MINUTE)
    answer = found(of, written)
    assert (answer.code, answer.next_ms) == (HoldCode.WRITING, NOW + 10 * MINUTE)
    assert found(of, written, now=NOW + 10 * MINUTE).is_due
    assert found(of, observation(counters=counters(9))).is_due


def test_a_window_holds_back_what_is_due_and_says_when_it_opens() -> None:
    of = rule(schedule={"windows": "22:00-06:00", "time-zone": "Europe/Berlin"}, commits=1)
    answer = found(of, observation(counters=counters(9)))
    opens = at("Europe/Berlin", 2026, 9, 21, 22)
    assert (answer.code, answer.next_ms) == (HoldCode.CLOSED, opens)
    assert answer.reason.endswith("outside its windows (opens at 2026-09-21 22:00 Europe/Berlin)")
    assert found(of, observation(counters=counters(9)), now=opens).is_due


def test_a_blackout_that_never_ends_says_so() -> None:
    of = rule(schedule={"blackouts": "mon-sun"}, commits=1)
    answer = found(of, observation(counters=counters(9)))
    assert (answer.next_ms, answer.reason.split("; ")[1]) == (None, "outside its windows (never opens)")


# Cron

NIGHTLY = {"cron": "30 2 * * *", "time-zone": "Europe/Berlin"}


def test_a_cron_time_makes_due_once() -> None:
    of, came = rule(schedule=NIGHTLY), at("Europe/Berlin", 2026, 9, 21, 2, 30)
    before = last_run(started_ms=came - DAY, finished_ms=None)
    assert found(of, None, before).reason == "scheduled for 2026-09-21 02:30 Europe/Berlin"
    after = found(of, None, last_run(started_ms=came, finished_ms=None))
    assert (after.is_due, after.next_ms) == (False, came + DAY)


def test_cron_times_that_passed_while_nobody_ran_count_once() -> None:
    of = rule(schedule=NIGHTLY)
    assert found(of, None, last_run(ago=10 * DAY)).is_due
    assert not found(of, None, last_run(ago=HOUR)).is_due


def test_cron_times_before_the_policy_came_into_force_do_not_count() -> None:
    of = rule(schedule=NIGHTLY)
    assert not found(of, since=NOW - HOUR).is_due
    assert found(of, since=NOW - DAY).is_due


def due_between(of: OperationRule, begin_ms: int, end_ms: int) -> list[int]:
    """When it would run in a time, if it runs as soon as it is due."""
    runs: list[int] = []
    for now in range(begin_ms, end_ms, 10 * MINUTE):
        last = last_run(started_ms=runs[-1], finished_ms=runs[-1]) if runs else None
        if judge(of, observation(observed_ms=now), last, now, since_ms=begin_ms).is_due:
            runs.append(now)
    return runs


def test_a_time_that_daylight_saving_skips_comes_when_the_clock_has_jumped() -> None:
    # 2027-03-28 in Berlin has no time from 02:00 to 03:00.
    runs = due_between(rule(schedule=NIGHTLY), at("Europe/Berlin", 2027, 3, 27), at("Europe/Berlin", 2027, 3, 30))
    assert [datetime.fromtimestamp(run / 1000, ZoneInfo("Europe/Berlin")).strftime("%d %H:%M") for run in runs] == [
        "27 02:30",
        "28 03:00",
        "29 02:30",
    ]


def test_a_time_that_daylight_saving_repeats_comes_once() -> None:
    runs = due_between(rule(schedule=NIGHTLY), at("Europe/Berlin", 2026, 10, 24), at("Europe/Berlin", 2026, 10, 27))
    assert [datetime.fromtimestamp(run / 1000, UTC).strftime("%d %H:%M") for run in runs] == [
        "24 00:30",
        "25 00:30",
        "26 01:30",
    ]


def test_a_window_is_open_for_as_long_as_the_wall_clock_shows_it() -> None:
    of = rule(schedule={"windows": "01:00-04:00", "time-zone": "Europe/Berlin"}, since_last_run="1 s")
    open_minutes = [
        now
        for now in range(at("Europe/Berlin", 2026, 10, 25), at("Europe/Berlin", 2026, 10, 26), 10 * MINUTE)
        if judge(of, observation(), None, now).is_due
    ]
    assert len(open_minutes) * 10 * MINUTE == 4 * HOUR


# Clocks that jump


def test_a_last_run_in_the_far_future_does_not_keep_an_operation_waiting() -> None:
    ahead = last_run(ago=-400 * DAY)
    assert found(rule(since_last_run="1 day"), None, ahead).reason == "the time of its last run is in the future"
    assert found(rule(schedule=NIGHTLY), None, ahead).is_due
    assert found(rule(commits=1, at_most_every="1 h"), observation(counters=counters(1)), ahead).is_due


def test_a_last_run_slightly_ahead_counts_as_now() -> None:
    ahead = last_run(ago=-HOUR)
    assert not found(rule(since_last_run="1 day"), None, ahead).is_due
    assert not found(rule(commits=1, at_most_every="1 h"), observation(counters=counters(1)), ahead).is_due


def test_a_pause_that_a_wrong_clock_set_is_over() -> None:
    wrong = last_run(ago=-400 * DAY, failures=1, outcome="failed", paused_until_ms=NOW + 401 * DAY)
    assert found(rule(commits=1), None, wrong).is_due


def test_a_hint_from_the_future_waits_for_its_time() -> None:
    answer = found(rule(hint=True), observation(hinted_ms=NOW + HOUR))
    assert (answer.is_due, answer.next_ms) == (False, NOW + HOUR)


def test_a_write_in_the_far_future_is_no_write() -> None:
    assert found(rule(commits=1, quiet_for="1 h"), observation(counters=counters(1), last_write_ms=NOW + 400 * DAY)).is_due


moments = st.none() | st.integers(-3 * DAY, 400 * DAY).map(lambda ago: NOW - ago)
observations = st.builds(
    lambda written, seen, hinted, commits, small: observation(
        last_write_ms=written,
        observed_ms=seen or NOW,
        hinted_ms=hinted,
        counters=Counters(commits=commits, bytes_added=commits),
        inspected=None if small is None else inspected(small_files=small, inspected_ms=seen or NOW),
    ),
    moments,
    moments,
    moments,
    st.integers(0, 20),
    st.none() | st.integers(0, 20),
)
rules = st.builds(
    rule,
    schedule=st.sampled_from(
        [
            {},
            NIGHTLY,
            {"windows": "22:00-06:00"},
            {"blackouts": "sat-sun", "time-zone": "America/New_York"},
            {"cron": "*/7 * * * *"},
        ]
    ),
    since_last_run=st.sampled_from([None, "1 h", "2 days"]),
    commits=st.sampled_from([None, 5]),
    small_files=st.sampled_from([None, 5]),
    hint=st.booleans(),
    quiet_for=st.sampled_from([None, "1 h"]),
    at_most_every=st.sampled_from([None, "1 h"]),
)
last_runs = st.none() | st.builds(
    lambda ago, failures, pause, outcome: last_run(
        ago=ago, failures=failures, paused_until_ms=None if pause is None else NOW - ago + pause, outcome=outcome
    ),
    st.integers(-400 * DAY, 400 * DAY),
    st.integers(0, 3),
    st.none() | st.integers(0, DAY),
    st.sampled_from(["done", "failed", "nothing-to-do", None]),
)


@settings(deadline=None)
@given(rules, observations, last_runs)
def test_what_is_not_due_is_never_due_before_the_time_that_it_names(
    of: OperationRule, seen: Observation, last: LastRun | None
) -> None:
    answer = judge(of, seen, last, NOW, since_ms=NOW - DAY)
    assert answer.is_due == (answer.code is None)
    assert answer.reason
    if answer.is_due or answer.next_ms is None:
        return
    assert answer.next_ms > NOW
    if answer.code is not HoldCode.NOT_DUE:
        before = judge(of, seen, last, answer.next_ms - 1, since_ms=NOW - DAY)
        assert not before.is_due


@settings(deadline=None)
@given(rules, observations, last_runs)
def test_nothing_waits_longer_than_its_policy_says_whatever_the_clocks_recorded(
    of: OperationRule, seen: Observation, last: LastRun | None
) -> None:
    """With a trigger on time alone, and writers that have stopped, it is due within a week."""
    timed = of.model_copy(update={"triggers": of.triggers.model_copy(update={"since_last_run": 86_400.0})})
    times = range(NOW, NOW + 8 * DAY, HOUR)
    assert any(judge(timed, seen, last, now).is_due for now in times)
