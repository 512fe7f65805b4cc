"""A fleet with writers, and workers that die, under the real decisions and a virtual clock. Checks the rules at each event.

Windows, blackouts and days begin and end at ticks here, so that no rule has to be believed between two decisions.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from neve.policy.document import Document, PolicyDocument, TeamDocument
from neve.policy.schedule_times import is_open
from neve.scheduling.backoff import DEFAULT_BACKOFF, after_run, paused_until
from neve.scheduling.day_budget import day_starts
from neve.scheduling.decide import Decided, Facts, decide
from neve.scheduling.hold import HoldCode
from neve.scheduling.job import Job, Spent
from neve.scheduling.observation import Counters, Inspected, LastRun, Observation
from neve.scheduling.prediction import SMALL_FILE_OPERATIONS, Costs, spent_on
from neve.scheduling.run_bounds import MAX_BYTES, Allowance
from neve.scheduling.worth_inspecting import worth_inspecting
from neve.table.units import MIB
from tests.builders.scheduling import MINUTE, SECOND, MemoryQueue, resolver

CLAIM_MS = MINUTE
DUE = frozenset(
    {HoldCode.FULL, HoldCode.TEAM, HoldCode.BUDGET, HoldCode.BUSY, HoldCode.COVERED, HoldCode.CLOSED, HoldCode.WRITING}
)
"""An operation that is held back for these waits for others or for its time."""
_FILE_BYTES = 128 * MIB


@dataclass
class SimulatedTable:
    """What a table really is like. `commits_per_hour` is its load."""

    name: str
    commits_per_hour: float
    always_fails: bool = False
    data_files: int = 20
    small_files: int = 0
    small_bytes: int = 0
    counters: Counters = field(default_factory=Counters)
    written_ms: int | None = None
    pending: float = 0.0
    snapshot: int = 1
    own_snapshot: int | None = None
    changed: bool = True

    @property
    def uuid(self) -> str:
        return f"uuid of {self.name}"

    def write(self, now_ms: int, passed_ms: int, random: Random) -> None:
        """What its writers do in a time."""
        self.pending += self.commits_per_hour * passed_ms / (60 * MINUTE)
        commits, self.pending = int(self.pending), self.pending % 1
        if not commits:
            return
        files, size = 2 * commits, 2 * commits * random.randrange(MIB, 8 * MIB)
        self.small_files, self.small_bytes = self.small_files + files, self.small_bytes + size
        known = self.counters
        self.counters = Counters(
            commits=known.commits + commits, bytes_added=known.bytes_added + size, files_added=known.files_added + files
        )
        self.written_ms, self.changed, self.snapshot = now_ms, True, self.snapshot + commits

    def compact(self, most_bytes: int | None) -> int:
        """Rewrites small files, as many as allowed; returns how many bytes were read."""
        read = self.small_bytes if most_bytes is None else min(self.small_bytes, most_bytes)
        files = self.small_files * read // max(1, self.small_bytes)
        self.small_files, self.small_bytes = self.small_files - files, self.small_bytes - read
        self.data_files += -(-read // _FILE_BYTES)
        self.snapshot += 1
        self.own_snapshot, self.changed = self.snapshot, True
        return read

    def observed(self, before: Observation | None, now_ms: int) -> Observation:
        return Observation(
            table=self.name,
            uuid=self.uuid,
            metadata_location=f"m{self.snapshot}",
            observed_ms=now_ms,
            snapshot_id=self.snapshot,
            sequence_number=self.snapshot,
            own_snapshot_id=self.own_snapshot,
            data_files=self.data_files + self.small_files,
            delete_files=0,
            total_bytes=self.data_files * _FILE_BYTES + self.small_bytes,
            last_write_ms=self.written_ms,
            counters=self.counters,
            inspected=None if before is None else before.inspected,
        )

    def inspected(self, now_ms: int) -> Inspected:
        return Inspected(
            snapshot_id=self.snapshot,
            inspected_ms=now_ms,
            health=max(1, 100 - self.small_files),
            data_files=self.data_files + self.small_files,
            data_bytes=self.data_files * _FILE_BYTES + self.small_bytes,
            small_files=self.small_files,
            small_bytes=self.small_bytes,
            delete_files=0,
            commits=self.counters.commits,
            own_snapshot_id=self.own_snapshot,
        )


@dataclass
class Figures:
    """What happened."""

    begun: Counter[str] = field(default_factory=Counter)
    done: int = 0
    failed: int = 0
    deaths: int = 0
    refused: int = 0
    """Results of workers that had lost their claims."""
    waits: dict[str, list[tuple[int, str, int]]] = field(default_factory=lambda: defaultdict(list))
    """By policy, for each run: how long the operation had been due, its table, and when it began."""
    still_due: list[tuple[int, str, str]] = field(default_factory=list)
    """What was due at the end: for how long, the table and the operation."""
    longest_queue: int = 0
    used: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By scope: the largest share of each day's limit that was used."""
    pauses: dict[tuple[str, str], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """By table and operation: failures in a row, and the pause after them."""
    begun_at: dict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    fewer_files: int = 0
    """By compactions."""
    held: Counter[HoldCode] = field(default_factory=Counter)


class Simulation:
    """The fleet, its queue and its workers. `run` goes on from tick to tick."""

    def __init__(
        self,
        tables: Sequence[SimulatedTable],
        documents: Sequence[Document],
        *,
        start_ms: int,
        workers: int,
        tick_ms: int,
        max_waiting: int,
        seed: int = 1,
    ) -> None:
        self.tables = {table.uuid: table for table in tables}
        self.documents, self.tick_ms, self.max_waiting, self.now_ms = documents, tick_ms, max_waiting, start_ms
        self.start_ms = start_ms
        self.policies = {one.name: one for one in documents if isinstance(one, PolicyDocument)}
        self.concurrency = {one.name: one.concurrency for one in documents if isinstance(one, TeamDocument) and one.concurrency}
        limits = {f"{one.kind} {one.name}": Allowance.of(one.limits.per_day) for one in documents}
        self.limits = {scope: limit for scope, limit in limits.items() if limit.is_limited}
        self.resolver = resolver(*documents)
        self.queue, self.figures, self.random = MemoryQueue(), Figures(), Random(seed)
        self.observations: dict[str, Observation] = {}
        self.last_runs: dict[str, dict[str, LastRun]] = defaultdict(dict)
        self.spent: dict[str, Spent] = {}
        self.excess: dict[str, Spent] = {}
        self.days: dict[str, int] = {}
        self.due_since: dict[tuple[str, str], int] = {}
        self.idle, self.running = [f"w{number}" for number in range(workers)], dict[str, str]()
        self.events: list[tuple[int, int, str, str, Job | None]] = []
        self._order = count()

    def run(self, until_ms: int) -> Figures:
        while self.now_ms < until_ms:
            self._tick()
            self._work(self.now_ms + self.tick_ms)
            self.now_ms += self.tick_ms
        for (uuid, operation), since in self.due_since.items():
            self.figures.still_due.append((self.now_ms - since, self.tables[uuid].name, operation))
        return self.figures

    def _tick(self) -> None:
        for table in self.tables.values():
            table.write(self.now_ms, self.tick_ms, self.random)
            if table.changed:
                self._observe(table)
        self._renew_budgets()
        facts = Facts(
            self.now_ms,
            self.observations,
            self.resolver,
            self.last_runs,
            dict.fromkeys(self.policies, self.start_ms),
            tuple(self.queue.waiting.values()),
            tuple(self.queue.claimed.values()),
            self.spent,
            max_waiting=self.max_waiting,
        )
        decided = decide(facts)
        self._note_due(decided)
        self.queue.carry_out(decided, self.now_ms)
        ready = sum(job.not_before_ms <= self.now_ms for job in self.queue.waiting.values())
        self.figures.longest_queue = max(self.figures.longest_queue, ready)

    def _observe(self, table: SimulatedTable) -> None:
        seen = table.observed(self.observations.get(table.name), self.now_ms)
        if worth_inspecting(seen, self.now_ms) is not None:
            seen = seen.model_copy(update={"inspected": table.inspected(self.now_ms)})
        self.observations[table.name], table.changed = seen, False

    def _renew_budgets(self) -> None:
        for scope, start in day_starts(self.documents, self.now_ms).items():
            if self.days.get(scope) != start:
                self.days[scope], self.spent[scope], self.excess[scope] = start, Spent(), Spent()

    def _note_due(self, decided: Decided) -> None:
        gone = {one.job_id for one in decided.withdraw}
        due = {(one.table_uuid, one.operation) for one in decided.enqueue}
        due |= {key for key, job in self.queue.waiting.items() if job.job_id not in gone}
        due |= {(f"uuid of {one.table}", one.operation) for one in decided.held if one.code in DUE}
        self.due_since = {key: self.due_since.get(key, self.now_ms) for key in due}
        for code, number in decided.counts.items():
            self.figures.held[code] += number

    def _work(self, until_ms: int) -> None:
        self._begin_all(self.now_ms)
        while self.events and self.events[0][0] < until_ms:
            at_ms, _, kind, worker, job = heapq.heappop(self.events)
            if job is not None and kind == "end":
                self._end(job, at_ms)
            elif job is not None and kind == "death":
                self.figures.deaths += 1
                del self.running[job.table_uuid]
                self._push(at_ms + CLAIM_MS, "poll", worker)
                self._push(at_ms + 3 * CLAIM_MS, "back", worker, job)
                continue
            elif job is not None and kind == "back" and not self.queue.finish(job):
                self.figures.refused += 1
            if kind != "poll":
                self.idle.append(worker)
            self._begin_all(at_ms)

    def _push(self, at_ms: int, kind: str, worker: str, job: Job | None = None) -> None:
        heapq.heappush(self.events, (at_ms, next(self._order), kind, worker, job))

    def _begin_all(self, at_ms: int) -> None:
        while self.idle:
            job = self.queue.claim(self.idle[-1], at_ms, at_ms + CLAIM_MS, self.concurrency)
            if job is None:
                return
            self._begin(job, self.idle.pop(), at_ms)

    def _begin(self, job: Job, worker: str, at_ms: int) -> None:
        table, key = self.tables[job.table_uuid], (job.table_uuid, job.operation)
        assert job.table_uuid not in self.running, f"{job.table} is maintained twice at {at_ms}"
        self.running[job.table_uuid] = worker
        if job.attempts == 1:
            assert is_open(self.policies[job.policy].schedule, at_ms), f"{job.table} begins in a blackout at {at_ms}"
            last = self.last_runs[job.table_uuid].get(job.operation)
            assert last is None or paused_until(last, at_ms) is None, f"{job.table} begins although it is paused"
            self._note_begin(job, key, at_ms)
        owners = [one.owner for one in self.queue.claimed.values()]
        assert owners.count(job.owner) <= self.concurrency.get(job.owner, len(owners))
        read = table.small_bytes if job.operation in SMALL_FILE_OPERATIONS else 0
        ends_ms = at_ms + 20 * SECOND + min(read, job.knobs.get(MAX_BYTES, read)) * SECOND // (100 * MIB)
        dies = self.random.random() < 0.02
        last_beat_ms = self.random.randrange(at_ms, ends_ms) if dies else ends_ms
        held = job.model_copy(update={"until_ms": last_beat_ms + CLAIM_MS, "counters": table.counters})
        self.queue.claimed[job.table_uuid] = held
        self._push(last_beat_ms, "death" if dies else "end", worker, held)

    def _note_begin(self, job: Job, key: tuple[str, str], at_ms: int) -> None:
        since = self.due_since.pop(key, at_ms)
        self.figures.waits[job.policy].append((at_ms - since, job.table, at_ms))
        self.figures.begun[job.policy] += 1
        self.figures.begun_at[job.table, job.operation].append(at_ms)

    def _end(self, job: Job, at_ms: int) -> None:
        assert self.queue.finish(job), "a worker that is alive keeps its claim"
        del self.running[job.table_uuid]
        table, before = self.tables[job.table_uuid], self.last_runs[job.table_uuid].get(job.operation)
        failed = table.always_fails or self.random.random() < 0.01
        files = table.small_files
        read = 0 if failed or job.operation not in SMALL_FILE_OPERATIONS else table.compact(job.knobs.get(MAX_BYTES))
        self.figures.fewer_files += files - table.small_files
        self._spend(job, spent_on(round(read * self.random.uniform(0.8, 1.02)), Costs()))
        last = LastRun(
            operation=job.operation,
            started_ms=job.started_ms or at_ms,
            finished_ms=at_ms,
            outcome="failed" if failed else "done",
            counters=job.counters if not failed else before.counters if before is not None else Counters(),
        )
        failures = 0 if before is None else before.failures
        now = after_run(last, failures_before=failures, failed=failed, table_id=job.table_uuid)
        self.last_runs[job.table_uuid][job.operation] = now
        if failed:
            self.figures.failed += 1
            self.figures.pauses[job.table, job.operation].append((now.failures, (now.paused_until_ms or 0) - at_ms))
            assert now.paused_until_ms == at_ms + DEFAULT_BACKOFF.pause_ms(failures + 1, job.table_uuid)
        else:
            self.figures.done += 1

    def _spend(self, job: Job, actual: Spent) -> None:
        """Counts what a run used. A day is exceeded by at most what was predicted wrongly."""
        for scope in set(job.scopes) & self.limits.keys():
            self.spent[scope] = _sum(self.spent[scope], actual)
            self.excess[scope] = _sum(self.excess[scope], _above(actual, job.predicted))
            left = self.limits[scope].without(self.spent[scope])
            allowed = Allowance(*(0.0,) * 3).without(self.excess[scope])
            assert all(a >= b - 1e-6 for a, b in zip(left, allowed, strict=True)), f"{scope} is exceeded: {left} left"
            share = max((u or 0) / most for u, most in zip(_amounts(self.spent[scope]), self.limits[scope], strict=True))
            self.figures.used[scope].append(share)


def _amounts(spent: Spent) -> tuple[float, float, float]:
    return spent.bytes or 0, spent.core_seconds or 0.0, spent.money or 0.0


def _sum(one: Spent, other: Spent) -> Spent:
    size, seconds, money = (a + b for a, b in zip(_amounts(one), _amounts(other), strict=True))
    return Spent(bytes=int(size), core_seconds=seconds, money=money)


def _above(one: Spent, other: Spent) -> Spent:
    size, seconds, money = (max(0.0, a - b) for a, b in zip(_amounts(one), _amounts(other), strict=True))
    return Spent(bytes=int(size), core_seconds=seconds, money=money)
