"""`adaptive`: for each partition the strategy whose proposal is worth most there, from traits and history.

Every other strategy is asked, and all are scored by one measure. What does not pay for itself is left. What does may wait,
until readers have paid as much for the files as they are as it costs to be too early: whoever waits like this never pays more
than twice what the best moment would have cost, whatever comes. The verdict has the best and the next with both scores.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.not_due import NotDue, Unit
from neve.rewrite.strategies import cost_optimized, delete_files, dimensional, small_files, time_series
from neve.rewrite.strategies.cost_optimized import not_worth
from neve.rewrite.strategies.proposal import NOTHING, PartitionVerdict, Proposal, joined
from neve.rewrite.strategies.scoring import MONTH_SECONDS, Score, score
from neve.rewrite.strategies.view import View

Column = npt.NDArray[Any]

WAYS = {
    "small-files": small_files.propose,
    "delete-files": delete_files.propose,
    "time-series": time_series.propose,
    "dimensional": dimensional.propose,
    "cost-optimized": cost_optimized.propose,
}


def propose(view: View) -> Proposal:
    """The best of all, where any is worth it."""
    names = [name for name in WAYS if name != "dimensional" or view.ranges is not None]
    ways = [WAYS[name](view) for name in names]
    scores = [score(view, way) for way in ways]
    worth = np.array([_worth(view, way, told) for way, told in zip(ways, scores, strict=True)])
    verdicts = [_verdict(names, worth[:, i]) for i in range(len(view))]
    best = np.array([names.index(told.strategy) if told else NOTHING for told in verdicts], dtype=np.int64)
    early = np.max([np.where(way.wanted, told.gain, 0) for way, told in zip(ways, scores, strict=True)], axis=0, initial=0) > 0
    reasons = [_reason(names, ways, i, told, early=bool(early[i])) for i, told in enumerate(verdicts)]

    def unmet(i: int) -> tuple[NotDue, ...]:
        if verdicts[i] is not None:
            return ()
        waits = [one for way, told in zip(ways, scores, strict=True) if (one := _too_early(view, way, told, i)) is not None]
        return (min(waits, key=lambda one: one.due_ms or 0),) if waits else (not_worth(view, ways, scores, i),)

    priority = np.max(worth, axis=0, initial=0.0)
    return replace(joined(view, ways, best, reasons), priority=priority, verdicts=tuple(verdicts), unmet=unmet)


def _too_early(view: View, way: Proposal, told: Score, i: int) -> NotDue | None:
    """Returns when readers have paid as much for these files as it costs to rewrite too early; None if that is no reason."""
    a_second = told.gain[i] / MONTH_SECONDS
    if not way.wanted[i] or not view.rested[i] or a_second <= 0 or told.net(view.policy.payback_seconds)[i] <= 0:
        return None
    return NotDue(
        rule="too-early",
        what="what readers have paid for these files, as a share of what a rewrite too early costs",
        where=view.where(i),
        measured=round(float(told.debt[i] / told.fixed[i]), 4),
        threshold=1.0,
        unit=Unit.RATIO,
        due_ms=view.now_ms + ceil(1000 * float((told.fixed[i] - told.debt[i]) / a_second)),
    )


def _worth(view: View, way: Proposal, told: Score) -> Column:
    """The net gain of a proposal, -inf where there is none or it is too early."""
    net = told.net(view.policy.payback_seconds)
    in_time: Column = np.where(way.wanted & view.rested & (net > 0) & (told.debt >= told.fixed), net, -np.inf)
    return in_time


def _verdict(names: list[str], worth: Column) -> PartitionVerdict | None:
    order = sorted(np.flatnonzero(np.isfinite(worth)).tolist(), key=lambda k: -worth[k])
    if not order:
        return None
    first, *others = order
    if not others:
        return PartitionVerdict(names[first], float(worth[first]))
    return PartitionVerdict(names[first], float(worth[first]), names[others[0]], float(worth[others[0]]))


def _reason(names: list[str], ways: list[Proposal], i: int, told: PartitionVerdict | None, *, early: bool) -> str:
    if told is None:
        # Of those who want nothing, the last has weighed gain and price.
        return "too early: readers lose less by waiting than a rewrite costs" if early else ways[-1].reasons[i]
    next_best = f"; next {told.runner_up} with {told.runner_up_score:.2g}" if told.runner_up else ""
    return f"{told.strategy} is worth {told.score:.2g}{next_best}: {ways[names.index(told.strategy)].reasons[i]}"
