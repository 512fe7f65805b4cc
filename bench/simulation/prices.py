"""What things cost, by the formulas of `neve.rewrite.cost` and its table of rates: requests by kind, core seconds, money.

Rewrites are priced by the plan, scans by `Scanned`. Added here, as assumptions: planning a query, looking
at a table, committing.
"""

from __future__ import annotations

from dataclasses import dataclass

from neve.rewrite.cost import Rates

ENTRIES_PER_MANIFEST = 1_000
ENTRIES_PER_SECOND = 50_000
"""Manifest entries that one core reads, by a query that is planned or by a pass of ours."""
EXECUTORS = 4
"""Of a reader; each of them opens a delete once, whatever number of its files it applies to."""
PASS_SECONDS = 0.5
"""Of one core, for a look at the table that finds nothing to do."""
COMMIT_SECONDS, COMMIT_WRITES = 1.0, 5
"""A commit writes manifests, a manifest list and the metadata."""


@dataclass(frozen=True)
class Cost:
    """Money, and what it was spent on."""

    core_seconds: float = 0.0
    requests: float = 0.0
    money: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.core_seconds + other.core_seconds, self.requests + other.requests, self.money + other.money)

    def __mul__(self, times: float) -> Cost:
        return Cost(self.core_seconds * times, self.requests * times, self.money * times)


def cost(rates: Rates, *, core_seconds: float, reads: float = 0, writes: float = 0) -> Cost:
    """By the table of rates."""
    money = core_seconds * rates.core_hour / 3600 + reads / 1000 * rates.thousand_reads + writes / 1000 * rates.thousand_writes
    return Cost(core_seconds, reads + writes, money)


def metadata_cost(rates: Rates, entries: int, *, seconds: float = 0.0) -> Cost:
    """Of reading the manifests, and so many seconds besides."""
    manifests = 1 + entries / ENTRIES_PER_MANIFEST
    return cost(rates, core_seconds=seconds + entries / ENTRIES_PER_SECOND, reads=manifests)
