"""`time-series`: hot partitions lightly and often, a cooling one once properly, cold ones not at all.

A partition's age counts from its last write, from the end of its own time, such as that of a day, or from its last compaction,
which hides when the files that it took were written: from whichever is latest. Late writes make a partition hot again. Once
cool, all that is not yet as it should be is rewritten, in the table's layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.not_due import NotDue, Unit, after_interval
from neve.health.ranking import NEVER
from neve.policy.model import Policy
from neve.rewrite.group import Tier
from neve.rewrite.selection import Mask
from neve.rewrite.strategies import dimensional
from neve.rewrite.strategies.proposal import Proposal
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import TierChoice, Traits, choose_minor, deletes_unmet, major_reason, minor_unmet, row_groups_unmet
from neve.table.units import format_bytes, format_seconds

Column = npt.NDArray[Any]

_UNKNOWN = "nobody knows when it was written"


def propose(view: View) -> Proposal:
    """By age; what a cooling partition gets includes what `dimensional` would do there."""
    idle = idle_seconds(view)
    choices = [_choose(view, i, float(idle[i])) for i in range(len(view))]
    cooling = np.array([_is_cooling(view, float(seconds)) for seconds in idle], dtype=bool)
    open_ = ~_done(view)
    clusters = cooling & open_

    def unmet(i: int) -> tuple[NotDue, ...]:
        overlap = dimensional.unmet(view, i) if clusters[i] and i in view.clusters else ()
        will_cluster = bool(open_[i]) and i in view.clusters and len(view.clusters[i].files) > 0
        return (*_unmet(view, i, float(idle[i]), will_cluster=will_cluster), *overlap)

    return dimensional.added_to(Proposal.of(view, choices, decided=cooling, unmet=unmet), view, clusters)


def _unmet(view: View, i: int, idle: float, *, will_cluster: bool) -> Iterator[NotDue]:
    """Yields the rules of a partition's age: hot, cooling or cold."""
    policy, traits, where = view.policy, view.traits(i), view.where(i)
    age: dict[str, Any] = {"what": "time since the last write", "where": where, "unit": Unit.SECONDS}
    if idle < policy.hot_window_seconds:
        yield from minor_unmet(traits, policy, where, view.now_ms)
        if will_cluster or _reason(traits, policy) is not None:
            due_ms = after_interval(idle, policy.hot_window_seconds, view.now_ms)
            yield NotDue(
                rule="hot", measured=idle, threshold=policy.hot_window_seconds, knob="hot-window", due_ms=due_ms, **age
            )
    elif not _is_cooling(view, idle):
        known = {"measured": idle, "threshold": policy.cold_after_seconds, "comparison": "below"} if isfinite(idle) else {}
        yield NotDue(rule="cold", knob="cold-after", until="it is written to again", **age | known)
    else:
        what, small = f"files below {format_bytes(policy.small_bytes)}", traits.small_files
        if small < 2:
            yield NotDue(rule="small-files", what=what, where=where, measured=small, threshold=2, more=2 - small)
        yield from deletes_unmet(traits, policy, where)
        yield from row_groups_unmet(traits, policy, where, view.now_ms)


def _choose(view: View, i: int, idle: float) -> TierChoice:
    policy, traits = view.policy, view.traits(i)
    if idle < policy.hot_window_seconds:
        nothing = TierChoice(None, f"hot for {format_seconds(policy.hot_window_seconds - idle)} yet, with few fragments")
        return choose_minor(traits, policy) or nothing
    if not _is_cooling(view, idle):
        return TierChoice(None, f"cold: {f'nothing was written for {format_seconds(idle)}' if isfinite(idle) else _UNKNOWN}")
    reason = _reason(traits, policy)
    if reason is None:
        return TierChoice(None, "cooled down, and as it should be")
    return TierChoice(Tier.MAJOR, f"cooled down: {reason}")


def _reason(traits: Traits, policy: Policy) -> str | None:
    """Why a cooling partition is worth the major tier."""
    return major_reason(traits, policy) or (f"{traits.small_files} small files" if traits.small_files > 1 else None)


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
