"""What the end of an operation means for its job: done, failed, cancelled, or to be tried again. Pure; called by `worker`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from neve.commit.failure import Failure
from neve.errors import LeaseHeldError, NeveError, RunTakenOverError, StateError, TableGoneError, TableNotFoundError
from neve.render.records import line_of
from neve.rewrite.record import Record, RunOutcome, RunRecord
from neve.rewrite.usage import Used
from neve.scheduling.hold import LIMITED
from neve.scheduling.job import JobState, Spent
from neve.scheduling.triggers import IDLE_MS

BUSY_SECONDS = 60
"""How long a job waits whose table another run holds."""
MAX_ATTEMPTS = 20
"""A job that was claimed this often fails if its table is still held."""
MAX_RETRIES = 5
"""A job that was claimed this often fails if what went wrong could pass, such as a catalog that does not answer."""
_RETRY_SECONDS = 30.0
_LIMITED_MS = 3_600_000
MAX_DEATHS = 3
"""A job during which so many workers died fails, since it may be what kills them."""


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. `WAITING` puts it back into the queue, not before `retry_seconds` have passed."""

    state: JobState
    outcome: str
    message: str
    run_id: str | None = None
    actual: Spent | None = None
    retry_seconds: float = 0.0
    idle_until_ms: int | None = None
    """Until when the state of the table is no reason for another run."""

    @classmethod
    def of_record(cls, record: Record, actual: Spent, knobs: Mapping[str, Any] | None = None) -> JobEnd:
        """The end of a job whose operation returned this record; `knobs` are the bounds that the job set."""
        line = line_of(record)
        if record.outcome is RunOutcome.FAILED:
            return cls(JobState.FAILED, record.outcome.value, _with_reason(line, record), record.run_id, actual)
        end = cls(JobState.DONE, record.outcome.value, line, record.run_id, actual)
        if record.outcome is not RunOutcome.NOTHING_TO_DO:
            return end
        if any(rule.knob in (knobs or {}) for rule in record.not_due):
            return replace(end, outcome=LIMITED, idle_until_ms=record.finished_ms + _LIMITED_MS)
        return replace(end, idle_until_ms=_due_by_time(record))

    @classmethod
    def of_error(cls, error: Exception, attempts: int) -> JobEnd:
        """The end of a job whose operation raised."""
        reason = Failure.of(error).reason
        if isinstance(error, LeaseHeldError | RunTakenOverError) and attempts < MAX_ATTEMPTS:
            return cls(JobState.WAITING, "busy", reason, retry_seconds=BUSY_SECONDS)
        if isinstance(error, TableNotFoundError | TableGoneError):
            return cls(JobState.CANCELLED, "table-gone", reason)
        # While the state store was away, nothing can be said against the table.
        may_pass = isinstance(error, StateError) or (isinstance(error, NeveError) and error.retryable)
        if may_pass and attempts < MAX_RETRIES:
            return cls(JobState.WAITING, "retry", reason, retry_seconds=_RETRY_SECONDS * 2 ** max(0, attempts - 1))
        hint = f" {error.hint}" if isinstance(error, NeveError) and error.hint else ""
        return cls(JobState.FAILED, getattr(error, "code", "unexpected"), reason + hint)

    @classmethod
    def of_deaths(cls, deaths: int) -> JobEnd:
        """The end of a job during which too many workers died."""
        reason = f"{deaths} workers died while they ran it, or could not reach the state store"
        return cls(JobState.FAILED, "worker-died", f"{reason}; their logs say more")


def _with_reason(line: str, record: Record) -> str:
    """The line, with why the first group failed if it does not say so."""
    groups = record.groups if isinstance(record, RunRecord) else ()
    reason = next((group.reason for group in groups if group.reason), None)
    return line if reason is None or reason in line else f"{line}. {reason}"


def _due_by_time(record: Record) -> int | None:
    """When time alone makes the operation due, if that is within a day."""
    moments = [rule.due_ms for rule in record.not_due if rule.due_ms is not None and rule.more is None and rule.until is None]
    latest = record.started_ms + IDLE_MS
    return max(record.finished_ms, min([*moments, latest]))


def used(record: Any, *, core_hour: float, prices: str) -> Spent:
    """What a run used, as its record says. What was not measured is estimated by its time, so that budgets count something."""
    size = record.bytes_read + record.bytes_written if isinstance(record, RunRecord) else None
    measured: Used = getattr(record, "used", None) or Used()
    requests = measured.requests.known
    seconds = measured.cpu_seconds.total
    if seconds is not None:
        return Spent(bytes=size, core_seconds=seconds, money=measured.money, requests=requests, prices=measured.prices)
    seconds = _estimated_seconds(record)
    money = None if seconds is None else seconds * core_hour / 3600
    return Spent(bytes=size, core_seconds=seconds, money=money, requests=requests, prices=prices)


def _estimated_seconds(record: Any) -> float | None:
    """CPU time of groups where it was measured, else the run's wall time on one core."""
    groups = record.groups if isinstance(record, RunRecord) else ()
    measured = [group.cpu_seconds for group in groups if group.cpu_seconds is not None]
    return sum(measured) if measured else getattr(record, "seconds", None)
