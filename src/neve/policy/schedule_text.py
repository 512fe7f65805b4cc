"""How schedules are written: time zones, cron expressions, weekly windows and date ranges. Pure; raises ValueError.

The values of `policy.document` are checked here; `policy.schedule_times` answers questions about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from difflib import get_close_matches
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FULL_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_NUMBERS = {name: number for names in (DAYS, _FULL_DAYS) for number, name in enumerate(names)}
DAY_MINUTES = 24 * 60
_TIMES = re.compile(r"([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})")
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATES = re.compile(rf"({_DATE})(?:/({_DATE}))?")
_WINDOW_EXAMPLES = "such as mon-fri 22:00-06:00, sat-sun or 01:00-05:00"
_CRON_LENGTH = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 9000


@dataclass(frozen=True)
class WeekWindow:
    """A window that comes back every week. `days` are those on which it begins, Monday is 0; it may end on the next day."""

    days: frozenset[int]
    begin: int = 0
    """Minutes since midnight."""
    end: int = DAY_MINUTES

    def contains(self, local: datetime) -> bool:
        """Whether the wall clock shows a time in the window."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True)
class DateRange:
    """Whole days, the first and the last included."""

    first: date
    last: date

    def contains(self, local: datetime) -> bool:
        """Whether the calendar shows one of the days."""
        return self.first <= local.date() <= self.last


@lru_cache(maxsize=1024)
def parse_zone(name: str) -> tzinfo:
    """The time zone of this name in the tz database, such as Europe/Berlin."""
    if name == "UTC":
        return UTC  # also where no tz database is installed
    try:
        zone = ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = None
    known = _zone_names()
    # On some file systems a name is found in any case; elsewhere the same document would then be refused.
    if zone is None or (known and name not in known):
        raise ValueError(f"unknown time zone {name!r}{_nearest_zone(name)}")
    return zone


@cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones())


def _nearest_zone(name: str) -> str:
    by_lower = {known.lower(): known for known in _zone_names()}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return f", did you mean {by_lower[close[0]]}?" if close else "; write a name such as UTC or Europe/Berlin"


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> str:
    """A cron expression of five fields, with single spaces between them."""
    fields = text.split()
    if len(fields) != 5:
        raise ValueError(
            f"{text!r} is not a cron expression: write minute, hour, day, month and weekday, such as 0 2 * * mon-fri"
        )
    if len(text) > _CRON_LENGTH:
        raise ValueError(f"a cron expression has at most {_CRON_LENGTH} characters")
    expression = " ".join(fields)
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except StopIteration:
        raise ValueError(f"{text!r} names no time that ever comes") from None
    except (CronSimError, ValueError, AssertionError) as error:
        raise ValueError(f"{text!r} is not a cron expression: {str(error).lower() or 'it cannot be read'}") from None
    return expression


@lru_cache(maxsize=4096)
def parse_window(text: str) -> WeekWindow:
    """Days, times or both: `mon-fri 22:00-06:00`, `sat,sun`, `01:00-05:00`. An end before the begin is on the next day."""
    words = text.lower().split()
    if not words or len(words) > 2:
        raise ValueError(f"{text!r} is not a window; write days, times or both, {_WINDOW_EXAMPLES}")
    has_times = words[-1][0].isdigit()
    if len(words) == 2 and not has_times:
        raise ValueError(f"{text!r} is not a window: the times come after the days, {_WINDOW_EXAMPLES}")
    days = frozenset(range(7)) if words[0][0].isdigit() else _parse_days(words[0], text)
    begin, end = _parse_times(words[-1], text) if has_times else (0, DAY_MINUTES)
    return WeekWindow(days, begin, end)


@lru_cache(maxsize=4096)
def parse_blackout(text: str) -> WeekWindow | DateRange:
    """A window, a date, or two dates with a slash between them, both included."""
    found = _DATES.fullmatch(text.strip())
    if not found:
        if re.match(r"\s*[0-9]{4}-", text):
            raise ValueError(f"{text!r} is not a date range; write 2026-12-24/2026-12-27")
        return parse_window(text)
    first, last = _parse_date(found[1]), _parse_date(found[2] or found[1])
    if last < first:
        raise ValueError(f"{text!r} ends before it begins")
    return DateRange(first, last)


def _parse_date(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"there is no date {text}") from None
    if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
        raise ValueError(f"the year of {text} must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return day


def _parse_days(word: str, text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in word.split(","):
        first, dash, last = part.partition("-")
        for name in (first, last) if dash else (first,):
            if name not in _DAY_NUMBERS:
                raise ValueError(f"{text!r} is not a window: {name!r} is not a day; write {', '.join(DAYS)}")
        begin = _DAY_NUMBERS[first]
        length = (_DAY_NUMBERS[last] - begin) % 7 if dash else 0
        days |= {(begin + step) % 7 for step in range(length + 1)}
    return frozenset(days)


def _parse_times(word: str, text: str) -> tuple[int, int]:
    found = _TIMES.fullmatch(word)
    if not found:
        raise ValueError(f"{text!r} is not a window: write times as 22:00-06:00")
    hour, minute, last_hour, last_minute = map(int, found.groups())
    begin, end = hour * 60 + minute, last_hour * 60 + last_minute
    if minute > 59 or last_minute > 59 or begin >= DAY_MINUTES or end > DAY_MINUTES:
        raise ValueError(f"{text!r} is not a window: there is no such time of day")
    if begin == end:
        raise ValueError(f"{text!r} is not a window: it ends when it begins; write 00:00-24:00 for the whole day")
    return begin, end
