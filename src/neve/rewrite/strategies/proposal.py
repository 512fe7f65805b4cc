"""What a strategy answers: for each partition a tier or none, with the reason, and the files it would rewrite. Pure.

The planner asks one strategy for one proposal; `adaptive` asks several and joins them by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from neve.health.not_due import NotDue
from neve.rewrite.group import Tier
from neve.rewrite.groups import TIERS
from neve.rewrite.selection import Mask, candidates
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import TierChoice

Column = npt.NDArray[Any]
Unmet = Callable[[int], tuple[NotDue, ...]]
"""By partition, the rules that the strategy checked and that do not call for a rewrite."""

NOTHING = -1


@dataclass(frozen=True)
class PartitionVerdict:
    """How a proposal came about where several were weighed: names and scores of the best and the next."""

    strategy: str
    score: float
    runner_up: str | None = None
    runner_up_score: float | None = None


@dataclass(frozen=True)
class Proposal:
    """By partition: `tier` (a position in TIERS, or NOTHING), `reasons`, whether groups are `ordered` by the layout, whether
    the strategy has `decided`, so that the thresholds for few files do not count. By file: the candidates.

    `priority` ranks partitions, the highest first, where the planner's own ranking is not meant; `depth_after` is the depth
    that an ordered rewrite leads to, NaN where nobody knows. `unmet` is asked about partitions that the plan leaves alone.
    """

    tier: Column
    reasons: tuple[str, ...]
    files: Mask
    ordered: Mask
    decided: Mask
    depth_after: Column
    priority: Column | None = None
    verdicts: tuple[PartitionVerdict | None, ...] = field(default=())
    unmet: Unmet = field(default=lambda _: (), compare=False)

    @classmethod
    def of(cls, view: View, choices: Sequence[TierChoice], files: Mask | None = None, **more: Any) -> Self:
        """From a choice for each partition; candidates are those of the tiers' rules, and of `files` where given."""
        tier = np.array([TIERS.index(choice.tier) if choice.tier else NOTHING for choice in choices], dtype=np.int64)
        marked = by_tier(view, tier)
        return cls(
            tier=tier,
            reasons=tuple(choice.reason for choice in choices),
            files=marked if files is None else marked & files,
            ordered=_by_code(view, tier, view.orders),
            **{"decided": np.zeros(len(view), bool), "depth_after": np.full(len(view), np.nan)} | more,
        )

    @property
    def wanted(self) -> Mask:
        """Partitions with a tier."""
        mask: Mask = self.tier != NOTHING
        return mask


@dataclass(frozen=True)
class Strategy:
    """A way to propose; `needs_ranges` says that the bounds of the layout's columns are worth reading for it."""

    propose: Callable[[View], Proposal]
    needs_ranges: bool = False


def by_tier(view: View, tier: Column) -> Mask:
    """The files that the rules of each partition's tier mark."""
    marked: Mask = np.zeros(len(view.files.columns), dtype=bool)
    of_file = tier[view.files.columns.column("partition")] if len(tier) else marked
    for code, name in enumerate(TIERS):
        if (tier == code).any():
            marked |= (of_file == code) & candidates(view.files, name, view.policy)
    return marked


def joined(view: View, proposals: Sequence[Proposal], which: Column, reasons: Sequence[str]) -> Proposal:
    """For each partition the proposal of that number, or NOTHING; each with the reason given here."""
    home = view.files.columns.column("partition")
    if not len(view):
        return proposals[0]

    def taken(columns: Sequence[Column], nothing: float) -> Column:
        picked = np.choose(np.maximum(which, 0), np.array(columns))
        chosen: Column = np.where(which == NOTHING, nothing, picked)
        return chosen

    files = np.array([proposal.files for proposal in proposals])
    return Proposal(
        tier=taken([proposal.tier for proposal in proposals], NOTHING),
        reasons=tuple(reasons),
        files=files[np.maximum(which, 0)[home], np.arange(len(home))] & (which != NOTHING)[home],
        ordered=taken([proposal.ordered for proposal in proposals], nothing=False),
        decided=taken([proposal.decided for proposal in proposals], nothing=False),
        depth_after=taken([proposal.depth_after for proposal in proposals], np.nan),
    )


def _by_code(view: View, tier: Column, says: Callable[[Tier], bool]) -> Mask:
    told = np.array([*(says(name) for name in TIERS), False])  # the last one is for NOTHING
    mask: Mask = told[tier] if len(view) else np.zeros(0, bool)
    return mask
