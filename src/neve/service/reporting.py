"""Between one worker and the queue: claims, heartbeats, and how a job ended, with the pause and the notices that follow.

Called by `worker`, in its main thread and in that of the heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.scheduling.backoff import DEFAULT_BACKOFF, Backoff
from neve.scheduling.job import Job, JobState
from neve.scheduling.notice import JobFailure, NoticeContent, NoticeKind, TablePause, TableRecovery
from neve.scheduling.observation import Counters
from neve.service.heartbeat import Interruption
from neve.service.job_end import MAX_DEATHS, JobEnd

if TYPE_CHECKING:
    from neve.ports import Clock
    from neve.state import StateStore
    from neve.state.notices import NewNotice


@dataclass(frozen=True)
class Concurrency:
    """The most jobs at a time, by team and by target."""

    per_owner: Mapping[str, int]
    per_target: Mapping[str, int]


@dataclass(frozen=True)
class Reporter:
    """What one worker asks of the queue, and tells it."""

    store: StateStore
    worker: str
    target: str
    clock: Clock
    concurrency: Callable[[], Concurrency]
    backoff: Backoff = DEFAULT_BACKOFF

    def claim(self, seconds: float) -> Job | None:
        """Claims the next job of the worker's target and notes that it begins; None if there is none.

        A job during which too many workers died fails instead.
        """
        while (job := self._claim(seconds)) is not None and job.deaths >= MAX_DEATHS:
            self.finish(job, JobEnd.of_deaths(job.deaths))
        if job is None or not self.store.jobs.start(job, now_ms=self.clock.now_ms(), counters=self._counters(job)):
            return None
        return job

    def _claim(self, seconds: float) -> Job | None:
        bounds = self.concurrency()
        return self.store.jobs.claim(
            self.worker,
            now_ms=self.clock.now_ms(),
            claim_ms=_milliseconds(seconds),
            targets=[self.target],
            per_owner=bounds.per_owner,
            per_target=bounds.per_target,
        )

    def beat(self, job: Job, seconds: float) -> Interruption | None:
        """Keeps the claim; returns why the job must stop, if it must."""
        now_ms = self.clock.now_ms()
        self.store.roles.beat(self.worker, now_ms=now_ms, hold_ms=_milliseconds(seconds), doing=f"{job.operation} {job.table}")
        found = self.store.jobs.beat(job, now_ms=now_ms, claim_ms=_milliseconds(seconds))
        if found is None:
            return Interruption.LOST
        return Interruption.CANCELLED if found.cancel_requested_ms is not None else None

    def idle(self, seconds: float) -> None:
        """Notes that the worker is alive and has nothing to do."""
        self.store.roles.beat(self.worker, now_ms=self.clock.now_ms(), hold_ms=_milliseconds(seconds))

    def leave(self) -> None:
        """Notes that the worker ends."""
        self.store.roles.leave(self.worker)

    def finish(self, job: Job, end: JobEnd) -> bool:
        """Records how a job ended, or gives it back; False, and nothing, if it belongs to another worker by now."""
        now_ms = self.clock.now_ms()
        if end.state is JobState.WAITING:
            wait_ms = _milliseconds(end.retry_seconds)
            return self.store.jobs.release(job, now_ms=now_ms, wait_ms=wait_ms, message=end.message)
        before = self._failures(job)
        pause_ms = self.backoff.pause_ms(before + 1, job.table_uuid) if end.state is JobState.FAILED else 0
        until_ms = now_ms + pause_ms if pause_ms else None
        return self.store.jobs.finish(
            job,
            state=end.state,
            outcome=end.outcome,
            message=end.message,
            now_ms=now_ms,
            actual=end.actual,
            run_id=end.run_id,
            paused_until_ms=until_ms,
            idle_until_ms=end.idle_until_ms,
            notices=[_new(job, content) for content in self._news(job, end, before, now_ms, until_ms)],
        )

    def _counters(self, job: Job) -> Counters:
        seen = self.store.fleet.by_uuid([job.table_uuid]).get(job.table_uuid)
        return job.counters if seen is None else seen.counters

    def _failures(self, job: Job) -> int:
        last = self.store.jobs.last_runs([job.table_uuid]).get(job.table_uuid, {}).get(job.operation)
        return 0 if last is None else last.failures

    def _news(self, job: Job, end: JobEnd, before: int, now_ms: int, until_ms: int | None) -> Iterator[NoticeContent]:
        """People hear of the first failure, then at some numbers of failures in a row, and when it is over."""
        about = {"table": job.table, "operation": job.operation, "policy": job.policy, "run_id": end.run_id, "at_ms": now_ms}
        if end.state is JobState.DONE and before:
            yield TableRecovery(**about, failures=before, was_paused=before >= min(self.backoff.alert_after, default=0))
        if end.state is not JobState.FAILED or until_ms is None:
            return
        if self.backoff.alerts(before + 1):
            yield TablePause(**about, reason=end.message, failures=before + 1, until_ms=until_ms)
        elif before == 0:
            yield JobFailure(**about, reason=end.message, failures=1, next_ms=until_ms)


_KINDS: Mapping[type[NoticeContent], NoticeKind] = {
    JobFailure: NoticeKind.FAILURE,
    TablePause: NoticeKind.PAUSE,
    TableRecovery: NoticeKind.RECOVERY,
}


def _new(job: Job, content: NoticeContent) -> NewNotice:
    from neve.state.notices import NewNotice

    return NewNotice(kind=_KINDS[type(content)].value, owner=job.owner, content=content.model_dump(mode="json"))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
