"""What policies would do in the next hours: runs by cron times and by the state of tables, within windows and day limits. Pure.

Called by `service.policy_tables` for `neve policy test`. Tables are taken to stay as they were observed, and every run to
succeed at the moment it is due: what writers will do, how long runs take and how many fit beside each other is not predicted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from neve.policy.document import Amounts
from neve.policy.effective import DayLimit, EffectivePolicy, OperationRule
from neve.policy.schedule_times import day_start
from neve.scheduling.clock import DAY_MS
from neve.scheduling.due import judge
from neve.scheduling.job import Spent
from neve.scheduling.observation import LastRun, Observation
from neve.table.frozen import Frozen

MOST_RUNS = 2_000
"""Of one operation on one table: a cron time every minute of a day gives 1,440."""


class ExpectedRun(Frozen):
    """A run that would begin at a moment, and why."""

    at_ms: int
    reason: str
    held_by: str | None = None
    """The day limit that holds it back."""


class OperationForecast(Frozen):
    """One operation on one table."""

    table: str
    operation: str
    policy: str
    runs: tuple[ExpectedRun, ...]
    waits_for: str | None = None
    """Why it is not due, if no run is expected."""


class TableForecast(Frozen):
    """One table: the policies that match it and what they would do."""

    table: str
    policies: tuple[str, ...]
    owner: str = ""
    operations: tuple[OperationForecast, ...] = ()


class Forecast(Frozen):
    """What all policies would do."""

    now_ms: int
    until_ms: int
    tables: tuple[TableForecast, ...]
    """Those that a policy matches."""
    without_policy: tuple[str, ...] = ()
    matched: dict[str, int] = {}
    """Tables by policy, also 0."""
    troubles: dict[str, str] = {}
    """Tables and catalogs that could not be read, and why."""


class ForecastTable(NamedTuple):
    """A table with its policy and what is known of it."""

    policy: EffectivePolicy
    seen: Observation
    last_runs: Mapping[str, LastRun] = {}


def forecast(
    tables: Sequence[ForecastTable],
    since: Mapping[str, int],
    now_ms: int,
    *,
    predict: Callable[[str, Observation], Spent],
    spent: Mapping[str, Spent] | None = None,
    length_ms: int = DAY_MS,
) -> tuple[TableForecast, ...]:
    """Returns what each table's policy would do. `since`: when each policy came into force. `spent`: what scopes used today."""
    until_ms = now_ms + length_ms
    expected = [
        (table, rule, _expected(table, rule, since, now_ms, until_ms)) for table in tables for rule in table.policy.rules
    ]
    held = _held(expected, now_ms, predict, spent or {})
    by_table: dict[str, list[OperationForecast]] = defaultdict(list)
    for table, rule, (runs, waits_for) in expected:
        key = table.policy.table, rule.operation
        shown = tuple(run.model_copy(update={"held_by": held.get((*key, run.at_ms))}) for run in runs)
        of_rule = {"operation": rule.operation, "policy": rule.policy, "runs": shown, "waits_for": waits_for}
        by_table[table.policy.table].append(OperationForecast(table=table.policy.table, **of_rule))
    return tuple(
        TableForecast(
            table=table.policy.table,
            policies=table.policy.policies,
            owner=table.policy.owner,
            operations=tuple(by_table[table.policy.table]),
        )
        for table in tables
    )


_Runs = tuple[list[ExpectedRun], str | None]


def _expected(table: ForecastTable, rule: OperationRule, since: Mapping[str, int], now_ms: int, until_ms: int) -> _Runs:
    """The runs of one operation, and without any the reason."""
    last, at_ms, runs = table.last_runs.get(rule.operation), now_ms, list[ExpectedRun]()
    while at_ms < until_ms and len(runs) < MOST_RUNS:
        due = judge(rule, table.seen, last, at_ms, since_ms=since.get(rule.policy, 0))
        if due.is_due:
            runs.append(ExpectedRun(at_ms=at_ms, reason=due.reason))
            # One that ended right when the table was observed would count as one before the observation.
            last = LastRun(operation=rule.operation, started_ms=at_ms, finished_ms=at_ms + 1, counters=table.seen.counters)
            at_ms += 2
        elif due.next_ms is None or due.next_ms <= at_ms:
            return runs, None if runs else due.reason
        else:
            at_ms = due.next_ms
            if at_ms >= until_ms and not runs:
                return runs, due.reason
    return runs, None


def _held(
    expected: Iterable[tuple[ForecastTable, OperationRule, _Runs]],
    now_ms: int,
    predict: Callable[[str, Observation], Spent],
    spent: Mapping[str, Spent],
) -> dict[tuple[str, str, int], str]:
    """Runs that a day limit holds back, by table, operation and time, the earliest runs served first."""
    used: dict[tuple[str, int], Spent] = {}
    held: dict[tuple[str, str, int], str] = {}
    in_order = sorted(
        ((run.at_ms, -rule.priority, table, rule) for table, rule, (runs, _) in expected for run in runs),
        key=lambda one: (one[0], one[1], one[2].policy.table, one[3].operation),
    )
    for at_ms, _, table, rule in in_order:
        cost = predict(rule.operation, table.seen)
        days = {limit: (limit.scope, day_start(limit.time_zone, at_ms)) for limit in _limits(table.policy)}
        for limit, day in days.items():
            if day not in used:
                is_today = day[1] == day_start(limit.time_zone, now_ms)
                used[day] = spent.get(limit.scope, Spent()) if is_today else Spent()
        if (
            by := next((limit.scope for limit, day in days.items() if _exceeds(limit.amounts, used[day], cost)), None)
        ) is not None:
            held[table.policy.table, rule.operation, at_ms] = by
            continue
        for day in days.values():
            used[day] = _sum(used[day], cost)
    return held


def _limits(policy: EffectivePolicy) -> tuple[DayLimit, ...]:
    return policy.per_day


def _exceeds(limit: Amounts, used: Spent, cost: Spent) -> bool:
    """Whether a run would go beyond a limit, as far as its cost is known."""
    return any(
        most is not None and (value := getattr(cost, name)) is not None and (getattr(used, name) or 0) + value > most
        for name, most in ((name, getattr(limit, name)) for name in Amounts.model_fields)
    )


def _sum(used: Spent, cost: Spent) -> Spent:
    return Spent(**{name: (getattr(used, name) or 0) + (getattr(cost, name) or 0) for name in Amounts.model_fields})
