"""Just enough Avro to write manifests fast: varints, strings, and a container file in Java-sized blocks.

Called by `neve.samples.metadata`. pyiceberg's own writer makes one block per entry and takes minutes for a million of them;
files written here read the same in every engine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

BLOCK_BYTES = 64_000
"""Avro's Java writer closes a block after so many bytes."""

_LEVEL = 6  # Deflate level: the size of real manifests without the minutes that level 9 costs


def integer(value: int) -> bytes:
    """An int or long: zig-zag, seven bits to a byte."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def binary(value: bytes) -> bytes:
    """Bytes with their length before them."""
    return integer(len(value)) + value


def string(value: str) -> bytes:
    """A string in UTF-8."""
    return binary(value.encode())


def optional(encoded: bytes | None) -> bytes:
    """A union of null and something."""
    return b"\0" if encoded is None else b"\2" + encoded


def array(items: Iterable[bytes]) -> bytes:
    """An array of encoded items in one block, as Java writes it; a map with integer keys is an array of pairs."""
    encoded = list(items)
    return integer(len(encoded)) + b"".join(encoded) + b"\0" if encoded else b"\0"


def container(metadata: Mapping[str, str], records: Iterable[bytes], *, sync: bytes) -> bytes:
    """A whole deflate-compressed file; `metadata` holds at least `avro.schema`."""
    header = {**metadata, "avro.codec": "deflate"}
    pairs = b"".join(string(key) + string(value) for key, value in header.items())
    parts = [b"Obj\x01", integer(len(header)), pairs, b"\0", sync]
    block: list[bytes] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record)
        if size >= BLOCK_BYTES:
            parts += _block(block, sync)
            block, size = [], 0
    if block:
        parts += _block(block, sync)
    return b"".join(parts)


def _block(records: list[bytes], sync: bytes) -> tuple[bytes, ...]:
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = deflate.compress(b"".join(records)) + deflate.flush()
    return integer(len(records)), integer(len(packed)), packed, sync
