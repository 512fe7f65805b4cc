"""What policies mean for tables: explanations, forecasts and suggestions. Called by `neve policy`; changes nothing.

Tables are taken as the service last observed them. One that it has not observed is read here: its metadata file, and its
manifests where a trigger needs them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from neve.catalogs.fleet_catalog import FleetCatalog, ListedTable
from neve.errors import NeveError
from neve.operations.inspect import inspect, rates_of
from neve.operations.policy_options import option_names
from neve.policy.document import Document, PolicyDocument
from neve.policy.effective import EffectivePolicy, PolicyResolver
from neve.scheduling.day_budget import day_starts
from neve.scheduling.explanation import KnobOrigin, TableExplanation, counted_runs, explanation, outlooks
from neve.scheduling.forecast import Forecast, ForecastTable, forecast
from neve.scheduling.job import Spent
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.prediction import Costs, predicted
from neve.scheduling.suggestion import Suggestion, suggestions
from neve.service.inspect_table import inspect_table
from neve.service.policies import in_force_since
from neve.service.table_reading import observe_table
from neve.settings.origins import OriginKind
from neve.settings.table_policy import show
from neve.table.depth import Depth
from neve.table.state import TableName

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.health.inspection import Inspection

log = logging.getLogger(__name__)

_OF_MANIFESTS = ("small_files", "health_below")
"""Triggers that only manifests can answer."""

Report = Callable[[str, int, int | None], None]


class PolicyTables:
    """The tables of a connection, as its policies see them; by other documents than those in force if some are given."""

    def __init__(self, connection: Connection, documents: Sequence[Document] | None = None) -> None:
        self._connection = connection
        self._documents = connection.policy_documents() if documents is None else documents
        if documents is not None:
            connection.trial_policies = documents
        self._store, self._now_ms = connection.records(), connection.clock.now_ms()
        self._resolver = PolicyResolver(self._documents, operations=option_names())
        self._catalogs: dict[str, FleetCatalog] = {}

    def explain(self, table: str) -> TableExplanation:
        """What holds for one table, and what is due. Raises NeveError if the table cannot be read."""
        from neve.context.table import TableContext

        name = self._connection.name(table)
        seen, is_of_fleet = self._observed(name)
        effective = self._resolver.effective(str(name), seen.properties)
        seen = seen if is_of_fleet else self._inspected(seen, effective)
        with TableContext(self._connection, table) as context:
            policy, origins = context.policy_origins()
        values = {str(field.alias): getattr(policy, attribute) for attribute, field in type(policy).model_fields.items()}
        knobs = [
            KnobOrigin(key=key, value=show(key, values[key]), origin=str(origin))
            for key, origin in origins.items()
            if origin.kind is not OriginKind.DEFAULT
        ]
        operations = outlooks(
            effective, seen, counted_runs(effective, self._last_runs([seen]).get(seen.uuid, {})), self._since(), self._now_ms
        )
        return explanation(effective, seen, operations, knobs, is_of_fleet=is_of_fleet, now_ms=self._now_ms)

    def forecast(self, pattern: str | None = None, *, hours: float = 24, inspections: int = 100) -> Forecast:
        """What the policies would do in the next hours. Manifests of at most so many tables are read."""
        troubles: dict[str, str] = {}
        tables: list[tuple[EffectivePolicy, Observation]] = []
        for seen, is_of_fleet in self._all_observed(pattern, troubles):
            effective = self._resolver.effective(seen.table, seen.properties)
            if not is_of_fleet and effective.rules and inspections > 0 and _needs_manifests(effective):
                inspections -= 1
                seen = self._inspected(seen, effective)
            tables.append((effective, seen))
        last_runs = self._last_runs([seen for _, seen in tables])
        matched = [
            ForecastTable(policy, seen, counted_runs(policy, last_runs.get(seen.uuid, {})))
            for policy, seen in tables
            if policy.policies
        ]
        length_ms = round(hours * 3_600_000)
        return Forecast(
            now_ms=self._now_ms,
            until_ms=self._now_ms + length_ms,
            tables=forecast(
                matched, self._since(), self._now_ms, predict=self._predicted, spent=self._spent(), length_ms=length_ms
            ),
            without_policy=tuple(seen.table for policy, seen in tables if not policy.policies),
            matched=self._matched(matched),
            troubles=troubles,
        )

    def suggest(
        self, pattern: str | None = None, *, depth: Depth = Depth.SUMMARY, progress: Report | None = None
    ) -> tuple[tuple[Suggestion, ...], dict[str, str]]:
        """Policies for the tables that match, and those that could not be read, with the reason."""
        troubles: dict[str, str] = {}
        names = list(self._listed(troubles))
        found: list[Inspection] = []
        wanted = [name for name in names if self._is_wanted(str(name), pattern)]
        for index, name in enumerate(wanted):
            if progress is not None:
                progress("inspecting tables", index, len(wanted))
            try:
                found.append(self._inspection(name, depth))
            except NeveError as error:
                troubles[str(name)] = str(error)
        return suggestions(found, [str(name) for name in names]), troubles

    def _inspection(self, name: TableName, depth: Depth) -> Inspection:
        from neve.context.table import TableContext

        with TableContext(self._connection, str(name)) as context:
            return inspect(context, depth=depth)

    def _observed(self, name: TableName) -> tuple[Observation, bool]:
        """The table, and whether the service observed it."""
        entry = self._store.fleet.entry(str(name)) if self._store is not None else None
        if entry is not None and entry.observation is not None and entry.vanished_ms is None:
            return entry.observation, True
        return self._read(name), False

    def _all_observed(self, pattern: str | None, troubles: dict[str, str]) -> Iterator[tuple[Observation, bool]]:
        """Every table that matches. Where the service has observed any, its list counts; else the catalogs are listed."""
        entries = self._store.fleet.entries() if self._store is not None else ()
        if any(entry.observation is not None for entry in entries):
            for entry in (one for one in entries if self._is_wanted(one.table, pattern)):
                if entry.trouble is not None:
                    troubles[entry.table] = f"{entry.trouble} (as the service last saw it)"
                if entry.observation is not None:
                    yield entry.observation, True
            return
        for name in self._listed(troubles):
            if self._is_wanted(str(name), pattern):
                try:
                    yield self._read(name), False
                except NeveError as error:
                    troubles[str(name)] = str(error)

    def _listed(self, troubles: dict[str, str]) -> Iterator[TableName]:
        for found in self._connection.survey():
            if isinstance(found, TableName):
                yield found
            else:
                troubles[found[0]] = str(found[1])

    def _read(self, name: TableName) -> Observation:
        if name.catalog not in self._catalogs:
            catalog = self._connection.catalog(name.catalog)
            described = self._connection.described[name.catalog]
            self._catalogs[name.catalog] = FleetCatalog(catalog, described, self._connection.environ)
        listed = ListedTable(name.catalog, name.namespace, name.name)
        found = observe_table(self._catalogs[name.catalog], listed, lambda *_: None, self._now_ms)
        if isinstance(found, NeveError):
            raise found
        return found

    def _inspected(self, seen: Observation, policy: EffectivePolicy) -> Observation:
        """With what the manifests show, if a rule needs that; without it if they cannot be read."""
        if not _needs_manifests(policy):
            return seen
        try:
            return seen.model_copy(update={"inspected": inspect_table(self._connection, seen, self._now_ms)})
        except NeveError as error:
            log.warning("the manifests of %s are not looked at: %s", seen.table, error)
            return seen

    def _last_runs(self, tables: Sequence[Observation]) -> dict[str, dict[str, LastRun]]:
        return self._store.jobs.last_runs([one.uuid for one in tables]) if self._store is not None and tables else {}

    def _since(self) -> dict[str, int]:
        """When each policy in force came into force; those of a trial begin now."""
        trial = {one.name: self._now_ms for one in self._documents if isinstance(one, PolicyDocument)}
        stored = self._store.policies.documents() if self._store is not None else ()
        known = [one for one in stored if one.document is not None and one.document in self._documents]
        return trial | in_force_since(known)

    def _spent(self) -> dict[str, Spent]:
        """What scopes with a day limit have used today, and what runs that have begun will use."""
        starts = day_starts(self._documents, self._now_ms)
        found = self._store.jobs.spent_since(starts) if self._store is not None and starts else {}
        return {scope: spent.reserved for scope, spent in found.items()}

    def _predicted(self, operation: str, seen: Observation) -> Spent:
        cost = self._connection.settings.cost
        return predicted(operation, seen, Costs(rates_of(cost), cost.version))

    def _matched(self, tables: Sequence[ForecastTable]) -> dict[str, int]:
        names = sorted(one.name for one in self._documents if isinstance(one, PolicyDocument))
        return {name: sum(name in table.policy.policies for table in tables) for name in names}

    def _is_wanted(self, table: str, pattern: str | None) -> bool:
        """Whether a table matches a glob, or is in a namespace or catalog of this name. The default catalog may be left out."""
        if pattern is None:
            return True
        names = {table, table.removeprefix(f"{self._connection.default}.")}
        return any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for name in names)


def _needs_manifests(policy: EffectivePolicy) -> bool:
    return any(getattr(rule.triggers, name) is not None for rule in policy.rules for name in _OF_MANIFESTS)
