"""Which tables a catalog has: listed at once where that is cheap, and a few namespaces a round where each takes requests.

Called by `observer`. A table has vanished only if a listing succeeded in this round and does not have it. What cannot be listed
is trouble under its full name, and its tables stay.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from neve.catalogs.fleet_catalog import FleetCatalog, ListedTable
from neve.errors import NeveError
from neve.service.request_budget import RequestBudget, Retries
from neve.state.statements import storable

RELIST_MS = 300_000
"""How long the listing of a namespace, or of a warehouse's directories, is good for."""
OUTAGE_AFTER = 2
"""So many namespaces in a row that cannot be listed for a reason that may end by itself: the catalog is away."""


@dataclass
class Listing:
    """What one round has found."""

    tables: dict[str, ListedTable] = field(default_factory=dict)
    """Every table that is known to be there, by full name."""
    vanished: set[str] = field(default_factory=set)
    troubles: dict[str, NeveError] = field(default_factory=dict)
    """Catalogs, namespaces and tables that cannot be listed."""
    settled: set[str] = field(default_factory=set)
    """Catalogs and namespaces that were listed."""

    def add(self, table: ListedTable) -> None:
        """Notes a table. One that no command could name is trouble: its full name may be that of another one."""
        if table.is_addressable:
            self.tables[table.full_name] = table
            return
        name = storable(".".join((table.catalog, *(f"`{part}`" for part in table.parts)))) or ""
        self.troubles[name] = NeveError(
            f"Cannot observe table {name}: no command can name it (its name or namespace has dots, spaces around it, empty "
            "parts or invalid characters)",
            hint="Rename it.",
        )


def answers_of(catalog: str) -> str:
    """Under what a catalog that is away is retried, apart from listing its namespaces and reading its tables."""
    return f"answers of {catalog}"


class Lister(Protocol):
    """Lists one catalog, round by round."""

    def listed(self, known: Sequence[str], now_ms: int, budget: RequestBudget) -> Listing:
        """`known` are the full names in this catalog that the fleet has, sorted. Never raises NeveError."""
        ...

    def relist(self, table: ListedTable) -> None:
        """The table could not be found: its namespace is listed again in the next round."""
        ...


def lister_of(catalog: FleetCatalog, retries: Retries) -> Lister:
    """Returns how this catalog is listed. Raises NeveError if the catalog cannot be opened."""
    if catalog.lists_locations:
        return WholeListing(catalog, retries, every_ms=0)
    return WholeListing(catalog, retries, every_ms=RELIST_MS) if catalog.kind == "hadoop" else NamespaceWalk(catalog, retries)


class WholeListing:
    """Lists a whole catalog at a time: the rows of a database, or the directories of a warehouse."""

    def __init__(self, catalog: FleetCatalog, retries: Retries, *, every_ms: int) -> None:
        self._catalog, self._retries, self._every_ms = catalog, retries, every_ms
        self._tables: dict[str, ListedTable] = {}
        self._listed_ms: int | None = None

    def listed(self, known: Sequence[str], now_ms: int, budget: RequestBudget) -> Listing:  # noqa: ARG002 - it is one request
        """One query, or one walk; the tables of the last one until it is time for another."""
        name = self._catalog.name
        if not _is_due(self._listed_ms, now_ms, self._every_ms) or not self._retries.may_try(name, now_ms):
            return Listing(tables=self._tables)
        found = Listing()
        try:
            for one in self._catalog.rows() if self._catalog.lists_locations else self._catalog.survey():
                if isinstance(one, ListedTable):
                    found.add(one)
                else:
                    found.troubles[one[0]] = one[1]
        except NeveError as error:
            found.troubles[name] = error
        if name in found.troubles:
            self._retries.failed(name, now_ms)
            return Listing(tables=self._tables if self._every_ms else {}, troubles={name: found.troubles[name]})
        self._retries.succeeded(name)
        found.settled.add(name)
        unlisted = tuple(f"{trouble}." for trouble in found.troubles)
        gone = (table for table in known if table not in found.tables and table not in found.troubles)
        found.vanished.update(table for table in gone if not table.startswith(unlisted))
        self._listed_ms = now_ms
        if self._every_ms:
            self._tables = found.tables
        return found

    def relist(self, table: ListedTable) -> None:  # noqa: ARG002 - the whole catalog is listed again
        """In the next round."""
        self._listed_ms = None


