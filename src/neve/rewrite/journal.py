"""What a run writes down as it goes, so that it can be taken up after a crash: the plan, and how far each group has come."""

from __future__ import annotations

from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import WorkResult
from neve.table.frozen import Frozen


class JournaledGroup(Frozen):
    """One group. `output_prefix` begins the name of every file that its order may have written, known or not."""

    group_id: int
    output_prefix: str
    state: GroupState = GroupState.PLANNED
    result: WorkResult | None = None


class JournaledRun(Frozen):
    """A run that was begun. `owner` is the text of a `commit.owner.Owner`; `token` grows with each takeover."""

    run_id: str
    owner: str
    token: int = 1
    started_ms: int
    plan: Plan
    groups: tuple[JournaledGroup, ...]
