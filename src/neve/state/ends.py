"""Ends of claims, roles and heartbeats. An end is a moment by `database.clock_ms`.

A clock that was ahead must not hold anything for years, so an end further away than LONGEST_MS counts as one that a wrong clock
wrote.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, or_

LONGEST_MS = 3_600_000
"""The longest time that anything is held without a heartbeat."""


def end_ms(now: int, length_ms: int) -> int:
    """The end of what is held for so long from now on."""
    return now + min(length_ms, LONGEST_MS)


def has_ended(until_ms: ColumnElement[Any], now: int) -> ColumnElement[bool]:
    """Whether an end has passed, or is one that a wrong clock wrote."""
    return or_(until_ms <= now, until_ms > now + LONGEST_MS)
