"""Counts values, nulls and NaN per leaf column, in Parquet's terms, so that they can be compared with a file's footer.

An entry is a value, a null, or the place of a list or map that is empty or missing; the last three are nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.arrow.model import Counts
from neve.kernels.arrow.schema import ArrowLeaf

Tally = npt.NDArray[np.int64]
"""One row per leaf: values, nulls, NaN."""


def blank(leaves: Sequence[ArrowLeaf]) -> Tally:
    """Nothing counted yet."""
    return np.zeros((len(leaves), 3), np.int64)


def tally(columns: Sequence[pa.Array]) -> Tally:
    """Counts a batch; `columns` are the table's, in its order."""
    return np.array([count for column in columns for count in _count(column, 0)], np.int64).reshape(-1, 3)


def _count(array: pa.Array, ended: int) -> Iterator[tuple[int, int, int]]:
    """`ended` entries stopped above: their list or map has nothing in it."""
    for leaf, stopped in leaf_arrays(array, ended):
        yield len(leaf) + stopped, leaf.null_count + stopped, _nans(leaf)


def leaf_arrays(array: pa.Array, ended: int = 0) -> Iterator[tuple[pa.Array, int]]:
    """The leaves below a column, nulls above passed down, with the entries that ended on the way."""
    kind = array.type
    if pa.types.is_struct(kind):
        for child in array.flatten():
            yield from leaf_arrays(child, ended)
    elif pa.types.is_map(kind):
        ended += _nothing_in(array)
        entries = _entries(array)
        yield from leaf_arrays(entries[0], ended)
        yield from leaf_arrays(entries[1], ended)
    elif pa.types.is_list(kind):
        yield from leaf_arrays(array.flatten(), ended + _nothing_in(array))
    else:
        yield array, ended


def _nothing_in(array: pa.Array) -> int:
    lengths = np.diff(array.offsets.to_numpy())
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return int(len(array) - np.count_nonzero(valid & (lengths > 0)))


def _entries(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and values of the maps that are there; what null maps hide is left out."""
    pairs = pa.ListArray.from_arrays(array.offsets, pa.array(np.arange(len(array.keys))))
    at = pc.filter(pairs, pc.is_valid(array)).flatten() if array.null_count else pairs.flatten()
    whole = len(at) == len(array.keys)
    return (array.keys, array.items) if whole else (array.keys.take(at), array.items.take(at))


def _nans(array: pa.Array) -> int:
    return pc.is_nan(array).true_count if pa.types.is_floating(array.type) else 0


def by_field(counts: Tally, leaves: Sequence[ArrowLeaf]) -> dict[int, Counts]:
    """The tally by field id."""
    return {
        leaf.field_id: Counts(int(values), int(nulls), int(nans) if leaf.kind in {"float", "double"} else None)
        for leaf, (values, nulls, nans) in zip(leaves, counts, strict=True)
    }
