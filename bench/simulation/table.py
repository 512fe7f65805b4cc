"""A table as columns of files that commits add to and take from, with its snapshots; `state` gives what the planner is given.

Advanced by `writing` and `rewriting`. Rows that deletes hide are counted by file (`dead`), as no metadata does: they are what a
rewrite drops.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.simulation.workloads import Workload
from neve.rewrite.memory import Memory
from neve.table.files import DATA, DEFAULTS, EQUALITY_DELETES, POSITION_DELETES, SCHEMA, UNKNOWN, FileColumns, Partition
from neve.table.state import Column, PartitionField, PartitionSpec, Snapshot, TableName, TableState

Array = npt.NDArray[Any]
Files = dict[str, Array]
"""Files as columns: those of `NUMBERS` with one value per file, `lower` and `upper` with one per file and column."""

NUMBERS = {
    "number": np.int64,  # of the file, which its path is made of
    "content": np.int64,
    "partition": np.int64,
    "size_bytes": np.int64,
    "records": np.int64,
    "dead": np.float64,
    "raw": np.float64,  # share of the bytes that no kernel of ours has encoded yet
    "scattered": np.float64,  # share of the rows that are no longer in the order in which they came
    "row_groups": np.int64,
    "sort_order_id": np.int64,
    "sequence_number": np.int64,
    "snapshot_id": np.int64,
    "referenced": np.int64,  # number of the data file that a vector belongs to
}
SECOND_MS, HOUR_MS, DAY_MS = 1_000, 3_600_000, 86_400_000
SNAPSHOT_KEEP_MS = 5 * DAY_MS
FIRST_FIELD = 1


def files_of(count: int, dimensions: int, **columns: Any) -> Files:
    """So many files; columns that are not given have the value that says nothing."""
    silent = {"content": DATA, "raw": 1.0, "row_groups": 1, "referenced": UNKNOWN}
    found = {
        name: np.broadcast_to(np.asarray(columns.get(name, silent.get(name, 0)), dtype=kind), count).copy()
        for name, kind in NUMBERS.items()
    }
    for name in ("lower", "upper"):
        found[name] = np.asarray(columns.get(name, np.zeros((count, dimensions))), dtype=np.int64).reshape(count, dimensions)
    return found


def take(files: Files, rows: Array) -> Files:
    """Some of the files."""
    return {name: column[rows] for name, column in files.items()}


def path_of(number: int) -> str:
    """Where a file is."""
    return f"sim/{number:09d}.parquet"


def number_of(path: str) -> int:
    """The inverse of `path_of`."""
    return int(path[4:13])


@dataclass
class Table:
    """The live files, the partitions they are in, and the commits that made them so."""

    workload: Workload
    partitions: list[Partition] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    compacted: dict[Partition, int] = field(default_factory=dict)
    recorded_groups: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _files: Files | None = None
    _pending: list[Files] = field(default_factory=list)
    next_number: int = 0

    @property
    def dimensions(self) -> int:
        """Columns that have bounds."""
        return len(self.workload.columns)

    @property
    def files(self) -> Files:
        """All live files."""
        if self._files is None:
            self._files = files_of(0, self.dimensions)
        if self._pending:
            every = [self._files, *self._pending]
            self._files = {name: np.concatenate([part[name] for part in every]) for name in self._files}
            self._pending = []
        return self._files

    def begin(self, files: Files) -> None:
        """The files of a table that is known from elsewhere, numbered from 0."""
        self._files, self.next_number = files, len(files["number"])

    def partition(self, path: str) -> int:
        """The number of a partition, new or known."""
        if path not in self._numbers:
            self._numbers[path] = len(self.partitions)
            self.partitions.append(Partition(0, path))
        return self._numbers[path]

    def partition_at(self, time_ms: int) -> int:
        """The partition of rows of that time, where time decides."""
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
        kind = self.workload.partitioning
        name = f"{self.workload.time.name}_{kind}"
        return self.partition(f"{name}={moment:%Y-%m-%d-%H}" if kind == "hour" else f"{name}={moment:%Y-%m-%d}")

    def commit(
        self,
        added: Files,
        removed: Array | None = None,
        *,
        at_ms: int,
        operation: str,
        keeps: int | None = None,
        summary: Mapping[str, str] | None = None,
    ) -> None:
        """One commit; `removed` marks rows of `files`, `keeps` is the sequence number of added files, if not the commit's."""
        parent = self.snapshots[-1].snapshot_id if self.snapshots else None
        number = (parent or 0) + 1
        count, deletes = len(added["number"]), int((added["content"] != DATA).sum())
        added["number"] = np.arange(self.next_number, self.next_number + count)
        added["sequence_number"][:] = number if keeps is None else keeps
        added["snapshot_id"][:] = number
        self.next_number += count
        if removed is not None:
            self._files = take(self.files, ~removed)
        self._pending.append(added)
        if removed is not None:
            self._drop_oldest_deletes()
        told = {"added-delete-files": str(deletes)} if deletes else {}
        self.snapshots.append(
            Snapshot(
                snapshot_id=number,
                parent_id=parent,
                sequence_number=number,
                timestamp_ms=at_ms,
                operation=operation,
                summary={**told, **(summary or {})},
            )
        )

    def _drop_oldest_deletes(self) -> None:
        """Iceberg drops deletes that are older than every data file."""
        data, numbers = self.files["content"] == DATA, self.files["sequence_number"]
        if not data.all() and data.any():
            self._files = take(self.files, data | (numbers >= numbers[data].min()))

    def expire(self, now_ms: int) -> None:
        """Old snapshots go, as any table that is kept has it; the newest stays."""
        kept = [s for s in self.snapshots[:-1] if s.timestamp_ms >= now_ms - SNAPSHOT_KEEP_MS]
        self.snapshots = [*kept, self.snapshots[-1]]

    def state(self, *, files: bool = False, bounds: Collection[int] = ()) -> TableState:
        """As an inspection leaves it, with files and the bounds of these columns if asked."""
        workload = self.workload
        fields = tuple(
            Column(field_id=FIRST_FIELD + i, name=c.name, type="timestamptz" if c.kind == "time" else "long")
            for i, c in enumerate(workload.columns)
        )
        return TableState(
            name=TableName(catalog="simulated", namespace=("bench",), name=workload.name),
            uuid="00000000-0000-0000-0000-000000000000",
            format_version=workload.format_version,
            location="sim",
            metadata_location="sim/metadata.json",
            metadata_bytes=10_000,
            metadata_log_entries=1,
            properties=workload.properties,
            schema_id=0,
            columns=12,
            fields=fields,
            specs=(PartitionSpec(spec_id=0, fields=self._partition_fields(fields)),),
            default_spec_id=0,
            sort_orders=(),
            default_sort_order_id=0,
            snapshot_id=self.snapshots[-1].snapshot_id,
            snapshots=tuple(self.snapshots),
            refs=(),
            statistics_files=0,
            files=self.columns(bounds) if files else None,
        )

    def _partition_fields(self, fields: tuple[Column, ...]) -> tuple[PartitionField, ...]:
        kind, workload = self.workload.partitioning, self.workload
        if kind == "none":
            return ()
        name = workload.bucket_column or workload.time.name
        source = next(f.field_id for f in fields if f.name == name)
        transform = f"bucket[{workload.buckets}]" if kind == "bucket" else kind
        return (PartitionField(name=f"{name}_{kind}", transform=transform, source_id=source, field_id=1000),)

    def columns(self, bounds: Collection[int] = ()) -> FileColumns:
        """The live files as the planner has them."""
        files = self.files
        numbers = files["number"].tolist()
        vector = files["content"] == POSITION_DELETES
        given = {
            "path": [path_of(number) for number in numbers],
            "format": np.where(vector, "puffin", "parquet").astype(object),
            "referenced": [path_of(number) if number != UNKNOWN else "" for number in files["referenced"].tolist()],
            "equality_ids": np.where(files["content"] == EQUALITY_DELETES, str(FIRST_FIELD), "").astype(object),
            "content_offset": np.where(vector, 4, UNKNOWN),
            "first_row_id": np.full(len(numbers), DEFAULTS["first_row_id"]),
        }
        arrays = [pa.array(given.get(f.name, files.get(f.name)), f.type, safe=False) for f in SCHEMA]
        told = {f"{i}.{side}": _binary(files[side][:, i - FIRST_FIELD]) for i in bounds for side in ("lower", "upper")}
        return FileColumns(pa.table(arrays, schema=SCHEMA), tuple(self.partitions), pa.table(told) if told else None)

    def memory(self) -> Memory:
        """What our own runs are remembered by."""
        return Memory(row_groups=self.recorded_groups, compacted=self.compacted)

    def remember(self, rewritten: Mapping[Partition, int], groups: Mapping[str, int]) -> None:
        """Takes note of a run: when each partition was compacted, and the row groups of its files."""
        self.compacted |= rewritten
        self.recorded_groups |= groups


def _binary(values: Array) -> pa.Array:
    """Iceberg's bytes of whole numbers: eight, the lowest first."""
    data = np.ascontiguousarray(values, dtype="<i8")
    return pa.Array.from_buffers(pa.binary(8), len(data), [None, pa.py_buffer(data)]).cast(pa.binary())
