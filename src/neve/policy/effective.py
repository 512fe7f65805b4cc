"""The policy in force for one table: which operations run, when and how, knobs with their origin, and all limits. Pure.

The most specific policy that names an operation decides about it. Knobs are merged, the most specific policy last. Limits of
every matching policy apply. `policy.selector` decides which documents match and which is more specific.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from neve.policy.document import Amounts, Document, OperationChoice, PolicyDocument, Schedule, TeamDocument, Triggers, kebab
from neve.policy.selector import matches, specificity
from neve.policy.workload_presets import AUTO, TARGET_KEY, automatic_target, keys_of_preset, with_workload_preset
from neve.table.frozen import Frozen


class KnobValue(Frozen):
    """A knob's value and the policy that sets it."""

    value: Any
    policy: str


class OperationRule(Frozen):
    """One operation on one table: whose rule it is, when it is due and how it runs."""

    operation: str
    policy: str
    owner: str = ""
    """Of the table, whichever policy decides."""
    options: dict[str, Any] = {}
    """Of the operation's request, the persistent filter among them."""
    schedule: Schedule = Schedule()
    triggers: Triggers = Triggers()
    per_run: Amounts = Amounts()
    """The tightest of all that match."""
    target: str = "auto"
    priority: int = 0
    origins: dict[str, str] = {}
    """Where values come from that the policy does not set itself, by key: `triggers.commits`, `per-run.bytes`."""


class DayLimit(Frozen):
    """What all runs under a policy, or of a team, may use in a day of this time zone."""

    scope: str
    """`policy NAME` or `team NAME`."""
    amounts: Amounts
    time_zone: str = "UTC"


class EffectivePolicy(Frozen):
    """What holds for one table."""

    table: str
    owner: str = ""
    policies: tuple[str, ...] = ()
    """Every policy that matches, the most specific first."""
    rules: tuple[OperationRule, ...] = ()
    switched_off: dict[str, str] = {}
    """Operations that a policy which is not enabled switches off, and which one."""
    unknown_operations: dict[str, str] = {}
    """Operations that this release does not have, and the policy that names each."""
    knobs: dict[str, KnobValue] = {}
    per_day: tuple[DayLimit, ...] = ()
    concurrency: int | None = None
    """Of the owner."""


class PolicyResolver:
    """All documents in force, ready to be resolved for many tables. Tables that the same policies match share the work."""

    def __init__(self, documents: Iterable[Document], *, operations: Mapping[str, frozenset[str]]) -> None:
        """Takes what `state.policies` keeps, and the option names that each registered operation takes."""
        listed = tuple(documents)
        self._policies = [with_workload_preset(document) for document in listed if isinstance(document, PolicyDocument)]
        self._teams = {document.name: document for document in listed if isinstance(document, TeamDocument)}
        self._operations = operations
        self._resolved: dict[tuple[str, ...], EffectivePolicy] = {}

    def effective(self, table: str, properties: Mapping[str, str]) -> EffectivePolicy:
        """Returns the policy in force for a table with these properties."""
        found = [policy for policy in self._policies if matches(policy, table, properties)]
        found.sort(key=lambda policy: specificity(policy, table), reverse=True)
        names = tuple(policy.name for policy in found)
        if names not in self._resolved:
            self._resolved[names] = _resolve(found, self._teams, self._operations)
        return self._resolved[names].model_copy(update={"table": table})


def effective_policy(
    table: str, properties: Mapping[str, str], documents: Iterable[Document], *, operations: Mapping[str, frozenset[str]]
) -> EffectivePolicy:
    """Returns the policy in force for one table; a `PolicyResolver` does so for many.

    `operations` has the option names that each registered operation takes: `partitions` and `where` of a policy are passed only
    to those that take them.
    """
    return PolicyResolver(documents, operations=operations).effective(table, properties)


def knobs_in_force(table: str, properties: Mapping[str, str], documents: Iterable[Document]) -> dict[str, KnobValue]:
    """Returns the knobs that the policies set for one table, by key: all that a command typed by hand takes from them."""
    return dict(effective_policy(table, properties, documents, operations={}).knobs)


