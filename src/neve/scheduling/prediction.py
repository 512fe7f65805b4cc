"""What a run of an operation on a table would use: bytes, core seconds and money, from what was observed. Pure.

Called by `decide` for what is due. An amount that cannot be told is None, and budgets treat it as unknown.
"""

from __future__ import annotations

from typing import NamedTuple

from neve.rewrite.cost import Rates
from neve.scheduling.job import Spent
from neve.scheduling.observation import Observation

FIXED_SECONDS = 5.0
"""Core seconds of any run: metadata, planning and the commit."""
METADATA_OPERATIONS = frozenset({"expire", "manifests", "tags", "orphans", "settle", "purge", "prevent"})
"""They read and write no data files."""
SMALL_FILE_OPERATIONS = frozenset({"compact", "deletes", "maintain"})
WHOLE_TABLE_OPERATIONS = frozenset({"cluster"})
DIVISIBLE_OPERATIONS = frozenset({"compact", "cluster", "maintain"})
"""A run of these does a part of the work if `max-bytes` bounds it, and the next run goes on."""


class Costs(NamedTuple):
    """What predictions are made with: throughputs and prices, and the version of the price sheet."""

    rates: Rates = Rates()
    prices: str = ""


def predicted(operation: str, seen: Observation, costs: Costs = Costs()) -> Spent:  # noqa: B008
    """What a run would use."""
    return spent_on(bytes_read(operation, seen), costs)


def spent_on(read: int | None, costs: Costs) -> Spent:
    """What a run uses that reads so many bytes of data files; None if that is unknown. Every byte is read and written."""
    if read is None:
        return Spent(prices=costs.prices)
    seconds = FIXED_SECONDS + read / costs.rates.arrow_kernel.bytes_per_second
    return Spent(
        bytes=2 * read,
        core_seconds=round(seconds, 3),
        money=seconds * costs.rates.core_hour / 3600,
        prices=costs.prices,
    )


def bytes_read(operation: str, seen: Observation) -> int | None:
    """How many bytes of data files a run would read, None if that is unknown."""
    if operation in METADATA_OPERATIONS:
        return 0
    if operation in SMALL_FILE_OPERATIONS:
        return None if seen.inspected is None else seen.inspected.small_bytes
    if operation in WHOLE_TABLE_OPERATIONS:
        known = seen.total_bytes is not None or seen.inspected is None
        return seen.total_bytes if known else seen.inspected.data_bytes if seen.inspected else None
    return None
