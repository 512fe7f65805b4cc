"""Decides what enters the queue and what leaves it: from what is known of the fleet to jobs, withdrawals and reasons. Pure.

Called by the scheduler once a tick. For each operation that a policy wants on a table, `due` says whether it is due; `rank`
orders what is due; `places` gives out queue, teams, targets and budgets in that order. A table has one job per operation,
whatever names it is listed under, and no job for what its `maintain` includes. A job that waits for its window keeps its rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from neve.policy.effective import EffectivePolicy, OperationRule, PolicyResolver
from neve.scheduling.clock import DAY_MS
from neve.scheduling.coverage import MAINTAIN, included, with_maintain
from neve.scheduling.due import Due, closing_ms, judge
from neve.scheduling.hold import HeldBack, HoldCode
from neve.scheduling.job import Decision, Job, Spent
from neve.scheduling.names import by_uuid
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.places import DueOperation, Granted, Places, Refused
from neve.scheduling.prediction import Costs, predicted
from neve.scheduling.rank import admission, queue_clock, rank, waited_ms
from neve.scheduling.targets import LOCAL_TARGET, RunTarget
from neve.scheduling.value import value

MAX_WAITING = 1_000
_KEPT = frozenset({HoldCode.CLOSED, HoldCode.WRITING})
"""A job that waits for these keeps its place and its rank."""
_SAME_MS = 1_000
"""The queue keeps times by its own clock: those that differ by less are the same."""
_STAYS = 2.0
"""So much more than others counts an operation whose job waits, so that jobs do not come and go."""


@dataclass(frozen=True)
class Facts:
    """What a decision is made from."""

    now_ms: int
    observations: Mapping[str, Observation]
    """Of all tables that the catalogs list, by full name."""
    policies: PolicyResolver
    last_runs: Mapping[str, Mapping[str, LastRun]] = field(default_factory=dict)
    """By table uuid and operation."""
    in_force_ms: Mapping[str, int] = field(default_factory=dict)
    """When each policy came into force, by name."""
    waiting: Sequence[Job] = ()
    claimed: Sequence[Job] = ()
    spent: Mapping[str, Spent] = field(default_factory=dict)
    """What runs that ended today used, by scope, as `ScopeSpent.ended`; `day_budget.day_starts` has when a scope's day began.
    What jobs in the queue are predicted to use is added here."""
    targets: Sequence[RunTarget] = (LOCAL_TARGET,)
    costs: Costs = field(default_factory=Costs)
    max_waiting: int = MAX_WAITING
    """The most jobs that wait for each target. Those that wait for a window do not count."""


class Withdrawal(NamedTuple):
    """A waiting job that is no longer wanted."""

    job_id: str
    reason: str


@dataclass(frozen=True)
class Decided:
    """What the scheduler does. To enqueue a job that waits already updates it."""

    enqueue: tuple[Decision, ...] = ()
    withdraw: tuple[Withdrawal, ...] = ()
    held: tuple[HeldBack, ...] = ()
    """What is due and has to wait, or is paused."""
    counts: Mapping[HoldCode, int] = field(default_factory=dict)
    """Operations on tables by the reason for which they do not run now."""


def decide(facts: Facts) -> Decided:
    """Returns what enters the queue, what leaves it, and what has to wait and why."""
    return _Round(facts).decided()


class _Table(NamedTuple):
    """One table with its policy, its jobs and its last runs."""

    seen: Observation
    policy: EffectivePolicy
    last_runs: Mapping[str, LastRun]
    claimed: Job | None
    covered: frozenset[str]
    """Operations that its `maintain` includes."""


class _Round:
    """One decision while it is made."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._waiting = {(job.table_uuid, job.operation): job for job in facts.waiting}
        self._claimed = {job.table_uuid: job for job in facts.claimed}
        self._places = Places(facts.now_ms, facts.targets, facts.costs, spent=facts.spent, max_waiting=facts.max_waiting)
        self._covered: dict[tuple[str, ...], frozenset[str]] = {}
        self._kept = set[str]()
        self._tables: dict[str, _Table] = {}
        self._enqueue = list[Decision]()
        self._withdraw = list[Withdrawal]()
        self._held = list[HeldBack]()
        self._counts = Counter[HoldCode]()

    def decided(self) -> Decided:
        self._tables = self._listed()
        due = [found for table in self._tables.values() for found in self._due_on(table)]
        self._withdraw_unwanted()
        seen = {uuid: table.seen for uuid, table in self._tables.items()}
        kept = [job for job in self._facts.waiting if not job.policy or job.job_id in self._kept]
        self._places.count(self._facts.claimed, claimed=True)
        self._places.count(self._waiting.values())
        self._places.reserve((*self._facts.claimed, *kept), seen)
        self._admit(due)
        return Decided(tuple(self._enqueue), tuple(self._withdraw), tuple(self._held), dict(self._counts))

    def _listed(self) -> dict[str, _Table]:
        """Each table under one name, by uuid."""
        facts, policies = self._facts, self._facts.policies
        listed = ((seen, policies.effective(seen.table, seen.properties)) for seen in facts.observations.values())
        found, others = by_uuid(listed, (*facts.waiting, *facts.claimed))
        for (seen, policy), name in others:
            for rule in policy.rules:
                self._hold(seen.table, rule.operation, HoldCode.DUPLICATE, f"the same table is listed as {name}")
        return {uuid: self._table(seen, policy) for uuid, (seen, policy) in found.items() if policy.rules}

    def _table(self, seen: Observation, policy: EffectivePolicy) -> _Table:
        maintain = next((rule for rule in policy.rules if rule.operation == MAINTAIN), None)
        covered = frozenset[str]() if maintain is None else self._included(policy, maintain)
        last_runs = self._facts.last_runs.get(seen.uuid, _NO_RUNS)
        return _Table(seen, policy, last_runs, self._claimed.get(seen.uuid), covered)

    def _included(self, policy: EffectivePolicy, maintain: OperationRule) -> frozenset[str]:
        # Tables that the same policies match share the work.
        if policy.policies not in self._covered:
            self._covered[policy.policies] = included(policy, maintain.options)
        return self._covered[policy.policies]

    def _due_on(self, table: _Table) -> Iterator[DueOperation]:
        for rule in table.policy.rules:
            job = self._waiting.get((table.seen.uuid, rule.operation))
            if table.claimed is not None and table.claimed.operation == rule.operation and job is None:
                self._counts[HoldCode.BUSY] += 1
                continue
            last = self._last_run(table, rule.operation)
            found = judge(rule, table.seen, last, self._facts.now_ms, since_ms=self._facts.in_force_ms.get(rule.policy, 0))
            if found.code is None:
                weight = self._weight(rule, table.seen, last)
                yield DueOperation(table.seen, table.policy, rule, last, found.reason, weight, job)
            else:
                self._not_now(table, rule, found, job)

    @staticmethod
    def _last_run(table: _Table, operation: str) -> LastRun | None:
        last = table.last_runs.get(operation)
        return with_maintain(last, table.last_runs.get(MAINTAIN)) if operation in table.covered else last

    def _not_now(self, table: _Table, rule: OperationRule, found: Due, job: Job | None) -> None:
        """An operation that is not due, or is held back by its own rules. Work that was begun is finished."""
        code = found.code or HoldCode.NOT_DUE
        self._counts[code] += 1
        if code is not HoldCode.NOT_DUE:
            held = HeldBack(
                table=table.seen.table, operation=rule.operation, code=code, reason=found.reason, next_ms=found.next_ms
            )
            self._held.append(held)
        if job is None or not job.policy:
            return
        if code in _KEPT and found.next_ms is not None:
            self._keep(job, found.next_ms, closing_ms(rule.schedule, found.next_ms))
        elif code is HoldCode.NOT_DUE and job.started_ms is not None:
            self._kept.add(job.job_id)
        else:
            self._take_out(job, found.reason if code is not HoldCode.NOT_DUE else f"no longer due: {found.reason}")

    def _keep(self, job: Job, until_ms: int, closing_ms: int | None) -> None:
        """Lets a job wait for its time. It takes nothing of the budgets until it is due again."""
        # The queue itself keeps a later time of a job that was given back.
        is_early = until_ms - job.not_before_ms > _SAME_MS
        is_late = job.attempts == 0 and job.not_before_ms - until_ms > _SAME_MS
        if is_early or is_late or _moved(job.not_after_ms, closing_ms):
            self._enqueue.append(_decision(job, not_before_ms=until_ms, not_after_ms=closing_ms))

    def _withdraw_unwanted(self) -> None:
        unwanted = [job for job in self._waiting.values() if job.policy and not self._is_wanted(job)]
        names: dict[str, list[Observation]] = {job.table_uuid: [] for job in unwanted}
        for seen in self._facts.observations.values() if unwanted else ():
            if seen.uuid in names:
                names[seen.uuid].append(seen)
        for job in unwanted:
            self._take_out(job, self._why_unwanted(job, names[job.table_uuid]))

    def _is_wanted(self, job: Job) -> bool:
        table = self._tables.get(job.table_uuid)
        return table is not None and any(rule.operation == job.operation for rule in table.policy.rules)

    def _why_unwanted(self, job: Job, names: Sequence[Observation]) -> str:
        if not names:
            return f"{job.table} is no longer listed by its catalog"
        for seen in names:
            policy = self._facts.policies.effective(seen.table, seen.properties)
            if job.operation in policy.switched_off:
                return f"policy {policy.switched_off[job.operation]} switches {job.operation} off"
        return f"no policy names {job.operation} for {names[0].table} any more"

    def _admit(self, due: Sequence[DueOperation]) -> None:
        """Gives places in the order of admission. What a due `maintain` includes comes last, in case that has no place."""
        clock = self._clock()
        covering = {
            uuid
            for (uuid, operation), job in self._waiting.items()
            if operation == MAINTAIN and (not job.policy or job.job_id in self._kept)
        }
        maintained = covering | {one.seen.uuid for one in due if one.rule.operation == MAINTAIN}
        ordered = sorted(due, key=self._order, reverse=True)
        for one in ordered:
            if not self._is_covered(one, maintained) and self._place(one, clock) and one.rule.operation == MAINTAIN:
                covering.add(one.seen.uuid)
        for one in ordered:
            if self._is_covered(one, covering):
                self._refuse(one, Refused(HoldCode.COVERED, "maintain is due, and includes it"))
            elif self._is_covered(one, maintained):
                self._place(one, clock)

    def _is_covered(self, one: DueOperation, maintained: set[str]) -> bool:
        return one.seen.uuid in maintained and one.rule.operation in self._tables[one.seen.uuid].covered

    def _place(self, one: DueOperation, clock: float) -> bool:
        """Enqueues one operation, if there is a place for it; returns whether it has a job now."""
        claimed = self._claimed.get(one.seen.uuid)
        if claimed is not None and one.job is None:
            covers = claimed.operation == MAINTAIN and one.rule.operation in self._tables[one.seen.uuid].covered
            self._refuse(one, Refused(HoldCode.COVERED if covers else HoldCode.BUSY, f"{claimed.operation} runs on the table"))
            return False
        if one.job is not None and not one.job.policy:
            self._counts[HoldCode.WAITING] += 1
            return True
        found = self._places.take(one)
        if isinstance(found, Refused):
            self._refuse(one, found)
            return False
        decision = self._decision(one, found, clock)
        if one.job is None:
            self._enqueue.append(decision)
            return True
        self._counts[HoldCode.WAITING] += 1
        if _is_outdated(one.job, decision, self._facts.now_ms):
            self._enqueue.append(decision)
        return True

    def _refuse(self, one: DueOperation, refused: Refused) -> None:
        reason = f"{one.reason}; {refused.reason}"
        self._hold(one.seen.table, one.rule.operation, refused.code, reason, refused.next_ms)
        if one.job is None or not one.job.policy:
            return
        if one.job.started_ms is None:
            self._take_out(one.job, refused.reason)

    def _decision(self, one: DueOperation, found: Granted, clock: float) -> Decision:
        job = one.job
        return Decision(
            table=one.seen.table,
            table_uuid=one.seen.uuid,
            operation=one.rule.operation,
            options=one.rule.options,
            knobs=found.bound.knobs,
            policy=one.rule.policy,
            owner=one.rule.owner,
            reason=one.reason,
            rank=rank(one.weight, clock) if job is None else job.rank,
            queue_clock=clock if job is None else job.queue_clock,
            target=found.target.name or "",
            target_reason=found.target.reason,
            scopes=one.scopes,
            predicted=found.bound.predicted,
            counters=one.seen.counters,
            not_after_ms=closing_ms(one.rule.schedule, self._facts.now_ms),
        )

    def _weight(self, rule: OperationRule, seen: Observation, last: LastRun | None) -> float:
        use = predicted(rule.operation, seen, self._facts.costs)
        return value(rule.operation, seen, last=last, predicted=use, priority=rule.priority).weight

    def _order(self, one: DueOperation) -> tuple[float, str, str]:
        waited = waited_ms(one.last, self._facts.now_ms, since_ms=self._facts.in_force_ms.get(one.rule.policy, 0))
        order = admission(one.weight, waited) * (1.0 if one.job is None else _STAYS)
        return order, one.seen.table, one.rule.operation

    def _clock(self) -> float:
        jobs = self._waiting.values()
        return queue_clock(jobs, self._facts.claimed, can_start=[job for job in jobs if self._can_start(job)])

    def _can_start(self, job: Job) -> bool:
        if job.not_before_ms > self._facts.now_ms or job.table_uuid in self._claimed:
            return False
        table = self._tables.get(job.table_uuid)
        return table is None or not self._places.runs_all_it_may(job.owner, table.policy.concurrency)

    def _take_out(self, job: Job, reason: str) -> None:
        self._withdraw.append(Withdrawal(job.job_id, reason))
        del self._waiting[job.table_uuid, job.operation]

    def _hold(self, table: str, operation: str, code: HoldCode, reason: str, next_ms: int | None = None) -> None:
        self._counts[code] += 1
        self._held.append(HeldBack(table=table, operation=operation, code=code, reason=reason, next_ms=next_ms))


_NO_RUNS: Mapping[str, LastRun] = {}
_COMPARED = ("table", "options", "policy", "owner", "target", "scopes")


def _decision(job: Job, **changes: Any) -> Decision:
    return Decision(**{name: getattr(job, name) for name in Decision.model_fields} | changes)


def _is_outdated(job: Job, decision: Decision, now_ms: int) -> bool:
    """Whether a waiting job has to be updated: its policy or its table's name changed, or it waits for a time without need."""
    if any(getattr(job, name) != getattr(decision, name) for name in _COMPARED):
        return True
    if job.not_before_ms > (now_ms if job.attempts == 0 else now_ms + DAY_MS):
        return True
    if _moved(job.not_after_ms, decision.not_after_ms):
        return True
    return _bounds_differ(job.knobs, decision.knobs)


def _moved(old_ms: int | None, new_ms: int | None) -> bool:
    return old_ms != new_ms and (old_ms is None or new_ms is None or abs(new_ms - old_ms) > _SAME_MS)


def _bounds_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether limits have become tighter, or much wider. What is left of a day changes a little all the time."""
    if old.keys() != new.keys():
        return True
    return any(not new[key] / 2 < old[key] <= new[key] for key in new)
