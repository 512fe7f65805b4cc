"""`dimensional`: clusters files whose ranges overlap most, in the table's layout, and leaves the others alone.

Which these are `core.clustering` says, from the bounds of the layout's columns; it converges. A table without a layout has
nothing to do here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neve.core.groups import TIERS
from neve.core.plan_words import Tier
from neve.core.selection import Mask
from neve.core.strategies.proposal import NOTHING, Proposal
from neve.core.strategies.view import View
from neve.core.tiers import Choice

_MAJOR = TIERS.index(Tier.MAJOR)


def propose(view: View) -> Proposal:
    """The major tier, ordered, for what is worth clustering."""
    reasons = [view.clusters[i].reason if i in view.clusters else _unknown(view) for i in range(len(view))]
    nothing = Proposal.of(view, [Choice(None, reason) for reason in reasons])
    return added_to(nothing, view, np.ones(len(view), dtype=bool))


def added_to(proposal: Proposal, view: View, where: Mask) -> Proposal:
    """The proposal, and what is worth clustering in these partitions besides."""
    tier, ordered, decided = proposal.tier.copy(), proposal.ordered.copy(), proposal.decided.copy()
    files, depth, reasons = proposal.files.copy(), proposal.depth_after.copy(), list(proposal.reasons)
    for i, found in view.clusters.items():
        if not where[i] or not len(found.files):
            continue
        reasons[i] = found.reason if tier[i] == NOTHING else f"{reasons[i]}; {found.reason}"
        tier[i], ordered[i], decided[i] = max(tier[i], _MAJOR), True, True
        files[found.files] = True
        depth[i] = view.touched(found.predicted)
    return replace(
        proposal, tier=tier, ordered=ordered, decided=decided, files=files, depth_after=depth, reasons=tuple(reasons)
    )


def _unknown(view: View) -> str:
    if view.layout is None:
        return "the table has no layout: neither neve.cluster-by nor a sort order"
    return f"the bounds of {', '.join(view.layout.columns)} are not known"
