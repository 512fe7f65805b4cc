"""What `bench/maintenance.py` measures: expiry, orphans and manifests, each ours against Iceberg's own on the same table."""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.contest import Side
from bench.rewrite import CATALOG
from bench.shapes_metadata import write_scattered, write_stream
from neve.api import Neve
from neve.maintenance.manifests import ManifestsRecord
from neve.operations.requests import OrphansRequest
from neve.rewrite.record import RunOutcome


@dataclass(frozen=True)
class Place:
    """Neve, and the directory in which tables are."""

    neve: Neve
    work: Path

    @property
    def warehouse(self) -> Path:
        """Where tables are."""
        return (self.work / "warehouse").resolve()

    def catalog(self) -> Any:
        """The same catalog in pyiceberg."""
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog(CATALOG, uri=f"sqlite:///{self.warehouse}/catalog.db", warehouse=str(self.warehouse))

    def point_to(self, name: str, metadata_location: str) -> None:
        """Sets a table back to a version of its metadata."""
        catalog = self.catalog()
        catalog.drop_table(name)
        catalog.register_table(name, metadata_location)
        self.neve.spark.sql(f"REFRESH TABLE {CATALOG}.{name}")

    def sql(self, statement: str) -> list[Any]:
        """Rows of a statement."""
        return list(self.neve.spark.sql(statement).collect())


