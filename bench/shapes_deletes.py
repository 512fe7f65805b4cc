"""The tables of `deletes.py`: as a CDC writer leaves them, for each data file a file of position and one of equality deletes.

Data is written by Spark, deletes by pyarrow, both committed by Iceberg, and kept for the next time. The rows that are left are
known from the numbers alone.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.shapes import Shape, Written, target_bytes
from bench.shapes import write as write_shape

Ids = npt.NDArray[np.int64]

DELETED = 100
"""Rows, or keys, of each delete file."""
TO_COME = 20
"""Keys of an equality delete that only younger rows have, as upserts leave them: these rows stay."""
ROUNDS = 20
"""Commits of data, each followed by one of deletes."""
SHARED_BY = 10
"""Data files that a position delete of a whole partition names."""
FILES_PER_OUTPUT = 250
_TAG = "written"
_PATH_ID, _POS_ID, _KEY_ID = 2147483546, 2147483545, 1


@dataclass(frozen=True)
class Cdc:
    """So many data files, position deletes and equality deletes, in an unpartitioned table.

    A file's id is its place in the table, and a row's id follows from it: `id` is the key. An equality delete applies to all
    files of its own round and of earlier ones.
    """

    files: int
    shared: bool = False
    """Position deletes name rows of ten data files each, so that they concern the whole partition; else those of one."""
    rows_per_file: int = 10_000

    @property
    def shape(self) -> Shape:
        """The data."""
        name = f"cdc_{self.files}" + ("_shared" if self.shared else "")
        scope = "of the partition" if self.shared else "of one file each"
        words = f"{self.files:,} data files, as many position deletes ({scope}), as many equality deletes"
        outputs = max(1, self.files // FILES_PER_OUTPUT)
        return Shape(name, words, files=self.files, rows_per_file=self.rows_per_file, outputs=outputs, has_deletes=True)

    @cached_property
    def rounds(self) -> list[range]:
        """The files of each round."""
        count = min(ROUNDS, self.files // 5)
        bounds = [self.files * i // count for i in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]

    def positions(self, files: range, number: int) -> Ids:
        """The ids of the rows that a round's position delete names, ascending."""
        random = np.random.default_rng([1, files.start, number])
        named = [files.start + (number + i) % len(files) for i in range(min(SHARED_BY, len(files)) if self.shared else 1)]
        share = DELETED // len(named)
        rows = [file * self.rows_per_file + random.choice(self.rows_per_file, share, replace=False) for file in named]
        return np.sort(np.concatenate(rows))

    def keys(self, files: range, number: int) -> Ids:
        """The keys of a round's equality delete: most of rows that are there by then, some of rows to come."""
        random = np.random.default_rng([2, files.start, number])
        there = files.stop * self.rows_per_file
        older = random.integers(0, there, DELETED - TO_COME)
        return np.concatenate([older, random.integers(there, there + self.shape.rows, TO_COME)])

    @cached_property
    def left(self) -> tuple[int, int]:
        """How many rows are left, and the sum of their ids."""
        gone = np.zeros(self.shape.rows, bool)
        for files in self.rounds:
            for number in range(len(files)):
                gone[self.positions(files, number)] = True
                gone[self.keys(files, number)[: DELETED - TO_COME]] = True
        ids = np.flatnonzero(~gone)
        return len(ids), int(ids.sum())


def write(spark: Any, namespace: str, cdc: Cdc) -> tuple[Written, Path]:
    """The table in this namespace, written now or found from last time, and the directory of its deletes."""
    table = f"{namespace}.{cdc.shape.name}"
    if not spark.catalog.tableExists(table) or not _tagged(spark, table):
        _Writer(spark, namespace, cdc).run()
    (snapshot,) = _tagged(spark, table)
    files, size, path = spark.sql(
        f"SELECT count(*), sum(file_size_in_bytes), first(file_path) FROM {table}.data_files VERSION AS OF {snapshot}"
    ).first()
    written = Written(cdc.shape, table, snapshot, int(files), int(size), target_bytes(int(size), cdc.shape))
    return written, _local(path).parent / "deletes"


