"""`cost-optimized`: the best gain for the money, and nothing that does not pay for itself.

Every way to rewrite a partition is priced. One that does not gain its price back within `payback` is dropped; of the others,
the one with the highest net gain is taken. Where `max-cost` does not suffice for all partitions, those with the best gain per
money come first. A partition that was compacted within `minor-interval` rests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.not_due import NotDue, Unit, after_interval
from neve.rewrite.group import Tier
from neve.rewrite.strategies import dimensional
from neve.rewrite.strategies.proposal import NOTHING, Proposal, joined
from neve.rewrite.strategies.scoring import MONTH_SECONDS, Score, score
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import TierChoice
from neve.table.units import counted, exact_seconds, format_seconds

Column = npt.NDArray[Any]


def propose(view: View) -> Proposal:
    """The best of merging fragments, of merging and re-encoding all that is small, and of clustering."""
    ways = [Proposal.of(view, [TierChoice(tier, "")] * len(view)) for tier in (Tier.MINOR, Tier.MAJOR)]
    if view.ranges is not None:
        ways.append(dimensional.propose(view))
    scores = [score(view, way) for way in ways]
    net = np.array(
        [np.where(way.wanted, told.net(view.policy.payback_seconds), 0) for way, told in zip(ways, scores, strict=True)]
    )
    best = np.where((net.max(axis=0, initial=0) > 0) & view.rested, net.argmax(axis=0), NOTHING)
    reasons = [_reason(view, ways, scores, i, int(number)) for i, number in enumerate(best)]

    def unmet(i: int) -> tuple[NotDue, ...]:
        return () if best[i] != NOTHING else (not_worth(view, ways, scores, i),)

    gain, cost = (np.array([getattr(told, name) for told in scores])[best, np.arange(len(view))] for name in ("gain", "cost"))
    return replace(joined(view, ways, best, reasons), priority=gain / np.maximum(cost, 1e-12), unmet=unmet)


def not_worth(view: View, ways: Sequence[Proposal], scores: Sequence[Score], i: int) -> NotDue:
    """Returns why nothing is rewritten in a partition: it rests, or no rewrite gains its price back in time."""
    where, policy = view.where(i), view.policy
    if not view.rested[i]:
        since = view.traits(i).seconds_since_compaction or 0.0
        return NotDue(
            rule="rests",
            what="time since the last compaction",
            where=where,
            measured=since,
            threshold=policy.minor_interval_seconds,
            unit=Unit.SECONDS,
            knob="minor-interval",
            due_ms=after_interval(since, policy.minor_interval_seconds, view.now_ms),
        )
    pairs = [(told.gain[i], told.cost[i]) for way, told in zip(ways, scores, strict=True) if way.wanted[i] and told.cost[i] > 0]
    months = policy.payback_seconds / MONTH_SECONDS
    return NotDue(
        rule="payback",
        what=f"share of its price that the best rewrite gains back in {exact_seconds(policy.payback_seconds)}",
        where=where,
        measured=round(max((gain * months / cost for gain, cost in pairs), default=0.0), 4),
        threshold=1.0,
        unit=Unit.RATIO,
        comparison="above",
        knob="payback",
        until="the table has more files to merge or is read more often (reads-per-day)",
    )


def _reason(view: View, ways: list[Proposal], scores: list[Score], i: int, best: int) -> str:
    if best != NOTHING:
        told, files = scores[best], int(view.total(ways[best].files)[i])
        return f"{counted(files, 'file')} for {told.cost[i]:.2g}, gaining {told.gain[i]:.2g} a month"
    if not view.rested[i]:
        return f"compacted within {format_seconds(view.policy.minor_interval_seconds)}"
    return f"no rewrite pays for itself within {format_seconds(view.policy.payback_seconds)}"
