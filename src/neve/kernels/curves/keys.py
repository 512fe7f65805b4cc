"""One number per row whose order is the curve's, and the order of a whole table. Called by the arrow kernel and by Spark tasks.

The same columns and boundaries give the same numbers in every task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from neve.kernels.curves.hilbert import hilbert
from neve.kernels.curves.ranks import Boundaries
from neve.kernels.curves.sorting import Column, sort_indices
from neve.kernels.curves.zorder import Keys, interleave
from neve.table.layout import Layout, LayoutKind

_SAMPLE_ROWS = 200_000
_SEED = 6
_CURVES = {LayoutKind.ZORDER: interleave, LayoutKind.HILBERT: hilbert}


def curve_keys(columns: Sequence[Column], boundaries: Boundaries, kind: LayoutKind) -> Keys:
    """The place of each row on the curve; columns are those that the boundaries were made of, in the same order."""
    return _CURVES[kind](boundaries.ranks(columns), boundaries.bits)


def order_rows(columns: Sequence[Column], layout: Layout) -> pa.UInt64Array:
    """Where each row of the ordered whole comes from. One column per field of the layout, its transform already applied."""
    if layout.kind is LayoutKind.SORT:
        return sort_indices(columns, layout.fields)
    keys = curve_keys(columns, Boundaries.of(_sampled(columns)), layout.kind)
    return pa.array(np.argsort(keys, kind="stable").view(np.uint64))


def _sampled(columns: Sequence[Column]) -> Sequence[Column]:
    rows = len(columns[0])
    if rows <= _SAMPLE_ROWS:
        return columns
    chosen = pa.array(np.sort(np.random.default_rng(_SEED).integers(0, rows, _SAMPLE_ROWS)))
    return [column.take(chosen) for column in columns]
