"""Data files and delete files of a table on Spark, written by the test as a run would write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.deletes.puffin import write_vectors
from neve.rewrite.live_files import DataFile, LiveFile
from neve.spark.table.bridge import TableBridge
from neve.table.state import TableName
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import duckdb_query, local

PATH_ID, POS_ID = 2147483546, 2147483545


@dataclass
class _File:
    """Takes bytes for a file on this disk."""

    path: str
    data: bytearray = field(default_factory=bytearray)

    def write(self, data: bytes | memoryview) -> None:
        self.data += data

    def close(self) -> None:
        local(self.path).write_bytes(self.data)

    def abort(self) -> None:
        raise AssertionError(f"{self.path} was given up")

    def take_back(self) -> None:
        raise NotImplementedError


@dataclass
class TableFiles:
    """A table of ids, and files for it."""

    bench: Bench
    bridge: TableBridge
    version: int

    @classmethod
    def on(cls, bench: Bench, version: int) -> TableFiles:
        name = TableName(catalog="local", namespace=(bench.namespace,), name=bench.name)
        return cls(bench, TableBridge(bench.spark, name), version)

    def head(self, branch: str = "main") -> int:
        self.bridge.refresh()
        found = self.bridge.head(branch)
        assert found is not None
        return found

    def live(self, branch: str = "main") -> list[LiveFile]:
        """Live files, those with the smallest ids first."""
        return sorted(self.bridge.scan(self.head(branch)), key=lambda file: min(self.ids_in(file.path)))

    @staticmethod
    def ids_in(path: str) -> list[int]:
        found: list[int] = pq.read_table(local(path))["id"].to_pylist()
        return found

    def merged(self, files: Sequence[LiveFile], *, without: Sequence[int] = ()) -> DataFile:
        """A new file of these files' rows."""
        ids = [i for file in files for i in self.ids_in(file.path) if i not in without]
        path = self._new("parquet")
        metadata = {"PARQUET:field_id": "1"}
        table = pa.table({"id": pa.array(ids, pa.int64())}, schema=pa.schema([pa.field("id", pa.int64(), metadata=metadata)]))
        pq.write_table(table, local(path))
        home = {key: files[0].data_file[key] for key in ("spec-id", "partition")}
        return self._described(home, path, "parquet", content="data", records=len(ids))

    def deletes(self, home: DataFile, rows: Sequence[int]) -> DataFile:
        """Rows of one data file, deleted by position as the table's format version has it."""
        written = self._positions(home, rows) if self.version == 2 else self._vector(home, rows)
        return written | {"referenced-data-file": home["file-path"]}

    def _positions(self, home: DataFile, rows: Sequence[int]) -> DataFile:
        path = self._new("parquet")
        fields = [
            pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
            pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POS_ID)}),
        ]
        columns = [pa.array([home["file-path"]] * len(rows)), pa.array(rows, pa.int64())]
        pq.write_table(pa.table(columns, schema=pa.schema(fields)), local(path))
        bound = {"keys": [PATH_ID], "values": [home["file-path"].encode().hex().upper()]}
        described = self._described(home, path, "parquet", content="position-deletes", records=len(rows))
        return described | {"lower-bounds": bound, "upper-bounds": bound}

    def _vector(self, home: DataFile, rows: Sequence[int]) -> DataFile:
        path = self._new("puffin")
        (vector,), _ = write_vectors(_File(path), [(home["file-path"], np.array(rows, np.int64))])
        described = self._described(home, path, "puffin", content="position-deletes", records=len(rows))
        return described | {"content-offset": vector.offset, "content-size-in-bytes": vector.length}

    def snapshots(self) -> list[Any]:
        """Of main, oldest first; by parents, for the table's log leaves out what a transaction did on the way."""
        table = self.bench.load()
        found = [table.current_snapshot()]
        while found[0] is not None and (parent := found[0].parent_snapshot_id) is not None:
            found.insert(0, table.snapshot_by_id(parent))
        return found

    def reads(self, snapshot_id: int) -> list[int]:
        """The ids of one snapshot, in which Spark and DuckDB agree."""
        self.bench.sql("REFRESH TABLE {}")
        by_spark = sorted(row.id for row in self.bench.sql(f"SELECT id FROM {{}} VERSION AS OF {snapshot_id}").collect())
        scan = f"iceberg_scan('{self.bench.load().metadata_location}', snapshot_from_id := {snapshot_id}::UBIGINT)"
        by_duckdb = sorted(row["id"] for row in duckdb_query(f"SELECT id FROM {scan}"))
        assert by_spark == by_duckdb
        return by_spark

    def _described(self, home: DataFile, path: str, format_: str, *, content: str, records: int) -> DataFile:
        described = {key: home[key] for key in ("spec-id", "partition")}
        size = local(path).stat().st_size
        described |= {"content": content, "file-path": path, "file-format": format_}
        return described | {"file-size-in-bytes": size, "record-count": records}

    def _new(self, ending: str) -> str:
        directory = Path(self.bench.warehouse / self.bench.namespace / self.bench.name / "data")
        return str(directory / f"{uuid4()}.{ending}")
