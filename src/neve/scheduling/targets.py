"""Where a job runs: a target chosen by the policy or by size, with the reason, and how many more jobs it can take. Pure.

Called by `decide`; the settings describe the targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from neve.scheduling.job import Job
from neve.table.frozen import Frozen
from neve.table.units import format_bytes

AUTO = "auto"
LOCAL = "local"


class RunTarget(Frozen):
    """A place where jobs run."""

    name: str
    kind: str = "local"
    """`local`, `spark` or `submit`."""
    max_concurrency: int = 1
    max_bytes: int | None = None
    """Larger jobs go to another target, if there is one."""


LOCAL_TARGET = RunTarget(name=LOCAL)


class TargetChoice(Frozen):
    """A target and why it was chosen; `name` is None if there is none."""

    name: str | None
    reason: str
    max_bytes: int | None = None
    """The most that a run may use there."""


def choose(wanted: str, size: int | None, targets: Sequence[RunTarget]) -> TargetChoice:
    """The target of a job of this size in bytes, None if that is unknown: the one that the policy names, or the smallest that
    fits."""
    if wanted != AUTO:
        return _named(wanted, targets)
    if not targets:
        return TargetChoice(name=None, reason="the settings describe no target")
    # The sort is stable: of two alike, the one that is described first is taken.
    ordered = sorted(targets, key=_capacity)
    if size is None:
        return _unknown_size(ordered)
    for one in ordered:
        if size <= _capacity(one):
            return TargetChoice(name=one.name, reason=_fits(one, size), max_bytes=one.max_bytes)
    largest = ordered[-1]
    text = f"{format_bytes(size)} are more than any target takes; {largest.name} takes the most, {_limit(largest)}"
    return TargetChoice(name=largest.name, reason=text, max_bytes=largest.max_bytes)


def room(targets: Iterable[RunTarget], claimed: Iterable[Job]) -> dict[str, int]:
    """How many more jobs each target can run now."""
    left = {one.name: one.max_concurrency for one in targets}
    for job in claimed:
        if job.target in left:
            left[job.target] = max(0, left[job.target] - 1)
    return left


def _named(wanted: str, targets: Sequence[RunTarget]) -> TargetChoice:
    for one in targets:
        if one.name == wanted:
            return TargetChoice(name=wanted, reason="the policy names it", max_bytes=one.max_bytes)
    known = ", ".join(one.name for one in targets) or "none"
    return TargetChoice(name=None, reason=f"the policy names the target {wanted}, and the settings describe {known}")


def _unknown_size(ordered: Sequence[RunTarget]) -> TargetChoice:
    largest = next((one for one in ordered if one.max_bytes is None), ordered[-1])
    reason = f"the size of the job is unknown, and {largest.name} takes {_limit(largest)}"
    return TargetChoice(name=largest.name, reason=reason, max_bytes=largest.max_bytes)


def _fits(one: RunTarget, size: int) -> str:
    return f"the smallest target for {format_bytes(size)}: it takes {_limit(one)}"


def _capacity(one: RunTarget) -> float:
    return inf if one.max_bytes is None else one.max_bytes


def _limit(one: RunTarget) -> str:
    return "any size" if one.max_bytes is None else f"up to {format_bytes(one.max_bytes)}"
