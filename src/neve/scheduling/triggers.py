"""The triggers of a policy against what was observed: whether each fires, the measured value and the threshold. Pure.

Called by `due`. What writers did since the last run comes from counters, never from snapshots. Facts that were collected before
the last run ended are unknown: they would start the same run again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from neve.policy.document import Triggers
from neve.policy.effective import OperationRule
from neve.rewrite.record import RunOutcome
from neve.scheduling.clock import DAY_MS, credible, spelled_time
from neve.scheduling.hold import LIMITED, PAUSED_BY_HAND
from neve.scheduling.observation import Counters, Inspected, LastRun, Observation
from neve.table.units import counted, exact_bytes, exact_seconds, format_bytes, format_seconds

# Thousands of tables share a threshold.
_exact_bytes = lru_cache(maxsize=1024)(exact_bytes)
_exact_seconds = lru_cache(maxsize=1024)(exact_seconds)

IDLE_MS = DAY_MS
"""After a run that found nothing to do, the state of the table does not start another one this soon, unless someone writes."""
_CHANGED = frozenset({None, str(RunOutcome.DONE), str(RunOutcome.PARTLY_DONE)})
"""Outcomes after which the table is no longer as it was inspected before; None is that of releases that kept none."""
_IDLE = frozenset({str(RunOutcome.NOTHING_TO_DO), LIMITED})
STATE_TRIGGERS = frozenset({"small_files", "average_file_size_below", "delete_files", "delete_ratio", "health_below"})


class TriggerCheck(NamedTuple):
    """One trigger: whether it fires, the reason for people, and when it will fire if that is known."""

    fires: bool
    reason: str
    next_ms: int | None = None


class Situation(NamedTuple):
    """What triggers are checked against. `began_ms` is None if the operation never ran, or ran by a clock that was wrong."""

    triggers: Triggers
    seen: Observation
    last: LastRun | None
    began_ms: int | None
    now_ms: int
    in_force_ms: int = 0
    """When the policy that decides, or its team, was changed last."""

    @property
    def ended_ms(self) -> int | None:
        """When the last run ended; None if that is unknown or it changed nothing, so that what was seen before still holds."""
        if self.last is None or self.began_ms is None or self.last.failures or self.last.outcome not in _CHANGED:
            return None
        ended = credible(self.last.finished_ms, self.now_ms)
        return self.began_ms if ended is None else ended

    @property
    def inspected(self) -> Inspected | None:
        """What was inspected since the last run."""
        found, ended = self.seen.inspected, self.ended_ms
        return None if found is None or (ended is not None and found.inspected_ms < ended) else found

    @property
    def is_fresh(self) -> bool:
        """Whether the table was observed since the last run."""
        ended = self.ended_ms
        return ended is None or self.seen.observed_ms >= ended

    @property
    def since(self) -> Counters:
        """What others did since the last run began. All of it, if the counters were reset in the meantime."""
        return growth(self.seen.counters, None if self.last is None else self.last.counters)

    @property
    def idle_until_ms(self) -> int | None:
        """Until when the state of the table is no reason for a run, after one that found nothing to do.

        Somebody who writes, changes the policy or asks for a look ends it.
        """
        last, began = self.last, self.began_ms
        if last is None or began is None or last.outcome not in _IDLE or self.since.commits:
            return None
        if max(self.in_force_ms, self.seen.hinted_ms or 0) > began:
            return None
        until = began + IDLE_MS if last.idle_until_ms is None else min(last.idle_until_ms, began + IDLE_MS)
        return until if until > self.now_ms else None


def growth(counters: Counters, earlier: Counters | None) -> Counters:
    """How far counters have grown. If any is smaller than before, they were reset, and all of it is growth."""
    if earlier is None or counters.commits < earlier.commits or counters.bytes_added < earlier.bytes_added:
        return counters
    return Counters(
        commits=counters.commits - earlier.commits,
        bytes_added=counters.bytes_added - earlier.bytes_added,
        files_added=max(0, counters.files_added - earlier.files_added),
    )


def situation(rule: OperationRule, seen: Observation, last: LastRun | None, now_ms: int, *, in_force_ms: int = 0) -> Situation:
    """What the triggers of a rule are checked against."""
    if last is not None and last.outcome == PAUSED_BY_HAND:
        last = None
    began = None if last is None else credible(last.started_ms, now_ms)
    return Situation(rule.triggers, seen, last, began, now_ms, in_force_ms)


def checks(at: Situation) -> list[TriggerCheck]:
    """Every trigger that is set, checked."""
    names = _active(at.triggers)
    idle = at.idle_until_ms if not STATE_TRIGGERS.isdisjoint(names) else None
    return [_idle(at, idle) if idle is not None and name in STATE_TRIGGERS else _CHECKS[name](at) for name in names]


@lru_cache(maxsize=4096)
def _active(triggers: Triggers) -> tuple[str, ...]:
    return tuple(name for name in _CHECKS if getattr(triggers, name) not in (None, False))


def _idle(at: Situation, until_ms: int) -> TriggerCheck:
    is_limited = at.last is not None and at.last.outcome == LIMITED
    reason = "the last run found nothing to do, and nobody has written since"
    reason = "the last run did nothing, since its limits did not allow it" if is_limited else reason
    return TriggerCheck(False, f"{reason} (checked again at {spelled_time(until_ms)})", until_ms)


def _enough(measured: float, threshold: float, text: str, needed: str, verb: str | None = None) -> TriggerCheck:
    fires, be = measured >= threshold, verb or ("is" if threshold == 1 else "are")
    return TriggerCheck(fires, f"{text} ({needed} {be} {'enough' if fires else 'needed'})")


def _uninspected(at: Situation, what: str) -> TriggerCheck:
    why = "has not been inspected" if at.seen.inspected is None else "has not been inspected since the last run"
    return TriggerCheck(False, f"{what} unknown: the table {why}")


def _small_files(at: Situation) -> TriggerCheck:
    if (found := at.inspected) is None:
        return _uninspected(at, "small files are")
    threshold = at.triggers.small_files or 0
    return _enough(found.small_files, threshold, counted(found.small_files, "small file"), f"{threshold:,}")


def _health(at: Situation) -> TriggerCheck:
    if (found := at.inspected) is None:
        return _uninspected(at, "health is")
    threshold = at.triggers.health_below or 0
    if found.health < threshold:
        return TriggerCheck(True, f"health {found.health} (below {threshold})")
    return TriggerCheck(False, f"health {found.health} (due below {threshold})")


def _totals(at: Situation) -> tuple[int | None, int | None, int | None]:
    """Data files, their bytes and delete files: by the snapshot's summary, else by the inspection."""
    if not at.is_fresh:
        return None, None, None
    seen, found = at.seen, at.inspected
    if found is None:
        return seen.data_files, seen.total_bytes, seen.delete_files
    return (
        found.data_files if seen.data_files is None else seen.data_files,
        found.data_bytes if seen.total_bytes is None else seen.total_bytes,
        found.delete_files if seen.delete_files is None else seen.delete_files,
    )


