"""Times that a clock recorded which may have jumped since, and times as people read them. Pure; used by `due` and `backoff`.

A time slightly ahead of now is taken for now: it is reached soon. A time further ahead was recorded by a wrong clock and is
ignored, so that nothing waits for it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

DAY_MS = 86_400_000
MAX_AHEAD_MS = DAY_MS
"""A recorded time further ahead of now than this is ignored."""
_LAST_MS = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000


def credible(at_ms: int | None, now_ms: int) -> int | None:
    """The time, at most now; None for a time that is too far ahead, or for none."""
    if at_ms is None or at_ms - now_ms > MAX_AHEAD_MS:
        return None
    return min(at_ms, now_ms)


@lru_cache(maxsize=4096)
def spelled_time(at_ms: int, time_zone: str = "UTC") -> str:
    """`2026-11-19 02:00 Europe/Berlin`."""
    at = datetime.fromtimestamp(min(max(at_ms, 0), _LAST_MS) / 1000, ZoneInfo(time_zone))
    return f"{at:%Y-%m-%d %H:%M} {time_zone}"
