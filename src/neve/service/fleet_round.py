"""The values of one round of the observer: its bounds, the tables that were known, and what the round did."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from neve.scheduling.observation import Observation
from neve.service.request_budget import RequestBudget
from neve.state.statements import storable


class ObservedTables(Protocol):
    """What the observer needs of the store that keeps the fleet."""

    def known(self) -> tuple[dict[str, Observation], dict[str, str]]:
        """The last observation of each table, and why a table, namespace or catalog could not be observed, by full name."""
        ...

    def vanished(self) -> Mapping[str, Observation]:
        """The last observations of tables that vanished, by uuid."""
        ...

    def keep(
        self,
        observations: Sequence[Observation],
        troubles: Mapping[str, str | None],
        vanished: Collection[str],
        now_ms: int,
    ) -> None:
        """Stores one batch. An observation ends the trouble of its table; None ends that of a table, namespace or catalog.

        A table in trouble keeps its last observation. `hinted_ms` is never set back.
        """
        ...


@dataclass(frozen=True)
class ObserverBounds:
    """What one round may use."""

    catalog_requests: int = 600
    """Requests to each catalog that is asked for every table by itself: listings, tables and inspections together."""
    metadata_files: int = 20_000
    """Metadata files that are read of each catalog that lists where they are."""
    inspections: int = 20
    """Tables whose manifests are read."""
    manifest_requests: int = 2_000
    """No further table is inspected once inspections have sent so many requests."""
    threads: int = 8
    """Threads that read metadata."""

    @property
    def inspection_requests(self) -> int:
        """Requests to each such catalog that are kept for inspections."""
        return min(self.inspections, max(1, self.catalog_requests // 4))


@dataclass
class ObservedRound:
    """What one round did."""

    tables: int = 0
    """Tables that the catalogs are known to have."""
    read: int = 0
    """Tables whose metadata was read."""
    waiting: int = 0
    """Tables that should have been read, or could have changed, and were beyond a budget."""
    vanished: int = 0
    inspected: dict[str, str] = field(default_factory=dict)
    """Tables whose manifests were read, and why."""
    troubles: dict[str, str] = field(default_factory=dict)
    """What failed in this round, by full name, and why."""
    requests: dict[str, int] = field(default_factory=dict)
    """Requests to each catalog."""
    manifest_requests: int = 0
    """Requests to storage that inspections sent."""


@dataclass
class FleetRound:
    """The tables during one round: as they were known before, with what was observed since."""

    now_ms: int
    wanted: Collection[str]
    known: dict[str, Observation]
    troubles: dict[str, str]
    catalogs: Collection[str]
    by_uuid: dict[str, Observation] = field(init=False)
    """Tables by what stays when they are renamed."""
    budgets: dict[str, RequestBudget] = field(default_factory=dict)
    """By catalog; unbounded where one query lists all tables."""
    away: set[str] = field(default_factory=set)
    """Catalogs that do not answer, or whose tables cannot be read."""
    report: ObservedRound = field(default_factory=ObservedRound)

    def __post_init__(self) -> None:
        self.by_uuid = {one.uuid: one for one in self.known.values()}

    def names(self, catalog: str) -> list[str]:
        """Full names in this catalog, sorted."""
        prefix = f"{catalog}."
        others = tuple(f"{one}." for one in self.catalogs if one.startswith(prefix))
        return sorted(name for name in {*self.known, *self.troubles} if name.startswith(prefix) and not name.startswith(others))

    def may_ask(self, name: str) -> bool:
        """Whether this table's catalog is described, answers, and has some of its budget left."""
        described = (one for one in self.catalogs if name.startswith(f"{one}."))
        catalog = max(described, key=len, default="")  # names of catalogs may have dots
        return catalog not in self.away and catalog in self.budgets and self.budgets[catalog].left > 0

    def before(self, name: str, uuid: str | None) -> Observation | None:
        """The last observation of this table, also if it had another name."""
        found = self.known.get(name)
        return found if uuid is None or (found is not None and found.uuid == uuid) else self.by_uuid.get(uuid)

    def is_urgent(self, name: str, since_ms: int | None) -> bool:
        """Whether somebody asked for this table, in this round or by a hint since then."""
        found = self.known.get(name)
        return name in self.wanted or (found is not None and (found.hinted_ms or 0) > (since_ms or 0))

    def note(self, name: str, error: Exception) -> tuple[str, str]:
        """Reports a failure; returns the name and the reason as they are stored."""
        hint = getattr(error, "hint", None)
        stored = storable(name) or ""
        self.report.troubles[stored] = reason = storable(f"{error} ({hint})" if hint else str(error)) or ""
        return stored, reason
