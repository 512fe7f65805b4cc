"""What the policies say of one table: which operations run, when and how, the knobs with their origin, and all limits. Pure.

The most specific policy that names an operation decides about it; knobs are merged, the most specific last; limits add up.
`policy.selector` tells which documents match and which is more specific.
"""

from __future__ import annotations

from typing import Any

from neve.policy.document import Amounts, Schedule, Triggers
from neve.table.frozen import Frozen


class KnobSaid(Frozen):
    """A knob's value and the policy that says it."""

    value: Any
    policy: str


class OperationRule(Frozen):
    """One operation on one table: whose rule it is, when it is due and how it runs."""

    operation: str
    policy: str
    owner: str = ""
    options: dict[str, Any] = {}
    """Of the operation's request, the persistent filter among them."""
    schedule: Schedule = Schedule()
    triggers: Triggers = Triggers()
    per_run: Amounts = Amounts()
    """The tightest of all that match."""
    target: str = "auto"
    priority: int = 0


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
    knobs: dict[str, KnobSaid] = {}
    per_day: tuple[DayLimit, ...] = ()
    concurrency: int | None = None
    """Of the owner."""
