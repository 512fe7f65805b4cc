"""What holds for one table: the origin of each value, and whether each operation is due. Pure; for `neve policy explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neve.policy.effective import DayLimit, EffectivePolicy, OperationRule
from neve.scheduling.coverage import MAINTAIN, included, with_maintain
from neve.scheduling.due import judge
from neve.scheduling.observation import LastRun, Observation
from neve.table.frozen import Frozen


class OperationOutlook(Frozen):
    """One operation on one table: the rule that decides, and whether it is due."""

    operation: str
    rule: OperationRule
    is_due: bool
    reason: str
    next_ms: int | None = None
    last_run_ms: int | None = None


class KnobOrigin(Frozen):
    """A knob in force and where its value comes from."""

    key: str
    value: str
    origin: str


class TableExplanation(Frozen):
    """What holds for one table."""

    table: str
    owner: str
    policies: tuple[str, ...]
    """Every policy that matches, the most specific first."""
    operations: tuple[OperationOutlook, ...]
    switched_off: dict[str, str]
    unknown_operations: dict[str, str]
    knobs: tuple[KnobOrigin, ...]
    """Those that are not at their defaults."""
    per_day: tuple[DayLimit, ...]
    concurrency: int | None
    observed_ms: int
    is_of_fleet: bool
    """Whether the service observed the table; otherwise its metadata was read for this explanation."""
    now_ms: int


def counted_runs(policy: EffectivePolicy, last_runs: Mapping[str, LastRun]) -> dict[str, LastRun]:
    """Returns the last run of each operation that the policy names; a later run of `maintain` counts for what it includes."""
    maintain = next((rule for rule in policy.rules if rule.operation == MAINTAIN), None)
    covered = included(policy, maintain.options) if maintain is not None else frozenset[str]()
    found = dict(last_runs)
    for name in covered:
        if (run := with_maintain(last_runs.get(name), last_runs.get(MAINTAIN))) is not None:
            found[name] = run
    return found


def outlooks(
    policy: EffectivePolicy, seen: Observation, last_runs: Mapping[str, LastRun], since: Mapping[str, int], now_ms: int
) -> tuple[OperationOutlook, ...]:
    """Returns every operation of a table's policy; `since` is when each policy came into force."""
    return tuple(
        _outlook(rule, seen, last_runs.get(rule.operation), since.get(rule.policy, 0), now_ms)
        for rule in sorted(policy.rules, key=lambda rule: rule.operation)
    )


def _outlook(rule: OperationRule, seen: Observation, last: LastRun | None, since_ms: int, now_ms: int) -> OperationOutlook:
    due = judge(rule, seen, last, now_ms, since_ms=since_ms)
    return OperationOutlook(
        operation=rule.operation,
        rule=rule,
        is_due=due.is_due,
        reason=due.reason,
        next_ms=due.next_ms,
        last_run_ms=last.started_ms or None if last is not None else None,
    )


def explanation(
    policy: EffectivePolicy,
    seen: Observation,
    operations: Sequence[OperationOutlook],
    knobs: Sequence[KnobOrigin],
    *,
    is_of_fleet: bool,
    now_ms: int,
) -> TableExplanation:
    """Returns the parts as one value."""
    return TableExplanation(
        table=policy.table,
        owner=policy.owner,
        policies=policy.policies,
        operations=tuple(operations),
        switched_off=policy.switched_off,
        unknown_operations=policy.unknown_operations,
        knobs=tuple(knobs),
        per_day=policy.per_day,
        concurrency=policy.concurrency,
        observed_ms=seen.observed_ms,
        is_of_fleet=is_of_fleet,
        now_ms=now_ms,
    )
