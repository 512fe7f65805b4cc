"""`delete-files`: applies deletes where they hurt, and rewrites nothing else.

What hurts are many delete files or many hidden rows. Where there are many files but few hidden rows, another cure is cheaper,
and the reason says which: `neve deletes convert` for equality deletes, `neve deletes rewrite` for deletes by position.
"""

from __future__ import annotations

import numpy as np

from neve.health.not_due import NotDue
from neve.rewrite.group import Tier
from neve.rewrite.strategies.proposal import Proposal
from neve.rewrite.strategies.view import View
from neve.rewrite.tiers import TierChoice, deletes_reason, deletes_unmet
from neve.table.files import EQUALITY_DELETES


def propose(view: View) -> Proposal:
    """The major tier for files that deletes may apply to."""
    equality = view.total(view.files.columns.column("content") == EQUALITY_DELETES) > 0
    touched = view.total(view.files.has_deletes & view.files.is_data) > 0
    choices = [_choose(view, i, equality=bool(equality[i]), touched=bool(touched[i])) for i in range(len(view))]

    def unmet(i: int) -> tuple[NotDue, ...]:
        return tuple(deletes_unmet(view.traits(i), view.policy, view.where(i))) if touched[i] else (_untouched(view, i),)

    return Proposal.of(view, choices, files=np.asarray(view.files.has_deletes), unmet=unmet)


def _untouched(view: View, i: int) -> NotDue:
    what = "data files that deletes apply to"
    return NotDue(rule="deletes", what=what, where=view.where(i), measured=0, threshold=1, until="rows are deleted there")


def _choose(view: View, i: int, *, equality: bool, touched: bool) -> TierChoice:
    traits, policy = view.traits(i), view.policy
    if not touched:
        return TierChoice(None, "no delete applies to its files")
    reason = deletes_reason(traits, policy)
    if reason is None:
        return TierChoice(None, f"deletes are below delete-ratio ({policy.delete_ratio_limit:g})")
    if traits.duplicate_ratio >= policy.delete_ratio_limit:
        return TierChoice(Tier.MAJOR, reason)
    cure = "`neve deletes convert TABLE`" if equality else "`neve deletes rewrite TABLE`"
    return TierChoice(Tier.MAJOR, f"{reason}, hiding {traits.duplicate_ratio:.1%} of the rows: {cure} is cheaper")