@dataclass
class _Namespace:
    parts: tuple[str, ...]
    listed_ms: int | None = None
    tables: list[ListedTable] = field(default_factory=list)
    children: list[tuple[str, ...]] = field(default_factory=list)


class NamespaceWalk:
    """Lists a catalog with a server, a few namespaces a round: those first whose listing is the oldest.

    Listings take at most half of the budget, and are kept in memory between rounds.
    """

    def __init__(self, catalog: FleetCatalog, retries: Retries) -> None:
        self._catalog, self._retries = catalog, retries
        self._namespaces: dict[tuple[str, ...], _Namespace] = {(): _Namespace(())}

    def listed(self, known: Sequence[str], now_ms: int, budget: RequestBudget) -> Listing:
        """Lists namespaces whose listing is too old, as far as the budget goes."""
        found = Listing()
        if self._retries.may_try(answers_of(self._catalog.name), now_ms):
            self._list_due(known, found, now_ms, budget)
        for namespace in self._namespaces.values():
            for table in namespace.tables:
                found.add(table)
        found.vanished -= found.tables.keys() | found.troubles.keys()
        return found

    def relist(self, table: ListedTable) -> None:
        """In the next round."""
        if isinstance(table.namespace, tuple) and (namespace := self._namespaces.get(table.namespace)) is not None:
            namespace.listed_ms = None

    def _list_due(self, known: Sequence[str], found: Listing, now_ms: int, budget: RequestBudget) -> None:
        failures, most = 0, max(1, budget.limit // 2)
        while failures < OUTAGE_AFTER and budget.spent < most and (namespace := self._next(now_ms)) is not None:
            error = self._list(namespace, known, found, now_ms)
            failures = failures + 1 if error is not None and error.retryable else 0
        if failures >= OUTAGE_AFTER and error is not None:
            self._retries.failed(answers_of(self._catalog.name), now_ms)
            found.troubles[self._catalog.name] = error

    def _next(self, now_ms: int) -> _Namespace | None:
        due = (
            one
            for one in self._namespaces.values()
            if _is_due(one.listed_ms, now_ms, RELIST_MS) and self._retries.may_try(self._name(one.parts), now_ms)
        )
        # Never listed: the root, then in order of discovery.
        return min(due, key=lambda one: -1 if one.listed_ms is None or one.listed_ms > now_ms else one.listed_ms, default=None)

    def _list(self, namespace: _Namespace, known: Sequence[str], found: Listing, now_ms: int) -> NeveError | None:
        """Returns why the namespace could not be listed; None if it was."""
        name = self._name(namespace.parts)
        try:
            children = self._catalog.namespaces_in(namespace.parts)
            tables = self._catalog.tables_in(namespace.parts) if namespace.parts else []
        except NeveError as error:
            self._retries.failed(name, now_ms)
            found.troubles[name] = error
            return error
        self._retries.succeeded(name)
        self._retries.succeeded(answers_of(self._catalog.name))
        found.settled.add(name)
        if self._catalog.name not in self._retries:
            found.settled.add(self._catalog.name)  # its trouble was an outage
        for parts in self._forget(set(namespace.children) - set(children)):
            found.troubles.pop(self._name(parts), None)
        namespace.listed_ms, namespace.tables, namespace.children = now_ms, tables, children
        for child in children:
            self._namespaces.setdefault(child, _Namespace(child))
        kept = {table.full_name for table in tables} | {self._name(child) for child in children}
        inside = tuple(f"{self._name(child)}." for child in children)
        gone = (one for one in _with_prefix(known, f"{name}.") if one not in kept)
        found.vanished.update(one for one in gone if not one.startswith(inside))
        return None

    def _forget(self, gone: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
        """Returns the namespaces that went with these."""
        inside = [one for one in self._namespaces if any(one[: len(top)] == top for top in gone)]
        for parts in inside:
            del self._namespaces[parts]
        self._retries.forget(map(self._name, inside))
        return inside

    def _name(self, parts: tuple[str, ...]) -> str:
        return ".".join((self._catalog.name, *parts))


def _is_due(listed_ms: int | None, now_ms: int, every_ms: int) -> bool:
    """A listing of the future comes from a clock that was set back since."""
    return listed_ms is None or not listed_ms <= now_ms < listed_ms + every_ms


def _with_prefix(names: Sequence[str], prefix: str) -> Iterator[str]:
    """Of sorted names."""
    for number in range(bisect_left(names, prefix), len(names)):
        if not names[number].startswith(prefix):
            return
        yield names[number]
