"""What is left of a run that was interrupted, decided group by group from its journal and from the table as it is now. Pure.

`operations.resume` carries it out, and `neve resume --dry-run` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.preview import Preview
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import WorkResult
from neve.table.frozen import Frozen


class NextStep(StrEnum):
    """What a resume does with a group."""

    NONE = "none"  # it has ended, or its inputs are gone
    COMMIT = "commit"  # its files exist: they are verified and committed
    REWRITE = "rewrite"  # it was never written, or its files are gone


class RemainingGroup(Frozen):
    """One group. `state` and `reason` are how it ended if nothing is left to do, else as the journal has it."""

    group_id: int
    partition: str
    step: NextStep
    state: GroupState
    reason: str
    snapshot_id: int | None = None
    input_files: int
    input_bytes: int


class Remaining(Preview):
    """What a resume of a run does."""

    run_id: str
    table: str
    branch: str
    started_ms: int
    groups: tuple[RemainingGroup, ...]

    def of(self, step: NextStep) -> tuple[RemainingGroup, ...]:
        """The groups with this step."""
        return tuple(group for group in self.groups if group.step is step)

    def in_state(self, state: GroupState) -> tuple[RemainingGroup, ...]:
        """The groups with nothing left to do that ended so."""
        return tuple(group for group in self.of(NextStep.NONE) if group.state is state)


@dataclass(frozen=True)
class TableNow:
    """The table as a resume finds it."""

    live: Set[str]
    """Data files that are live at the head and that the plan knows."""
    landed: Mapping[str, int | None]
    """Data files of the run's own snapshots, with the snapshot, and of the head, with None where it is none of them."""
    missing: Set[str]
    """Files of the run's results that do not exist."""
    is_whole: bool
    """Whether every commit since the plan is known, so that a commit of the run would have been found."""


def remaining(run: JournaledRun, now: TableNow) -> Remaining:
    """What is left to do. A group whose inputs are not live any more is neither executed nor committed."""
    groups = tuple(_remaining_group(run, group, now) for group in run.groups)
    plan = run.plan
    return Remaining(run_id=run.run_id, table=str(plan.table), branch=plan.branch, started_ms=run.started_ms, groups=groups)


def _remaining_group(run: JournaledRun, group: JournaledGroup, now: TableNow) -> RemainingGroup:
    planned, result = run.plan.groups[group.group_id], group.result
    paths = run.plan.paths(planned)
    found = [output.path for output in result.outputs if output.path in now.landed] if result is not None else []
    step, state, reason = NextStep.NONE, group.state, "settled before the run was interrupted"
    if group.state is GroupState.COMMITTED or found:
        state, reason = GroupState.COMMITTED, "committed before the run was interrupted"
    elif group.state in (GroupState.PLANNED, GroupState.WRITTEN) and not now.live >= set(paths):
        state, reason = _without_inputs(result, now)
    elif group.state is GroupState.WRITTEN and result is not None and not _is_missing(result, now):
        step, reason = NextStep.COMMIT, "its files exist and its inputs are live"
    elif group.state in (GroupState.PLANNED, GroupState.WRITTEN):
        step, reason = NextStep.REWRITE, "its files are gone" if result is not None else "it was not written"
    return RemainingGroup(
        group_id=group.group_id,
        partition=planned.partition,
        step=step,
        state=state,
        reason=reason,
        snapshot_id=now.landed[found[0]] if found else None,
        input_files=len(paths),
        input_bytes=planned.input_bytes,
    )


def _without_inputs(result: WorkResult | None, now: TableNow) -> tuple[GroupState, str]:
    """How a group ended whose inputs are gone. A commit that added no file leaves nothing behind to find it by."""
    if result is None or (now.is_whole and result.outputs):
        return GroupState.SUPERSEDED, "its inputs are no longer live"
    return GroupState.IN_DOUBT, "its inputs are no longer live; it may have landed before"


def _is_missing(result: WorkResult, now: TableNow) -> bool:
    return any(output.path in now.missing for output in result.outputs)
