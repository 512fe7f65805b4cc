"""Reads back what was written from the file's own footer: counts, bounds, sizes and where readers may split it.

Only NaN counts come from elsewhere, since Parquet has none, and the bounds of values too long for Parquet's statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from neve.kernels.arrow.schema import ArrowLeaf
from neve.table.metrics import ColumnMetrics, order_key, to_bytes
from neve.table.units import MIB

_SPLIT_BYTES = 32 * MIB
Bounds = tuple[bytes, bytes]


def split_offsets(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Starts of row groups, at least 32 MB apart: closer ones only make more and smaller scan tasks."""
    offsets: list[int] = []
    for i in range(metadata.num_row_groups):
        start = _first_byte(metadata.row_group(i).column(0))
        if not offsets or start - offsets[-1] >= _SPLIT_BYTES:
            offsets.append(start)
    return tuple(offsets)


def _first_byte(chunk: pq.ColumnChunkMetaData) -> int:
    start = int(chunk.data_page_offset)
    return min(start, int(chunk.dictionary_page_offset)) if chunk.has_dictionary_page else start


def file_metrics(
    metadata: pq.FileMetaData,
    leaves: Sequence[ArrowLeaf],
    nans: Mapping[int, int | None],
    long_bounds: Mapping[int, list[Bounds]],
) -> dict[int, ColumnMetrics]:
    """Exact metrics by field id."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    metrics = {}
    for index, leaf in enumerate(leaves):
        chunks = [group.column(index) for group in groups]
        metrics[leaf.field_id] = _column(leaf, chunks, nans[leaf.field_id], long_bounds.get(leaf.field_id, []))
    return metrics


def _column(
    leaf: ArrowLeaf, chunks: Sequence[pq.ColumnChunkMetaData], nans: int | None, long_bounds: Sequence[Bounds]
) -> ColumnMetrics:
    statistics = [chunk.statistics for chunk in chunks]
    counted = all(s is not None and s.has_null_count for s in statistics)
    bounds = None if leaf.repeated else _bounds(leaf, statistics, long_bounds)
    return ColumnMetrics(
        size_bytes=sum(chunk.total_compressed_size for chunk in chunks),
        values=sum(chunk.num_values for chunk in chunks),
        nulls=sum(s.null_count for s in statistics) if counted else None,
        nans=nans,
        lower=bounds[0] if bounds else None,
        upper=bounds[1] if bounds else None,
    )


def _bounds(leaf: ArrowLeaf, statistics: Sequence[Any], long_bounds: Sequence[Bounds]) -> Bounds | None:
    found = [*_stored_bounds(leaf, statistics), *long_bounds]
    if not found:
        return None
    low = min((low for low, _ in found), key=lambda data: order_key(leaf.kind, data))
    return low, max((high for _, high in found), key=lambda data: order_key(leaf.kind, data))


def _stored_bounds(leaf: ArrowLeaf, statistics: Sequence[Any]) -> Iterator[Bounds]:
    for s in statistics:
        if s is not None and s.has_min_max:
            yield _serialized(leaf.kind, s.min_raw), _serialized(leaf.kind, s.max_raw)


def _serialized(kind: str, raw: Any) -> bytes:
    if kind.startswith("decimal") and isinstance(raw, bytes):
        raw = int.from_bytes(raw, "big", signed=True)
    return to_bytes(kind, raw)
