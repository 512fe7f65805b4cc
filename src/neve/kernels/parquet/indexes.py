"""Page indexes and bloom filters of copied chunks: the same bytes, but for the page offsets inside an OffsetIndex.

Used by `copying`. Each of them must end exactly where the footer says: readers differ in whether they believe the footer's
length or the bytes, and in the output other bytes follow.
"""

from __future__ import annotations

from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.chunks import Chunk
from neve.kernels.parquet.format import BLOOM_FILTER_HEADER, COLUMN_INDEX

# OffsetIndex, and the PageLocation within it
_LOCATIONS, _OFFSET, _PAGE_BYTES, _FIRST_ROW = 1, 1, 2, 3
# BloomFilterHeader
_BITSET_BYTES = 1
# ColumnIndex
_NULL_PAGES, _MINIMA, _MAXIMA = 1, 2, 3
_LOCATION_KINDS = {1: thrift.I64, 2: thrift.I32, 3: thrift.I64}
_INDEX_KINDS = {2: thrift.LIST}


def column_index(data: bytes) -> bytes:
    """The same ColumnIndex: it holds no offsets."""
    index, end = strict.decode(data, 0, COLUMN_INDEX)
    _check_end(end, len(data))
    if not len(index[_NULL_PAGES]) == len(index[_MINIMA]) == len(index[_MAXIMA]):
        raise ValueError("it has bounds for other pages than it lists")
    return data


def offset_index(data: bytes, chunk: Chunk, shift: int) -> bytes:
    """The same OffsetIndex for pages that stand `shift` bytes later."""
    field, kind, at = thrift.read_field_head(data, 0, 0)
    count, element, at = thrift.read_list_head(data, at)
    if (field, kind, element) != (_LOCATIONS, thrift.LIST, thrift.STRUCT):
        raise ValueError("it does not start with page locations")
    parts: list[bytes] = []
    copied, last_row = 0, -1
    for _ in range(count):
        numbers, places, end = thrift.scan(data, at, 0, _LOCATION_KINDS)
        offset = numbers[_OFFSET]
        if numbers[_FIRST_ROW] < last_row:  # equal where a row goes on in the next page, as pyarrow writes some maps
            raise ValueError(f"a page starts at row {numbers[_FIRST_ROW]} after one that starts at row {last_row}")
        last_row = numbers[_FIRST_ROW]
        if not chunk.start <= offset <= offset + numbers[_PAGE_BYTES] <= chunk.end:
            raise ValueError(f"a page of {numbers[_PAGE_BYTES]} bytes at {offset} lies outside its chunk")
        start, stop = places[_OFFSET]
        parts += (data[copied:start], thrift.integer(offset + shift))
        copied, at = stop, end
    _check_end(thrift.scan(data, at, _LOCATIONS, _INDEX_KINDS)[2], len(data))
    return b"".join((*parts, data[copied:]))


def bloom_filter(data: bytes, chunk: Chunk) -> bytes:
    """The bloom filter at the start of this: its header and the bits that it announces."""
    numbers, end = strict.decode(data, 0, BLOOM_FILTER_HEADER)
    length = end + numbers[_BITSET_BYTES]
    if not end < length <= len(data):
        raise ValueError(f"{length} bytes do not fit into {len(data)}")
    if chunk.bloom is not None and chunk.bloom.size_bytes >= 0:
        _check_end(length, len(data))
    return data[:length]


def _check_end(end: int, length: int) -> None:
    if end != length:
        raise ValueError(f"it has {end} bytes, the footer says {length}")