def with_automatic_target(
    knobs: Mapping[str, KnobValue], data_bytes: int | None, *, rows: int | None = None, current: int | None = None
) -> dict[str, KnobValue]:
    """Returns the knobs with the target-file-size that `auto` stands for at this size; without that knob if it is unknown."""
    knob = knobs.get(TARGET_KEY)
    if knob is None or knob.value != AUTO:
        return dict(knobs)
    chosen = automatic_target(data_bytes, rows=rows, current=current)
    others = {key: value for key, value in knobs.items() if key != TARGET_KEY}
    return others if chosen is None else others | {TARGET_KEY: KnobValue(value=chosen, policy=knob.policy)}


def _resolve(
    found: Sequence[PolicyDocument], teams: Mapping[str, TeamDocument], operations: Mapping[str, frozenset[str]]
) -> EffectivePolicy:
    """Works out what holds, from the policies that match, the most specific first."""
    enabled = [policy for policy in found if policy.enabled]
    owner = next((policy.owner for policy in enabled if policy.owner), "")
    team = teams.get(owner)
    deciding = _deciding(found)
    limits = {f"policy {policy.name}": policy.limits.per_run for policy in enabled}
    limits |= {f"team {team.name}": team.limits.per_run} if team else {}
    return EffectivePolicy(
        table="",
        owner=owner,
        policies=tuple(policy.name for policy in found),
        rules=tuple(
            _rule(policy, choice, owner=owner, limits=limits, taken=operations[choice.name])
            for policy, choice in deciding
            if policy.enabled and choice.name in operations
        ),
        switched_off={choice.name: policy.name for policy, choice in deciding if not policy.enabled},
        unknown_operations={choice.name: policy.name for policy, choice in deciding if choice.name not in operations},
        knobs={key: KnobValue(value=value, policy=p.name) for p in reversed(enabled) for key, value in p.knobs.items()},
        per_day=_day_limits(enabled, team),
        concurrency=team.concurrency if team else None,
    )


def _deciding(found: Sequence[PolicyDocument]) -> list[tuple[PolicyDocument, OperationChoice]]:
    """The most specific policy that names each operation."""
    deciding: dict[str, tuple[PolicyDocument, OperationChoice]] = {}
    for policy in found:
        for choice in policy.operations:
            deciding.setdefault(choice.name, (policy, choice))
    return list(deciding.values())


def _rule(
    policy: PolicyDocument, choice: OperationChoice, *, owner: str, limits: Mapping[str, Amounts], taken: frozenset[str]
) -> OperationRule:
    options = option_names(choice.options)
    persistent = {"partitions": list(policy.partitions) or None, "where": policy.where}
    added = {name: value for name, value in persistent.items() if value is not None and name in taken and name not in options}
    return OperationRule(
        operation=choice.name,
        policy=policy.name,
        owner=owner,
        options=options | added,
        schedule=policy.schedule,
        triggers=policy.triggers,
        per_run=tightest(limits.values()),
        target=policy.target,
        priority=policy.priority,
        origins=_origins(policy, limits),
    )


def _origins(policy: PolicyDocument, limits: Mapping[str, Amounts]) -> dict[str, str]:
    """Where values come from that the policy does not set itself."""
    found = dict.fromkeys(keys_of_preset(policy), f"preset {policy.preset}")
    for name, value in tightest(limits.values()):
        setters = [origin for origin, amounts in limits.items() if value is not None and getattr(amounts, name) == value]
        if setters and f"policy {policy.name}" not in setters:
            found[f"per-run.{kebab(name)}"] = setters[0]
    return found


def option_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options by the names of the operation's request; documents write hyphens."""
    return {name.replace("-", "_"): value for name, value in options.items()}


def tightest(amounts: Iterable[Amounts]) -> Amounts:
    """Returns the smallest of each amount; None where none of them has a limit."""
    listed = list(amounts)
    fields = {name: [value for one in listed if (value := getattr(one, name)) is not None] for name in Amounts.model_fields}
    return Amounts.model_validate({name: min(values) for name, values in fields.items() if values})


def _day_limits(enabled: Sequence[PolicyDocument], team: TeamDocument | None) -> tuple[DayLimit, ...]:
    listed = [(f"policy {policy.name}", policy.limits.per_day, policy.schedule.time_zone) for policy in enabled]
    if team is not None:
        listed.append((f"team {team.name}", team.limits.per_day, team.time_zone))
    return tuple(
        DayLimit(scope=scope, amounts=amounts, time_zone=zone) for scope, amounts, zone in listed if amounts != Amounts()
    )
