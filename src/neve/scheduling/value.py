"""What a run gains for what it costs, as a weight from 1 to 8. Pure; called by `decide` for what is due, used by `rank`.

The gain is counted in files that readers no longer open; the cost is in core seconds. The weight grows with the logarithm of
their ratio, so that no table weighs more than 8 times as much as another, however bad it is.
"""

from __future__ import annotations

from math import isfinite, log2
from typing import NamedTuple

from neve.scheduling.job import Spent
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.prediction import FIXED_SECONDS, METADATA_OPERATIONS, SMALL_FILE_OPERATIONS
from neve.scheduling.triggers import growth

MIN_WEIGHT, MAX_WEIGHT = 1.0, 8.0
_EVEN = 3.0
"""The weight of a run that saves one file for each core second."""
_PRIORITY_STEP = 25
"""So much priority is worth as much as twice the gain."""
_UNKNOWN_SECONDS = 60.0


class Value(NamedTuple):
    """The gain in files, the cost in core seconds, and the weight that follows."""

    gain: float
    core_seconds: float
    weight: float


def value(
    operation: str, seen: Observation, *, last: LastRun | None = None, predicted: Spent | None = None, priority: int = 0
) -> Value:
    """The value of a run for its cost, raised or lowered by the policy's priority."""
    gain = _gain(operation, seen, last)
    seconds = _UNKNOWN_SECONDS if predicted is None or predicted.core_seconds is None else predicted.core_seconds
    seconds = max(seconds, FIXED_SECONDS)
    weight = _EVEN + log2(max(gain, 2.0**-20)) - log2(seconds) + priority / _PRIORITY_STEP
    return Value(gain, seconds, min(max(weight, MIN_WEIGHT), MAX_WEIGHT) if isfinite(weight) else MIN_WEIGHT)


def _gain(operation: str, seen: Observation, last: LastRun | None) -> float:
    deletes = seen.delete_files if seen.delete_files is not None else seen.inspected.delete_files if seen.inspected else 0
    small = seen.inspected.small_files if seen.inspected else 0
    if operation == "deletes":
        return deletes
    if operation in METADATA_OPERATIONS or operation not in SMALL_FILE_OPERATIONS:
        # Each commit of others left a manifest and a snapshot.
        return max(1.0, growth(seen.counters, None if last is None else last.counters).commits)
    return small + deletes
