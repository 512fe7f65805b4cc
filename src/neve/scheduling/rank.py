"""The order of what is due: value per cost with ageing, so that nothing starves. Pure; called by `decide`.

Two orders, both without state of their own:

- *Admission*, for places in a day's budget: weight times the time since the operation last ran on the table. With weights from
  1 to 8, nothing is passed by what ran less than an eighth as long ago.
- *Rank in the queue*: a virtual clock, as in weighted fair queueing. A job enters the queue at `clock + 8 / weight`, and the
  smallest goes first. The clock is the smallest entry that waits, so it moves as jobs are served, not with time: clocks that
  jump change nothing. Every job enters 1 to 8 behind the clock. So while a job waits, each other operation on a table is served
  at most 8 times before it, and with k of them always due, a job is served after at most 8 (k - 1) others.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from neve.scheduling.clock import DAY_MS, credible
from neve.scheduling.job import Job
from neve.scheduling.observation import LastRun
from neve.scheduling.value import MAX_WEIGHT

MAX_PASSED = 8
"""How often one operation on a table is served, at most, while another one waits."""
NEVER_RAN_MS = 30 * DAY_MS
"""How long an operation counts as waiting that never ran on a table, if nothing else is known."""


def waited_ms(last: LastRun | None, now_ms: int, *, since_ms: int = 0) -> int:
    """How long ago an operation last ran on a table, or how long it has been wanted there."""
    began = None if last is None else credible(last.started_ms, now_ms)
    if began is not None:
        return now_ms - began
    since = credible(since_ms, now_ms) if since_ms else None
    return NEVER_RAN_MS if since is None else now_ms - since


def admission(weight: float, waited: int) -> float:
    """The order in which what is due gets a place in the budgets; the largest is first."""
    return weight * max(waited, 1)


def queue_clock(waiting: Iterable[Job], claimed: Iterable[Job], *, can_start: Iterable[Job] | None = None) -> float:
    """The virtual clock of the queue.

    Jobs that cannot start now, as their team or table is busy, do not hold it; nor do those that people asked for.
    """
    waiting = [job for job in waiting if is_ranked(job)]
    claimed = [job for job in claimed if is_ranked(job)]
    free = waiting if can_start is None else [job for job in can_start if is_ranked(job)]
    entered = [job.queue_clock for job in (*waiting, *claimed)]
    return max(0.0, min((-job.rank for job in free), default=0.0), *(-job.rank for job in claimed), *entered)


def is_ranked(job: Job) -> bool:
    """Whether the rank of a job is by the virtual clock: a policy wanted it."""
    return bool(job.policy) and isfinite(job.rank)


def rank(weight: float, clock: float) -> float:
    """The rank of a job that enters the queue; higher goes first."""
    return -(clock + MAX_WEIGHT / weight)
