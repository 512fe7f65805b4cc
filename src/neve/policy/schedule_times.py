"""Answers when a schedule's times come, when work may begin, and when a day begins. Pure; called by the scheduler.

Times are milliseconds since 1970. Windows and blackouts follow the wall clock of the schedule's zone: one that lies in the hour
that daylight saving skips does not come on that day, and one in the hour that repeats comes twice. Cron times that are skipped
come when the clock has jumped, and come once where the clock repeats them, unless minute or hour begins with a star.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from cronsim import CronSim

from neve.policy.document import Schedule
from neve.policy.schedule_text import DAY_MINUTES, DateRange, WeekWindow, parse_blackout, parse_cron, parse_window, parse_zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MILLISECOND = timedelta(milliseconds=1)
_DAYS_OF_A_PATTERN = 15
"""Two weeks and a day: every window of a week has come twice, also if daylight saving skipped it once."""


def next_start(schedule: Schedule, after_ms: int) -> int | None:
    """Returns the next cron time after this moment; None without cron."""
    return min(
        (found for text in schedule.cron if (found := _next(text, schedule.time_zone, after_ms)) is not None), default=None
    )


def last_start(schedule: Schedule, now_ms: int) -> int | None:
    """Returns the last cron time up to this moment, which counts; None without cron."""
    return max(
        (found for text in schedule.cron if (found := _last(text, schedule.time_zone, now_ms)) is not None), default=None
    )


def is_open(schedule: Schedule, at_ms: int) -> bool:
    """Whether work may begin at this moment: in a window, if there are any, and in no blackout."""
    return _is_open_at(_local(at_ms, parse_zone(schedule.time_zone)), schedule)


def next_opening(schedule: Schedule, at_ms: int) -> int | None:
    """Returns this moment if work may begin, else the first one later at which it may; None if there is none."""
    if is_open(schedule, at_ms):
        return at_ms
    zone = parse_zone(schedule.time_zone)
    for day in _days_to_search(schedule, _local(at_ms, zone).date()):
        later = sorted(found for found in _changes(schedule, day, zone) if found > at_ms)
        opened = next((found for found in later if is_open(schedule, found)), None)
        if opened is not None:
            return opened
    return None


def next_closing(schedule: Schedule, at_ms: int) -> int | None:
    """Returns the first moment from this one on at which work may not begin; None if none comes within two weeks."""
    if not (schedule.windows or schedule.blackouts):
        return None
    if not is_open(schedule, at_ms):
        return at_ms
    zone = parse_zone(schedule.time_zone)
    first = _local(at_ms, zone).date()
    for number in range(_DAYS_OF_A_PATTERN):
        later = sorted(found for found in _changes(schedule, first + number * _DAY, zone) if found > at_ms)
        closed = next((found for found in later if not is_open(schedule, found)), None)
        if closed is not None:
            return closed
    return None


def day_start(time_zone: str, at_ms: int) -> int:
    """Returns when the day of this moment began in the zone."""
    zone = parse_zone(time_zone)
    midnight = datetime.combine(_local(at_ms, zone).date(), time())
    return min(*_moments(midnight, zone), at_ms)


def check_schedule(schedule: Schedule) -> list[str]:
    """Returns what is wrong with the schedule as a whole. Its texts were checked one by one when it was read."""
    if (schedule.windows or schedule.blackouts) and next_opening(schedule, 0) is None:
        return ["work can never begin: the blackouts cover every window"]
    return []


def _local(at_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone)


def _ms(moment: datetime) -> int:
    # Aware datetimes of different zones are subtracted by the time that passed.
    return (moment.astimezone(UTC) - _EPOCH) // _MILLISECOND


@lru_cache(maxsize=4096)
def _next(text: str, time_zone: str, after_ms: int) -> int | None:
    # In the hour that repeats, cronsim answers with its first pass, which may be over.
    times = (_ms(found) for found in CronSim(parse_cron(text), _local(after_ms, parse_zone(time_zone))))
    return next((found for found in times if found > after_ms), None)


@lru_cache(maxsize=4096)
def _last(text: str, time_zone: str, now_ms: int) -> int | None:
    # Reversed times are those before the start, and the present second counts.
    begin = _local(now_ms - now_ms % 1000 + 1000, parse_zone(time_zone))
    times = (_ms(found) for found in CronSim(parse_cron(text), begin, reverse=True))
    last = next((found for found in times if found <= now_ms), None)
    while last is not None and (later := _next(text, time_zone, last)) is not None and later <= now_ms:
        last = later  # in the second pass of a repeated hour, a time of the first pass is later by the wall clock
    return last


def _is_open_at(local: datetime, schedule: Schedule) -> bool:
    if any(parse_blackout(text).contains(local) for text in schedule.blackouts):
        return False
    return not schedule.windows or any(parse_window(text).contains(local) for text in schedule.windows)


def _days_to_search(schedule: Schedule, day: date) -> Iterator[date]:
    """Days from this one on, without those that date ranges black out, until every pattern has shown itself."""
    ranges = sorted((found for found in map(parse_blackout, schedule.blackouts) if isinstance(found, DateRange)), key=_first)
    for _ in range(_DAYS_OF_A_PATTERN * (len(ranges) + 1)):
        for found in ranges:
            if found.first <= day <= found.last:
                day = found.last + _DAY
        yield day
        day += _DAY


def _first(dates: DateRange) -> date:
    return dates.first


def _changes(schedule: Schedule, day: date, zone: tzinfo) -> Iterator[int]:
    """Moments of a day at which that may change: ends and beginnings of windows and blackouts, midnight, jumps of the clock."""
    found = [*map(parse_window, schedule.windows), *map(parse_blackout, schedule.blackouts)]
    weekly = [one for one in found if isinstance(one, WeekWindow)]
    minutes = {0} | {one.begin for one in weekly} | {one.end % DAY_MINUTES for one in weekly}
    for minute in minutes:
        yield from _moments(datetime.combine(day, time(minute // 60, minute % 60)), zone)
    begin, end = (_wall(datetime.combine(day + step * _DAY, time()), zone, fold=0) for step in (0, 1))
    if _offset(begin, zone) != _offset(end, zone):
        yield _jump(begin, end, zone)


def _moments(wall: datetime, zone: tzinfo) -> tuple[int, ...]:
    """When the wall clock shows this time: once, twice where it repeats, or when it jumps over it."""
    # The later offset gives the earlier moment only where the clock jumps forward.
    first, second = (_wall(wall, zone, fold=fold) for fold in (0, 1))
    if first > second:
        return (_jump(second, first, zone),)
    return (first,) if first == second else (first, second)


def _wall(wall: datetime, zone: tzinfo, *, fold: int) -> int:
    return _ms(wall.replace(tzinfo=zone, fold=fold))


def _offset(at_ms: int, zone: tzinfo) -> timedelta | None:
    return _local(at_ms, zone).utcoffset()


def _jump(begin_ms: int, end_ms: int, zone: tzinfo) -> int:
    """Returns the moment between two with different offsets at which the clock jumps."""
    before = _offset(begin_ms, zone)
    while end_ms - begin_ms > 1:
        middle = (begin_ms + end_ms) // 2
        if _offset(middle, zone) == before:
            begin_ms = middle
        else:
            end_ms = middle
    return end_ms
