"""A SQLite catalog whose tables are rows and small metadata files written by hand, and an observer over it.

The rows and files are those of any writer; thousands are made in a second.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from neve.api import Neve
from neve.context.connection import Connection
from neve.scheduling.observation import Inspected, Observation
from neve.service.fleet_round import ObservedRound, ObserverBounds
from neve.service.fleet_store import StoredFleet
from neve.service.observer import Observer
from neve.settings import load_settings
from neve.state import StateStore
from tests.builders.clocks import FixedClock

NOW = 1_790_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000

_CREATE = """CREATE TABLE IF NOT EXISTS iceberg_tables (
catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
PRIMARY KEY (catalog_name, table_namespace, table_name))"""
_INSERT = "INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, ?)"
_WHERE = "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"

Inspect = Callable[[Connection, Observation, int], Inspected | None]


def document(uuid: str, *, commits: int = 1, files: int = 1, file_bytes: int = 1 << 30, **more: Any) -> dict[str, Any]:
    """The metadata of a format v2 table with so many appends, the first at `NOW`."""
    snapshots = [
        {
            "snapshot-id": number,
            **({"parent-snapshot-id": number - 1} if number > 1 else {}),
            "sequence-number": number,
            "timestamp-ms": NOW + number,
            "manifest-list": f"/nowhere/snap-{number}.avro",
            "schema-id": 0,
            "summary": {
                "operation": "append",
                "added-data-files": str(files),
                "added-files-size": str(files * file_bytes),
                "total-data-files": str(number * files),
                "total-delete-files": "0",
                "total-files-size": str(number * files * file_bytes),
            },
        }
        for number in range(1, commits + 1)
    ]
    return {
        "format-version": 2,
        "table-uuid": uuid,
        "location": "/nowhere",
        "last-sequence-number": commits,
        "current-snapshot-id": commits or -1,
        "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": one["timestamp-ms"], "snapshot-id": one["snapshot-id"]} for one in snapshots],
        "properties": {},
        **more,
    }


class RegisteredFleet:
    """One catalog. A table's name here is that of its row: `namespace.name`."""

    def __init__(self, directory: Path, name: str = "lake") -> None:
        self.name, self.directory, self.database = name, directory / name, directory / f"{name}.db"
        self.directory.mkdir()
        with self._changing() as connection:
            connection.execute(_CREATE)

    @property
    def settings(self) -> dict[str, Any]:
        """What describes the catalog in neve.yaml."""
        return {"type": "sql", "uri": f"sqlite:///{self.database}", "warehouse": f"file://{self.directory}"}

    def add(self, *names: str, uuid: str | None = None, kind: str | None = "TABLE", **values: Any) -> None:
        """Registers tables, by default with uuids of their own."""
        rows = [(self.name, *name.rsplit(".", 1), self.write(uuid or str(uuid4()), **values), kind) for name in names]
        with self._changing() as connection:
            connection.executemany(_INSERT, rows)

    def add_row(self, namespace: str | bytes, name: str | bytes, location: str | None) -> None:
        """Any row, which SQLite takes as it is; bytes are stored as text."""
        query = "INSERT INTO iceberg_tables VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT), ?, NULL, 'TABLE')"
        with self._changing() as connection:
            connection.execute(query, (self.name, namespace, name, location))

    def write(self, uuid: str, **values: Any) -> str:
        """A new metadata file; returns its location."""
        path = self.directory / f"{uuid4()}.metadata.json"
        path.write_text(json.dumps(document(uuid, **values)), encoding="utf-8")
        return f"file://{path}"

    def location(self, name: str) -> str:
        """The metadata file that a row names."""
        with closing(sqlite3.connect(self.database)) as connection:
            query = f"SELECT metadata_location FROM iceberg_tables {_WHERE}"
            [(found,)] = connection.execute(query, self._key(name)).fetchall()
            return str(found)

    def file(self, name: str) -> Path:
        """The same as a path."""
        return Path(self.location(name).removeprefix("file://"))

    def commit(self, name: str, **values: Any) -> None:
        """Points the row at a new metadata file of the same table."""
        uuid = json.loads(self.file(name).read_text(encoding="utf-8"))["table-uuid"]
        self.point(name, self.write(uuid, **values))

    def point(self, name: str, location: str) -> None:
        """Points the row at this metadata file."""
        with self._changing() as connection:
            connection.execute(f"UPDATE iceberg_tables SET metadata_location = ? {_WHERE}", (location, *self._key(name)))

    def drop(self, name: str) -> None:
        """Removes the row."""
        with self._changing() as connection:
            connection.execute(f"DELETE FROM iceberg_tables {_WHERE}", self._key(name))

    def rename(self, name: str, new: str) -> None:
        """Gives the row another name."""
        query = f"UPDATE iceberg_tables SET table_namespace = ?, table_name = ? {_WHERE}"
        with self._changing() as connection:
            connection.execute(query, (*new.rsplit(".", 1), *self._key(name)))

    def _key(self, name: str) -> tuple[str, ...]:
        return (self.name, *name.rsplit(".", 1))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            yield connection


class Watch:
    """An observer with its store and clock. `restart` makes another observer over the same store."""

    def __init__(self, neve: Neve, store: StateStore, clock: FixedClock, bounds: ObserverBounds, inspect: Inspect) -> None:
        self.neve, self.store, self.clock, self.bounds, self.inspect = neve, store, clock, bounds, inspect
        self.restart()

    def restart(self) -> None:
        """What was kept in memory is gone."""
        self.observer = Observer(self.neve.connection, StoredFleet(self.store.fleet), self.bounds, inspect=self.inspect)

    def round(self, *, after_ms: int = 30 * SECOND, wanted: tuple[str, ...] = ()) -> ObservedRound:
        """The next round, so much later; its report."""
        self.clock.advance(after_ms)
        return self.observer.observe(self.clock.now_ms(), wanted)

    @property
    def tables(self) -> dict[str, Observation]:
        """What the store has of tables that are listed."""
        return {one.table: one.observation for one in self.store.fleet.entries() if one.observation is not None}

    @property
    def troubles(self) -> dict[str, str]:
        """What the store has of what cannot be observed."""
        return {one.table: one.trouble for one in self.store.fleet.entries() if one.trouble is not None}

    def commits(self, table: str) -> int:
        """How many commits of others a table has had since it was first seen."""
        return self.tables[table].counters.commits


@contextmanager
def watching(
    directory: Path,
    catalogs: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    bounds: ObserverBounds | None = None,
    inspect: Inspect = lambda *_: None,
) -> Iterator[Watch]:
    """Observes these catalogs, by default without reading manifests."""
    file = directory / "neve.yaml"
    values = {"catalogs": dict(catalogs), "state": {"url": f"sqlite:///{directory}/state.db"}, "cache": {"enabled": False}}
    values |= settings or {}
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    clock, environ = FixedClock(NOW), environ or {}
    loaded = load_settings(file=file, environ=environ)
    with Neve.open(loaded, environ=environ, clock=clock) as neve, neve.connection.store() as store:
        yield Watch(neve, store, clock, bounds or ObserverBounds(inspections=0), inspect)
