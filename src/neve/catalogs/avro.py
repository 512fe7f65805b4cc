"""Decodes Avro object files into the few fields that are wanted, an order of magnitude faster than into objects.

Used by `manifests` alone. The writer's schema, which every file carries, is turned once into a list of small functions over
pyiceberg's compiled decoder; fields nobody asked for (column statistics, above all) are stepped over without being kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import new_decoder

Decoder = Any
Read = Callable[[Decoder], Any]

_MAGIC = b"Obj\x01"


@dataclass(frozen=True)
class AvroHeader:
    """What stands before the blocks."""

    schema: dict[str, Any]
    meta: dict[str, str]
    sync: bytes


def read_header(decoder: Decoder) -> AvroHeader:
    """Reads the header and leaves the decoder at the first block."""
    if decoder.read(4) != _MAGIC:
        raise ValueError("it does not start with Avro's magic bytes")
    meta: dict[str, str] = {}
    while count := decoder.read_int():
        if count < 0:
            count = -count
            decoder.skip_int()
        for _ in range(count):
            key = decoder.read_utf8()
            meta[key] = decoder.read_bytes().decode()
    return AvroHeader(schema=json.loads(meta["avro.schema"]), meta=meta, sync=decoder.read(16))


def read_blocks(decoder: Decoder, header: AvroHeader) -> Iterator[tuple[int, Decoder]]:
    """Each block's record count and a decoder over its decompressed bytes."""
    codec: Any = KNOWN_CODECS[header.meta.get("avro.codec", "null")]
    while True:
        try:
            count = decoder.read_int()
        except EOFError:
            return
        data = decoder.read_bytes()
        yield count, new_decoder(codec.decompress(data) if codec else data)
        if decoder.read(16) != header.sync:
            raise ValueError("a block does not end with the sync marker")


def record_reader(schema: dict[str, Any], wanted: Collection[str], prefix: str = "") -> Callable[[Decoder], dict[str, Any]]:
    """A function that reads one record into a flat dict of the wanted dotted names; absent ones stay absent.

    Nested records are entered when one of their fields is wanted, and read whole, as a tuple, when they are wanted themselves.
    """
    steps = [_step(field, wanted, prefix) for field in schema["fields"]]

    def read(decoder: Decoder) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, step in steps:
            value = step(decoder)
            if name is _NESTED:
                row.update(value)
            elif name:
                row[name] = value
        return row

    return read


_NESTED = "\0"


def _step(field: dict[str, Any], wanted: Collection[str], prefix: str) -> tuple[str, Read]:
    name = prefix + field["name"]
    if name in wanted:
        return name, value_reader(field["type"])
    if any(other.startswith(name + ".") for other in wanted):
        return _NESTED, record_reader(field["type"], wanted, name + ".")
    return "", value_skipper(field["type"])


