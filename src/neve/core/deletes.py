"""Which files deletes may apply to, from metadata alone. Pure, over columns.

Called by `flow.plan`. A delete applies by partition, spec and sequence number; whether a position delete really names a file
stands in the delete file, so that the answer is rather too many than too few.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.core.files import DATA, EQUALITY_DELETES, POSITION_DELETES, FileColumns

_NONE = -1
Mask = npt.NDArray[np.bool_]


def may_have_deletes(files: FileColumns, *, unpartitioned_specs: Collection[int], ours: Collection[str]) -> Mask:
    """Data files that a delete may apply to; `ours` are files that we wrote.

    A position delete applies to files as old as itself, an equality delete to older ones; one in an unpartitioned spec to the
    whole table. A file that we wrote has the sequence number of the snapshot that it was made from, and no position delete of
    that age can have known its name.
    """
    content, partition, number = (files.column(name) for name in ("content", "partition", "sequence_number"))
    if not (content != DATA).any():
        return np.zeros(len(files), dtype=bool)
    by_position = _newest(content == POSITION_DELETES, partition, number, len(files.partitions))
    by_equality = _newest(content == EQUALITY_DELETES, partition, number, len(files.partitions))
    everywhere = [i for i, home in enumerate(files.partitions) if home.spec_id in unpartitioned_specs]
    by_equality = np.maximum(by_equality, by_equality[everywhere].max(initial=_NONE))
    known = np.asarray(pc.is_in(files.table.column("path"), value_set=pa.array(sorted(ours), pa.string())).to_numpy())
    positions = np.where(known, by_position[partition] > number, by_position[partition] >= number)
    mask: Mask = (content == DATA) & ((positions & (by_position[partition] != _NONE)) | (by_equality[partition] > number))
    return mask


def _newest(chosen: Mask, partition: npt.NDArray[Any], number: npt.NDArray[Any], partitions: int) -> npt.NDArray[np.int64]:
    """The newest sequence number of the chosen files, by partition."""
    newest = np.full(partitions, _NONE, dtype=np.int64)
    np.maximum.at(newest, partition[chosen], number[chosen])
    return newest
