"""What a run used: requests by kind, CPU time by process, and their money. Pure values.

Every record has it as `used`, filled in by `context.table.TableContext.timed`. What is not known is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from neve.rewrite.cost import Rates
from neve.table.frozen import Frozen


class Requests(Frozen):
    """Requests to storage and to the catalog. A file that is written is one request, in however many parts it is sent."""

    read: int | None = None
    write: int | None = None
    list: int | None = None
    delete: int | None = None
    catalog: int | None = None
    """Requests to a REST catalog, or statements to a SQL catalog."""
    uncounted: tuple[str, ...] = ()
    """Who sent requests that are not counted: `jvm`, `workers` or `catalog`. The numbers are the least that were sent."""

    @classmethod
    def of(cls, counted: Iterable[Mapping[str, int]], uncounted: Iterable[str] = ()) -> Self:
        """The sum. A kind of which none was counted is unknown if anybody's requests are not counted."""
        left_out = tuple(sorted(set(uncounted)))
        kinds = [name for name in cls.model_fields if name != "uncounted"]
        parts = list(counted)
        sums = {kind: sum(part.get(kind, 0) for part in parts) for kind in kinds}
        known = {kind: number for kind, number in sums.items() if number or not (left_out and _may_send(kind, left_out))}
        return cls(**known, uncounted=left_out)

    @property
    def known(self) -> dict[str, int]:
        """The kinds of which the number is known."""
        return {kind: number for kind, number in self.model_dump(exclude={"uncounted"}).items() if number is not None}

    def money(self, rates: Rates) -> float:
        """The price of what was counted. Requests to the catalog have none."""
        writes = (self.write or 0) + (self.list or 0)
        return (self.read or 0) / 1000 * rates.thousand_reads + writes / 1000 * rates.thousand_writes


def _may_send(kind: str, uncounted: Iterable[str]) -> bool:
    """Whether somebody whose requests are not counted may have sent requests of a kind."""
    return any(who == "jvm" or (who == "catalog") == (kind == "catalog") for who in uncounted)


class CpuSeconds(Frozen):
    """CPU time by process."""

    python: float | None = None
    """The process that ran the command, with the processes that it waited for."""
    jvm: float | None = None
    """Spark's driver, which on local Spark also executes; 0 if Spark was not running."""
    workers: float | None = None
    """On local Spark all of its Python processes. On a cluster the tasks that rewrote groups, if each was measured."""

    @property
    def total(self) -> float | None:
        """The sum, if all of it was measured."""
        parts = (self.python, self.jvm, self.workers)
        return None if None in parts else sum(part for part in parts if part is not None)


class Used(Frozen):
    """What a run used from its request to its record."""

    requests: Requests = Requests()
    cpu_seconds: CpuSeconds = CpuSeconds()
    predicted_money: float | None = None
    """By the plan; None if nothing was planned."""
    money: float | None = None
    """CPU time and counted requests at the prices of the settings; None if the CPU time is not known."""
    prices: str = ""
    """The version of the price sheet, `cost.version`."""
    part_of_another: bool = False
    """Whether the record of another run includes all this, such as that of `maintain` what its steps used."""

    @classmethod
    def at(cls, rates: Rates, requests: Requests, cpu_seconds: CpuSeconds, **rest: object) -> Self:
        """What was used, with its money."""
        total = cpu_seconds.total
        money = None if total is None else total * rates.core_hour / 3600 + requests.money(rates)
        return cls.model_validate({"requests": requests, "cpu_seconds": cpu_seconds, "money": money, **rest})
