"""What a pipeline is told after a write: whether a compaction would be worth it. Pure.

Built by `operations.compact` for `neve.after_write`. A count that grows by one with each commit decides when to look closely,
and no state is kept for it; expiring snapshots does not disturb it.
"""

from __future__ import annotations

from neve.health.not_due import NotDue
from neve.rewrite.plan import Plan
from neve.table.frozen import Frozen
from neve.table.state import TableState
from neve.table.units import counted


class Advice(Frozen):
    """`looked` says whether the files were looked at this time; if not, nothing is recommended and nothing was counted."""

    table: str
    looked: bool
    compaction_recommended: bool = False
    small_files_count: int | None = None
    reason: str
    not_due: tuple[NotDue, ...] = ()
    """If no compaction is recommended: the rules that were checked, and when they would be due."""
    error: str | None = None


def commits(state: TableState) -> int:
    """Commits so far: sequence numbers count them, and where format version 1 has none, the snapshots that are left."""
    if state.snapshot is None:
        return 0
    return state.snapshot.sequence_number or len(state.snapshots)


def is_due(state: TableState, every: int) -> bool:
    """Whether this commit is one of those after which the files are looked at."""
    count = commits(state)
    return count > 0 and count % every == 0


def not_looked(table: str, reason: str, *, error: str | None = None, rule: NotDue | None = None) -> Advice:
    """The cheap answer."""
    return Advice(table=table, looked=False, reason=reason, error=error, not_due=(rule,) if rule is not None else ())


def between_looks(state: TableState, every: int) -> NotDue:
    """How many more commits there are until the files are looked at."""
    since = commits(state) % every
    return NotDue(
        rule="check-interval",
        what="commits since the files were last inspected",
        measured=since,
        threshold=every,
        knob="check-interval",
        more=every - since,
        more_of="commit",
    )


def advise(plan: Plan, small_files: int) -> Advice:
    """A compaction is recommended exactly if it would do something."""
    recommended = len(plan.groups) > 0
    told = f"{counted(plan.input_files, 'file')} would become {plan.output_files:,}"
    return Advice(
        table=str(plan.table),
        looked=True,
        compaction_recommended=recommended,
        small_files_count=small_files,
        reason=told if recommended else plan.empty_reason or "nothing to do",
        not_due=() if recommended else plan.not_due,
    )
