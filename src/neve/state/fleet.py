"""The fleet: one row per table that the catalogs list, with what was last observed there, and the history of its health.

A table that its catalog no longer lists keeps its row, marked as vanished, until it is pruned. Its counters come back with it
if the listing was at fault, or if it was renamed. Another table under the same name has another uuid and starts from scratch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import ColumnElement, Connection, Engine, and_, case, delete, func, null, or_, select, update

from neve.scheduling.observation import Inspected, Observation
from neve.state import schema
from neve.state.database import clock_ms, guarded, writing
from neve.state.statements import batches, matches_glob, storable, upsert
from neve.table.frozen import Frozen

_c, _health = schema.fleet.c, schema.health_history.c
_HEALTH = ("health", "data_files", "data_bytes", "small_files", "delete_files")


class FleetEntry(Frozen):
    """A row of the fleet. `observation` is None if the table was never read, or another release wrote it in another way."""

    table: str
    catalog: str
    observed_ms: int
    table_uuid: str | None = None
    observation: Observation | None = None
    trouble: str | None = None
    """Why the last attempt to observe the table failed."""
    hinted_ms: int | None = None
    vanished_ms: int | None = None


class HealthEntry(Frozen):
    """What an inspection found, as the history keeps it."""

    table_uuid: str
    table: str
    inspected_ms: int
    snapshot_id: int | None
    health: int
    data_files: int
    data_bytes: int
    small_files: int
    delete_files: int


class FleetStore:
    """Reads and changes the fleet."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def record(self, observations: Iterable[Observation]) -> None:
        """Replaces what is known of these tables, all or none, and clears their trouble.

        A hint stays, unless another table has the name now.
        """
        rows = [_row(one) for one in _sorted(observations)]
        if not rows:
            return
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            adding = upsert(connection, schema.fleet)
            new = adding.excluded
            changes: dict[str, Any] = {name: new[name] for name in rows[0] if name not in ("table_name", "hinted_ms")}
            same_table = or_(_c.table_uuid.is_(None), _c.table_uuid == new.table_uuid)
            changes["hinted_ms"] = case((same_table, func.coalesce(_c.hinted_ms, new.hinted_ms)), else_=null())
            connection.execute(adding.on_conflict_do_update(index_elements=[_c.table_name], set_=changes), rows)

    def touch(self, tables: Collection[str], observed_ms: int) -> None:
        """Notes that these tables were observed and had not changed."""
        values = {"observed_ms": observed_ms, "trouble": null(), "vanished_ms": null()}
        self._change_each(tables, values)

    def record_trouble(self, troubles: Mapping[str, str], now_ms: int) -> None:
        """Notes why these could not be observed. What was known of them stays.

        Catalogs and namespaces may be among them: they have a row for as long as they are in trouble.
        """
        rows = [
            {"table_name": name, "catalog": _catalog(name), "observed_ms": now_ms, "trouble": storable(trouble)}
            for name, trouble in sorted(troubles.items())
        ]
        if not rows:
            return
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            adding = upsert(connection, schema.fleet)
            changes = {"trouble": adding.excluded.trouble, "vanished_ms": null()}
            connection.execute(adding.on_conflict_do_update(index_elements=[_c.table_name], set_=changes), rows)

    def end_trouble(self, names: Collection[str]) -> None:
        """Notes that these can be observed again; rows of what was never observed, such as namespaces, are removed."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            _lock_rows(connection, names)
            for some in batches(sorted(set(names))):
                named = _c.table_name.in_(some)
                connection.execute(delete(schema.fleet).where(named, _c.table_uuid.is_(None)))
                connection.execute(update(schema.fleet).where(named).values(trouble=null()))

    def entries(self, pattern: str | None = None, *, vanished: bool = False) -> tuple[FleetEntry, ...]:
        """Returns all tables, or those whose full name matches a glob, by name; vanished ones only if asked for."""
        conditions: list[ColumnElement[bool]] = [] if vanished else [_c.vanished_ms.is_(None)]
        conditions += [] if pattern is None else [matches_glob(self._engine, _c.table_name, pattern)]
        return self._entries(*conditions)

    def entry(self, table: str) -> FleetEntry | None:
        """Returns one table by its full name, vanished or not."""
        found = self._entries(_c.table_name == table)
        return found[0] if found else None

    def by_uuid(self, uuids: Collection[str]) -> dict[str, Observation]:
        """Returns what was observed of these tables under whatever name, vanished ones included: the newest by uuid."""
        entries: list[FleetEntry] = []
        for some in batches(sorted(set(uuids))):
            entries += self._entries(_c.table_uuid.in_(some))
        entries.sort(key=lambda entry: (entry.vanished_ms is None, entry.observed_ms))
        return {one.uuid: one for entry in entries if (one := entry.observation) is not None}

    def hint(self, table: str, now_ms: int) -> bool:
        """Notes that a writer asked for maintenance of a table; False if the fleet has no such table."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            values = {"hinted_ms": clock_ms(connection, now_ms)}
            known = and_(_c.table_name == table, _c.vanished_ms.is_(None))
            return connection.execute(update(schema.fleet).where(known).values(**values)).rowcount == 1

    def vanish(self, tables: Collection[str], now_ms: int) -> None:
        """Marks tables that their catalogs no longer list. One that is marked already keeps its moment."""
        self._change_each(tables, {"vanished_ms": func.coalesce(_c.vanished_ms, now_ms)})

    def forget(self, tables: Collection[str]) -> None:
        """Removes the rows of these tables."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            for some in batches(sorted(set(tables))):
                connection.execute(delete(schema.fleet).where(_c.table_name.in_(some)))

    def prune(self, before_ms: int) -> int:
        """Forgets what is older than a moment: vanished tables, their last runs, and the history of health."""
        last, listed = schema.table_operations.c, select(_c.table_uuid).where(_c.table_uuid.is_not(None))
        is_old = func.coalesce(last.finished_ms, last.started_ms) < before_ms
        is_paused = func.coalesce(last.paused_until_ms, 0) >= before_ms
        removals = (
            delete(schema.fleet).where(_c.vanished_ms < before_ms),
            delete(schema.table_operations).where(is_old, ~is_paused, last.table_uuid.not_in(listed)),
            delete(schema.health_history).where(_health.inspected_ms < before_ms),
        )
        with guarded(self._engine, "prune"), writing(self._engine) as connection:
            return sum(connection.execute(removal).rowcount for removal in removals)

    def add_health(self, observations: Iterable[Observation]) -> None:
        """Adds the inspections in these observations to the history of health; one that is there stays as it is."""
        rows = [_health_row(one, one.inspected) for one in observations if one.inspected is not None]
        if rows:
            with guarded(self._engine, "write to"), writing(self._engine) as connection:
                connection.execute(upsert(connection, schema.health_history).on_conflict_do_nothing(), rows)

    def health(
        self, pattern: str | None = None, *, table_uuid: str | None = None, since_ms: int = 0, limit: int = 1_000
    ) -> tuple[HealthEntry, ...]:
        """Returns the history of health, the newest first: of all tables, of those that match a glob, or of one by its uuid."""
        conditions: list[ColumnElement[bool]] = [_health.inspected_ms >= since_ms]
        conditions += [] if pattern is None else [matches_glob(self._engine, _health.table_name, pattern)]
        conditions += [] if table_uuid is None else [_health.table_uuid == table_uuid]
        query = select(schema.health_history).where(*conditions)
        query = query.order_by(_health.inspected_ms.desc(), _health.table_name).limit(limit)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        names = ("table_uuid", "inspected_ms", "snapshot_id", *_HEALTH)
        return tuple(HealthEntry(table=row.table_name, **{name: getattr(row, name) for name in names}) for row in rows)

    def _entries(self, *conditions: ColumnElement[bool]) -> tuple[FleetEntry, ...]:
        query = select(schema.fleet).where(*conditions).order_by(_c.table_name)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            return tuple(_entry(row) for row in connection.execute(query))

    def _change_each(self, tables: Collection[str], values: Mapping[str, Any]) -> None:
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            _lock_rows(connection, tables)
            for some in batches(sorted(set(tables))):
                connection.execute(update(schema.fleet).where(_c.table_name.in_(some)).values(**values))


def _lock_rows(connection: Connection, tables: Collection[str]) -> None:
    """Locks rows by name, as `record` does, so that two processes never wait for each other in a circle."""
    for some in batches(sorted(set(tables))):
        rows = select(_c.table_name).where(_c.table_name.in_(some)).order_by(_c.table_name)
        connection.execute(rows.with_for_update())


def _sorted(observations: Iterable[Observation]) -> list[Observation]:
    """By name; of two for the same table the later."""
    return [one for _, one in sorted({one.table: one for one in observations}.items())]


def _catalog(table: str) -> str:
    return table.partition(".")[0]


def _row(observed: Observation) -> dict[str, Any]:
    return {
        "table_name": observed.table,
        "catalog": _catalog(observed.table),
        "table_uuid": observed.uuid,
        "metadata_location": observed.metadata_location,
        "observed_ms": observed.observed_ms,
        "observation": observed.model_dump(mode="json", exclude={"hinted_ms", "observed_ms"}),
        "trouble": None,
        "hinted_ms": observed.hinted_ms,
        "vanished_ms": None,
    }


def _entry(row: Any) -> FleetEntry:
    names = ("catalog", "observed_ms", "table_uuid", "trouble", "hinted_ms", "vanished_ms")
    return FleetEntry(table=row.table_name, observation=_observation(row), **{name: getattr(row, name) for name in names})


def _observation(row: Any) -> Observation | None:
    if row.observation is None:
        return None
    document = row.observation | {"observed_ms": row.observed_ms, "hinted_ms": row.hinted_ms}
    try:
        return Observation.model_validate(document, extra="ignore")
    except ValidationError:
        return None  # it is observed again


def _health_row(observed: Observation, found: Inspected) -> dict[str, Any]:
    row = {"table_uuid": observed.uuid, "table_name": observed.table, "inspected_ms": found.inspected_ms}
    return {**row, "snapshot_id": found.snapshot_id, **{name: getattr(found, name) for name in _HEALTH}}
