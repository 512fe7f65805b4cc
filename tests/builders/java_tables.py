"""A table for the state machine of maintenance, written through Iceberg's Java API, which needs no Spark job.

It is read back without the code under test: metadata as JSON, manifests and rows by pyiceberg.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list

from tests.builders.spark_tables import Bench

DAY = 86_400_000
PARTS = 2
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("part", pa.int32(), metadata={"PARQUET:field_id": "2"}),
        pa.field("ts", pa.timestamp("us", tz="UTC"), metadata={"PARQUET:field_id": "3"}),
    ]
)
_PROPERTIES = {
    "write.delete.mode": "merge-on-read",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "5",
    "neve.auto-tags": "daily 2",
    "neve.ttl": "30 days",
    "neve.ttl-column": "ts",
    "neve.min-input-files": "2",
    "neve.manifest-min-count": "1",
}


class AheadClock:
    """The machine's clock and as much more as has been made to pass."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass(frozen=True)
class Written:
    """A data file that is on the disk, whether or not it is committed."""

    path: str
    part: int
    ids: frozenset[int]


@dataclass
class WrittenTable:
    """What writers do to a table. Every file under its directory gets the age that it would have by the clock."""

    bench: Bench
    clock: AheadClock
    moments: dict[int, int] = field(default_factory=dict)
    """When each row happened, by its id."""
    aged: set[Path] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.bench.namespace}.{self.bench.name}"

    @property
    def home(self) -> Path:
        return self.bench.warehouse / self.bench.namespace / self.bench.name

    def create(self, version: int) -> None:
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        self.bench.sql(
            "CREATE TABLE {} (id BIGINT, part INT, ts TIMESTAMP) USING iceberg PARTITIONED BY (part) "
            f"TBLPROPERTIES ('format-version' = '{version}', {properties})"
        )
        jvm: Any = self.bench.spark._jvm
        self.iceberg = jvm.org.apache.iceberg
        self._table = self.iceberg.spark.Spark3Util.loadIcebergTable(self.bench.spark._jsparkSession, self.bench.sql_name)

    @property
    def table(self) -> Any:
        """As it is now."""
        self._table.refresh()
        return self._table

    def write(self, n: int, *, days_ago: float) -> Written:
        """One file of so many rows, the first of which happened some days ago and the others just now."""
        first, now = len(self.moments), self.clock.now_ms()
        ids = range(first, first + n)
        self.moments |= {i: now - (int(days_ago * DAY) if i == first else 0) for i in ids}
        part = first % PARTS
        path = self.home / "data" / f"part={part}" / f"{uuid4().hex}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        moments = pa.array([self.moments[i] * 1000 for i in ids], pa.timestamp("us", tz="UTC"))
        rows = pa.table([pa.array(ids, pa.int64()), pa.array([part] * n, pa.int32()), moments], schema=_SCHEMA)
        pq.write_table(rows, path)
        return Written(str(path), part, frozenset(ids))

    def data_file(self, written: Written) -> Any:
        table, iceberg = self._table, self.iceberg
        found = table.io().newInputFile(written.path)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(found, iceberg.MetricsConfig.forTable(table))
        described = iceberg.DataFiles.builder(table.spec()).withPath(written.path).withFormat("parquet")
        described = described.withPartitionPath(f"part={written.part}").withMetrics(metrics)
        return described.withFileSizeInBytes(Path(written.path).stat().st_size).build()

    def append(self, written: Iterable[Written], branch: str = "main") -> None:
        update = self.table.newAppend()
        for file in written:
            update.appendFile(self.data_file(file))
        update.toBranch(branch).commit()

    def stage(self, written: Written) -> int:
        """A snapshot that no branch has yet, as write-audit-publish makes it."""
        before = {snapshot["snapshot-id"] for snapshot in self.metadata()["snapshots"]}
        self.table.newAppend().appendFile(self.data_file(written)).set("wap.id", uuid4().hex).stageOnly().commit()
        (new,) = {snapshot["snapshot-id"] for snapshot in self.metadata()["snapshots"]} - before
        return int(new)

    def overwrite(self, written: Written, branch: str) -> None:
        update = self.table.newOverwrite().overwriteByRowFilter(self.iceberg.expressions.Expressions.alwaysTrue())
        update.addFile(self.data_file(written)).toBranch(branch).commit()

    def delete(self, ids: Iterable[int], branch: str) -> None:
        """Row by row, by Spark."""
        self.bench.sql("REFRESH TABLE {}")
        onto = "" if branch == "main" else f".`branch_{branch}`"
        self.bench.sql(f"DELETE FROM {{}}{onto} WHERE id IN ({', '.join(map(str, sorted(ids)))})")

    def refs(self) -> Any:
        """Java's update of branches and tags."""
        return self.table.manageSnapshots()

    def location(self) -> str:
        with closing(self.bench.catalog()) as catalog:
            return str(catalog.load_table((self.bench.namespace, self.bench.name)).metadata_location)

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.location().removeprefix("file:")).read_text())
        return found

    def rows(self, snapshot_id: int) -> frozenset[int]:
        """The ids that a snapshot shows, as pyiceberg reads them."""
        shown = self.bench.load().scan(snapshot_id=snapshot_id, selected_fields=("id",)).to_arrow()["id"].to_pylist()
        assert len(shown) == len(set(shown)), f"rows of snapshot {snapshot_id} are there twice"
        return frozenset(shown)

    def named(self) -> set[str]:
        """Every file that the metadata needs: of all snapshots, so of all branches and tags, and the log of versions."""
        location = self.location()
        metadata = json.loads(Path(location.removeprefix("file:")).read_text())
        found = {location, *(entry["metadata-file"] for entry in metadata.get("metadata-log", ()))}
        found |= {file["statistics-path"] for key in _STATISTICS for file in metadata.get(key, ())}
        for snapshot in metadata.get("snapshots", ()):
            found |= _files_of(snapshot["manifest-list"])
        return {path.removeprefix("file://").removeprefix("file:") for path in found}

    def on_disk(self) -> set[str]:
        """All files but the checksums that Hadoop puts beside them. New ones become as old as the clock says."""
        paths = [path for path in self.home.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
        moment = self.clock.now_ms() / 1000
        for path in {*paths} - self.aged:
            os.utime(path, (moment, moment))
        self.aged |= {*paths}
        return {str(path) for path in paths}

    def plant(self, name: str, *, days_ago: float) -> str:
        """A file that nobody knows of."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"a stray {name}".encode())
        moment = (self.clock.now_ms() - days_ago * DAY) / 1000
        os.utime(path, (moment, moment))
        self.aged.add(path)
        return str(path)


_STATISTICS = ("statistics", "partition-statistics")
_IO = PyArrowFileIO()


@cache
def _files_of(manifest_list: str) -> frozenset[str]:
    """Of one snapshot; neither its list nor its manifests ever change."""
    found = {manifest_list}
    for manifest in read_manifest_list(_IO.new_input(manifest_list)):
        found.add(manifest.manifest_path)
        found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(_IO, discard_deleted=True)}
    return frozenset(found)


def digest(path: str) -> str:
    """Of a file's content."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
