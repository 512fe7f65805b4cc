"""`small-files`: each partition gets the highest tier that its trigger calls for. The strategy unless another is asked for."""

from __future__ import annotations

from neve.health.not_due import NotDue
from neve.rewrite.strategies.proposal import Proposal
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import choose_tier, unmet


def propose(view: View) -> Proposal:
    """Triggers are counts and ratios of the policy."""

    def not_reached(i: int) -> tuple[NotDue, ...]:
        return unmet(view.traits(i), view.policy, where=view.where(i), now_ms=view.now_ms)

    return Proposal.of(view, [choose_tier(view.traits(i), view.policy) for i in range(len(view))], unmet=not_reached)
