"""Row groups as a footer describes them, with every offset of theirs checked against the file before anyone follows it.

Used by `footer`, read by `copying`. A lie raises ValueError, a layout that cannot be moved in one piece raises Objection.
"""

from __future__ import annotations

from typing import NamedTuple

from neve.kernels.faults import Objection
from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.chunks import Chunk, Move, Region, extent, parse_chunk, refuse_unknown
from neve.kernels.parquet.format import ROW_GROUP, SORTING_COLUMN
from neve.kernels.parquet.schema import ParquetLeaf

MAX_GAP_BYTES = 64 * 1024
"""Bytes between chunks that nobody refers to: older Arrow versions repeat a chunk's metadata there. They are copied along."""

_FIRST_BYTE = 4
_COLUMNS, _TOTAL_BYTES, _ROWS, _SORTING, _COMPRESSED_BYTES, _LAST_KNOWN = 1, 2, 3, 4, 6, 7
_KINDS = {number: field.kind for number, field in ROW_GROUP.fields.items()}


class RowGroup(NamedTuple):
    """One row group."""

    rows: int
    chunks: tuple[Chunk, ...]
    start: int
    end: int
    tail: slice
    """Where its total size, row count and sort order stand in the raw footer."""
    last_field: int
    """The id of the last field among those."""
    total: Move
    """The total size, which counts pages before compression, and where it stands."""
    incomplete: tuple[Chunk, ...] = ()
    """Columns of row lineage that were set apart because they must be made anew; they stand after all others."""


def parse_group(raw: bytes, at: int, leaves: tuple[ParquetLeaf, ...], data_end: int) -> tuple[RowGroup | None, int]:
    """The row group that starts here, and where it ends; None for one without rows, which some readers choke on."""
    field, kind, at = thrift.read_field_head(raw, at, 0)
    count, element, at = thrift.read_list_head(raw, at)
    if (field, kind, element) != (_COLUMNS, thrift.LIST, thrift.STRUCT) or count != len(leaves):
        raise ValueError(f"a row group has {count} columns, the schema {len(leaves)}")
    chunks = []
    for leaf in leaves:
        chunk, at = parse_chunk(raw, at, leaf)
        chunks.append(chunk)
    numbers, places, end = thrift.scan(raw, at, _COLUMNS, _KINDS)
    refuse_unknown(places, _LAST_KNOWN, "a row group")
    rows = numbers[_ROWS]
    if min(numbers.values()) < 0:
        raise ValueError(f"a row group has {min(numbers.values())} of something")
    if _SORTING in places:
        _check_sorting(raw, places[_SORTING][0], len(leaves))
    if rows == 0:
        return None, end
    last = _SORTING if _SORTING in places else _ROWS
    start, stop = _check_chunks(chunks, leaves, rows, data_end)
    _check_middle(start, numbers.get(_COMPRESSED_BYTES, 0), data_end)
    total = Move(*places[_TOTAL_BYTES], numbers[_TOTAL_BYTES])
    return RowGroup(rows, tuple(chunks), start, stop, slice(at, places[last][1]), last, total), end


def check_decoded(group: strict.Decoded, data_end: int) -> None:
    """Raises ValueError where a row group of any layout refers to bytes outside of the data."""
    extents = [extent(chunk) for chunk in group[_COLUMNS]] if group[_ROWS] else []
    for place in extents:
        if place is not None and (place[0] < _FIRST_BYTE or place[1] > data_end):
            raise ValueError(f"a column chunk spans bytes {place[0]} to {place[1]}, the data {_FIRST_BYTE} to {data_end}")
    if extents and extents[0] is not None:
        _check_middle(extents[0][0], group.get(_COMPRESSED_BYTES, 0), data_end)


def _check_middle(start: int, compressed_bytes: int, data_end: int) -> None:
    """Iceberg's reader in Spark takes a row group for the split that has its middle, by its first column and its claimed size.
    If that is outside of the file, the reader leaves the rows out without an error."""
    if compressed_bytes < 0 or start + compressed_bytes // 2 >= data_end:
        raise ValueError(f"a row group claims {compressed_bytes} bytes from byte {start} on, and the data ends at {data_end}")


def _check_sorting(raw: bytes, at: int, columns: int) -> None:
    strict.check_list(raw, at, SORTING_COLUMN)
    count, _, at = thrift.read_list_head(raw, at)
    for _ in range(count):
        column, at = strict.decode(raw, at, SORTING_COLUMN)
        if not 0 <= column[1] < columns:
            raise ValueError(f"a row group is sorted by column {column[1]} of {columns}")


def _check_chunks(chunks: list[Chunk], leaves: tuple[ParquetLeaf, ...], rows: int, data_end: int) -> tuple[int, int]:
    """Where the group's bytes start and end."""
    for chunk, leaf in zip(chunks, leaves, strict=True):
        if chunk.values != rows and (chunk.values < rows or not leaf.is_repeated):
            raise ValueError(f"column {leaf.name} has {chunk.values} values in {rows} rows")
        for move in chunk.moves:
            if not chunk.start <= move.offset < chunk.start + chunk.size_bytes:
                raise ValueError(f"column {leaf.name} has a page at {move.offset}, outside its chunk")
        for region in (chunk.bloom, chunk.column_index, chunk.offset_index):
            if region is not None:
                _check_region(region, leaf, data_end)
    return _check_extent(chunks, data_end)


def _check_region(region: Region, leaf: ParquetLeaf, data_end: int) -> None:
    if region.offset < _FIRST_BYTE or region.offset + max(region.size_bytes, 1) > data_end or region.size_bytes == 0:
        raise ValueError(f"column {leaf.name} refers to {region.size_bytes} bytes at {region.offset}")


def _check_extent(chunks: list[Chunk], data_end: int) -> tuple[int, int]:
    start = end = chunks[0].start
    for chunk in chunks:
        if chunk.start < end:
            raise Objection("its column chunks overlap or are not in the order of the schema")
        if chunk.start > end + MAX_GAP_BYTES:
            raise Objection(f"{chunk.start - end} bytes lie unused between its column chunks")
        end = chunk.start + chunk.size_bytes
    if start < _FIRST_BYTE or end > data_end:
        raise ValueError(f"a row group spans bytes {start} to {end}, the data {_FIRST_BYTE} to {data_end}")
    return start, end
