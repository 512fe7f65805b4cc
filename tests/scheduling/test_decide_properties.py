"""What holds for every decision: random fleets, policies, queues and clocks that jump."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.document import Document, PolicyDocument
from neve.scheduling.decide import Decided, Facts, decide
from neve.scheduling.hold import HoldCode
from neve.scheduling.job import Job, Spent
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.run_bounds import Allowance, reserved
from neve.scheduling.targets import RunTarget
from neve.table.units import GIB, MIB
from tests.builders.scheduling import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    MemoryQueue,
    counters,
    inspected,
    observation,
    policy,
    resolver,
    team,
)

TARGETS = [RunTarget(name="local", max_bytes=GIB), RunTarget(name="cluster", max_concurrency=2)]
MAX_WAITING = 6

schedules = st.sampled_from([{}, {}, {"windows": "22:00-06:00"}, {"blackouts": "12:00-18:00"}, {"cron": "0 * * * *"}])
triggers = st.sampled_from([{"small-files": 5}, {"since-last-run": "1 h"}, {"commits": 3, "quiet-for": "1 h"}, {"hint": True}])
amounts = st.sampled_from([{}, {}, {"bytes": "300 MB"}, {"core-seconds": "30 s"}, {"money": 0.001}])
documents = st.lists(
    st.builds(
        lambda number, tables, operations, schedule, when, per_run, per_day, owner, enabled, target: policy(
            f"p{number}",
            tables,
            operations=operations,
            schedule=schedule,
            triggers=when,
            limits={"per-run": per_run, "per-day": per_day},
            owner=owner,
            enabled=enabled,
            target=target,
        ),
        st.integers(0, 9),
        st.sampled_from(["lake.*", "lake.a.*", "lake.b.*", "lake.a.t1"]),
        st.lists(st.sampled_from(["compact", "expire", "maintain", "stats", "cluster"]), unique=True, max_size=3),
        schedules,
        triggers,
        amounts,
        amounts,
        st.sampled_from(["", "sales", "ops"]),
        st.sampled_from([True, True, True, False]),
        st.sampled_from(["auto", "auto", "auto", "local", "missing"]),
    ),
    max_size=4,
    unique_by=lambda document: document.name,
).map(lambda some: [*some, team("sales", concurrency=1, limits={"per-day": {"bytes": "1 GB"}}), team("ops")])

tables = st.lists(
    st.builds(
        lambda name, uuid, total, small, commits, written, seen: observation(
            name,
            uuid=uuid,
            total_bytes=total,
            data_files=100,
            delete_files=None if total is None else 1,
            last_write_ms=written,
            counters=counters(commits),
            hinted_ms=written,
            inspected=None if small is None else inspected(small_files=small, small_bytes=small * 10 * MIB, inspected_ms=seen),
        ),
        st.builds("lake.{}.t{}".format, st.sampled_from("ab"), st.integers(0, 9)),
        st.sampled_from([f"u{number}" for number in range(8)]),
        st.none() | st.integers(0, 20 * GIB),
        st.none() | st.integers(0, 200),
        st.integers(0, 10),
        st.none() | st.integers(NOW - DAY, NOW + DAY),
        st.integers(NOW - DAY, NOW + DAY),
    ),
    max_size=12,
    unique_by=lambda seen: seen.table,
)


@dataclass
class Service:
    """A queue and its past, with one policy set."""

    documents: list[Document]
    observations: dict[str, Observation]
    queue: MemoryQueue = field(default_factory=MemoryQueue)
    last_runs: dict[str, dict[str, LastRun]] = field(default_factory=dict)
    spent: dict[str, Spent] = field(default_factory=dict)

    def facts(self, now_ms: int) -> Facts:
        return Facts(
            now_ms,
            self.observations,
            resolver(*self.documents),
            self.last_runs,
            {},
            tuple(self.queue.waiting.values()),
            tuple(self.queue.claimed.values()),
            self.spent,
            TARGETS,
            max_waiting=MAX_WAITING,
        )

    def tick(self, now_ms: int) -> Decided:
        found = decide(self.facts(now_ms))
        self.queue.carry_out(found, now_ms)
        return found

    def claim(self, now_ms: int) -> Job | None:
        return self.queue.claim("w", now_ms, now_ms + 10 * DAY, {"sales": 1})

    def finish(self, job: Job, now_ms: int, *, failed: bool) -> None:
        assert self.queue.finish(job)
        last = LastRun(
            operation=job.operation,
            started_ms=job.started_ms or now_ms,
            finished_ms=now_ms,
            outcome="failed" if failed else "done",
            counters=job.counters,
            failures=int(failed),
            paused_until_ms=now_ms + HOUR if failed else None,
        )
        self.last_runs.setdefault(job.table_uuid, {})[job.operation] = last


def check(service: Service, found: Decided, before: dict[tuple[str, str], Job], now_ms: int) -> None:
    """What holds after every decision."""
    keys = Counter((one.table_uuid, one.operation) for one in found.enqueue)
    assert all(number == 1 for number in keys.values())
    withdrawn = {one.job_id for one in found.withdraw}
    assert len(withdrawn) == len(found.withdraw)
    assert all([one.reason for one in found.withdraw] + [one.reason for one in found.held])
    assert not {job.job_id for key, job in before.items() if key in keys} & withdrawn, "withdrawn and enqueued"
    busy = set(service.queue.claimed)
    assert not {uuid for uuid, operation in keys if (uuid, operation) not in before} & busy, "a new job of a table that is busy"
    listed = {one.uuid for one in service.observations.values()}
    assert {uuid for uuid, _ in service.queue.waiting} <= listed
    for target in TARGETS:
        ready = [one for one in service.queue.waiting.values() if one.target == target.name and one.not_before_ms <= now_ms]
        assert len(ready) <= MAX_WAITING + len([one for one in before.values() if one.not_before_ms > 0])
    sums = found.counts
    assert sum(
        sums.get(code, 0) for code in HoldCode if code not in (HoldCode.NOT_DUE, HoldCode.WAITING, HoldCode.BUSY)
    ) <= len(found.held)
    within_budgets(service, now_ms)


def within_budgets(service: Service, now_ms: int) -> None:
    """What waits and may begin, with what runs, is predicted to keep to every day's limit."""
    seen = {one.uuid: one for one in service.observations.values()}
    for document in service.documents:
        if isinstance(document, PolicyDocument) and not document.enabled:
            continue  # runs count against it, in case it is enabled later on the same day
        scope, limit = f"{document.kind} {document.name}", Allowance.of(document.limits.per_day)
        jobs = [
            one
            for one in (*service.queue.waiting.values(), *service.queue.claimed.values())
            if scope in one.scopes and one.not_before_ms <= now_ms and one.policy
        ]
        for job in jobs if limit.is_limited else ():
            limit = limit.without(reserved(job, seen.get(job.table_uuid), service.facts(now_ms).costs))
        assert min(limit) >= -1e-2, f"{scope} is given out beyond its limit"


