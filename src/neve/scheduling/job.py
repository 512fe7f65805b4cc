"""A job: one operation that is wanted on one table, from the decision to its end. Pure values; `state.jobs` keeps them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from neve.scheduling.observation import Counters
from neve.table.frozen import Frozen


class JobState(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class Spent(Frozen):
    """What a run takes, predicted or measured, and the version of the prices. None is not known."""

    bytes: int | None = None
    core_seconds: float | None = None
    money: float | None = None
    requests: dict[str, int] = {}
    """By kind: read, write, list, delete, catalog."""
    prices: str = ""


class Decision(Frozen):
    """A job that the scheduler wants: what, where, by which policy and why."""

    table: str
    table_uuid: str
    operation: str
    options: dict[str, Any] = {}
    policy: str = ""
    owner: str = ""
    reason: str
    """For people: `212 small files (200 are enough)`."""
    rank: float = 0.0
    """Higher goes first."""
    target: str = "local"
    target_reason: str = ""
    not_before_ms: int = 0
    predicted: Spent = Spent()
    counters: Counters = Counters()
    """Of the table when it was decided."""


class Job(Decision):
    """A decision in the queue."""

    job_id: str
    state: JobState = JobState.WAITING
    created_ms: int
    attempts: int = 0
    """How often it was claimed."""
    claimed_by: str | None = None
    token: int = 0
    """Grows with every claim; whoever has an old one can write nothing."""
    until_ms: int | None = None
    """When the claim ends, unless a heartbeat moves it."""
    started_ms: int | None = None
    finished_ms: int | None = None
    run_id: str | None = None
    """Of the run that it led to."""
    outcome: str | None = None
    told: str | None = None
    """The run's own account in a line, or what went wrong."""
    actual: Spent | None = None
