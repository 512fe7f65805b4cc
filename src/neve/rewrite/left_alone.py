"""Why a plan leaves a partition alone, as rules with thresholds, where the strategy is not the reason. Pure.

Called by `rewrite.planner`. Rules of a strategy come with its proposal (`rewrite.strategies`). These are the planner's:
partitions that nobody may touch, too little to merge, the limits of one run, and merges that would slow readers down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from neve.health.not_due import NotDue, Unit, after_interval
from neve.policy.model import Policy
from neve.rewrite.plan import Skipped
from neve.table.state import TableState
from neve.table.units import counted, format_bytes, format_seconds


def empty_reason(state: TableState, skipped: list[Skipped]) -> str:
    """Why a plan has no groups."""
    if not skipped:
        return "the table has no data" if state.snapshot is None else "the table has no data files"
    if len({s.reason for s in skipped}) == 1:
        return f"{skipped[0].reason} ({len(skipped):,} partitions)" if len(skipped) > 1 else skipped[0].reason
    return f"none of {len(skipped):,} partitions has files to rewrite now"


@dataclass(frozen=True)
class Untouchable:
    """A partition that no strategy may touch, with the reason and the rule behind it."""

    partition: int
    reason: str
    rule: NotDue

    @classmethod
    def until(cls, partition: int, where: str | None, reason: str, event: str) -> Self:
        """Returns one that stays so until an event."""
        return cls(partition, reason, NotDue(rule="untouchable", what=reason, where=where, until=event))


def cooling(quiet_seconds: float, wait_seconds: float, now_ms: int, where: str | None) -> tuple[str, NotDue]:
    """Returns why a partition that was written a short time ago has to wait, in short and as a rule."""
    reason = f"written {format_seconds(quiet_seconds)} ago, cools down for {format_seconds(wait_seconds)}"
    return reason, NotDue(
        rule="cool-down",
        what="time since the last write",
        where=where,
        measured=quiet_seconds,
        threshold=wait_seconds,
        unit=Unit.SECONDS,
        knob="cool-down",
        due_ms=after_interval(quiet_seconds, wait_seconds, now_ms),
    )


def changing(
    changed_seconds: float, compacted_seconds: float, interval_seconds: float, now_ms: int, where: str | None
) -> tuple[str, NotDue]:
    """Returns why a partition whose rows another writer is changing has to wait, in short and as a rule."""
    reason = (
        f"another writer changed its rows {format_seconds(changed_seconds)} ago (UPDATE, DELETE or MERGE); compacted "
        f"{format_seconds(compacted_seconds)} ago, at most every {format_seconds(interval_seconds)} (row-change-interval)"
    )
    return reason, NotDue(
        rule="row-changes",
        what="time since the last compaction, while another writer changes rows",
        where=where,
        measured=compacted_seconds,
        threshold=interval_seconds,
        unit=Unit.SECONDS,
        knob="row-change-interval",
        due_ms=after_interval(compacted_seconds, interval_seconds, now_ms),
    )


def too_few(files: int, size: int, least: int, policy: Policy, where: str | None, *, is_forced: bool = False) -> NotDue:
    """Returns how many files, or bytes, are missing to a merge of `least` files, which is worth a commit.

    One that is forced goes by no knob: only one file alone has nothing to be merged with.
    """
    if files < least:
        knob, more = "min-input-files" if least == policy.min_input_files and not is_forced else None, least - files
        return NotDue(
            rule="few-files", what="files to merge", where=where, measured=files, threshold=least, knob=knob, more=more
        )
    if size < policy.min_group_bytes and not is_forced:
        return NotDue(
            rule="few-bytes",
            what="bytes to merge",
            where=where,
            measured=size,
            threshold=policy.min_group_bytes,
            unit=Unit.BYTES,
            knob="min-group-size",
            more=policy.min_group_bytes - size,
        )
    return _cut_small(files, size, policy, where)


def _cut_small(files: int, size: int, policy: Policy, where: str | None) -> NotDue:
    """Returns which limit leaves each file in a group of its own, so that none is merged with another."""
    limit, knob = policy.max_group_bytes, "max-group-size"
    if policy.max_bytes is not None and policy.max_bytes < limit:
        limit, knob = policy.max_bytes, "max-bytes"
    is_bytes = size > limit
    return NotDue(
        rule="group-limit",
        what=f"{'bytes of files' if is_bytes else 'files'} to merge in one group",
        where=where,
        measured=size if is_bytes else files,
        threshold=limit if is_bytes else policy.max_files,
        unit=Unit.BYTES if is_bytes else Unit.COUNT,
        comparison="up to",
        knob=knob if is_bytes else "max-files",
        until="the limit is raised",
    )


def exceeded(policy: Policy, files: int, read_bytes: int, money: float) -> str | None:
    """Returns the knob of the first limit that a run with so much would exceed; None if it keeps to all of them."""
    if files > policy.max_files:
        return "max-files"
    if policy.max_bytes is not None and read_bytes > policy.max_bytes:
        return "max-bytes"
    return "max-cost" if policy.max_cost is not None and money > policy.max_cost else None


def over_limit(knob: str, policy: Policy, spent: tuple[int, int, float], where: str | None) -> tuple[str, NotDue]:
    """Returns why a partition has to wait for another run, in short and as a rule."""
    files, read_bytes, money = spent
    reason, measured, threshold, unit = {
        "max-files": (f"the run already has its {counted(policy.max_files, 'file')}", files, policy.max_files, Unit.COUNT),
        "max-bytes": (
            f"the run already reads its {format_bytes(policy.max_bytes or 0)}",
            read_bytes,
            policy.max_bytes,
            Unit.BYTES,
        ),
        "max-cost": (f"the run would cost more than {policy.max_cost or 0:g}", money, policy.max_cost, Unit.RATIO),
    }[knob]
    return f"{reason} ({knob})", NotDue(
        rule="limit",
        what=f"{knob.removeprefix('max-')} of one run that takes this partition too",
        where=where,
        measured=measured,
        threshold=threshold,
        unit=unit,
        comparison="up to",
        knob=knob,
        until="a later run or a higher limit takes it",
    )


def slower(tasks: int, files: int, before: float, after: float, where: str | None) -> tuple[str, NotDue]:
    """Returns why a merge is declined after which a scan takes longer, in short and as a rule."""
    reason = (
        f"a scan by {tasks} tasks would take {format_seconds(after)}, not {format_seconds(before)}: "
        f"{counted(files, 'file')} would be too few (scan-parallelism)"
    )
    return reason, NotDue(
        rule="slower-scan",
        what=f"time of a scan by {tasks} tasks after the merge",
        where=where,
        measured=after,
        threshold=before,
        unit=Unit.SECONDS,
        comparison="up to",
        knob="scan-parallelism",
        until="the partition has more files to merge",
    )
