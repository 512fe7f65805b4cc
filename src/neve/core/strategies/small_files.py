"""`small-files`: each partition gets the highest tier that its trigger calls for. The strategy unless another is asked for."""

from __future__ import annotations

from neve.core.strategies.proposal import Proposal
from neve.core.strategies.view import View
from neve.core.tiers import choose_tier


def propose(view: View) -> Proposal:
    """Triggers are counts and ratios of the policy."""
    return Proposal.of(view, [choose_tier(view.traits(i), view.policy) for i in range(len(view))])
