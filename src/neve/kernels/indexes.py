"""Page indexes and bloom filters of copied chunks: the same bytes, but for the page offsets inside an OffsetIndex.

Used by `copying`. Each of them must end exactly where the footer says: readers differ in whether they believe the footer's
length or the bytes, and in the output other bytes follow.
"""

from __future__ import annotations

from neve.kernels import thrift
from neve.kernels.chunks import Chunk

# OffsetIndex, and the PageLocation within it
_LOCATIONS, _OFFSET, _PAGE_BYTES = 1, 1, 2
# BloomFilterHeader
_BITSET_BYTES = 1


def column_index(data: bytes) -> bytes:
    """The same ColumnIndex: it holds no offsets."""
    _check_end(thrift.skip_struct(data, 0), len(data))
    return data


def offset_index(data: bytes, chunk: Chunk, shift: int) -> bytes:
    """The same OffsetIndex for pages that stand `shift` bytes later."""
    field, kind, at = thrift.read_field_head(data, 0, 0)
    count, element, at = thrift.read_list_head(data, at)
    if (field, kind, element) != (_LOCATIONS, thrift.LIST, thrift.STRUCT):
        raise ValueError("it does not start with page locations")
    parts: list[bytes] = []
    copied = 0
    for _ in range(count):
        numbers, places, end = thrift.scan(data, at)
        offset = numbers[_OFFSET]
        if not chunk.start <= offset <= offset + numbers[_PAGE_BYTES] <= chunk.end:
            raise ValueError(f"a page of {numbers[_PAGE_BYTES]} bytes at {offset} lies outside its chunk")
        start, stop = places[_OFFSET]
        parts += (data[copied:start], thrift.integer(offset + shift))
        copied, at = stop, end
    _check_end(thrift.scan(data, at, _LOCATIONS)[2], len(data))
    return b"".join((*parts, data[copied:]))


def bloom_filter(data: bytes, chunk: Chunk) -> bytes:
    """The bloom filter at the start of this: its header and the bits that it announces."""
    numbers, _, end = thrift.scan(data, 0)
    length = end + numbers[_BITSET_BYTES]
    if not end < length <= len(data):
        raise ValueError(f"{length} bytes do not fit into {len(data)}")
    if chunk.bloom is not None and chunk.bloom.size_bytes >= 0:
        _check_end(length, len(data))
    return data[:length]


def _check_end(end: int, length: int) -> None:
    if end != length:
        raise ValueError(f"it has {end} bytes, the footer says {length}")
