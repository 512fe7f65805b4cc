"""Manifest entries of files that do not exist, encoded at some hundred thousand a second.

Called by `neve.samples.metadata`. Statistics are encoded once for a few hundred kinds of file and shared by all entries of
that kind; path, partition, snapshot and the bounds of the timestamp are each entry's own, so that entries look alive.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.samples import avro

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

COLUMNS = (
    "event_id string, user_id long, ts timestamptz, event_type string, amount double, latency_ms double, country string, "
    "device string, session_id string, url string, status int, ok boolean"
)
TIMESTAMP_ID = 3

EXISTING, ADDED = 0, 1
DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
DAY_MICROS = 86_400_000_000
MIB = 1024**2

_IDS = range(1, 13)
_FLOAT_IDS = (5, 6)
_SPLIT_BYTES = 32 * MIB
_PACKED = {2: "<q", 5: "<d", 6: "<d", 11: "<i", 12: "<?"}  # the rest are strings


def table_schema() -> Schema:
    """The twelve columns as an Iceberg schema with ids 1 to 12."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    named = [column.split() for column in COLUMNS.split(", ")]
    return Schema(
        *(NestedField(field_id=i, name=name, type=kind, required=False) for i, (name, kind) in enumerate(named, start=1))
    )


@dataclass(frozen=True)
class FileKind:
    """A size, a row count, and the encoded statistics with a gap at both bounds of the timestamp."""

    records: int
    size_bytes: int
    counts: bytes
    before_lower: bytes
    between: bytes
    after_upper: bytes


def encode_origin(status: int, snapshot_id: int, sequence_number: int | None) -> bytes:
    """The fields before the file: which commit added it; without a number it is inherited from the manifest."""
    number = avro.optional(None if sequence_number is None else avro.integer(sequence_number))
    return avro.integer(status) + avro.optional(avro.integer(snapshot_id)) + number * 2


def file_kinds(rng: random.Random, count: int = 512) -> list[FileKind]:
    """Kinds to draw from: mostly fragments, some middling files, a few full-sized ones."""
    return [_file_kind(rng) for _ in range(count)]


def _file_kind(rng: random.Random) -> FileKind:
    draw = rng.random()
    low, high = (0.05, 4) if draw < 0.75 else (8, 64) if draw < 0.95 else (110, 140)
    size = int(MIB * low * (high / low) ** rng.random())
    records = max(1, size // rng.randint(50, 80))
    lowers, uppers = _bounds(rng)
    split = TIMESTAMP_ID - 1
    return FileKind(
        records=records,
        size_bytes=size,
        counts=_counts(rng, records, size),
        before_lower=b"\2" + avro.integer(len(lowers) + 1) + b"".join(lowers[:split]),
        between=b"".join(lowers[split:]) + b"\0\2" + avro.integer(len(uppers) + 1) + b"".join(uppers[:split]),
        after_upper=b"".join(uppers[split:]) + b"\0" + _tail(size),
    )


def _counts(rng: random.Random, records: int, size: int) -> bytes:
    sizes = _int_map({i: size // 12 + rng.randint(-size // 24, size // 24) for i in _IDS})
    values = _int_map(dict.fromkeys(_IDS, records))
    nulls = _int_map({i: rng.choice((0, 0, records // rng.randint(3, 90))) for i in _IDS})
    return sizes + values + nulls + _int_map(dict.fromkeys(_FLOAT_IDS, 0))


def _int_map(values: dict[int, int]) -> bytes:
    return b"\2" + avro.array(avro.integer(key) + avro.integer(value) for key, value in values.items())


def _bounds(rng: random.Random) -> tuple[list[bytes], list[bytes]]:
    """Bounds of every column but the timestamp, which goes between its neighbours."""
    pairs = {i: sorted((_value(i, rng), _value(i, rng))) for i in _IDS if i != TIMESTAMP_ID}
    return _side(pairs, 0), _side(pairs, 1)


def _side(pairs: dict[int, list[Any]], side: int) -> list[bytes]:
    return [avro.integer(i) + avro.binary(_encode(i, pair[side])) for i, pair in pairs.items()]


def _value(column: int, rng: random.Random) -> Any:
    if column == 2:
        return rng.randint(1, 10**9)
    if column in _FLOAT_IDS:
        return rng.random() * 1000
    if column == 11:
        return rng.choice((200, 301, 404, 503))
    if column == 12:
        return rng.random() < 0.5
    return f"{rng.getrandbits(64):016x}".encode()  # bounds of strings are cut to 16 characters


def _encode(column: int, value: Any) -> bytes:
    return struct.pack(_PACKED[column], value) if column in _PACKED else value


def _tail(size: int, equality_ids: tuple[int, ...] = ()) -> bytes:
    """Key metadata, split offsets, equality ids, sort order, and no referenced file."""
    offsets = avro.optional(avro.array(avro.integer(4 + at) for at in range(0, size, _SPLIT_BYTES)))
    ids = avro.optional(avro.array(map(avro.integer, equality_ids)) if equality_ids else None)
    return b"\0" + offsets + ids + avro.optional(avro.integer(0)) + b"\0"


def encode_data_file(origin: bytes, path: str, *, day: int, micros: int, kind: FileKind) -> bytes:
    """One entry; `origin` is encoded once for many, `micros` is the day's moment of the file's first row."""
    low = day * DAY_MICROS + micros
    return b"".join(
        (
            origin,
            _file_start(DATA, path, day=day, records=kind.records, size_bytes=kind.size_bytes),
            kind.counts,
            kind.before_lower,
            b"\6\x10",  # key 3, eight bytes
            struct.pack("<q", low),
            kind.between,
            b"\6\x10",
            struct.pack("<q", min(low + 3_600_000_000, (day + 1) * DAY_MICROS - 1)),
            kind.after_upper,
        )
    )


def encode_delete_file(origin: bytes, path: str, *, day: int, records: int, content: int) -> bytes:
    """One entry of a delete file; equality deletes match on the first column."""
    size = delete_file_bytes(records)
    start = _file_start(content, path, day=day, records=records, size_bytes=size)
    return origin + start + b"\0" * 6 + _tail(size, (1,) if content == EQUALITY_DELETES else ())


def delete_file_bytes(records: int) -> int:
    """The size that a delete file of so many rows is given."""
    return 400 + 20 * records


def _file_start(content: int, path: str, *, day: int, records: int, size_bytes: int) -> bytes:
    return b"".join(
        (
            avro.integer(content),
            avro.string(path),
            b"\x0ePARQUET",
            avro.optional(avro.integer(day)),
            avro.integer(records),
            avro.integer(size_bytes),
        )
    )
