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
        implied = pa.array(np.arange(start, start + len(row_ids), dtype=np.int64) + given.first_row_id)
        row_ids = implied if row_ids.null_count == len(row_ids) else pc.coalesce(row_ids, implied)
    if numbers.null_count and given.sequence_number is not None:
        numbers = pc.fill_null(numbers, given.sequence_number)
    return [row_ids, numbers]
