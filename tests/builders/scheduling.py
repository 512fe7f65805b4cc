"""Values of the scheduler: observations, last runs, policies, and a queue in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from neve.policy.document import Document, PolicyDocument, TeamDocument
from neve.policy.effective import OperationRule, PolicyResolver
from neve.scheduling.decide import Decided
from neve.scheduling.job import Decision, Job, JobState
from neve.scheduling.observation import Counters, Inspected, LastRun, Observation
from neve.table.units import MIB

NOW = 1_790_000_000_000
"""2026-09-21 14:13:20 UTC, a Monday."""
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000

OPERATIONS: Mapping[str, frozenset[str]] = {
    name: frozenset({"partitions", "where"} if name in ("compact", "cluster") else ())
    for name in ("compact", "cluster", "expire", "maintain", "manifests", "orphans", "stats", "ttl", "deletes", "tags")
}


def inspected(**values: Any) -> Inspected:
    found = {"snapshot_id": 5, "inspected_ms": NOW - MINUTE, "health": 80, "data_files": 100, "data_bytes": 1_000 * MIB}
    return Inspected.model_validate(found | {"small_files": 0, "small_bytes": 0, "delete_files": 0} | values)


def observation(table: str = "lake.sales.orders", **values: Any) -> Observation:
    """A table that was observed a second ago. Its uuid follows from its name unless given."""
    found: dict[str, Any] = {
        "uuid": f"uuid of {table}",
        "metadata_location": "m1",
        "observed_ms": NOW - SECOND,
        "snapshot_id": 5,
    }
    return Observation(table=table, **{**found, **values})


def last_run(operation: str = "compact", *, ago: int = HOUR, **values: Any) -> LastRun:
    """A run that succeeded and took a minute."""
    began = NOW - ago
    found: dict[str, Any] = {"started_ms": began, "finished_ms": began + MINUTE, "outcome": "done"}
    return LastRun(operation=operation, **{**found, **values})


def counters(commits: int = 0, bytes_added: int = 0, files_added: int = 0) -> Counters:
    return Counters(commits=commits, bytes_added=bytes_added, files_added=files_added)


def policy(name: str = "all", tables: Any = "lake.*", **values: Any) -> PolicyDocument:
    return PolicyDocument.model_validate({"name": name, "tables": tables, **values})


def team(name: str = "sales", **values: Any) -> TeamDocument:
    return TeamDocument.model_validate({"name": name, **values})


def resolver(*documents: Document) -> PolicyResolver:
    return PolicyResolver(documents, operations=OPERATIONS)


def rule_of(*documents: Document, table: str = "lake.sales.orders", operation: str = "compact") -> OperationRule:
    """What documents say about an operation on a table."""
    rules = resolver(*documents).effective(table, {}).rules
    return next(rule for rule in rules if rule.operation == operation)


def waiting_job(decision: Decision, **values: Any) -> Job:
    fields = {name: getattr(decision, name) for name in Decision.model_fields}
    return Job(**{**fields, "job_id": f"{decision.table_uuid}/{decision.operation}", "created_ms": NOW, **values})


def claimed_job(decision: Decision, **values: Any) -> Job:
    return waiting_job(decision, **{"state": JobState.CLAIMED, "claimed_by": "w1", "attempts": 1, "token": 1, **values})


class MemoryQueue:
    """A queue as `state.job_queue` keeps it, without a database."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], Job] = {}
        self.claimed: dict[str, Job] = {}
        self._ids = count()

    def carry_out(self, decided: Decided, now_ms: int) -> None:
        """Withdraws and enqueues what was decided."""
        ids = {one.job_id for one in decided.withdraw}
        self.waiting = {key: job for key, job in self.waiting.items() if job.job_id not in ids}
        self.enqueue(decided.enqueue, now_ms)

    def enqueue(self, decisions: Iterable[Decision], now_ms: int) -> None:
        for one in decisions:
            key = (one.table_uuid, one.operation)
            old = self.waiting.get(key)
            if old is None:
                self.waiting[key] = waiting_job(one, job_id=f"job {next(self._ids)}", created_ms=now_ms)
                continue
            kept = {"job_id": old.job_id, "created_ms": old.created_ms, "attempts": old.attempts, "started_ms": old.started_ms}
            if old.attempts and now_ms + DAY >= old.not_before_ms > one.not_before_ms:
                kept["not_before_ms"] = old.not_before_ms
            self.waiting[key] = waiting_job(one, **kept)

    def claim(self, worker: str, now_ms: int, until_ms: int, per_owner: Mapping[str, int] | None = None) -> Job | None:
        """Claims a job whose claim has ended, else the waiting one of the highest rank whose table and team are free."""
        old = next((job for job in self.claimed.values() if (job.until_ms or 0) <= now_ms), None)
        job = old if old is not None else self._next(now_ms, per_owner or {})
        if job is None:
            return None
        changes = {"claimed_by": worker, "until_ms": until_ms, "token": job.token + 1, "attempts": job.attempts + 1}
        taken = job.model_copy(update={**changes, "state": JobState.CLAIMED, "started_ms": now_ms})
        self.waiting.pop((job.table_uuid, job.operation), None) if old is None else None
        assert job.table_uuid not in self.claimed or old is job
        self.claimed[job.table_uuid] = taken
        return taken

    def _next(self, now_ms: int, per_owner: Mapping[str, int]) -> Job | None:
        running = [job.owner for job in self.claimed.values()]
        full = {owner for owner, most in per_owner.items() if running.count(owner) >= most}
        free = (
            job
            for job in self.waiting.values()
            if job.table_uuid not in self.claimed and job.not_before_ms <= now_ms and job.owner not in full
        )
        return min(free, key=lambda job: (-job.rank, job.created_ms, job.job_id), default=None)

    def finish(self, job: Job) -> bool:
        """Ends a job; False if the claim was lost."""
        held = self.claimed.get(job.table_uuid)
        if held is None or (held.job_id, held.token) != (job.job_id, job.token):
            return False
        del self.claimed[job.table_uuid]
        return True
