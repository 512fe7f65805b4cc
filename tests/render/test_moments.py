"""Moments of metadata that a wrong clock wrote are shown and stop nothing."""

from __future__ import annotations

import pytest

from neve.render.phrases import moment


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_737_115_805_999, "2025-01-17 12:10:05 UTC"),
        (0, "1970-01-01 00:00:00 UTC"),
        (-1, "1969-12-31 23:59:59 UTC"),
        (1_737_115_805_000_000, "+57017-01-04 00:03:20 UTC"),
        (2**63 - 1, "+292278994-08-17 07:12:55 UTC"),
    ],
)
def test_a_moment_of_any_year_can_be_shown(ms: int, text: str) -> None:
    assert moment(ms) == text
