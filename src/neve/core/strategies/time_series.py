"""`time-series`: hot partitions lightly and often, a cooling one once properly, cold ones not at all.

A partition's age counts from its last write, from the end of its own time, such as that of a day, or from its last compaction,
which hides when the files that it took were written: from whichever is latest. Late writes make a partition hot again. Once
cool, all that is not yet as it should be is rewritten, in the table's layout.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.core.plan_words import Tier
from neve.core.ranking import NEVER
from neve.core.selection import Mask
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
    return dimensional.added_to(Proposal.of(view, choices, decided=cooling), view, cooling & ~_done(view))


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
    """Seconds for which nothing happened to each partition; infinite where nobody knows."""
    latest = np.maximum(_told_ms(view), view.partitions.last_compaction_ms)
    idle: Column = np.where(latest == NEVER, np.inf, (view.now_ms - latest) / 1000)
    return idle


def _done(view: View) -> Mask:
    """Partitions of a time that is past, and that were compacted after they had cooled: they are not clustered again."""
    cooled_ms = _told_ms(view) + 1000 * view.policy.hot_window_seconds
    done: Mask = (view.ends_ms != NEVER) & (view.partitions.last_compaction_ms >= cooled_ms)
    return done


def _told_ms(view: View) -> Column:
    """The last write or the end of the partition's own time, as far as files and partition tell; else NEVER."""
    present = view.ends_ms <= view.now_ms + _AHEAD_MS
    told: Column = np.maximum(view.partitions.last_write_ms, np.where(present, view.ends_ms, NEVER))
    return told


_AHEAD_MS = 32 * 86_400_000
"""A partition that ends later than this is not of the present: its time says nothing of when it is written."""
