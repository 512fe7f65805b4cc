"""A worker: claims jobs of one target, one at a time, has each carried out, and reports how it ended.

Runs in a process of its own (`neve worker`, started by `supervisor`) with one Spark session for all jobs. A claim does not
protect a table: the lease on the table does, as for commands typed by hand. A worker that was paused beyond its claim can
report nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.commit.failure import was_interrupted
from neve.errors import NeveError, StateError, StateReplacedError
from neve.scheduling.job import Job, JobState
from neve.service.heartbeat import Heartbeat, Interruption
from neve.service.job_end import JobEnd

if TYPE_CHECKING:
    from neve.service.reporting import Reporter
    from neve.settings import ServiceSettings

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
_BEATS = 4
"""Heartbeats in the time of a claim."""
_INTERRUPTED_SECONDS = 5.0
_REPORT_SECONDS = 600.0
"""How long the end of a job waits for a state store that is away. Without it, no other job can be claimed either."""


def end_process() -> None:
    """Ends this process at once. Whatever it started ends by itself, and the next worker resumes the run."""
    os._exit(1)


@dataclass
class Worker:
    """Carries out the jobs of one target. `should_leave` says why the process should be replaced, None if it need not."""

    carry_out: Callable[[Job], JobEnd]
    reporter: Reporter
    settings: ServiceSettings
    should_leave: Callable[[int], str | None] = lambda _: None
    parent: int | None = None
    """The process that started this one. The worker ends when that has ended."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the worker should claim nothing more."""
    is_interrupted: bool = False
    """Set when this process was interrupted: what a job raises after that, such as Spark cut off while it starts, is no
    failure."""
    end_process: Callable[[], None] = end_process
    done: int = 0

    def work(self) -> str | None:
        """Works until it is asked to stop, or until the process should be replaced; returns why, None for a stop."""
        while not self.stop.is_set():
            if self.parent is not None and os.getppid() != self.parent:
                return "the service has ended"
            if (why := self.should_leave(self.done)) is not None:
                return why
            if not self._worked():
                self.stop.wait(POLL_SECONDS)
        return None

    def _worked(self) -> bool:
        try:
            if self.run_next() is not None:
                return True
            self.reporter.idle(self.settings.claim_seconds)
            return False
        except StateReplacedError:
            raise
        except StateError as error:
            log.warning("the state store cannot be used: %s", error)
            return False

    def run_next(self) -> Job | None:
        """Claims the next job and carries it out; None if there is none."""
        self.reporter.store.require_in_place()
        job = self.reporter.claim(self.settings.claim_seconds)
        if job is None:
            return None
        log.info("%s: %s begins", job.table, job.operation)
        end = self._carried_out(job)
        self.done += 1
        if self._reported(job, end):
            log.info("%s: %s %s: %s", job.table, job.operation, _verb(end), end.message)
        else:
            log.warning("%s: %s ended, and was not recorded: the job belongs to another worker", job.table, job.operation)
        return job

    def _carried_out(self, job: Job) -> JobEnd:
        self.is_interrupted = False
        heartbeat = Heartbeat(
            lambda: self.reporter.beat(job, self.settings.claim_seconds),
            seconds=self.settings.claim_seconds / _BEATS,
            max_seconds=self.settings.max_job_seconds,
            on_hang=lambda why: self._hang(job, why),
        )
        try:
            with heartbeat:
                return self.carry_out(job)
        except KeyboardInterrupt:
            return self._interrupted(heartbeat.interruption)
        except Exception as error:
            if was_interrupted(error) or heartbeat.interruption is not None or self.is_interrupted:
                return self._interrupted(heartbeat.interruption)
            if not isinstance(error, NeveError):
                log.exception("%s: %s raised", job.table, job.operation)
            return JobEnd.of_error(error, job.attempts)

    def _interrupted(self, why: Interruption | None) -> JobEnd:
        if why is None:  # by a person or the supervisor, who want no further job either
            self.stop.set()
        return interrupted_end(why)

    def interrupt(self, *_: object) -> None:
        """For a signal: interrupts the job, which then goes back into the queue."""
        self.is_interrupted = True
        raise KeyboardInterrupt

    def _hang(self, job: Job, why: Interruption) -> None:
        """Called in the thread of the heartbeat."""
        try:
            self.reporter.finish(job, interrupted_end(why))
        except StateError as error:
            log.warning("the state store cannot be used: %s", error)
        finally:
            self.end_process()

    def _reported(self, job: Job, end: JobEnd) -> bool:
        ends = time.monotonic() + _REPORT_SECONDS
        while True:
            try:
                return self.reporter.finish(job, end)
            except StateError as error:
                if self.stop.is_set() or time.monotonic() > ends:
                    raise
                log.warning("%s: the end of %s cannot be recorded yet: %s", job.table, job.operation, error)
                self.stop.wait(POLL_SECONDS)


def interrupted_end(why: Interruption | None) -> JobEnd:
    """The end of a job that was interrupted. If its worker was told to stop, the next claim resumes its run."""
    if why is Interruption.TOO_LONG:
        return JobEnd(JobState.FAILED, "too-long", str(why))
    if why is Interruption.CANCELLED:
        return JobEnd(JobState.CANCELLED, "cancelled", "cancelled while it ran; what had been committed stays")
    message = str(why or "the service was stopped")
    return JobEnd(JobState.WAITING, "interrupted", message, retry_seconds=_INTERRUPTED_SECONDS)


def _verb(end: JobEnd) -> str:
    verbs: dict[JobState, str] = {
        JobState.DONE: "is done",
        JobState.FAILED: "failed",
        JobState.CANCELLED: "was cancelled",
        JobState.WAITING: "waits",
    }
    return verbs[end.state]
