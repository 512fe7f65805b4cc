"""`delete-files`: applies deletes where they hurt, and rewrites nothing else.

What hurts are many delete files or many hidden rows. Where there are many files but few hidden rows, another cure is cheaper,
and the reason says which: `neve deletes convert` for equality deletes, `neve deletes rewrite` for deletes by position.
"""

from __future__ import annotations

import numpy as np

from neve.core.files import EQUALITY_DELETES
from neve.core.plan_words import Tier
from neve.core.strategies.proposal import Proposal
from neve.core.strategies.view import View
from neve.core.tiers import Choice, deletes_reason


def propose(view: View) -> Proposal:
    """The major tier for files that deletes may apply to."""
    equality = view.total(view.files.columns.column("content") == EQUALITY_DELETES) > 0
    touched = view.total(view.files.has_deletes & view.files.is_data) > 0
    choices = [_choose(view, i, equality=bool(equality[i]), touched=bool(touched[i])) for i in range(len(view))]
    return Proposal.of(view, choices, files=np.asarray(view.files.has_deletes))


def _choose(view: View, i: int, *, equality: bool, touched: bool) -> Choice:
    traits, policy = view.traits(i), view.policy
    if not touched:
        return Choice(None, "no delete applies to its files")
    reason = deletes_reason(traits, policy)
    if reason is None:
        return Choice(None, f"deletes are below delete-ratio ({policy.delete_ratio_limit:g})")
    if traits.duplicate_ratio >= policy.delete_ratio_limit:
        return Choice(Tier.MAJOR, reason)
    cure = "convert" if equality else "rewrite"
    return Choice(Tier.MAJOR, f"{reason}, hiding {traits.duplicate_ratio:.1%} of the rows: neve deletes {cure} is cheaper")
