"""Tables on Spark with a damaged Parquet file in each partition, and the check of what one compaction made of each of them.

A partition has a damaged file, a good file, and perhaps a position delete on the damaged one. Its manifest entries may have no
metrics, so that the proof has less to compare. All of this follows from the number of the mutation.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupRecord, GroupState
from tests.builders.footer_mutations import Seed, mutation, rows_by_id
from tests.builders.spark_files import PATH_ID, POS_ID
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import entries, local, plain_rows

_DELETED = (0, 12, 13, 39)
_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POS_ID)}),
    ]
)
_PART_ID = 900
_REASON = re.compile(r"Cannot read \S+\.parquet|verification failed: |[\w.]+(Exception|Error): ")


@dataclass(frozen=True)
class Damage:
    """One partition: the damaged file, its partner, and the rows that both have together."""

    name: str
    data: bytes
    path: Path
    inputs: set[Path]
    """All files of the partition."""
    good: pa.Schema
    rows: pa.Table | None
    """None where pyarrow cannot read the damaged file."""


@dataclass
class DamagedTable:
    """A table for files of seeds that have one schema."""

    bench: Bench
    seeds: list[Seed]
    outside: Path
    """A directory for files that no compaction is to find among the data."""
    counts: Counter[str] = field(default_factory=Counter)
    parts: list[Damage] = field(default_factory=list)

    def __post_init__(self) -> None:
        register(self.bench, self.seeds[0].table_schema)
        jvm: Any = self.bench.spark._jvm
        self._iceberg = jvm.org.apache.iceberg
        self._table = self._iceberg.spark.Spark3Util.loadIcebergTable(self.bench.spark._jsparkSession, self.bench.sql_name)
        self._known: dict[bytes, Any] = {}

    def fill(self, numbers: Iterable[int]) -> None:
        """Adds a partition for each mutation; seeds take turns."""
        with self.adding() as delta:
            for number in numbers:
                seed, choice = self.seeds[number % len(self.seeds)], random.Random(~number)
                has_metrics, has_deletes = choice.random() < 0.5, choice.random() < 0.5
                if (data := mutation(seed.data, number)) != seed.data:
                    self.add(delta, f"{seed.name} #{number}", seed, data, has_metrics=has_metrics, has_deletes=has_deletes)

    @contextmanager
    def adding(self) -> Iterator[Any]:
        """One commit for all partitions that are added in it."""
        delta = self._table.newRowDelta()
        yield delta
        delta.commit()

    def add(self, delta: Any, name: str, seed: Seed, data: bytes, *, has_metrics: bool = False, has_deletes: bool) -> None:
        """Adds one partition. Its manifest entries are those of the files before the damage."""
        part, good = len(self.parts), pq.read_schema(pa.BufferReader(seed.data))
        path, partner = self._write(part, data), self._write(part, seed.partner)
        rows = _merged(rows_by_id(seed.partner, good), rows_by_id(data, good), _DELETED if has_deletes else ())
        for file, whole in ((path, seed.data), (partner, seed.partner)):
            builder = self._iceberg.DataFiles.builder(self._table.spec())
            delta.addRows(self._described(builder, part, file, whole, has_metrics=has_metrics))
        inputs = {path, partner}
        if has_deletes:
            inputs.add(deletes := self._deletes(path))
            builder = self._iceberg.FileMetadata.deleteFileBuilder(self._table.spec()).ofPositionDeletes()
            delta.addDeletes(self._described(builder, part, deletes, deletes.read_bytes(), has_metrics=True))
        self.parts.append(Damage(name, data, path, inputs, good, rows))

    def _home(self, part: int) -> Path:
        home = self.bench.warehouse / self.bench.namespace / self.bench.name / "data" / f"part={part}"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _write(self, part: int, data: bytes) -> Path:
        path = self._home(part) / f"{uuid4().hex}.parquet"
        path.write_bytes(data)
        return path

    def _deletes(self, path: Path) -> Path:
        columns = [pa.array([str(path)] * len(_DELETED)), pa.array(_DELETED, pa.int64())]
        written = self.outside / f"{uuid4().hex}-deletes.parquet"
        pq.write_table(pa.table(columns, schema=_DELETES), written)
        return written

    def _described(self, builder: Any, part: int, path: Path, whole: bytes, *, has_metrics: bool) -> Any:
        builder = builder.withPath(str(path)).withFormat("parquet").withPartitionPath(f"part={part}")
        builder = builder.withFileSizeInBytes(path.stat().st_size)
        metrics = self._metrics(whole)
        return (builder.withMetrics(metrics) if has_metrics else builder.withRecordCount(metrics.recordCount())).build()

    def _metrics(self, whole: bytes) -> Any:
        if whole not in self._known:
            path = self.outside / f"{uuid4().hex}.parquet"
            path.write_bytes(whole)
            found = self._iceberg.hadoop.HadoopInputFile.fromLocation(str(path), self.bench.spark._jsc.hadoopConfiguration())
            config = self._iceberg.MetricsConfig.getDefault()
            self._known[whole] = self._iceberg.parquet.ParquetUtil.fileMetrics(found, config)
        return self._known[whole]

    def compact(self) -> list[str]:
        """Compacts with the spark kernel, judges each partition by itself, and returns what is wrong."""
        record = self.bench.compact(Kernel.SPARK)
        self.groups = {int(group.partition.partition("=")[2]): group for group in record.groups}
        assert sorted(self.groups) == list(range(len(self.parts)))
        live, counted = self._live(), self._counted()
        inputs = {str(path) for damage in self.parts for path in damage.inputs}
        found = [f"{path} is left behind" for path in self.bench.unexplained() - inputs]
        for part, damage in enumerate(self.parts):
            group = self.groups[part]
            self.counts[f"{'unreadable' if damage.rows is None else 'readable'}, {group.state}"] += 1
            if objection := self._objection(damage, group, live[part], counted.get(part)):
                found.append(f"{damage.name} ({group.state}: {group.reason}): {objection}")
        return found

    def _counted(self) -> dict[int, int]:
        """The rows that Spark reads in partitions that were committed. In others it may not be able to."""
        parts = [part for part, group in self.groups.items() if group.state is GroupState.COMMITTED]
        self.bench.sql("REFRESH TABLE {}")
        chosen = ", ".join(map(str, parts)) or "-1"
        rows = self.bench.sql(f"SELECT part, count(id) FROM {{}} WHERE part IN ({chosen}) GROUP BY part").collect()
        return {row[0]: row[1] for row in rows}

    def _live(self) -> dict[int, set[Path]]:
        found = defaultdict[int, set[Path]](set)
        for entry in entries(self.bench.load()):
            found[entry.data_file.partition[0]].add(local(entry.data_file.file_path))
        return found

    def _objection(self, damage: Damage, group: GroupRecord, live: set[Path], counted: int | None) -> str | None:
        if group.state is GroupState.FAILED:
            if live != damage.inputs or damage.path.read_bytes() != damage.data:
                return "its files are not as before"
            return None if _REASON.match(group.reason) else "the reason is none"
        if group.state is not GroupState.COMMITTED or damage.path in live:
            return "neither committed nor refused"
        if damage.rows is None:
            return "pyarrow cannot read the file that was committed"
        outputs = [rows_by_id(path.read_bytes(), damage.good) for path in sorted(live - damage.inputs)]
        if None in outputs:
            return "pyarrow cannot read an output"
        names = damage.rows.schema.names
        rows = pa.concat_tables([output.select(names) for output in outputs if output is not None])
        if "id" in names and counted != rows.num_rows - rows["id"].null_count:
            return f"Spark reads {counted} rows, pyarrow {rows.num_rows}"
        if plain_rows(rows.to_pylist()) != plain_rows(damage.rows.to_pylist()):
            return f"{rows.num_rows} rows were committed, other than the {damage.rows.num_rows} that were there"
        return None


def _merged(partner: pa.Table | None, damaged: pa.Table | None, deleted: tuple[int, ...]) -> pa.Table | None:
    """Both without what is deleted from one, in the columns that both have."""
    assert partner is not None
    if damaged is None:
        return None
    kept = np.setdiff1d(np.arange(damaged.num_rows), deleted)
    chosen = damaged.take(pa.array(kept))
    return pa.concat_tables([partner.select(chosen.schema.names), chosen], promote_options="permissive")


def register(bench: Bench, schema: dict[str, Any]) -> None:
    """Creates a table with exactly these field ids, partitioned by one more column. A catalog would assign ids of its own."""
    home = bench.warehouse / bench.namespace / bench.name
    fields = [*schema["fields"], {"id": _PART_ID, "name": "part", "required": False, "type": "int"}]
    spec = [{"source-id": _PART_ID, "field-id": 1000, "name": "part", "transform": "identity"}]
    metadata = {
        "format-version": 2,
        "table-uuid": str(uuid4()),
        "location": str(home),
        "last-sequence-number": 0,
        "last-updated-ms": int(time.time() * 1000),
        "last-column-id": _PART_ID,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": spec}],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"commit.retry.min-wait-ms": "1"},
    }
    path = home / "metadata" / f"00000-{uuid4()}.metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(metadata))
    with closing(bench.catalog()) as catalog:
        catalog.register_table((bench.namespace, bench.name), str(path))
