"""Chooses which tables to read next when there are more than a budget allows. Pure; called by `service.observer`.

Tables take turns by the time since their last turn, multiplied by their weight. With weights of at most `MAX_WEIGHT`, half of
the turns kept for the rotation, and B turns a round for N tables, each table gets a turn within about 2 * MAX_WEIGHT * N / B
rounds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from neve.scheduling.observation import Observation

MAX_WEIGHT = 4
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class Turn(NamedTuple):
    """A table that waits for its turn."""

    table: str
    last_ms: int | None
    """When it last had one; None if never."""
    weight: int = 1
    urgent: bool = False
    """Whether it goes before others; at most half of the turns, unless others leave theirs."""


def rotation(turns: Iterable[Turn], now_ms: int, limit: int) -> list[str]:
    """Returns the tables whose turn it is, the first ones first, at most `limit`."""
    if limit <= 0:
        return []
    urgent, others = list[tuple[float, str]](), list[tuple[float, str]]()
    for turn in turns:
        (urgent if turn.urgent else others).append((-_age(turn, now_ms) * turn.weight, turn.table))
    first = heapq.nsmallest(limit, urgent)
    rest = heapq.nsmallest(limit, others)
    kept = max((limit + 1) // 2, limit - len(rest))
    return [table for _, table in (*first[:kept], *rest)][:limit]


def weight_of(table: Observation) -> int:
    """Returns how much more often than others a table is read: tables that were written lately change more often."""
    if table.last_write_ms is None:
        return 1
    age = table.observed_ms - table.last_write_ms
    return MAX_WEIGHT if age < _HOUR_MS else MAX_WEIGHT // 2 if age < _DAY_MS else 1


def _age(turn: Turn, now_ms: int) -> float:
    """A turn in the future comes from a clock that was set back since, and says nothing."""
    if turn.last_ms is None or turn.last_ms > now_ms:
        return float("inf")
    return now_ms - turn.last_ms + 1
