"""Keeps the fleet known cheaply: which tables the catalogs have, and for each what its current metadata file says.

Called by the scheduler, a round at a time. In a SQL catalog, a table whose metadata file is the same costs nothing. In others,
tables take turns within a budget of requests. Manifests are read only where a summary suggests work. Nothing of a document is
kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from neve.catalogs.fleet_catalog import FleetCatalog, ListedTable
from neve.errors import NeveError, TableNotFoundError
from neve.scheduling.observation import Inspected, Observation
from neve.scheduling.rotation import Turn, rotation, weight_of
from neve.service.catalog_listing import Lister, Listing, answers_of, lister_of
from neve.service.fleet_round import FleetRound, ObservedRound, ObservedTables, ObserverBounds
from neve.service.inspect_table import inspect_table
from neve.service.inspections import Inspections
from neve.service.request_budget import UNBOUNDED, RequestBudget, Retries
from neve.service.table_reading import OUTAGE_AFTER, observe_table, read_tables

if TYPE_CHECKING:
    from neve.context.connection import Connection

log = logging.getLogger(__name__)

_BATCH = 500


class Observer:
    """Observes the tables of every described catalog.

    `small_bytes` returns the size below which a table's files are small by its policy; None leaves that to the table's
    properties. One thread calls `observe`, with a connection that no other thread uses.
    """

    def __init__(
        self,
        connection: Connection,
        store: ObservedTables,
        bounds: ObserverBounds | None = None,
        *,
        inspect: Callable[[Connection, Observation, int], Inspected | None] = inspect_table,
        small_bytes: Callable[[Observation], int | None] = lambda _: None,
    ) -> None:
        self._connection, self._store, self._bounds = connection, store, bounds or ObserverBounds()
        self._inspections = Inspections(lambda table, now_ms: inspect(connection, table, now_ms), small_bytes, self._bounds)
        self._catalogs: dict[str, FleetCatalog] = {}
        self._listers: dict[str, Lister] = {}
        self._retries = Retries()
        self._last_turns: dict[str, int] = {}

    def observe(self, now_ms: int, wanted: Collection[str] = ()) -> ObservedRound:
        """Observes what is due. `wanted` tables, such as those that a run has just changed, go before others."""
        known, troubles = self._store.known()
        fleet = FleetRound(now_ms, frozenset(wanted), known, troubles, self._connection.described)
        for name in sorted(self._connection.described):
            self._observe_catalog(name, fleet)
        if inspected := self._inspections.carry_out(fleet):
            self._store.keep(inspected, {}, (), now_ms)
        fleet.report.requests = {name: budget.spent for name, budget in fleet.budgets.items()}
        return fleet.report

    def _observe_catalog(self, name: str, fleet: FleetRound) -> None:
        try:
            catalog = self._catalog(name)
            budget = fleet.budgets[name] = RequestBudget(self._bounds.catalog_requests, lambda: catalog.requests_sent)
            listing = self._listed(catalog, fleet, budget)
            if catalog.lists_locations:
                budget.limit = UNBOUNDED
        except Exception as error:  # a catalog never stops others
            self._retries.failed(name, fleet.now_ms)
            listing = Listing(troubles={name: _as_neve_error(error, f"Cannot list catalog {name}")})
        self._keep_listing(listing, fleet)
        if listing.tables and self._retries.may_try(answers_of(name), fleet.now_ms):
            self._read(catalog, listing, fleet, budget)
        if name in listing.troubles or not self._retries.may_try(answers_of(name), fleet.now_ms):
            fleet.away.add(name)

    def _catalog(self, name: str) -> FleetCatalog:
        if name not in self._catalogs:
            described, environ = self._connection.described[name], self._connection.environ
            self._catalogs[name] = FleetCatalog(self._connection.catalog(name), described, environ)
        return self._catalogs[name]

    def _listed(self, catalog: FleetCatalog, fleet: FleetRound, budget: RequestBudget) -> Listing:
        if catalog.name not in self._listers:
            if not self._retries.may_try(catalog.name, fleet.now_ms):
                return Listing()
            catalog.open()
            self._listers[catalog.name] = lister_of(catalog, self._retries)
        return self._listers[catalog.name].listed(fleet.names(catalog.name), fleet.now_ms, budget)

    def _keep_listing(self, listing: Listing, fleet: FleetRound) -> None:
        fleet.report.tables += len(listing.tables)
        vanished = listing.vanished & fleet.known.keys()
        ended = (listing.settled | listing.vanished) & fleet.troubles.keys() - vanished
        noted = dict(fleet.note(name, error) for name, error in listing.troubles.items())
        new = {name: reason for name, reason in noted.items() if fleet.troubles.get(name) != reason}
        troubles: dict[str, str | None] = {**dict.fromkeys(ended - noted.keys()), **new}
        if troubles or vanished:
            self._store.keep((), troubles, vanished, fleet.now_ms)
        for name in listing.vanished:
            fleet.known.pop(name, None)
            self._last_turns.pop(name, None)
        self._retries.forget(listing.vanished)
        fleet.report.vanished += len(vanished)

    def _read(self, catalog: FleetCatalog, listing: Listing, fleet: FleetRound, budget: RequestBudget) -> None:
        due, limit = self._due(listing, fleet), self._readable(budget)
        turns = (self._turn(name, fleet) for name in due)
        # Half of the turns are for urgent tables, so a single one is for all.
        chosen = rotation(turns if limit > 1 else (turn._replace(urgent=False) for turn in turns), fleet.now_ms, limit)
        if any(name not in fleet.known for name in chosen):
            fleet.by_uuid = {**self._store.vanished(), **fleet.by_uuid}  # they may have come back, or have another name
        affordable = takewhile(lambda _: budget.left, (listing.tables[name] for name in chosen))
        read = lambda table: observe_table(catalog, table, fleet.before, fleet.now_ms)  # noqa: E731
        batch, done, failures = _Batch(self._store, fleet), 0, 0
        for table, result in read_tables(affordable, read, threads=self._bounds.threads):
            done += 1
            self._last_turns[table.full_name] = fleet.now_ms
            if isinstance(result, Observation):
                self._retries.succeeded(table.full_name)
                self._retries.succeeded(answers_of(catalog.name))
                batch.add(result)
                failures = 0
            else:
                failures = failures + 1 if result.retryable else 0
                self._failed(table, result, batch, fleet)
        batch.flush()
        fleet.report.waiting += len(due) - done
        if failures >= OUTAGE_AFTER:
            log.warning("the tables of catalog %s cannot be read at the moment", catalog.name)
            self._retries.failed(answers_of(catalog.name), fleet.now_ms)

    def _readable(self, budget: RequestBudget) -> int:
        """How many tables may be read: what is left of a budget without what is kept for inspections, but at least one."""
        if budget.limit == UNBOUNDED:
            return self._bounds.metadata_files
        return max(min(1, budget.left), budget.left - self._bounds.inspection_requests)

    def _failed(self, table: ListedTable, error: NeveError, batch: _Batch, fleet: FleetRound) -> None:
        self._retries.failed(table.full_name, fleet.now_ms, table.location)
        if isinstance(error, TableNotFoundError):
            self._listers[table.catalog].relist(table)
        batch.trouble(*fleet.note(table.full_name, error))

    def _due(self, listing: Listing, fleet: FleetRound) -> Sequence[str]:
        return [
            name
            for name, table in listing.tables.items()
            if (table.location is None or _has_changed(name, table, fleet))
            and self._retries.may_try(name, fleet.now_ms, table.location)
        ]

    def _turn(self, name: str, fleet: FleetRound) -> Turn:
        known = fleet.known.get(name)
        last_ms = self._last_turns.get(name, known.observed_ms if known is not None else None)
        return Turn(name, last_ms, weight_of(known) if known is not None else 1, fleet.is_urgent(name, last_ms))


def _has_changed(name: str, table: ListedTable, fleet: FleetRound) -> bool:
    known = fleet.known.get(name)
    return known is None or known.metadata_location != table.location or name in fleet.troubles


class _Batch:
    """Observations and troubles, stored a few hundred at a time."""

    def __init__(self, store: ObservedTables, fleet: FleetRound) -> None:
        self._store, self._fleet = store, fleet
        self._observations: list[Observation] = []
        self._troubles: dict[str, str | None] = {}

    def add(self, observation: Observation) -> None:
        """Notes a table that was read."""
        self._fleet.known[observation.table] = observation
        self._fleet.report.read += 1
        self._observations.append(observation)
        self._flush_if_full()

    def trouble(self, name: str, reason: str | None) -> None:
        """Notes what could not be read, or that it can be again."""
        self._troubles[name] = reason
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if len(self._observations) + len(self._troubles) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Stores what was noted."""
        if self._observations or self._troubles:
            self._store.keep(self._observations, self._troubles, (), self._fleet.now_ms)
            self._observations, self._troubles = [], {}


def _as_neve_error(error: Exception, what: str) -> NeveError:
    if isinstance(error, NeveError):
        return error
    log.exception(what)
    return NeveError(f"{what}: {' '.join(f'{type(error).__name__}: {error}'.split())[:300]}")