def _tagged(spark: Any, table: str) -> list[int]:
    found = spark.sql(f"SELECT snapshot_id FROM {table}.refs WHERE name = '{_TAG}'").collect()
    return [int(row.snapshot_id) for row in found]


def _local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


class _Writer:
    def __init__(self, spark: Any, namespace: str, cdc: Cdc) -> None:
        self._spark, self._namespace, self._cdc = spark, namespace, cdc
        self._table = f"{namespace}.{cdc.shape.name}"

    def run(self) -> None:
        """Round by round, so that sequence numbers are as a writer would leave them."""
        self._spark.sql(f"DROP TABLE IF EXISTS {self._table} PURGE")
        for files in self._cdc.rounds:
            self._append(files)
            self._delete(files)
        self._spark.sql(f"ALTER TABLE {self._table} CREATE TAG {_TAG}")

    def _append(self, files: range) -> None:
        shape = replace(self._cdc.shape, files=len(files))
        if not files.start:
            write_shape(self._spark, self._namespace, shape)
            return
        first = files.start * shape.rows_per_file
        rows = self._spark.range(first, first + shape.rows, 1, len(files))
        # Another seed, or every round would repeat the values of the first, which compress to nothing where they meet.
        columns = [f"{text} AS `{name}`" for name, text in shape.columns(seed=first).items()]
        rows.selectExpr(*columns).writeTo(self._table).append()

    def _delete(self, files: range) -> None:
        jvm = self._spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self._table)
        table.refresh()
        by_file = dict(self._paths(files))
        directory = _local(by_file[files.start]).parent / "deletes"
        directory.mkdir(exist_ok=True)
        ids = self._spark.sparkContext._gateway.new_array(jvm.int, 1)
        ids[0] = _KEY_ID
        delta = table.newRowDelta()
        for number in range(len(files)):
            new = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofPositionDeletes()
            if not self._cdc.shared:
                new = new.withReferencedDataFile(by_file[files[number]])
            columns = self._positions(self._cdc.positions(files, number), by_file)
            delta.addDeletes(_described(new, _write(directory, columns), DELETED))
            new = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
            keys = [(_KEY_ID, "id", pa.array(self._cdc.keys(files, number)))]
            delta.addDeletes(_described(new, _write(directory, keys), DELETED))
        delta.commit()
        self._spark.sql(f"REFRESH TABLE {self._table}")

    def _paths(self, files: range) -> Iterator[tuple[int, str]]:
        """The round's data files by their place in the table; which one it is tells its smallest id."""
        first = f"readable_metrics.id.lower_bound div {self._cdc.rows_per_file}"
        query = f"SELECT {first} AS number, file_path FROM {self._table}.data_files WHERE {first} >= {files.start}"
        return ((int(row.number), row.file_path) for row in self._spark.sql(query).collect())

    def _positions(self, ids: Ids, by_file: Mapping[int, str]) -> list[tuple[int, str, pa.Array]]:
        """Sorted by path and position, as the specification wants it. A file holds its ids in order."""
        files, rows = np.divmod(ids, self._cdc.rows_per_file)
        pairs = sorted((by_file[file], row) for file, row in zip(files.tolist(), rows.tolist(), strict=True))
        paths, places = zip(*pairs, strict=True)
        return [(_PATH_ID, "file_path", pa.array(paths)), (_POS_ID, "pos", pa.array(places, pa.int64()))]


def _write(directory: Path, columns: Sequence[tuple[int, str, pa.Array]]) -> Path:
    fields = [
        pa.field(name, array.type, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for number, name, array in columns
    ]
    path = directory / f"{uuid4()}.parquet"
    table = pa.Table.from_arrays([array for _, _, array in columns], schema=pa.schema(fields))
    pq.write_table(table, path, compression="zstd")
    return path


def _described(builder: Any, path: Path, records: int) -> Any:
    described = builder.withFormat("parquet").withPath(str(path)).withFileSizeInBytes(path.stat().st_size)
    return described.withRecordCount(records).build()
