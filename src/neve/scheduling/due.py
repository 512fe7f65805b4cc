"""Whether an operation is due on a table now, and why or why not. Pure; called by `decide`, and by surfaces that explain.

One trigger or one cron time since the last run makes it due; cron times that passed while nobody ran count once. A pause after
failures, `at-most-every`, `quiet-for`, windows and blackouts hold it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from neve.policy.document import Schedule
from neve.policy.effective import OperationRule
from neve.policy.schedule_times import is_open, last_start, next_closing, next_opening, next_start
from neve.scheduling.backoff import paused_until
from neve.scheduling.clock import credible, spelled_time
from neve.scheduling.hold import HoldCode
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.triggers import Situation, TriggerCheck, checks, situation
from neve.table.units import counted, exact_seconds, format_seconds

# Thousands of tables share a schedule, and a tick asks about one time.
_last_start = lru_cache(maxsize=1024)(last_start)
_next_start = lru_cache(maxsize=1024)(next_start)
_is_open = lru_cache(maxsize=1024)(is_open)
_next_opening = lru_cache(maxsize=1024)(next_opening)
closing_ms = lru_cache(maxsize=1024)(next_closing)
"""When work that may begin at a moment may no longer begin; None if that does not come soon."""


class Due(NamedTuple):
    """Whether an operation is due, and the reason for people."""

    is_due: bool
    reason: str
    next_ms: int | None = None
    """When it will be due, if that is known."""
    code: HoldCode | None = None
    """The kind of reason for which it is not due."""


def judge(rule: OperationRule, seen: Observation, last: LastRun | None, now_ms: int, *, since_ms: int = 0) -> Due:
    """Whether an operation is due on a table now.

    `since_ms` is when the rule came into force on the table. If the operation never ran there, cron times before do not count.
    """
    at = situation(rule, seen, last, now_ms, in_force_ms=since_ms)
    if (paused := _paused(last, now_ms)) is not None:
        return paused
    found = _checked(rule, at, since_ms)
    reasons = [check.reason for check in found if check.fires]
    if not reasons:
        return _not_due(found)
    return _held_back(rule, at, "; ".join(reasons)) or Due(is_due=True, reason="; ".join(reasons))


def _checked(rule: OperationRule, at: Situation, since_ms: int) -> list[TriggerCheck]:
    found = checks(at)
    if rule.schedule.cron:
        found.append(_cron(rule.schedule, at, since_ms))
    if at.last is not None and at.last.failures and found:
        found.append(TriggerCheck(True, f"trying again after {counted(at.last.failures, 'failure')}"))
    return found


def _cron(schedule: Schedule, at: Situation, since_ms: int) -> TriggerCheck:
    started = _last_start(schedule, at.now_ms)
    # A run of a time that cannot be believed is no reason to wait; the next one will have a time that can.
    since = at.began_ms if at.began_ms is not None else (since_ms if at.last is None else 0)
    if started is not None and started > since:
        return TriggerCheck(True, f"scheduled for {spelled_time(started, schedule.time_zone)}")
    coming = _next_start(schedule, at.now_ms)
    if coming is None:
        return TriggerCheck(False, "its schedule has no further time")
    return TriggerCheck(False, f"scheduled for {spelled_time(coming, schedule.time_zone)}", coming)


def _not_due(found: Iterable[TriggerCheck]) -> Due:
    found = list(found)
    reason = "; ".join(check.reason for check in found) or "the policy has no trigger and no cron time for it"
    return Due(is_due=False, reason=reason, next_ms=earliest(check.next_ms for check in found), code=HoldCode.NOT_DUE)


def _paused(last: LastRun | None, now_ms: int) -> Due | None:
    until = None if last is None else paused_until(last, now_ms)
    if last is None or until is None:
        return None
    after = f" after {counted(last.failures, 'failure')}" if last.failures else ""
    reason = f"paused until {spelled_time(until)}{after}"
    return Due(is_due=False, reason=reason, next_ms=until, code=HoldCode.PAUSED)


def _held_back(rule: OperationRule, at: Situation, why: str) -> Due | None:
    return _too_recent(at, why) or _too_busy(at, why) or _closed(rule.schedule, at.now_ms, why)


def _too_recent(at: Situation, why: str) -> Due | None:
    """A run that failed does not count: its pause says when the next one may start."""
    seconds = at.triggers.at_most_every
    if seconds is None or at.began_ms is None or (at.last is not None and at.last.failures):
        return None
    open_ms = at.began_ms + round(seconds * 1000)
    if at.now_ms >= open_ms:
        return None
    text = f"{why}; last ran {format_seconds((at.now_ms - at.began_ms) / 1000)} ago"
    reason = f"{text} (at most every {exact_seconds(seconds)}, so from {spelled_time(open_ms)})"
    return Due(is_due=False, reason=reason, next_ms=open_ms, code=HoldCode.RECENT)


def _too_busy(at: Situation, why: str) -> Due | None:
    seconds, written = at.triggers.quiet_for, credible(at.seen.last_write_ms, at.now_ms)
    if seconds is None or written is None:
        return None
    quiet_ms = written + round(seconds * 1000)
    if at.now_ms >= quiet_ms:
        return None
    text = f"{why}; last written {format_seconds((at.now_ms - written) / 1000)} ago"
    reason = f"{text} (quiet for {exact_seconds(seconds)} is needed, so from {spelled_time(quiet_ms)})"
    return Due(is_due=False, reason=reason, next_ms=quiet_ms, code=HoldCode.WRITING)


def _closed(schedule: Schedule, now_ms: int, why: str) -> Due | None:
    if not (schedule.windows or schedule.blackouts) or _is_open(schedule, now_ms):
        return None
    opening = _next_opening(schedule, now_ms)
    opens = "never opens" if opening is None else f"opens at {spelled_time(opening, schedule.time_zone)}"
    return Due(is_due=False, reason=f"{why}; outside its windows ({opens})", next_ms=opening, code=HoldCode.CLOSED)


def earliest(times: Iterable[int | None]) -> int | None:
    """The first of these times, without those that are unknown."""
    return min((time for time in times if time is not None), default=None)