steps = st.lists(st.sampled_from(["tick", "claim", "done", "failed", "hour", "day", "vanish", "rename"]), max_size=25)


def carry_out(service: Service, action: str, now_ms: int) -> int:
    """Carries one step out; returns the time after it."""
    running = next(iter(service.queue.claimed.values()), None)
    if action == "claim":
        job = service.claim(now_ms)
        assert job is None or job.not_before_ms <= now_ms
    elif action in ("done", "failed") and running is not None:
        service.finish(running, now_ms, failed=action == "failed")
    elif action == "vanish" and service.observations:
        service.observations.pop(next(iter(service.observations)))
    elif action == "rename" and service.observations:
        name, seen = next(iter(service.observations.items()))
        del service.observations[name]
        service.observations[f"{name}x"] = seen.model_copy(update={"table": f"{name}x"})
    return now_ms + {"hour": HOUR, "day": DAY}.get(action, MINUTE)


@settings(deadline=None, max_examples=150)
@given(documents, tables, steps)
def test_every_decision_keeps_the_rules(some: list[Document], seen: list[Observation], actions: list[str]) -> None:
    service, now = Service(some, {one.table: one for one in seen}), NOW
    for action in actions:
        if action == "tick":
            before = dict(service.queue.waiting)
            check(service, service.tick(now), before, now)
        now = carry_out(service, action, now)


@settings(deadline=None, max_examples=150)
@given(documents, tables, steps)
def test_a_decision_that_was_carried_out_leaves_nothing_to_decide(
    some: list[Document], seen: list[Observation], actions: list[str]
) -> None:
    service, now = Service(some, {one.table: one for one in seen}), NOW
    for action in actions:
        now = carry_out(service, action, now)
        if action == "tick":
            service.tick(now)
    settled = [service.tick(now) for _ in range(3)][-1]
    again = service.tick(now)
    assert again.withdraw == settled.withdraw == ()
    assert again.enqueue == ()


@settings(deadline=None, max_examples=60)
@given(documents, tables)
def test_what_a_decision_says_does_not_depend_on_the_order_of_the_tables(some: list[Document], seen: list[Observation]) -> None:
    def found(of: list[Observation]) -> Any:
        made = Service(some, {one.table: one for one in of}).tick(NOW)
        return made.enqueue, sorted(made.held, key=repr), made.counts

    assert found(seen) == found(seen[::-1])


@settings(deadline=None, max_examples=60)
@given(tables, st.sampled_from([-400 * DAY, -HOUR, HOUR, 400 * DAY]), st.booleans())
def test_after_a_clock_has_jumped_and_come_back_everything_due_gets_its_turn(
    seen: list[Observation], jump: int, runs: bool
) -> None:
    """Jobs that entered and runs that ended while the clock was wrong keep nothing waiting for longer than a day."""
    hourly = policy(operations=["compact"], triggers={"since-last-run": "1 h"}, schedule={"blackouts": "12:00-13:00"})
    service = Service([hourly], {one.table: one for one in seen})
    service.tick(NOW + jump)
    while runs and (job := service.claim(NOW + jump)) is not None:
        service.finish(job, NOW + jump + MINUTE, failed=len(service.last_runs) % 2 == 1)
    begun = set()
    for now in range(NOW, NOW + 3 * DAY, HOUR // 2):
        service.tick(now)
        while (job := service.claim(now)) is not None:
            begun.add(job.table_uuid)
            service.finish(job, now + MINUTE, failed=False)
    assert begun == {one.uuid for one in seen}
