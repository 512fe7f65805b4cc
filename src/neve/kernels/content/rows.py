"""The fingerprint of rows that come in Arrow batches: the same however they are ordered, batched and encoded.

Called in Spark tasks by `spark.tasks.content` and by `files`. Rows pass in slices that fit a processor's cache, so memory is
bounded by the batches that come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from neve.kernels.content.mixing import mixed, seed_of
from neve.kernels.content.values import joined
from neve.rewrite.content import Fingerprint, total
from neve.table.units import MIB

_SLICE_ROWS = 16_384
_SLICE_BYTES = 2 * MIB
_ROW = seed_of("row")


def fingerprint(batches: Iterable[pa.RecordBatch]) -> Fingerprint:
    """The fingerprint of all rows. Columns are known by name; types must agree between two fingerprints that are compared."""
    return total(_of_slice(part) for batch in batches for part in _slices(batch))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # Columns are hashed one after the other, so the widest one decides.
    widest = max((_size(column) for column in batch.columns), default=0)
    fitting = _SLICE_BYTES * batch.num_rows // max(widest, 1)
    rows = min(max(fitting, 1), _SLICE_ROWS)
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _size(column: pa.Array) -> int:
    try:
        return int(column.nbytes)
    except pa.ArrowTypeError:  # older pyarrow does not tell it of views
        return int(column.get_total_buffer_size())


def _of_slice(batch: pa.RecordBatch) -> Fingerprint:
    keys = joined(batch.schema.names, batch.column, batch.num_rows)
    # Scrambled once more as a whole: a mere sum over columns would not notice a value that changed rows.
    rows = [mixed(keys[lane], lane, _ROW.add[lane]) for lane in (0, 1)]
    return Fingerprint(
        rows=batch.num_rows,
        sums=tuple(int(row.sum(dtype=np.uint64)) for row in rows),
        xors=tuple(int(np.bitwise_xor.reduce(row)) for row in rows),
    )
