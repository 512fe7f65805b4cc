"""A job: one operation that is wanted on one table, from the decision to its end. Pure values; `state.jobs` keeps them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from neve.scheduling.observation import Counters
from neve.table.frozen import Frozen


class JobState(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_STATES = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class Spent(Frozen):
    """What a run uses, predicted or measured, and the version of the price sheet. None means unknown."""

    bytes: int | None = None
    core_seconds: float | None = None
    money: float | None = None
    requests: dict[str, int] = {}
    """By kind: read, write, list, delete, catalog."""
    prices: str = ""


class Decision(Frozen):
    """A job that the scheduler wants: operation, table, policy and reason."""

    table: str
    table_uuid: str
    operation: str
    options: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    """Bounds of this run, such as `max-bytes`. They only tighten what holds for the table."""
    policy: str = ""
    owner: str = ""
    reason: str
    """For people: `212 small files (200 are enough)`."""
    rank: float = 0.0
    """Higher goes first."""
    queue_clock: float = 0.0
    """The virtual clock of the queue when the job entered it, by which `rank` was computed. Kept, so that the clock never goes
    back while a job waits; see `scheduling.rank`."""
    target: str = "local"
    target_reason: str = ""
    not_before_ms: int = 0
    not_after_ms: int | None = None
    """When its window closes: the job does not begin later. None if it may begin at any time."""
    scopes: tuple[str, ...] = ()
    """Whose day limits the run counts against, as in `DayLimit.scope`. If empty, those of its policy and its owner."""
    predicted: Spent = Spent()
    counters: Counters = Counters()
    """Of the table when it was decided."""


class Job(Decision):
    """A decision in the queue."""

    job_id: str
    state: JobState = JobState.WAITING
    created_ms: int
    attempts: int = 0
    """Number of claims."""
    deaths: int = 0
    """Number of claims that ended without a word from their worker."""
    claimed_by: str | None = None
    token: int = 0
    """Grows with every claim. A worker with an older token can write nothing."""
    until_ms: int | None = None
    """When the claim ends, unless a heartbeat moves it."""
    started_ms: int | None = None
    finished_ms: int | None = None
    run_id: str | None = None
    """The run that the job led to."""
    outcome: str | None = None
    message: str | None = None
    """One line: what the run did, or why it failed."""
    actual: Spent | None = None
    cancel_requested_ms: int | None = None
    """When someone asked for a cancellation while the job was claimed. Its worker sees this at the next heartbeat."""
