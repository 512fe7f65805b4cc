"""`time-series`: hot partitions lightly and often, a cooling one once properly, cold ones not at all.

A partition's age counts from its last write or, if that is later, from the end of its own time, such as that of a day. Late
writes make it hot again. Once cool, all that is not yet as it should be is rewritten, in the table's layout; after that nothing
is left to do until somebody writes.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.core.plan_words import Tier
from neve.core.ranking import NEVER
from neve.core.strategies import dimensional
from neve.core.strategies.proposal import Proposal
from neve.core.strategies.view import View
from neve.core.tiers import Choice, choose_minor, major_reason
from neve.core.units import format_seconds

Column = npt.NDArray[Any]

_UNKNOWN = "nobody knows when it was written"


def propose(view: View) -> Proposal:
    """By age; what a cooling partition gets includes what `dimensional` would do there."""
    idle = idle_seconds(view)
    choices = [_choose(view, i, float(idle[i])) for i in range(len(view))]
    cooling = np.array([_is_cooling(view, float(seconds)) for seconds in idle], dtype=bool)
    return dimensional.added_to(Proposal.of(view, choices, decided=cooling), view, cooling)


def _choose(view: View, i: int, idle: float) -> Choice:
    policy, traits = view.policy, view.traits(i)
    if idle < policy.hot_window_seconds:
        nothing = Choice(None, f"hot for {format_seconds(policy.hot_window_seconds - idle)} yet, with few fragments")
        return choose_minor(traits, policy) or nothing
    if not _is_cooling(view, idle):
        return Choice(None, f"cold: {f'nothing was written for {format_seconds(idle)}' if isfinite(idle) else _UNKNOWN}")
    reason = major_reason(traits, policy) or (f"{traits.small_files} small files" if traits.small_files > 1 else None)
    if reason is None:
        return Choice(None, "cooled down, and as it should be")
    return Choice(Tier.MAJOR, f"cooled down: {reason}")


def _is_cooling(view: View, idle: float) -> bool:
    return view.policy.hot_window_seconds <= idle < view.policy.cold_after_seconds


def idle_seconds(view: View) -> Column:
    """Seconds since each partition's last write or the end of its own time; infinite where neither is known.

    What we have rewritten whole does not tell when it was written: then the compaction stands for it.
    """
    columns = view.partitions
    written = np.where(columns.last_write_ms == NEVER, columns.last_compaction_ms, columns.last_write_ms)
    present = view.ends_ms <= view.now_ms + _AHEAD_MS
    latest = np.maximum(written, np.where(present, view.ends_ms, NEVER))
    idle: Column = np.where(latest == NEVER, np.inf, (view.now_ms - latest) / 1000)
    return idle


_AHEAD_MS = 32 * 86_400_000
"""A partition that ends later than this is not of the present: its time says nothing of when it is written."""
