"""What limits allow a run to read: as knobs of the run if it can do a part of its work, else as the reason why it cannot. Pure.

Called by `decide`. Limits of bytes, core seconds and money are compared as bytes read, by the formula of `prediction`, so that
one number bounds a run. `Amounts.bytes` are bytes read; `Spent.bytes` are read and written.
"""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from neve.policy.document import Amounts
from neve.scheduling.job import Decision, Spent
from neve.scheduling.observation import Observation
from neve.scheduling.prediction import (
    DIVISIBLE_OPERATIONS,
    FIXED_SECONDS,
    METADATA_OPERATIONS,
    Costs,
    bytes_read,
    spent_on,
)
from neve.table.units import format_bytes

MAX_BYTES, MAX_COST = "max-bytes", "max-cost"
WORTH_A_RUN = 0.1
"""A run that can do only a part of its work has to do at least this share of it, or of what the limits ever allow."""


class Allowance(NamedTuple):
    """Amounts that may be used, in the units of `Spent`; infinite without a limit."""

    bytes: float = inf
    core_seconds: float = inf
    money: float = inf

    @classmethod
    def of(cls, amounts: Amounts) -> Allowance:
        """What a document allows."""
        return cls(
            inf if amounts.bytes is None else 2 * amounts.bytes,
            inf if amounts.core_seconds is None else amounts.core_seconds,
            inf if amounts.money is None else amounts.money,
        )

    def without(self, used: Spent) -> Allowance:
        """What is left. Amounts that are unknown count as nothing."""
        return Allowance(
            self.bytes - (used.bytes or 0), self.core_seconds - (used.core_seconds or 0.0), self.money - (used.money or 0.0)
        )

    def at_most(self, other: Allowance) -> Allowance:
        """The smaller of each amount."""
        return Allowance(min(self.bytes, other.bytes), min(self.core_seconds, other.core_seconds), min(self.money, other.money))

    @property
    def is_limited(self) -> bool:
        """Whether any amount has a limit."""
        return self != UNLIMITED

    def readable(self, costs: Costs) -> float:
        """The most bytes that a run may read and keep to this; negative if it allows no run at all."""
        if min(self) < 0:
            return -1.0
        seconds = self.core_seconds
        if self.money < inf and costs.rates.core_hour > 0:
            seconds = min(seconds, self.money * 3600 / costs.rates.core_hour)
        # Predictions are rounded to milliseconds.
        spare = seconds - FIXED_SECONDS + 0.0005
        return min(self.bytes / 2, spare * costs.rates.arrow_kernel.bytes_per_second) if spare >= 0 else -1.0


UNLIMITED = Allowance()


class Need(NamedTuple):
    """What a run would read: as it is predicted, and at most. None means unknown."""

    read: int | None
    at_most: int | None

    @classmethod
    def of(cls, operation: str, seen: Observation | None) -> Need:
        """The need of an operation on a table. No operation reads more than the whole table."""
        if seen is None or operation in METADATA_OPERATIONS:
            known = 0 if operation in METADATA_OPERATIONS else None
            return cls(known, known)
        read = bytes_read(operation, seen)
        if read is not None:
            return cls(read, read)
        return cls(None, seen.total_bytes if seen.inspected is None else seen.inspected.data_bytes)


class Bound(NamedTuple):
    """How a run is bounded: its knobs and what it is predicted to use, or why it cannot run (`refusal`)."""

    knobs: dict[str, Any]
    predicted: Spent
    reserved: Spent
    """What it takes of the budgets until it has ended. An amount that cannot be told is None."""
    refusal: str | None = None


class RunLimits(NamedTuple):
    """What bounds a run: its limits per run, what is left of the day, and the most bytes that its target takes."""

    per_run: Allowance = UNLIMITED
    today: Allowance = UNLIMITED
    max_bytes: int | None = None

    def always(self, costs: Costs) -> float:
        """The most bytes that it may read on any day."""
        return min(self.per_run.readable(costs), _or_infinite(self.max_bytes))


def bound(operation: str, need: Need, limits: RunLimits, costs: Costs, *, worth: float = 0.0) -> Bound:
    """Returns how an operation keeps to its limits. A part of its work has to have at least `worth` bytes."""
    always, today = limits.always(costs), limits.today.readable(costs)
    limit = min(always, today)
    if operation not in DIVISIBLE_OPERATIONS:
        return _whole(operation, need, limit, costs)
    if limit < max(1.0, min(worth, _or_infinite(need.at_most))):
        return _refused(f"only {format_bytes(limit)} may be read" if limit > 0 else _NOTHING)
    # What is left of the day bounds a run only if it could exceed that: it changes all the time.
    is_cut = _or_infinite(need.at_most) > today
    most_read = limit if is_cut else always
    money = min(limits.per_run.money, limits.today.money if is_cut else inf)
    knobs: dict[str, Any] = {} if most_read == inf else {MAX_BYTES: int(most_read)}
    knobs |= {} if money == inf else {MAX_COST: money}
    read = None if need.read is None else int(min(need.read, limit))
    most = min(_or_infinite(need.at_most), limit)
    return Bound(knobs, spent_on(read, costs), spent_on(None if most == inf else int(most), costs))


def reserved(job: Decision, seen: Observation | None, costs: Costs) -> Spent:
    """What a job in the queue takes of the budgets until it has ended."""
    if job.predicted.bytes is not None or job.predicted.core_seconds is not None:
        return job.predicted
    most = min(_or_infinite(Need.of(job.operation, seen).at_most), job.knobs.get(MAX_BYTES, inf))
    return spent_on(None if most == inf else int(most), costs)


_NOTHING = "nothing is left for a run"


def _whole(operation: str, need: Need, limit: float, costs: Costs) -> Bound:
    if limit < 0:
        return _refused(_NOTHING)
    if need.at_most is not None and need.at_most > limit:
        text = "would read" if need.read is not None else "may read up to"
        reading = f"{operation} {text} {format_bytes(need.at_most)}"
        return _refused(f"{reading}, {format_bytes(limit)} may be read, and it cannot do a part of the work")
    return Bound({}, spent_on(need.read, costs), spent_on(need.at_most, costs))


def _refused(reason: str) -> Bound:
    return Bound({}, Spent(), Spent(), reason)


def _or_infinite(number: float | None) -> float:
    return inf if number is None else number
