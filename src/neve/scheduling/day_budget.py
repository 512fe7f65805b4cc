"""What policies and teams have left of their day: runs that ended count as measured, jobs in the queue as predicted. Pure.

Called by `decide`, which gives out what is left in the order of admission. A job whose use is unknown takes all that is left of
its scopes until it has ended, so that a budget is exceeded by at most what one run was predicted wrongly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from neve.policy.document import Amounts, Document, PolicyDocument
from neve.policy.effective import DayLimit
from neve.policy.schedule_times import day_start
from neve.policy.workload_presets import with_workload_preset
from neve.scheduling.clock import DAY_MS, spelled_time
from neve.scheduling.job import Spent
from neve.scheduling.run_bounds import Allowance
from neve.table.units import format_bytes, format_seconds

_DAY_AND_SOME_MS = DAY_MS + DAY_MS // 4


def policy_scope(name: str) -> str:
    """The scope of a policy's day limit, as in `DayLimit.scope`."""
    return f"policy {name}"


def team_scope(name: str) -> str:
    """The scope of a team's day limit."""
    return f"team {name}"


def day_starts(documents: Iterable[Document], now_ms: int) -> dict[str, int]:
    """When the present day began for each scope that has a limit: what ended since then counts."""
    starts: dict[str, int] = {}
    for document in documents:
        if document.limits.per_day == Amounts():
            continue
        if not isinstance(document, PolicyDocument):
            starts[team_scope(document.name)] = day_start(document.time_zone, now_ms)
        elif document.enabled:
            zone = with_workload_preset(document).schedule.time_zone
            starts[policy_scope(document.name)] = day_start(zone, now_ms)
    return starts


def next_day(time_zone: str, now_ms: int) -> int:
    """When the day after this one begins in the zone."""
    # Days have 23 to 25 hours, or none at all where a zone skips one.
    return day_start(time_zone, day_start(time_zone, now_ms) + _DAY_AND_SOME_MS)


class Left(NamedTuple):
    """What a limit leaves of the day."""

    limit: DayLimit
    today: Allowance
    unknown: str | None = None
    """The job that takes all of it, as it is unknown what it uses."""

    @property
    def whole(self) -> Allowance:
        """What may be used in a day."""
        return Allowance.of(self.limit.amounts)

    def reason(self, now_ms: int) -> str:
        """For people: `team sales may use 1 TB a day, of which 3 GB are left until 2026-11-20 00:00 UTC`."""
        scope, zone = self.limit.scope, self.limit.time_zone
        if self.unknown is not None:
            return f"it is unknown what {self.unknown} uses, and it counts against the day of {scope}"
        left = Allowance(*(max(0.0, amount) for amount in self.today))
        verb = "is" if sum(amount < inf for amount in left) == 1 else "are"
        until = spelled_time(next_day(zone, now_ms), zone)
        return f"{scope} may use {_listed(self.whole)} a day, of which {_listed(left)} {verb} left until {until}"


class DayBudgets:
    """What is left of the day, as it is given out. Lives for one decision."""

    def __init__(self, spent: Mapping[str, Spent]) -> None:
        """Takes what the runs that ended today used, by scope."""
        self._used: dict[str, Spent] = dict(spent)
        self._unknown: dict[str, str] = {}

    def reserve(self, scopes: Iterable[str], use: Spent, *, job: str) -> None:
        """Takes what a job is predicted to use; all, if that is unknown."""
        for scope in scopes:
            self._used[scope] = _added(self._used.get(scope, Spent()), use)
            if use.bytes is None and use.core_seconds is None:
                self._unknown.setdefault(scope, job)

    def left(self, limits: Iterable[DayLimit]) -> list[Left]:
        """What each limit leaves of the day."""
        return [self._left(limit) for limit in limits]

    def _left(self, limit: DayLimit) -> Left:
        whole, job = Allowance.of(limit.amounts), self._unknown.get(limit.scope)
        if job is not None:
            return Left(limit, Allowance(*(-1.0 if amount < inf else inf for amount in whole)), job)
        used = self._used.get(limit.scope)
        return Left(limit, whole if used is None else whole.without(used))


def _added(one: Spent, other: Spent) -> Spent:
    return Spent(
        bytes=(one.bytes or 0) + (other.bytes or 0),
        core_seconds=(one.core_seconds or 0.0) + (other.core_seconds or 0.0),
        money=(one.money or 0.0) + (other.money or 0.0),
    )


def _listed(amounts: Allowance) -> str:
    texts = (
        f"{format_bytes(amounts.bytes / 2)}" if amounts.bytes < inf else "",
        f"{format_seconds(amounts.core_seconds)} of a core" if amounts.core_seconds < inf else "",
        f"{amounts.money:.4g} of money" if amounts.money < inf else "",
    )
    return ", ".join(text for text in texts if text)