def value_reader(schema: Any) -> Read:
    """Returns a function that reads one value of this type."""
    if isinstance(schema, list):
        return _union([value_reader(branch) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVE_READERS[schema]
    kind = schema["type"]
    if kind == "record":
        fields = [value_reader(field["type"]) for field in schema["fields"]]
        return lambda decoder: tuple(field(decoder) for field in fields)
    if kind == "array":
        return _array_reader(schema["items"])
    if kind == "fixed":
        return _logical(schema, _fixed(schema["size"]))
    return _logical(schema, value_reader(kind))


def _logical(schema: dict[str, Any], raw: Read) -> Read:
    match schema.get("logicalType"):
        case "decimal":
            scale = schema.get("scale", 0)
            return lambda decoder: exact_decimal(int.from_bytes(raw(decoder), "big", signed=True), scale)
        case "uuid":
            return lambda decoder: UUID(bytes=raw(decoder))
    return raw


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """A decimal with all its digits. Python's arithmetic rounds to 28 of them, and Iceberg's decimals have up to 38."""
    return Decimal(f"{unscaled}E{-scale}")


def _union(branches: list[Read]) -> Read:
    return lambda decoder: branches[decoder.read_int()](decoder)


def _fixed(size: int) -> Read:
    return lambda decoder: decoder.read(size)


def _array_reader(schema: Any) -> Read:
    if _field_types(schema) == ["int", "bytes"]:
        return _bytes_by_id
    item = value_reader(schema)
    integers = schema in ("int", "long")

    def read(decoder: Decoder) -> list[Any]:
        items: list[Any] = []
        while count := decoder.read_int():
            if count < 0:
                count = -count
                decoder.skip_int()
            items.extend(decoder.read_ints(count) if integers else (item(decoder) for _ in range(count)))
        return items

    return read


def _bytes_by_id(decoder: Decoder) -> dict[int, bytes]:
    """Integer-keyed bytes, as bounds are stored, in compiled code."""
    found: dict[int, bytes] = {}
    while count := decoder.read_int():
        if count < 0:
            count = -count
            decoder.skip_int()
        decoder.read_int_bytes_dict(count, found)
    return found


def _field_types(items: Any) -> list[Any]:
    is_record = isinstance(items, dict) and items["type"] == "record"
    return [field["type"] for field in items["fields"]] if is_record else [items]


_PRIMITIVE_READERS: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda decoder: decoder.read_boolean(),
    "int": lambda decoder: decoder.read_int(),
    "long": lambda decoder: decoder.read_int(),
    "float": lambda decoder: decoder.read_float(),
    "double": lambda decoder: decoder.read_double(),
    "bytes": lambda decoder: decoder.read_bytes(),
    "string": lambda decoder: decoder.read_bytes().decode("utf-8", "replace"),  # as Java reads what is not UTF-8
}
_PRIMITIVE_SKIPPERS: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda decoder: decoder.skip_boolean(),
    "int": lambda decoder: decoder.skip_int(),
    "long": lambda decoder: decoder.skip_int(),
    "float": lambda decoder: decoder.skip_float(),
    "double": lambda decoder: decoder.skip_double(),
    "bytes": lambda decoder: decoder.skip_bytes(),
    "string": lambda decoder: decoder.skip_utf8(),
}


def value_skipper(schema: Any) -> Read:
    """Returns a function that steps over one value of this type."""
    if isinstance(schema, list):
        return _union([value_skipper(branch) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVE_SKIPPERS[schema]
    kind = schema["type"]
    if kind == "record":
        fields = [value_skipper(field["type"]) for field in schema["fields"]]
        return lambda decoder: [field(decoder) for field in fields] and None
    if kind == "fixed":
        size = schema["size"]
        return lambda decoder: decoder.skip(size)
    if kind == "array":
        return _array_skipper(schema["items"])
    if kind == "map":
        return _block_skipper(_skip_pair(_PRIMITIVE_SKIPPERS["string"], value_skipper(schema["values"])))
    return value_skipper(kind)


def _array_skipper(items: Any) -> Read:
    """Arrays of integers and of integer-keyed pairs, as statistics are stored, are stepped over in compiled code."""
    types = _field_types(items)
    if all(t in ("int", "long") for t in types):
        width = len(types)
        return _block_skipper(lambda decoder, count: decoder.read_ints(width * count))
    if types == ["int", "bytes"]:
        return _block_skipper(lambda decoder, count: decoder.read_int_bytes_dict(count, {}))
    one = value_skipper(items)
    return _block_skipper(lambda decoder, count: [one(decoder) for _ in range(count)])


def _skip_pair(key: Read, value: Read) -> Callable[[Decoder, int], Any]:
    return lambda decoder, count: [(key(decoder), value(decoder)) for _ in range(count)]


def _block_skipper(skip_items: Callable[[Decoder, int], Any]) -> Read:
    def skip(decoder: Decoder) -> None:
        while count := decoder.read_int():
            if count < 0:
                decoder.skip(decoder.read_int())
            else:
                skip_items(decoder, count)

    return skip
