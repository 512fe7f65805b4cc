"""Work orders with deletes, in memory: delete files of every kind, and a storage that counts what is opened."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import StorageError
from neve.kernels.deletes.position_files import write_positions
from neve.kernels.deletes.puffin import write_vectors
from neve.kernels.orders import run_order
from neve.kernels.streams import BytesSource
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import DeleteFile, DeleteKind, InputFile, WorkOrder, WorkResult, WriteSettings
from tests.builders.arrow_files import CountingSource, MemorySink, parquet, schema

Rows = Sequence[dict[str, Any]]


class MemoryStorage:
    """Files by location; remembers which were opened."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.opened: list[str] = []
        self.sources: list[CountingSource] = []

    def source(self, location: str, size_bytes: int) -> BytesSource:
        self.opened.append(location)
        if location not in self.files:
            raise StorageError(f"Cannot open {location}: there is no such file")
        assert size_bytes <= len(self.files[location])
        self.sources.append(CountingSource(self.files[location], location))
        return self.sources[-1]

    def stored(self, location: str) -> BytesSource:
        return BytesSource(self.files[location], location)

    def sink(self, location: str) -> MemorySink:
        storage, sink = self, MemorySink()
        close = sink.close

        def close_and_keep() -> None:
            close()
            assert sink.data is not None
            storage.files[location] = sink.data

        sink.close = close_and_keep  # type: ignore[method-assign]
        return sink

    def delete(self, location: str) -> None:
        self.files.pop(location, None)


class GarblingStorage(MemoryStorage):
    """Changes one byte of every file that is written."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def stored(self, location: str) -> BytesSource:
        data = bytearray(self.files[location])
        data[self._at] ^= 0x15
        return BytesSource(bytes(data), location)


class Case:
    """A work order that grows."""

    def __init__(self, *fields: dict[str, Any]) -> None:
        self.root = f"mem://{uuid4().hex}"  # what a process has read stays in its cache, by path
        self.schema = schema(*fields)
        self.storage = MemoryStorage()
        self.inputs: list[InputFile] = []
        self.deletes: list[DeleteFile] = []

    def data(self, rows: Rows | pa.Table, number: int | None = 1, of: dict[str, Any] | None = None, **more: Any) -> str:
        """A data file with this sequence number, in row groups of four rows."""
        data = parquet(rows, of or self.schema, row_group_size=4)
        path = f"{self.root}/data/{len(self.inputs)}.parquet"
        self.storage.files[path] = data
        count = rows.num_rows if isinstance(rows, pa.Table) else len(rows)
        self.inputs.append(InputFile(path=path, size_bytes=len(data), records=count, sequence_number=number, **more))
        return path

    def equality(
        self, rows: Rows, ids: Iterable[int], number: int = 2, of: dict[str, Any] | None = None, *, inline: bool = False
    ) -> DeleteFile:
        """An equality delete file."""
        return self._delete(parquet(rows, of or self.schema), DeleteKind.EQUALITY, len(rows), number, tuple(ids), inline)

    def position_file(self, deleted: Mapping[str, Sequence[int]], *, inline: bool = False) -> DeleteFile:
        """A position delete file, attached to every input."""
        sink = MemorySink()
        write_positions(sink, {path: np.array(rows, np.int64) for path, rows in deleted.items()})
        assert sink.data is not None
        records = sum(map(len, deleted.values()))
        made = self._delete(sink.data, DeleteKind.POSITIONS, records, 9, (), inline)
        self._attach(range(len(self.inputs)))
        return made

    def vectors(self, deleted: Mapping[int, Sequence[int]], *, inline: bool = False) -> str:
        """A Puffin file with the vectors of these inputs."""
        path, sink = f"{self.root}/deletes/{len(self.deletes)}.puffin", MemorySink()
        vectors, _ = write_vectors(sink, [(self.inputs[i].path, np.array(rows, np.int64)) for i, rows in deleted.items()])
        assert sink.data is not None
        self.storage.files[path] = sink.data
        for i, vector in zip(deleted, vectors, strict=True):
            self.deletes.append(
                DeleteFile(
                    kind=DeleteKind.VECTOR,
                    path=path,
                    format="puffin",
                    size_bytes=vector.length,
                    offset=vector.offset,
                    records=vector.cardinality,
                    sequence_number=9,
                    referenced=vector.data_file,
                    content=sink.data[vector.offset : vector.offset + vector.length] if inline else None,
                )
            )
            self._attach([i])
        return path

    def order(self, *kernels: Kernel, **changes: Any) -> WorkOrder:
        plain: dict[str, Any] = {
            "order_id": "o",
            "group_id": 7,
            "kernels": kernels or (Kernel.ARROW,),
            "inputs": tuple(self.inputs),
            "table_schema": self.schema,
            "output_prefix": "out/neve",
            "deletes": tuple(self.deletes),
            "key_fields": tuple(leaves(self.schema)),
            "write": WriteSettings(min_chunk_bytes=0),
        }
        return WorkOrder(**plain | changes)

    def run(self, *kernels: Kernel, **changes: Any) -> tuple[WorkResult, list[dict[str, Any]]]:
        """The result, and the rows of its outputs."""
        result = run_order(self.order(*kernels, **changes), self.storage)
        return result, [row for output in result.outputs for row in self.rows(output.path)]

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Without values that Python has no type for."""
        table = pq.ParquetFile(io.BytesIO(self.storage.files[path]), arrow_extensions_enabled=False).read()
        return list(table.select([f.name for f in table.schema if "[ns" not in str(f.type)]).to_pylist())

    def _delete(
        self, data: bytes, kind: DeleteKind, records: int, number: int, ids: tuple[int, ...], inline: bool
    ) -> DeleteFile:
        path = f"{self.root}/deletes/{len(self.deletes)}.parquet"
        self.storage.files[path] = data
        content = data if inline else None
        made = DeleteFile(
            kind=kind,
            path=path,
            size_bytes=len(data),
            records=records,
            sequence_number=number,
            equality_ids=ids,
            content=content,
        )
        self.deletes.append(made)
        return made

    def _attach(self, inputs: Iterable[int]) -> None:
        for i in inputs:
            attached = (*self.inputs[i].deletes, len(self.deletes) - 1)
            self.inputs[i] = self.inputs[i].model_copy(update={"deletes": attached})


def leaves(of: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fields that hold values, in structs too."""
    found: list[dict[str, Any]] = []
    for one in of["fields"]:
        found += [one] if isinstance(one["type"], str) else leaves(one["type"]) if one["type"]["type"] == "struct" else []
    return found


def comparable(value: Any, kind: str) -> Any:
    """Equal as the specification has it: one NaN, two zeros."""
    if kind in ("float", "double") and value is not None:
        return "NaN" if value != value else struct.pack("<d", value)
    return value
