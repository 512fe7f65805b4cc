"""Every strategy by its name. Used by `rewrite.planner`; the names are those of the policy's knob."""

from __future__ import annotations

from collections.abc import Mapping

from neve.rewrite.strategies import adaptive, cost_optimized, delete_files, dimensional, small_files, time_series
from neve.rewrite.strategies.proposal import Strategy

KNOWN: Mapping[str, Strategy] = {
    "small-files": Strategy(small_files.propose),
    "delete-files": Strategy(delete_files.propose),
    "time-series": Strategy(time_series.propose, needs_ranges=True),
    "dimensional": Strategy(dimensional.propose, needs_ranges=True),
    "cost-optimized": Strategy(cost_optimized.propose, needs_ranges=True),
    "adaptive": Strategy(adaptive.propose, needs_ranges=True),
}
