"""What happened in a day, from the state store: jobs, the records of their runs, pauses, and what waits.

`open_digests` is called by the scheduler when it starts. Jobs are read in pages, and the records of runs one by one, as a fleet
may have tens of thousands a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.scheduling.job import Job, JobState
from neve.scheduling.notice import TableLine
from neve.scheduling.observation import LastRun
from neve.service.notify.digest import DayTally, DigestPeriod, DigestWriter, Gain

if TYPE_CHECKING:
    from neve.settings.notifications import NotificationSettings
    from neve.state import StateStore

PAGE = 1_000


def open_digests(store: StateStore, settings: NotificationSettings) -> DigestWriter:
    """Writes digests of what is in the store into its notices. Kept for as long as the process schedules."""
    return DigestWriter(StoredDays(store), store.notices, settings)


@dataclass(frozen=True)
class StoredDays:
    """Days as the state store has them."""

    store: StateStore

    def day_tallies(self, period: DigestPeriod) -> Mapping[str, DayTally]:
        """What happened in the period, by team, with the pauses of now and the jobs that have waited since before its end."""
        tallies: dict[str, DayTally] = defaultdict(DayTally)
        for job in self._ended(period):
            tallies[job.owner].add_ended(job, self._gain(job))
        for owner, line in self._paused(period):
            tallies[owner].add_paused(line)
        for job in self.store.jobs.waiting():
            if job.created_ms < period.until_ms:
                tallies[job.owner].add_waiting(job)
        return tallies

    def _ended(self, period: DigestPeriod) -> Iterator[Job]:
        """Jobs that ended in the period, the newest first."""
        from neve.state.job_reading import JobFilter

        wanted, after = JobFilter(finished_since_ms=period.from_ms), None
        while page := self.store.jobs.jobs(wanted, limit=PAGE, after=after):
            yield from (job for job in page if job.finished_ms is not None and job.finished_ms < period.until_ms)
            after = (page[-1].created_ms, page[-1].job_id)

    def _gain(self, job: Job) -> Gain | None:
        if job.state is not JobState.DONE or job.run_id is None:
            return None
        return self._gain_of_run(job.run_id)

    def _gain_of_run(self, run_id: str) -> Gain | None:
        run = self.store.run(run_id)
        if run is None:
            return None
        if run.kind == "maintain":
            steps = [step["run_id"] for step in run.record.get("steps", ()) if step.get("run_id")]
            found = [gain for gain in map(self._gain_of_run, steps) if gain is not None]
            return Gain(files_fewer=sum(g.files_fewer for g in found), bytes_freed=sum(g.bytes_freed for g in found))
        return gain_of(run.kind, run.record)

    def _paused(self, period: DigestPeriod) -> Iterator[tuple[str, TableLine]]:
        """Operations that are paused at the end of the period, with their teams."""
        last_runs = self.store.jobs.last_runs()
        paused = [(uuid, run) for uuid, runs in last_runs.items() for run in runs.values() if _is_paused(run, period)]
        names = self.store.fleet.by_uuid([uuid for uuid, _ in paused])
        for uuid, run in paused:
            job = self._last_job(uuid, run.operation)
            table = names[uuid].table if uuid in names else job.table if job is not None else uuid
            text = job.message or "" if job is not None and run.failures else ""
            line = TableLine(table=table, operation=run.operation, text=text, at_ms=run.paused_until_ms)
            yield job.owner if job is not None else "", line

    def _last_job(self, table_uuid: str, operation: str) -> Job | None:
        from neve.state.job_reading import JobFilter

        states = frozenset({JobState.FAILED, JobState.DONE, JobState.CANCELLED})
        found = self.store.jobs.jobs(JobFilter(table_uuid=table_uuid, operation=operation, states=states), limit=1)
        return found[0] if found else None


def gain_of(kind: str, record: Mapping[str, Any]) -> Gain | None:
    """What a run gained by its record; None for a dry run, and for kinds that gain neither files nor bytes."""
    reader = None if record.get("dry_run") else _GAINS.get(kind)
    return None if reader is None else reader(record)


def _is_paused(run: LastRun, period: DigestPeriod) -> bool:
    return run.paused_until_ms is not None and run.paused_until_ms > period.until_ms


def _rewritten(record: Mapping[str, Any]) -> Gain:
    return Gain(files_fewer=record.get("files_compacted", 0) - record.get("files_written", 0))


def _deletes(record: Mapping[str, Any]) -> Gain:
    return Gain(files_fewer=record.get("deletes_removed", 0) - record.get("data_files", 0))


def _dropped(record: Mapping[str, Any]) -> Gain:
    return Gain(files_fewer=record.get("counts", {}).get("files_dropped", 0))


def _purged(record: Mapping[str, Any]) -> Gain | None:
    """Files that are only moved to the trash still take space."""
    return Gain(bytes_freed=record.get("size_bytes", 0)) if record.get("operation") == "purge" else None


_GAINS: Mapping[str, Callable[[Mapping[str, Any]], Gain | None]] = {
    "compact": _rewritten,
    "cluster": _rewritten,
    "deletes": _deletes,
    "ttl": _dropped,
    "quarantine": _purged,
}
"""By the kind of a run in the state store."""
