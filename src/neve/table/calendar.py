"""Dates of any year as whole numbers: Python's own begin at year 1 and end at 9999, which Iceberg's do not.

The proleptic Gregorian calendar, as Java has it, with a year 0. Spelled as Java spells them: `+10000-01-01`, `-0044-03-15`.
Used wherever a partition value, a bound or a moment of a table's metadata becomes text or comes from it. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DAY_SECONDS = 86_400
_ERA_DAYS = 146_097
"""Days of 400 years, after which the calendar repeats."""
_EPOCH = 719_468
"""Days from 0000-03-01 to 1970-01-01: years are counted from March, so that a leap day is the last of its year."""
_DATE = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_ZONE = re.compile(r"Z|[+-]\d\d:\d\d(?::\d\d)?", re.ASCII)


class Day(NamedTuple):
    """A day of the calendar."""

    year: int
    month: int
    day: int


def day_of(days: int) -> Day:
    """The day that is so many days after 1970-01-01."""
    era, rest = divmod(days + _EPOCH, _ERA_DAYS)
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return Day(year + era * 400 + (month <= 2), month, day)


def days_to(year: int, month: int = 1, day: int = 1) -> int:
    """Days from 1970-01-01 to a day. Raises ValueError if the calendar has no such day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"{year}-{month}-{day} is no day of the calendar")
    before = year - (month <= 2)
    era, of_era = divmod(before, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days = era * _ERA_DAYS + of_era * 365 + of_era // 4 - of_era // 100 + of_year - _EPOCH
    if day_of(days) != Day(year, month, day):
        raise ValueError(f"{year}-{month}-{day} is no day of the calendar")
    return days


def iso_year(year: int) -> str:
    """A year as Java's ISO format has it: at least four digits, and a sign beyond 9999."""
    return f"+{year}" if year > 9999 else f"-{-year:04d}" if year < 0 else f"{year:04d}"


def iso_moment(seconds: int, fraction: str = "") -> str:
    """So many seconds after 1970-01-01 as an ISO moment, with these digits behind the point."""
    days, of_day = divmod(seconds, DAY_SECONDS)
    on = day_of(days)
    digits = fraction.rstrip("0")
    clock = f"{of_day // 3600:02d}:{of_day // 60 % 60:02d}:{of_day % 60:02d}"
    return f"{iso_year(on.year)}-{on.month:02d}-{on.day:02d}T{clock}{'.' if digits else ''}{digits}"


def parsed_day(text: str) -> int:
    """Days since 1970-01-01 from an ISO date of any year. Raises ValueError if it is none."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date")
    return days_to(*map(int, found.groups()))


def parsed_time(text: str) -> int:
    """Nanoseconds since midnight from an ISO time."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time of day")
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    return (hour * 3600 + minute * 60 + second) * 10**9 + int((found[4] or "").ljust(9, "0"))


def parsed_moment(text: str) -> int:
    """Nanoseconds since 1970-01-01 from an ISO moment of any year, in UTC unless it names another zone."""
    date, separator, rest = text.partition("T")
    zone = _ZONE.search(rest)
    if not separator or (zone is not None and zone.end() != len(rest)):
        raise ValueError(f"{text!r} is not a moment")
    clock = rest[: zone.start()] if zone else rest
    offset = 0
    if zone and zone[0] != "Z":
        parts = [int(part) for part in zone[0][1:].split(":")]
        offset = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False)) * (-1 if zone[0][0] == "-" else 1)
    return (parsed_day(date) * DAY_SECONDS - offset) * 10**9 + parsed_time(clock)
