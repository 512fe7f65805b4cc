"""Parquet files, valid or damaged on purpose, and sources and sinks that record what is read and written."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import StorageError
from neve.kernels.parquet import thrift
from neve.kernels.streams import BytesSource

Struct = dict[int, Any]
"""A Thrift struct: field id to (kind, value); lists are (element kind, values)."""


def make_file(table: pa.Table | None = None, **options: Any) -> bytes:
    """A file written by pyarrow."""
    out = io.BytesIO()
    pq.write_table(sample_table() if table is None else table, out, **options)
    return out.getvalue()


def sample_table(rows: int = 100, start: int = 0) -> pa.Table:
    """Three columns with field ids 1 to 3; every seventh name is null."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
            pa.field("name", pa.string(), metadata={"PARQUET:field_id": "2"}),
            pa.field("amount", pa.float64(), metadata={"PARQUET:field_id": "3"}),
        ]
    )
    ids = range(start, start + rows)
    names = [None if number % 7 == 0 else f"name-{number % 13}" for number in ids]
    return pa.table([list(ids), names, [number / 4 for number in ids]], schema=schema)


def footer_length(data: bytes) -> int:
    return int.from_bytes(data[-8:-4], "little")


def raw_footer(data: bytes) -> bytes:
    return data[-8 - footer_length(data) : -8]


def with_footer(data: bytes, raw: bytes) -> bytes:
    """The same file with another footer."""
    return data[: -8 - footer_length(data)] + raw + len(raw).to_bytes(4, "little") + b"PAR1"


def decode_footer(data: bytes) -> Struct:
    """The whole footer as Python objects."""
    footer: Struct = _decode(raw_footer(data), 0, thrift.STRUCT)[0]
    return footer


def edited(data: bytes, edit: Callable[[Struct], object]) -> bytes:
    """The same file with its footer decoded, edited and encoded again."""
    footer = decode_footer(data)
    edit(footer)
    out = bytearray()
    _encode(out, footer, thrift.STRUCT)
    return with_footer(data, bytes(out))


def group(footer: Struct, number: int = 0) -> Struct:
    found: Struct = footer[4][1][1][number]
    return found


def chunk(footer: Struct, column: int = 0, group_number: int = 0) -> Struct:
    found: Struct = group(footer, group_number)[1][1][1][column]
    return found


def meta(footer: Struct, column: int = 0, group_number: int = 0) -> Struct:
    found: Struct = chunk(footer, column, group_number)[3][1]
    return found


def with_field_ids(data: bytes, *ids: int | None) -> bytes:
    """The same file with other field ids in its Parquet schema, in the order of the schema. An Arrow schema keeps its own."""

    def change(footer: Struct) -> None:
        for element, number in zip(footer[2][1][1][1:], ids, strict=True):
            element.pop(9, None)
            if number is not None:
                element[9] = (thrift.I32, number)

    return edited(data, change)


def created_by(data: bytes, writer: str) -> bytes:
    """The same file under another writer's name."""
    return edited(data, lambda footer: footer.update({6: (thrift.BINARY, writer.encode())}))


def key_value(data: bytes, key: str, value: str) -> bytes:
    """The same file with one more entry of metadata."""
    entry = {1: (thrift.BINARY, key.encode()), 2: (thrift.BINARY, value.encode())}

    def add(footer: Struct) -> None:
        entries = footer.setdefault(5, (thrift.LIST, (thrift.STRUCT, [])))[1][1]
        entries.append(entry)

    return edited(data, add)


def decode_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that starts here, and where it ends."""
    return _decode(data, at, thrift.STRUCT)


def _decode(buf: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == thrift.STRUCT:
        spans, end = thrift.spans(buf, at)
        return {span.field: (span.kind, _decode(buf, span.start, span.kind)[0]) for span in spans}, end
    if kind == thrift.LIST:
        count, element, at = thrift.read_list_head(buf, at)
        found = []
        for _ in range(count):
            if element in (thrift.TRUE, thrift.FALSE):
                found.append(buf[at])
                at += 1
            else:
                value, at = _decode(buf, at, element)
                found.append(value)
        return (element, found), at
    if kind in (thrift.I16, thrift.I32, thrift.I64):
        return thrift.read_int(buf, at)
    end = thrift.skip(buf, at, kind)
    return (thrift.read_binary(buf, at) if kind == thrift.BINARY else buf[at:end]), end


def _encode(out: bytearray, value: Any, kind: int) -> None:
    if kind == thrift.STRUCT:
        last = 0
        for field, (field_kind, field_value) in sorted(value.items()):
            out += thrift.field_head(field, field_kind, last)
            _encode(out, field_value, field_kind)
            last = field
        out.append(0)
    elif kind == thrift.LIST:
        out += thrift.list_head(len(value[1]), value[0])
        for item in value[1]:
            _encode(out, item, value[0])
    elif kind in (thrift.I16, thrift.I32, thrift.I64):
        out += thrift.varint((value << 1) ^ (value >> 63))
    elif kind == thrift.BINARY:
        out += thrift.binary(value)
    else:
        out += value


class RecordingSource(BytesSource):
    """Counts requests."""

    def __init__(self, data: bytes, path: str = "memory") -> None:
        super().__init__(data, path)
        self.requests: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.requests.append((offset, length))
        return super().read_at(offset, length)


class FailingSource(RecordingSource):
    """Answers until the given request, counted from 1."""

    def __init__(self, data: bytes, path: str = "memory", *, fails_at: int = 1) -> None:
        super().__init__(data, path)
        self._fails_at = fails_at

    def read_at(self, offset: int, length: int) -> bytes:
        if len(self.requests) + 1 >= self._fails_at:
            raise StorageError(f"Cannot read {self.path}: the connection was cut")
        return super().read_at(offset, length)


class MemorySink:
    """Keeps what is written, and what became of it."""

    def __init__(self, *, fails_after_bytes: int | None = None) -> None:
        self.written = bytearray()
        self.largest_write = 0
        self.ends: list[str] = []
        self._fails_after_bytes = fails_after_bytes

    @property
    def data(self) -> bytes:
        return bytes(self.written)

    def write(self, data: bytes | memoryview) -> None:
        if self._fails_after_bytes is not None and len(self.written) + len(data) > self._fails_after_bytes:
            raise StorageError("Cannot write memory: it is full")
        self.largest_write = max(self.largest_write, len(data))
        self.written += data

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")

    def take_back(self) -> None:
        raise NotImplementedError


def other_kind(data: bytes) -> bytes:
    """The same file with one byte changed: the page type of an encoding statistic is an I64 instead of an I32."""

    def change(footer: Struct) -> None:
        statistic = meta(footer)[13][1][1][0]
        statistic[1] = (thrift.I64, statistic[1][1])

    damaged = edited(data, change)
    assert sum(a != b for a, b in zip(data, damaged, strict=True)) == 1
    return damaged
