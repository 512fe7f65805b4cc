"""What a run writes down as it goes, so that it can be taken up after a crash: the plan, and how far each group has come."""

from __future__ import annotations

from neve.core.model import Frozen
from neve.core.plan import Plan
from neve.core.record import GroupState
from neve.core.work import WorkResult


class JournaledGroup(Frozen):
    """One group. `output_prefix` begins the name of every file that its order may have written, known or not."""

    group_id: int
    output_prefix: str
    state: GroupState = GroupState.PLANNED
    result: WorkResult | None = None


class JournaledRun(Frozen):
    """A run that was begun."""

    run_id: str
    owner: str
    started_ms: int
    plan: Plan
    groups: tuple[JournaledGroup, ...]