class Expiry:
    """A table with thousands of snapshots, of which one is to stay; everything else that they name is then needed by nobody."""

    NAME = "bench.stream"

    def __init__(self, place: Place, snapshots: int) -> None:
        self.place, self.snapshots = place, snapshots
        self.directory, self._kept = place.warehouse / "bench" / "stream", place.work / "kept-stream"
        shutil.rmtree(self._kept, ignore_errors=True)
        self.files = {str(path) for path in write_stream(place.catalog(), ("bench", "stream"), snapshots=snapshots)}
        self._location = str(place.catalog().load_table(self.NAME).metadata_location)
        shutil.copytree(self.directory, self._kept, copy_function=os.link)
        self.lost = self.files - self._needed() - {self._location}

    def _needed(self) -> set[str]:
        """What the last snapshot needs, as pyiceberg has it."""
        table = self.place.catalog().load_table(self.NAME)
        snapshot = table.current_snapshot()
        manifests = [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
        return {snapshot.manifest_list, *manifests, *(task.file.file_path for task in table.scan().plan_files())}

    def sides(self) -> list[Side]:
        """Ours, and Iceberg's with both ways to hand files to the driver."""
        case = f"expire {self.snapshots:,} snapshots"
        theirs = [
            Side(case, f"expire_snapshots, stream_results {stream}", self._call(stream), self._deleted, self.reset)
            for stream in ("true", "false")
        ]
        return [Side(case, "neve expire", self._expire, lambda _: self._recorded(), self.reset), *theirs]

    def settling(self) -> Side:
        """The second look of ours, at what an expiry has recorded."""

        def prepare() -> None:
            self.reset()
            self._expire()

        case = f"move {len(self.lost):,} files of them to the trash"
        return Side(case, "neve quarantine settle", self._settle, self._deleted, prepare)

    def reset(self) -> None:
        """The table as it was written."""
        shutil.rmtree(self.directory)
        shutil.copytree(self._kept, self.directory, copy_function=os.link)
        self.place.point_to(self.NAME, self._location)
        with closing(sqlite3.connect(self.place.work / "state.db")) as state, state:
            if state.execute("SELECT 1 FROM sqlite_master WHERE name = 'quarantine'").fetchone():
                state.execute("DELETE FROM quarantine")

    def _expire(self) -> None:
        record = self.place.neve.expire(f"{CATALOG}.{self.NAME}", older_than="7 days", keep=1)
        if (record.outcome, len(record.expired)) != (RunOutcome.DONE, self.snapshots - 1):
            raise RuntimeError(f"expire ended {record.outcome} with {len(record.expired)} snapshots: {record.reason}")

    def _recorded(self) -> set[str]:
        return {file.path for file in self.place.neve.quarantined(f"{CATALOG}.{self.NAME}")}

    def _settle(self) -> None:
        record = self.place.neve.settle(f"{CATALOG}.{self.NAME}", at_once=True)
        if record.outcome is not RunOutcome.DONE:
            raise RuntimeError(f"settle ended {record.outcome}: {record.reason}")

    def _call(self, stream: str) -> Any:
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
        given = f"table => '{self.NAME}', older_than => TIMESTAMP '{now}', retain_last => 1, stream_results => {stream}"
        return lambda: self.place.sql(f"CALL {CATALOG}.system.expire_snapshots({given})")

    def _deleted(self, _: Any) -> set[str]:
        return {path for path in self.files if not os.path.exists(path)}  # noqa: PTH110 - of thousands


class OrphanHunt:
    """A listing of a table's files with a few that the table does not know, as an object store's inventory gives it."""

    def __init__(self, place: Place, listed: int, orphans: int) -> None:
        self.place, self.listed = place, listed
        self.name, self.inventory = f"bench.known{listed}", str(place.work / f"listed{listed}.parquet")
        manifests = max(2, listed // 8_000)
        known = listed - orphans - manifests - 2  # without the manifest list and the metadata file
        metadata = write_scattered(place.catalog(), tuple(self.name.split(".")), files=known, manifests=manifests)
        data = f"{place.warehouse}/{self.name.replace('.', '/')}/data"
        self.orphans = {f"{data}/ts_day=2025-02-{n % 28 + 1:02d}/lost-{n:05d}.parquet" for n in range(orphans)}
        self._write([*self.orphans, *metadata])

    def _write(self, others: list[str]) -> None:
        spark = self.place.neve.spark
        known = f"SELECT file_path AS path, file_size_in_bytes AS size FROM {CATALOG}.{self.name}.files"
        rest = spark.createDataFrame([(path, 1) for path in sorted(others)], "path string, size bigint")
        every = spark.sql(known).union(rest).selectExpr("*", "TIMESTAMP '2025-04-02 00:00:00' AS modified")
        every.write.mode("overwrite").parquet(self.inventory)

    def sides(self) -> list[Side]:
        """Both tell what they found and touch nothing."""
        case = f"orphans among {self.listed:,} files"
        return [
            Side(case, "neve orphans", self.ours),
            Side(case, "remove_orphan_files", self.theirs, lambda rows: {row.orphan_file_location for row in rows}),
        ]

    def ours(self) -> set[str]:
        """`neve orphans --inventory --dry-run`."""
        return found(self.place.neve, self.name, self.inventory)

    def theirs(self) -> list[Any]:
        """The procedure, with the same list as a view."""
        return called(self.place.neve.spark, self.name, self.inventory)


def found(neve: Neve, name: str, inventory: str) -> set[str]:
    """What ours finds by this list, and touches nothing."""
    record = neve.orphans(f"{CATALOG}.{name}", OrphansRequest(inventory=inventory, dry_run=True))
    return {file.path for file in record.files}


def called(spark: Any, name: str, inventory: str) -> list[Any]:
    """What Iceberg's procedure finds by it, row by row."""
    listing = spark.read.parquet(inventory).selectExpr("path AS file_path", "modified AS last_modified")
    listing.createOrReplaceTempView("listing")
    given = f"table => '{name}', dry_run => true, file_list_view => 'listing'"
    return list(spark.sql(f"CALL {CATALOG}.system.remove_orphan_files({given})").collect())


class ManyManifests:
    """A table whose files are in a thousand manifests, each with files of every day."""

    NAME = "bench.scattered"

    def __init__(self, place: Place, files: int, manifests: int) -> None:
        self.place, self.files, self.manifests = place, files, manifests
        self._location = write_scattered(place.catalog(), ("bench", "scattered"), files=files, manifests=manifests)[0]
        self.locations = {f"{manifests:,} manifests": self._location}
        """Of the metadata, by whose work it is."""
        self.record: ManifestsRecord | None = None

    def sides(self) -> list[Side]:
        """Who ends with other files than there were has lost."""
        case = f"rewrite {self.manifests:,} manifests of {self.files:,} files"
        return [
            Side(case, "neve manifests", self._ours, lambda _: self._left("neve manifests"), self._reset),
            Side(case, "rewrite_manifests", self._theirs, lambda _: self._left("rewrite_manifests"), self._reset),
        ]

    def planning(self, day: str | None = None) -> list[Side]:
        """The planning of a query, of all files or of one day, on the table as it was and as each has left it."""
        case = "plan a query of all files" if day is None else "plan a query of one day"
        sides = []
        for name, location in self.locations.items():
            words = name if location == self._location else f"after {name}: {self.manifests_at(location)} manifests"
            sides.append(Side(case, words, lambda location=location: self._planned(location, day)))
        return sides

    def manifests_at(self, location: str) -> int:
        """As pyiceberg reads the list."""
        from pyiceberg.table import StaticTable

        table = StaticTable.from_metadata(location)
        return len(table.current_snapshot().manifests(table.io))  # type: ignore[union-attr]

    def files_of(self, day: str) -> int:
        """Files of one day, by pyiceberg's planning of the table as it was."""
        from pyiceberg.table import StaticTable

        until = date.fromisoformat(day) + timedelta(days=1)
        query = f"ts >= '{day}T00:00:00+00:00' and ts < '{until}T00:00:00+00:00'"
        return sum(1 for _ in StaticTable.from_metadata(self._location).scan(row_filter=query).plan_files())

    def _planned(self, location: str, day: str | None) -> int:
        jvm: Any = self.place.neve.spark._jvm
        iceberg = jvm.org.apache.iceberg
        io = iceberg.hadoop.HadoopFileIO(self.place.neve.spark._jsc.hadoopConfiguration())
        scan = iceberg.BaseTable(iceberg.StaticTableOperations(location, io), location).newScan()
        if day is not None:
            until, of = date.fromisoformat(day) + timedelta(days=1), iceberg.expressions.Expressions
            scan = scan.filter(of.greaterThanOrEqual("ts", f"{day}T00:00:00+00:00"))
            scan = scan.filter(of.lessThan("ts", f"{until}T00:00:00+00:00"))
        return int(iceberg.relocated.com.google.common.collect.Iterables.size(scan.planFiles()))

    def _reset(self) -> None:
        self.place.point_to(self.NAME, self._location)

    def _ours(self) -> None:
        self.record = self.place.neve.manifests(f"{CATALOG}.{self.NAME}")
        if self.record.outcome is not RunOutcome.DONE:
            raise RuntimeError(f"manifests ended {self.record.outcome}: {self.record.reason}")

    def _theirs(self) -> None:
        self.place.sql(f"CALL {CATALOG}.system.rewrite_manifests(table => '{self.NAME}')")

    def _left(self, name: str) -> int:
        """Live files, as pyiceberg reads the list."""
        table = self.place.catalog().load_table(self.NAME)
        self.locations[name] = table.metadata_location
        manifests = table.current_snapshot().manifests(table.io)
        return sum(found.existing_files_count + found.added_files_count for found in manifests)
