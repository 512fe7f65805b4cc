"""Parquet files and Iceberg schemas in memory, and sinks and sources that count, for the tests of the Arrow kernel."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.arrow import ArrowInput, Rewritten, WriteOptions, rewrite
from neve.kernels.arrow.schema import arrow_schema
from neve.kernels.streams import BytesSource


class MemorySink:
    """A file in memory that exists once it is closed."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.aborted = False
        self._parts = bytearray()

    def write(self, data: bytes | memoryview) -> None:
        self._parts += data

    def close(self) -> None:
        self.data = bytes(self._parts)

    def abort(self) -> None:
        self.aborted = True

    def take_back(self) -> None:
        raise NotImplementedError


class CountingSource(BytesSource):
    """Remembers what was asked of it."""

    def __init__(self, data: bytes, path: str = "memory") -> None:
        super().__init__(data, path)
        self.requests: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.requests.append((offset, length))
        return super().read_at(offset, length)


def field(number: int, name: str, kind: Any, *, required: bool | Any = False, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": required, "type": kind, **more}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "schema-id": 0, "fields": list(fields)}


def list_of(number: int, kind: Any, *, required: bool = False) -> dict[str, Any]:
    return {"type": "list", "element-id": number, "element": kind, "element-required": required}


def map_of(key: int, key_kind: Any, value: int, value_kind: Any, *, required: bool = False) -> dict[str, Any]:
    kinds = {"key": key_kind, "value": value_kind}
    return {"type": "map", "key-id": key, "value-id": value, "value-required": required, **kinds}


def parquet(rows: Sequence[dict[str, Any]] | pa.Table, of: dict[str, Any] | None = None, **options: Any) -> bytes:
    """Rows as a Parquet file with the field ids of an Iceberg schema (or a table as it is)."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=arrow_schema(of or {}))
    out = io.BytesIO()
    pq.write_table(table, out, **{"store_schema": False, "store_decimal_as_integer": True} | options)
    return out.getvalue()


def given(data: bytes, deleted: Sequence[int] = (), **more: Any) -> ArrowInput:
    """An input with these deleted positions."""
    records = pq.read_metadata(io.BytesIO(data)).num_rows
    positions = np.array(deleted, np.int64) if deleted else None
    source = more.pop("source", None) or BytesSource(data, "in.parquet")
    return ArrowInput(source, records, deleted=positions, **more)


def run(
    inputs: Sequence[ArrowInput], of: dict[str, Any], options: WriteOptions | None = None, **more: Any
) -> tuple[Rewritten, list[bytes]]:
    """Rewrites into memory."""
    sinks: list[MemorySink] = []

    def open_sink(index: int) -> MemorySink:
        assert index == len(sinks)
        sinks.append(MemorySink())
        return sinks[-1]

    result = rewrite(inputs, of, options or WriteOptions(), open_sink, **more)
    return result, [sink.data for sink in sinks if sink.data is not None]


def read(data: bytes) -> list[dict[str, Any]]:
    """What plain pyarrow reads from a file; uuids as bytes."""
    return pq.ParquetFile(io.BytesIO(data), arrow_extensions_enabled=False).read().to_pylist()
