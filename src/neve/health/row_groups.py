"""How many row groups files have, from the best source for each.

Files that we copied carry coarse split offsets on purpose, so our records come first; a footer is the truth where one was
read; split offsets serve for the rest. Called by `operations.inspect` and `rewrite.planner`; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.health.inspection import RowGroups
from neve.policy.model import Policy
from neve.table.files import DATA, SCHEMA, UNKNOWN, FileColumns
from neve.table.units import MIB

Source = Literal["records", "footers", "split-offsets"]
_SOURCES: tuple[Source, ...] = ("records", "footers", "split-offsets")
"""The best first."""

ROW_GROUP_BYTES = 128 * MIB
"""What Iceberg's writers and ours make a row group of, unless the table says otherwise."""


def row_groups_by_file(
    files: FileColumns, records: Mapping[str, int], footers: Mapping[str, int]
) -> tuple[npt.NDArray[np.int64], set[Source]]:
    """Row groups of each file, UNKNOWN where no source tells, and the sources that were used."""
    groups = files.column("row_groups").astype(np.int64)
    if not records and not footers:
        return groups, {"split-offsets"}
    sources, is_data = set[Source](), (files.column("content") == DATA).tolist()
    for i, path in enumerate(files.table.column("path").to_pylist()):
        if (better := footers.get(path, records.get(path))) is not None:
            groups[i] = better
            sources.add("footers" if path in footers else "records")
        elif groups[i] != UNKNOWN and is_data[i]:
            sources.add("split-offsets")
    return groups, sources


def with_row_groups(files: FileColumns, records: Mapping[str, int]) -> FileColumns:
    """The files with as many row groups as our records know of them."""
    groups, _ = row_groups_by_file(files, records, {})
    at = SCHEMA.get_field_index("row_groups")
    return replace(files, table=files.table.set_column(at, SCHEMA.field(at), pa.array(groups, SCHEMA.field(at).type)))


def untold(files: FileColumns, records: Mapping[str, int]) -> list[str]:
    """Parquet data files of which neither the metadata nor our records tell how they are cut."""
    rows = np.flatnonzero((files.column("content") == DATA) & files.is_parquet & (files.column("row_groups") == UNKNOWN))
    return [path for path in files.table.column("path").take(rows).to_pylist() if path not in records]


def estimated(files: FileColumns, groups: npt.NDArray[np.int64], footers: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Row groups with those that nobody told taken to be cut like the files whose footers were read."""
    if not footers:
        return groups
    read = np.isin(files.table.column("path").to_numpy(zero_copy_only=False), list(footers))
    sizes = files.column("size_bytes")
    average = sizes[read].sum() / max(1, groups[read].sum())
    guess = np.maximum(1, np.round(sizes / max(1.0, average))).astype(np.int64)
    unknown = (groups == UNKNOWN) & (files.column("content") == DATA) & files.is_parquet
    return np.where(unknown, guess, groups)


def count_row_groups(
    files: FileColumns, policy: Policy, records: Mapping[str, int], footers: Mapping[str, int]
) -> RowGroups | None:
    """The table's row groups in numbers, None where nothing is known of any file."""
    groups, sources = row_groups_by_file(files, records, footers)
    known = (files.column("content") == DATA) & (groups > 0)
    if not known.any():
        return None
    sizes, counts = files.column("size_bytes")[known], groups[known]
    # A file with one row group is as large as it can be made: a smaller file is a matter of file size, not of row groups.
    small = (counts > 1) & (sizes / counts < policy.row_group_min_bytes)
    if policy.row_group_rows is not None:
        # As in `rewrite.selection`: half of the rows that the policy asks for are enough.
        small &= 2 * files.column("records")[known] < policy.row_group_rows * counts
    return RowGroups(
        files_known=int(known.sum()),
        row_groups=int(counts.sum()),
        average_bytes=float(sizes.sum() / counts.sum()),
        source=next(iter(sources)) if len(sources) == 1 else "mixed",
        sources=tuple(source for source in _SOURCES if source in sources),
        files_with_small_groups=int(small.sum()),
    )
