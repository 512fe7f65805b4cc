"""Cron times, windows and blackouts, also where clocks are changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.document import Schedule
from neve.policy.schedule_times import check_schedule, day_start, is_open, last_start, next_closing, next_opening, next_start

BERLIN = "Europe/Berlin"


def schedule(time_zone: str = "UTC", **keys: Any) -> Schedule:
    return Schedule.model_validate({"time-zone": time_zone} | keys)


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)


def utc(at_ms: int | None) -> str | None:
    return None if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def starts(times: Schedule, after: str, count: int) -> list[str | None]:
    found, at_ms = list[str | None](), ms(after)
    for _ in range(count):
        at_ms = next_start(times, at_ms) or 0
        found.append(utc(at_ms))
    return found


def test_the_next_cron_time_is_later_and_the_last_one_counts_the_present() -> None:
    times = schedule(cron="0 2 * * *")
    assert utc(next_start(times, ms("2026-05-01T02:00"))) == "2026-05-02 02:00:00"
    assert utc(last_start(times, ms("2026-05-01T02:00"))) == "2026-05-01 02:00:00"
    assert utc(last_start(times, ms("2026-05-01T01:59:59"))) == "2026-04-30 02:00:00"
    assert next_start(schedule(), 0) is None
    assert last_start(schedule(), 0) is None


def test_of_several_cron_expressions_the_nearest_time_counts() -> None:
    times = schedule(cron=["0 2 * * mon", "30 4 1 * *"])
    assert starts(times, "2026-05-30T00:00", 3) == ["2026-06-01 02:00:00", "2026-06-01 04:30:00", "2026-06-08 02:00:00"]


def test_a_cron_time_that_spring_skips_comes_when_the_clock_has_jumped() -> None:
    times = schedule(BERLIN, cron="30 2 * * *")
    assert starts(times, "2026-03-27T12:00", 4) == [
        "2026-03-28 01:30:00",
        "2026-03-29 01:00:00",
        "2026-03-30 00:30:00",
        "2026-03-31 00:30:00",
    ]


def test_a_cron_time_that_autumn_repeats_comes_once() -> None:
    times = schedule(BERLIN, cron="30 2 * * *")
    found = starts(times, "2026-10-24T12:00", 2)
    assert found == ["2026-10-25 00:30:00", "2026-10-26 01:30:00"]
    assert utc(last_start(times, ms("2026-10-25T01:45"))) == "2026-10-25 00:30:00"


def test_a_cron_time_of_every_hour_comes_in_both_hours_that_autumn_repeats() -> None:
    times = schedule(BERLIN, cron="0 * * * *")
    assert starts(times, "2026-10-24T23:30", 4) == [
        "2026-10-25 00:00:00",
        "2026-10-25 01:00:00",
        "2026-10-25 02:00:00",
        "2026-10-25 03:00:00",
    ]
    assert utc(last_start(times, ms("2026-10-25T01:30"))) == "2026-10-25 01:00:00"


@pytest.mark.parametrize(
    ("windows", "at", "open_then"),
    [
        ("22:00-06:00", "2026-05-01T22:00", True),
        ("22:00-06:00", "2026-05-01T05:59:59", True),
        ("22:00-06:00", "2026-05-01T06:00", False),
        ("fri 22:00-06:00", "2026-05-02T05:00", True),
        ("fri 22:00-06:00", "2026-05-01T05:00", False),
        ("sat,sun", "2026-05-03T23:59", True),
        ("sat-mon", "2026-05-04T12:00", True),
        ("sat-mon", "2026-05-05T12:00", False),
        ("monday-FRIDAY 01:00-05:00", "2026-05-04T01:00", True),
        ("00:00-24:00", "2026-05-04T23:59:59", True),
        ("22:00-24:00", "2026-05-04T00:00", False),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(windows: str, at: str, *, open_then: bool) -> None:
    assert is_open(schedule(windows=windows), ms(at)) is open_then


def test_a_blackout_goes_before_a_window() -> None:
    times = schedule(windows="22:00-06:00", blackouts=["2026-12-24/2026-12-26", "sun"])
    assert not is_open(times, ms("2026-12-24T23:00"))
    assert utc(next_opening(times, ms("2026-12-24T23:00"))) == "2026-12-28 00:00:00"
    assert utc(next_opening(times, ms("2026-12-23T12:00"))) == "2026-12-23 22:00:00"
    assert next_opening(times, ms("2026-12-23T23:00")) == ms("2026-12-23T23:00")


def test_work_is_possible_again_right_after_a_long_blackout() -> None:
    times = schedule(BERLIN, windows="sat 01:00-02:00", blackouts=["2026-01-01/2027-06-30", "2027-07-01/2029-12-31"])
    assert utc(next_opening(times, ms("2026-01-01T00:00"))) == "2030-01-05 00:00:00"


def test_a_window_in_the_hour_that_spring_skips_does_not_come_on_that_day() -> None:
    times = schedule(BERLIN, windows="02:00-03:00")
    assert utc(next_opening(times, ms("2026-03-28T12:00"))) == "2026-03-30 00:00:00"


def test_a_window_across_the_jump_of_spring_opens_when_the_clock_has_jumped() -> None:
    times = schedule(BERLIN, windows="02:30-05:00")
    assert utc(next_opening(times, ms("2026-03-28T12:00"))) == "2026-03-29 01:00:00"


def test_a_window_in_the_hour_that_autumn_repeats_comes_twice() -> None:
    times = schedule(BERLIN, windows="02:15-02:45")
    assert utc(next_opening(times, ms("2026-10-24T12:00"))) == "2026-10-25 00:15:00"
    assert not is_open(times, ms("2026-10-25T00:50"))
    assert utc(next_opening(times, ms("2026-10-25T00:50"))) == "2026-10-25 01:15:00"


@pytest.mark.parametrize(
    ("keys", "at", "closes"),
    [
        ({"windows": "22:00-06:00"}, "2026-12-23T23:00", "2026-12-24 06:00:00"),
        ({"windows": "22:00-06:00"}, "2026-12-23T12:00", "2026-12-23 12:00:00"),
        ({"windows": ["22:00-02:00", "02:00-06:00"]}, "2026-12-23T23:00", "2026-12-24 06:00:00"),
        ({"windows": "22:00-06:00", "blackouts": "2026-12-24"}, "2026-12-23T23:00", "2026-12-24 00:00:00"),
        ({"windows": "22:00-06:00", "blackouts": "23:30-23:45"}, "2026-12-23T23:00", "2026-12-23 23:30:00"),
        ({"windows": "sat-sun"}, "2026-12-26T23:00", "2026-12-28 00:00:00"),
        ({"blackouts": "fri"}, "2026-12-26T23:00", "2027-01-01 00:00:00"),
    ],
)
def test_work_may_begin_until_the_first_moment_at_which_it_may_not(keys: dict[str, Any], at: str, closes: str) -> None:
    assert utc(next_closing(schedule(**keys), ms(at))) == closes


def test_a_schedule_without_an_end_never_closes() -> None:
    assert next_closing(schedule(), 0) is None
    assert next_closing(schedule(cron="0 3 * * *"), 0) is None
    assert next_closing(schedule(blackouts="2030-12-24"), ms("2026-01-01")) is None


def test_a_window_that_the_jump_of_the_clock_cuts_closes_with_the_jump() -> None:
    assert utc(next_closing(schedule(BERLIN, windows="01:00-02:30"), ms("2026-03-29T00:30"))) == "2026-03-29 01:00:00"
    assert utc(next_closing(schedule(BERLIN, windows="02:15-02:45"), ms("2026-10-25T00:20"))) == "2026-10-25 00:45:00"


@settings(max_examples=300, deadline=None)
@given(
    windows=st.lists(st.sampled_from(["22:00-06:00", "mon-fri 09:00-17:30", "sun", "02:15-02:45", "00:00-24:00"]), max_size=2),
    blackouts=st.lists(st.sampled_from(["sat", "23:00-01:00", "2026-03-28/2026-03-30", "12:10-12:20"]), max_size=2),
    minutes=st.integers(0, 21 * 24 * 60),
)
def test_work_may_begin_at_every_minute_before_the_closing_and_not_at_it(
    windows: list[str], blackouts: list[str], minutes: int
) -> None:
    times, at = schedule(BERLIN, windows=windows, blackouts=blackouts), ms("2026-03-15T00:00") + minutes * 60_000
    closes = next_closing(times, at)
    if closes is None:
        assert all(is_open(times, at + step * 3_600_000) for step in range(13 * 24))
        return
    assert not is_open(times, closes)
    assert all(is_open(times, moment) for moment in range(at, closes, 60_000 * 5))
    assert closes == at or is_open(times, closes - 1)


def test_a_day_begins_at_midnight_of_its_zone_and_may_have_23_or_25_hours() -> None:
    assert utc(day_start("UTC", ms("2026-05-01T23:59"))) == "2026-05-01 00:00:00"
    assert utc(day_start(BERLIN, ms("2026-05-01T21:59"))) == "2026-04-30 22:00:00"
    spring = day_start(BERLIN, ms("2026-03-30T12:00")) - day_start(BERLIN, ms("2026-03-29T12:00"))
    autumn = day_start(BERLIN, ms("2026-10-26T12:00")) - day_start(BERLIN, ms("2026-10-25T12:00"))
    assert (spring, autumn) == (23 * 3_600_000, 25 * 3_600_000)


def test_a_day_whose_midnight_is_skipped_begins_after_the_jump() -> None:
    assert utc(day_start("America/Asuncion", ms("2023-10-01T12:00"))) == "2023-10-01 04:00:00"


def test_blackouts_that_cover_every_window_are_refused() -> None:
    assert check_schedule(schedule(windows="sat 10:00-12:00", blackouts="sat-sun")) == [
        "work can never begin: the blackouts cover every window"
    ]
    assert check_schedule(schedule(windows="sat 10:00-12:00", blackouts="sun")) == []
    assert check_schedule(schedule(blackouts="2026-12-24")) == []
    assert next_opening(schedule(blackouts="mon-sun"), 0) is None
