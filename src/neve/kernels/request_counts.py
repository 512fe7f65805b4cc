"""Counts the requests that this process sends to storage and catalogs, by kind, since it began.

Whoever sends a request counts it here: `streams`, `storage` and `catalogs`. A run is what lies between two readings, so in a
process that works on several tables at a time a run's requests include those of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from threading import Lock
from typing import Literal

Kind = Literal["read", "write", "list", "delete", "catalog"]

_lock = Lock()
_counts: Counter[str] = Counter()


def count(kind: Kind, number: int = 1) -> None:
    """Counts requests that are about to be sent."""
    with _lock:
        _counts[kind] += number


def counts() -> dict[str, int]:
    """Requests so far, by kind."""
    with _lock:
        return dict(_counts)


def since(before: Mapping[str, int]) -> dict[str, int]:
    """Requests since an earlier reading, by kind."""
    return {kind: number - before.get(kind, 0) for kind, number in counts().items() if number != before.get(kind, 0)}