def _unknown_total(at: Situation, what: str) -> TriggerCheck:
    why = "the snapshot's summary lacks it" if at.is_fresh else "the table has not been observed since the last run"
    return TriggerCheck(False, f"{what} is unknown: {why}")


def _average(at: Situation) -> TriggerCheck:
    files, size, _ = _totals(at)
    if files is None or size is None:
        return _unknown_total(at, "average file size")
    if files < 2:
        return TriggerCheck(False, f"{counted(files, 'data file')} (2 are needed)")
    limit, text = at.triggers.average_file_size_below or 0, f"average file size {format_bytes(size / files)}"
    if size < limit * files:
        return TriggerCheck(True, f"{text} (below {_exact_bytes(limit)})")
    return TriggerCheck(False, f"{text} (due below {_exact_bytes(limit)})")


def _delete_files(at: Situation) -> TriggerCheck:
    _, _, deletes = _totals(at)
    if deletes is None:
        return _unknown_total(at, "number of delete files")
    threshold = at.triggers.delete_files or 0
    return _enough(deletes, threshold, counted(deletes, "delete file"), f"{threshold:,}")


def _delete_ratio(at: Situation) -> TriggerCheck:
    files, _, deletes = _totals(at)
    if files is None or deletes is None:
        return _unknown_total(at, "ratio of delete files")
    ratio, threshold = deletes / max(1, files), at.triggers.delete_ratio or 0.0
    text = f"{ratio:.3g} delete files per data file"
    return (
        TriggerCheck(True, f"{text} ({threshold:g} is enough)")
        if ratio >= threshold
        else TriggerCheck(False, f"{text} (due at {threshold:g})")
    )


def _origin(at: Situation) -> str:
    return "since the table was first seen" if at.last is None else "since the last run"


def _bytes_added(at: Situation) -> TriggerCheck:
    added, threshold = at.since.bytes_added, at.triggers.bytes_added or 0
    return _enough(added, threshold, f"{format_bytes(added)} added {_origin(at)}", _exact_bytes(threshold), "is")


def _commits(at: Situation) -> TriggerCheck:
    commits, threshold = at.since.commits, at.triggers.commits or 0
    return _enough(commits, threshold, f"{counted(commits, 'commit')} {_origin(at)}", f"{threshold:,}")


def _since_last_run(at: Situation) -> TriggerCheck:
    seconds = at.triggers.since_last_run or 0.0
    if at.began_ms is None:
        return TriggerCheck(True, "it never ran here" if at.last is None else "the time of its last run is in the future")
    due_ms = at.began_ms + round(seconds * 1000)
    text = f"last ran {format_seconds((at.now_ms - at.began_ms) / 1000)} ago"
    if at.now_ms >= due_ms:
        return TriggerCheck(True, f"{text} (due after {_exact_seconds(seconds)})")
    return TriggerCheck(False, f"{text} (due after {_exact_seconds(seconds)}, at {spelled_time(due_ms)})", due_ms)


def _hint(at: Situation) -> TriggerCheck:
    hinted = at.seen.hinted_ms
    if hinted is None:
        return TriggerCheck(False, "no writer asked for it")
    if hinted > at.now_ms:
        # It would be newer than every run until then.
        return TriggerCheck(False, f"a writer asked for it at a time in the future, {spelled_time(hinted)}", hinted)
    if at.began_ms is not None and hinted <= at.began_ms:
        return TriggerCheck(False, "no writer asked for it since the last run")
    return TriggerCheck(True, f"a writer asked for it at {spelled_time(hinted)}")


_CHECKS: dict[str, Callable[[Situation], TriggerCheck]] = {
    "small_files": _small_files,
    "average_file_size_below": _average,
    "delete_files": _delete_files,
    "delete_ratio": _delete_ratio,
    "health_below": _health,
    "bytes_added": _bytes_added,
    "commits": _commits,
    "since_last_run": _since_last_run,
    "hint": _hint,
}
