"""`cost-optimized`: the best gain for the money, and nothing that does not pay for itself.

Every way to rewrite a partition is priced. One that does not gain its price back within `payback` is dropped; of the others,
the one with the highest net gain is taken. Where `max-cost` does not suffice for all partitions, those with the best gain per
money come first. A partition that was compacted within `minor-interval` rests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.core.plan_words import Tier
from neve.core.strategies import dimensional
from neve.core.strategies.proposal import NOTHING, Proposal, joined
from neve.core.strategies.scoring import Score, score
from neve.core.strategies.view import View
from neve.core.tiers import Choice
from neve.core.units import counted, format_seconds

Column = npt.NDArray[Any]


def propose(view: View) -> Proposal:
    """The best of merging fragments, of merging and re-encoding all that is small, and of clustering."""
    ways = [Proposal.of(view, [Choice(tier, "")] * len(view)) for tier in (Tier.MINOR, Tier.MAJOR)]
    if view.ranges is not None:
        ways.append(dimensional.propose(view))
    scores = [score(view, way) for way in ways]
    net = np.array(
        [np.where(way.wanted, told.net(view.policy.payback_seconds), 0) for way, told in zip(ways, scores, strict=True)]
    )
    best = np.where((net.max(axis=0, initial=0) > 0) & view.rested, net.argmax(axis=0), NOTHING)
    reasons = [_reason(view, ways, scores, i, int(number)) for i, number in enumerate(best)]
    gain, cost = (np.array([getattr(told, name) for told in scores])[best, np.arange(len(view))] for name in ("gain", "cost"))
    return replace(joined(view, ways, best, reasons), priority=gain / np.maximum(cost, 1e-12))


def _reason(view: View, ways: list[Proposal], scores: list[Score], i: int, best: int) -> str:
    if best != NOTHING:
        told, files = scores[best], int(view.total(ways[best].files)[i])
        return f"{counted(files, 'file')} for {told.cost[i]:.2g}, gaining {told.gain[i]:.2g} a month"
    if not view.rested[i]:
        return f"compacted within {format_seconds(view.policy.minor_interval_seconds)}"
    return f"no rewrite pays for itself within {format_seconds(view.policy.payback_seconds)}"
