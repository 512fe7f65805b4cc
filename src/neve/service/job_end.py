"""What the end of an operation means for its job: done, failed, cancelled, or to be tried again. Pure; called by `worker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neve.commit.failure import Failure
from neve.errors import LeaseHeldError, NeveError, RunTakenOverError, StateError, TableGoneError, TableNotFoundError
from neve.render.records import line_of
from neve.rewrite.record import Record, RunOutcome, RunRecord
from neve.rewrite.usage import Used
from neve.scheduling.job import JobState, Spent

BUSY_SECONDS = 60
"""How long a job waits whose table another run holds."""
MAX_ATTEMPTS = 20
"""A job that was claimed this often fails if its table is still held."""
MAX_RETRIES = 5
"""A job that was claimed this often fails if what went wrong could pass, such as a catalog that does not answer."""
_RETRY_SECONDS = 30.0
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

    @classmethod
    def of_record(cls, record: Record, actual: Spent) -> JobEnd:
        """The end of a job whose operation returned this record."""
        state = JobState.FAILED if record.outcome is RunOutcome.FAILED else JobState.DONE
        return cls(state, record.outcome.value, line_of(record), record.run_id, actual)

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
