"""Dates of any year, against Python's own within its years, and against Java's spelling beyond them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.table.calendar import Day, day_of, days_to, iso_moment, parsed_day, parsed_moment, parsed_time

EPOCH = dt.date(1970, 1, 1)


@given(st.dates())
def test_days_are_those_of_python_within_its_years(day: dt.date) -> None:
    days = (day - EPOCH).days
    assert day_of(days) == (day.year, day.month, day.day)
    assert days_to(day.year, day.month, day.day) == days
    assert parsed_day(day.isoformat()) == days


@given(st.integers(-(2**62), 2**62))
def test_every_number_of_days_is_a_day_that_leads_back_to_it(days: int) -> None:
    assert days_to(*day_of(days)) == days


@given(st.datetimes())
def test_moments_are_those_of_python_within_its_years(at: dt.datetime) -> None:
    micros = (at - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
    assert iso_moment(micros // 10**6, f"{micros % 10**6:06d}").ljust(26, "0")[:19] == at.isoformat()[:19]
    assert parsed_moment(iso_moment(micros // 10**6, f"{micros % 10**6:06d}")) == micros * 1000


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_moment_that_iceberg_can_store_is_spelled_and_read_back(micros: int) -> None:
    text = iso_moment(micros // 10**6, f"{micros % 10**6:06d}")
    assert parsed_moment(text) == parsed_moment(text + "Z") == parsed_moment(text + "+00:00") == micros * 1000


@pytest.mark.parametrize(
    ("seconds", "fraction", "text"),
    [
        (253_402_300_800, "", "+10000-01-01T00:00:00"),
        (253_402_300_799, "5", "9999-12-31T23:59:59.5"),
        (-62_167_219_200, "", "0000-01-01T00:00:00"),
        (-62_167_219_201, "", "-0001-12-31T23:59:59"),
        (9_223_372_036_854, "775807", "+294247-01-10T04:00:54.775807"),
    ],
)
def test_years_beyond_python_are_spelled_as_java_spells_them(seconds: int, fraction: str, text: str) -> None:
    assert iso_moment(seconds, fraction) == text


@pytest.mark.parametrize("text", ["", "2025-02-29", "2025-13-01", "2025-00-01", "2025-1-1", "20250101", "10000-01-0x"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a date|is no day"):
        parsed_day(text)


@pytest.mark.parametrize("text", ["", "24:00:00", "12:60", "12", "12:00:00.", "12:00:00.1234567890"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time of day"):
        parsed_time(text)


def test_zones_are_taken_off() -> None:
    assert parsed_moment("1970-01-01T01:00:00+01:00") == parsed_moment("1969-12-31T23:00:00-01:00") == 0
    with pytest.raises(ValueError, match="is not a moment"):
        parsed_moment("1970-01-01 00:00:00")


def test_there_is_a_year_zero_and_it_is_a_leap_year() -> None:
    assert day_of(days_to(0, 2, 29)) == Day(0, 2, 29)
