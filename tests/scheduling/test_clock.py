"""Times that a clock recorded which may have jumped since."""

from __future__ import annotations

import pytest

from neve.scheduling.clock import DAY_MS, credible, spelled_time
from tests.builders.scheduling import NOW


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [
        (None, None),
        (NOW - 1, NOW - 1),
        (NOW, NOW),
        (NOW + 1, NOW),
        (NOW + DAY_MS, NOW),
        (NOW + DAY_MS + 1, None),
        (0, 0),
    ],
)
def test_a_time_slightly_ahead_counts_as_now_and_one_far_ahead_as_none(at_ms: int | None, expected: int | None) -> None:
    assert credible(at_ms, NOW) == expected


@pytest.mark.parametrize(
    ("at_ms", "zone", "text"),
    [
        (NOW, "UTC", "2026-09-21 14:13 UTC"),
        (NOW, "Europe/Berlin", "2026-09-21 16:13 Europe/Berlin"),
        (-5, "UTC", "1970-01-01 00:00 UTC"),
        (10**18, "UTC", "9999-12-30 00:00 UTC"),
    ],
)
def test_times_are_spelled_in_their_zone_and_never_beyond_the_calendar(at_ms: int, zone: str, text: str) -> None:
    assert spelled_time(at_ms, zone) == text
