"""Gives out what is limited while a decision is made: places in the queue and of teams, targets, and budgets. Pure.

Called by `decide` for one due operation after the other, in the order of admission. Whoever comes too late is refused with a
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from neve.policy.document import Amounts
from neve.policy.effective import EffectivePolicy, OperationRule
from neve.scheduling.day_budget import DayBudgets, Left, next_day, policy_scope, team_scope
from neve.scheduling.hold import HoldCode
from neve.scheduling.job import Decision, Job, Spent
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.prediction import DIVISIBLE_OPERATIONS, Costs
from neve.scheduling.run_bounds import UNLIMITED, WORTH_A_RUN, Allowance, Bound, Need, RunLimits, bound, reserved
from neve.scheduling.targets import RunTarget, TargetChoice, choose
from neve.table.units import counted, exact_bytes, exact_seconds

AHEAD = 8
"""So many jobs of a team may wait for each that it may run at a time, so that it does not fill the queue."""


class DueOperation(NamedTuple):
    """An operation that is due on a table, and its job if one waits."""

    seen: Observation
    policy: EffectivePolicy
    rule: OperationRule
    last: LastRun | None
    reason: str
    weight: float = 1.0
    job: Job | None = None

    @property
    def scopes(self) -> tuple[str, ...]:
        """Whose budgets a run counts against, with a limit or without: one may be set later on the same day."""
        owner = (team_scope(self.policy.owner),) if self.policy.owner else ()
        return (*map(policy_scope, self.policy.policies), *owner)


class Granted(NamedTuple):
    """Where a run has its place, and what bounds it."""

    target: TargetChoice
    bound: Bound


class Refused(NamedTuple):
    """Why there is no place."""

    code: HoldCode
    reason: str
    next_ms: int | None = None


class Places:
    """What is left to give out. Lives for one decision."""

    def __init__(
        self, now_ms: int, targets: Sequence[RunTarget], costs: Costs, *, spent: Mapping[str, Spent], max_waiting: int
    ) -> None:
        self._now_ms, self._targets, self._costs, self._max_waiting = now_ms, targets, costs, max_waiting
        self._budgets = DayBudgets(spent)
        self._waiting, self._of_owner, self._claimed_of_owner = Counter[str](), Counter[str](), Counter[str]()

    def count(self, jobs: Iterable[Job], *, claimed: bool = False) -> None:
        """Counts jobs that are in the queue already. One that may not begin yet takes no place of the queue."""
        for job in jobs:
            self._of_owner[job.owner] += 1
            self._claimed_of_owner[job.owner] += claimed
            self._waiting[job.target] += not claimed and job.not_before_ms <= self._now_ms

    def reserve(self, jobs: Iterable[Job], tables: Mapping[str, Observation]) -> None:
        """Takes the budgets of jobs that run, or that nothing here decides about."""
        for job in jobs:
            self._reserve(job, job.scopes or _scopes_of(job), reserved(job, tables.get(job.table_uuid), self._costs))

    def runs_all_it_may(self, owner: str, concurrency: int | None) -> bool:
        """Whether a team has no place for another run now."""
        return concurrency is not None and self._claimed_of_owner[owner] >= concurrency

    def take(self, one: DueOperation) -> Granted | Refused:
        """Gives an operation its place, or says why there is none. One whose job waits has its place in the queue."""
        need, per_run = Need.of(one.rule.operation, one.seen), Allowance.of(one.rule.per_run)
        if (refused := self._over_limit_per_run(one.rule, need, per_run)) is not None:
            return refused
        target = choose(one.rule.target, self._size(one.rule, need, per_run), self._targets)
        limits = RunLimits(per_run, max_bytes=target.max_bytes)
        if target.name is None or (refusal := bound(one.rule.operation, need, limits, self._costs).refusal) is not None:
            return Refused(HoldCode.NO_TARGET, target.reason if target.name is None else f"{target.reason}: {refusal}")
        if one.job is None and (refused := self._no_place(one, target.name)) is not None:
            return refused
        found = self._within_the_day(one, need, limits)
        if isinstance(found, Refused):
            return found
        self._reserve(one.rule, one.scopes, found.reserved, one.seen.table)
        if one.job is None:
            self._of_owner[one.policy.owner] += 1
            self._waiting[target.name] += 1
        return Granted(target, found)

    def _reserve(self, of: Job | OperationRule, scopes: Iterable[str], use: Spent, table: str = "") -> None:
        self._budgets.reserve(scopes, use, job=f"{of.operation} on {of.table if isinstance(of, Job) else table}")

    def _over_limit_per_run(self, rule: OperationRule, need: Need, per_run: Allowance) -> Refused | None:
        if per_run == UNLIMITED:
            return None
        if need.at_most is None and rule.operation not in DIVISIBLE_OPERATIONS:
            refusal: str | None = f"it is unknown what {rule.operation} would use"
        else:
            refusal = bound(rule.operation, need, RunLimits(per_run), self._costs).refusal
        return None if refusal is None else Refused(HoldCode.BUDGET, f"a run may use {_spelled(rule.per_run)}: {refusal}")

    def _size(self, rule: OperationRule, need: Need, per_run: Allowance) -> int | None:
        known = need.at_most if need.read is None else need.read
        limit = per_run.readable(self._costs) if rule.operation in DIVISIBLE_OPERATIONS else inf
        size = min(inf if known is None else known, limit)
        return None if size == inf else int(size)

    def _no_place(self, one: DueOperation, target: str) -> Refused | None:
        if self._waiting[target] >= self._max_waiting:
            return Refused(HoldCode.FULL, f"{counted(self._waiting[target], 'job')} wait for the target {target}")
        most, owner = one.policy.concurrency, one.policy.owner
        if most is not None and self._of_owner[owner] >= most * (1 + AHEAD):
            waiting = self._of_owner[owner] - self._claimed_of_owner[owner]
            reason = f"team {owner} may run {counted(most, 'job')} at a time, and {waiting} of its jobs wait"
            return Refused(HoldCode.TEAM, reason)
        return None

    def _within_the_day(self, one: DueOperation, need: Need, limits: RunLimits) -> Bound | Refused:
        lefts = self._budgets.left(one.policy.per_day)
        if not lefts:
            return bound(one.rule.operation, need, limits, self._costs)
        today = UNLIMITED
        for left in lefts:
            today = today.at_most(left.today)
        whole = min(left.whole.readable(self._costs) for left in lefts)
        wanted = min(inf if need.at_most is None else need.at_most, limits.always(self._costs), whole)
        worth = 0.0 if wanted == inf else WORTH_A_RUN * wanted
        found = bound(one.rule.operation, need, limits._replace(today=today), self._costs, worth=worth)
        return found if found.refusal is None else self._used_up(one.rule, need, lefts, found.refusal)

    def _used_up(self, rule: OperationRule, need: Need, lefts: Sequence[Left], refusal: str) -> Refused:
        tightest = min(lefts, key=lambda left: left.today.readable(self._costs))
        # Another day does not help if the limit of a whole day is too small.
        helps = bound(rule.operation, need, RunLimits(today=tightest.whole), self._costs).refusal is None
        next_ms = next_day(tightest.limit.time_zone, self._now_ms) if helps and tightest.unknown is None else None
        reason = tightest.reason(self._now_ms)
        return Refused(HoldCode.BUDGET, reason if tightest.unknown is not None else f"{reason}: {refusal}", next_ms)


def _scopes_of(job: Decision) -> tuple[str, ...]:
    return ((policy_scope(job.policy),) if job.policy else ()) + ((team_scope(job.owner),) if job.owner else ())


def _spelled(amounts: Amounts) -> str:
    texts = (
        None if amounts.bytes is None else exact_bytes(amounts.bytes),
        None if amounts.core_seconds is None else f"{exact_seconds(amounts.core_seconds)} of a core",
        None if amounts.money is None else f"{amounts.money:g} of money",
    )
    return ", ".join(text for text in texts if text is not None)
