"""Bounds of text and bytes too long for Parquet's statistics, which pyarrow leaves out of the footer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.arrow.counting import leaf_arrays
from neve.kernels.arrow.footer import Bounds
from neve.kernels.arrow.schema import ArrowLeaf

_LONGEST_STATISTIC = 4096


def long_bounds(table: pa.Table, leaves: Sequence[ArrowLeaf]) -> dict[int, Bounds]:
    """Bounds by field id of those columns of a row group whose values are too long."""
    found = {}
    index = 0
    for column in table.columns:
        count = _leaf_count(column.type)
        mine = leaves[index : index + count]
        index += count
        wanted = [i for i, leaf in enumerate(mine) if leaf.kind in {"string", "binary"} and not leaf.repeated]
        for i in wanted:
            if (bounds := _bounds(list(_leaf_chunks(column, i)))) is not None:
                found[mine[i].field_id] = bounds
    return found


def _leaf_count(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    return _leaf_count(kind.value_type) if pa.types.is_list(kind) else 1


def _leaf_chunks(column: pa.ChunkedArray, index: int) -> Iterator[pa.Array]:
    for chunk in column.chunks:
        yield next(leaf for i, (leaf, _) in enumerate(leaf_arrays(chunk)) if i == index)


def _bounds(chunks: Sequence[pa.Array]) -> Bounds | None:
    if not any(_longest(chunk) > _LONGEST_STATISTIC for chunk in chunks):
        return None
    dense = [chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]
    extremes = [pc.min_max(chunk.cast(pa.binary())) for chunk in dense if len(chunk) > chunk.null_count]
    return min(e["min"].as_py() for e in extremes), max(e["max"].as_py() for e in extremes)


def _longest(chunk: pa.Array) -> int:
    values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
    if not len(values):
        return 0
    _, offsets, _ = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return int(np.diff(ends).max())
