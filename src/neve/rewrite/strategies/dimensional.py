"""`dimensional`: clusters files whose ranges overlap most, in the table's layout, and leaves the others alone.

Which these are `health.clustering` says, from the bounds of the layout's columns; it converges. A table without a layout has
nothing to do here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neve.health.not_due import NotDue
from neve.rewrite.group import Tier
from neve.rewrite.groups import TIERS
from neve.rewrite.selection import Mask
from neve.rewrite.strategies.proposal import NOTHING, Proposal
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import TierChoice

_MAJOR = TIERS.index(Tier.MAJOR)


def propose(view: View) -> Proposal:
    """The major tier, ordered, for what is worth clustering."""
    reasons = [view.clusters[i].reason if i in view.clusters else _unknown(view) for i in range(len(view))]
    nothing = Proposal.of(view, [TierChoice(None, reason) for reason in reasons], unmet=lambda i: unmet(view, i))
    return added_to(nothing, view, np.ones(len(view), dtype=bool))


def unmet(view: View, i: int) -> tuple[NotDue, ...]:
    """Returns why a partition is not clustered; nothing if it is."""
    if i in view.clusters:
        found = view.clusters[i].not_due
        return () if found is None else (found.model_copy(update={"where": view.where(i)}),)
    if view.layout is None:
        what, until = "the table has no layout", "`neve cluster TABLE --by COLUMNS` names one"
    else:
        what = f"no bounds of {', '.join(view.layout.columns)} are known"
        until = "files are written with them (write.metadata.metrics)"
    return (NotDue(rule="layout", what=what, where=view.where(i), until=until),)


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
