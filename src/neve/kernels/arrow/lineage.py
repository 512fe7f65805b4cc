"""Row lineage of format v3: every row of an output carries its id and the sequence number of its last update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.arrow.model import ArrowInput


def lineage_columns(given: ArrowInput, stored: Sequence[pa.Array], start: int) -> list[pa.Array]:
    """Row ids and numbers of a batch: those that the file stores, else those that its manifest entry implies."""
    row_ids, numbers = stored
    if row_ids.null_count and given.first_row_id is not None:
        first = given.first_row_id + start
        row_ids = _filled(row_ids, pa.array(np.arange(first, first + len(row_ids), dtype=np.int64)))
    if numbers.null_count and given.sequence_number is not None:
        numbers = _filled(numbers, pa.repeat(pa.scalar(given.sequence_number, pa.int64()), len(numbers)))
    return [row_ids, numbers]


def _filled(stored: pa.Array, implied: pa.Array) -> pa.Array:
    return implied if stored.null_count == len(stored) else pc.coalesce(stored, implied)
