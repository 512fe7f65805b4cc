"""Which work a table's deletes leave to do, from metadata that an inspection has read. Pure, over columns.

Called by `operations.examine` for findings and by `operations.delete_files` for due steps. It follows the rules by which
`operations.delete_files` chooses (`maintenance.delete_files`), so that a step that is called due has work to do. The bounds
of equality deletes are not read here: that such a delete concerns a file is told as a possibility.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from neve.health.not_due import NotDue
from neve.maintenance.delete_files import Upkeep
from neve.maintenance.steps import Judgement
from neve.table.delete_index import DeleteIndex, unpartitioned
from neve.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES, FileColumns
from neve.table.nested_keys import compares_nested
from neve.table.state import TableState
from neve.table.units import counted

_VECTORS_SINCE = 3
"""The format version from which on deletes by position are vectors."""


@dataclass(frozen=True)
class DeleteWork:
    """What the operations on deletes would find in a table."""

    delete_files: int = 0
    equality_files: int = 0
    convertible: int = 0
    """Equality deletes that can be converted, if they concern rows of the files that they apply to by partition and age."""
    scattered: int = 0
    """Data files that would get one delete of their own."""
    dangling: int = 0
    """Deletes that apply to no live file; there may be more of them among the equality deletes."""
    dangling_equality: int = 0

    @classmethod
    def of(cls, state: TableState, files: FileColumns) -> Self:
        """Of a table whose files were read."""
        content = files.column("content")
        deletes = content != DATA
        if not deletes.any():
            return cls()
        by_equality = content == EQUALITY_DELETES
        index = DeleteIndex.of(files, unpartitioned_specs=unpartitioned(state.specs))
        dangling = index.dangling()
        return cls(
            delete_files=int(deletes.sum()),
            equality_files=int(by_equality.sum()),
            convertible=_convertible(state, files, index) if by_equality.any() else 0,
            scattered=_scattered(files, index, vectors=state.format_version >= _VECTORS_SINCE),
            dangling=int(dangling.sum()),
            dangling_equality=int((by_equality & dangling).sum()),
        )


def _unreadable(files: FileColumns) -> npt.NDArray[np.bool_]:
    """Position deletes in a format that nobody here reads."""
    mask: npt.NDArray[np.bool_] = (files.column("content") == POSITION_DELETES) & ~files.is_parquet & ~files.is_vector
    return mask


def _convertible(state: TableState, files: FileColumns, index: DeleteIndex) -> int:
    """One is converted if it applies to a Parquet file whose deletes can be read."""
    nested = compares_nested(files, state.nested)
    is_parquet_data = (files.column("content") == DATA) & files.is_parquet
    refused = ~is_parquet_data | index.applies_to(nested | _unreadable(files))
    by_equality = files.column("content") == EQUALITY_DELETES
    return int((by_equality & files.is_parquet & ~index.dangling(refused)).sum())


def _scattered(files: FileColumns, index: DeleteIndex, *, vectors: bool) -> int:
    """Data files whose position deletes are several, shared, or not of the table's format version, if some can go then."""
    counts = index.position_counts()
    one_fits = (counts.vectors == 1) if vectors else (counts.named == 1)
    is_scattered = (counts.total > 0) & ~((counts.total == 1) & one_fits)
    chosen = is_scattered & ~index.applies_to(_unreadable(files))
    by_position = files.column("content") == POSITION_DELETES
    goes = by_position & index.dangling(chosen) & ~index.dangling()
    return int((chosen & index.applies_to(goes)).sum())


def by_deletes(work: DeleteWork, operation: Upkeep) -> Judgement:
    """Returns whether an operation on deletes has work, or, where metadata cannot tell, what it checks."""
    if operation is Upkeep.CONVERT:
        return _by_convertible(work)
    if operation is Upkeep.REWRITE:
        return _by_scattered(work)
    return _by_dangling(work)


def _by_convertible(work: DeleteWork) -> Judgement:
    if work.convertible:
        return Judgement(due=True, why=f"checks {counted(work.convertible, 'equality delete file')} that may delete rows")
    what = "equality deletes that apply to a file that can be converted"
    return _none(Upkeep.CONVERT, what, "a writer commits an equality delete")


def _by_scattered(work: DeleteWork) -> Judgement:
    if work.scattered:
        several = "with several position deletes, or with one that is shared"
        return Judgement(due=True, why=f"{counted(work.scattered, 'data file')} {several}")
    what = "data files with several position deletes, or with one that is shared"
    return _none(Upkeep.REWRITE, what, "rows are deleted by position")


def _by_dangling(work: DeleteWork) -> Judgement:
    if work.dangling:
        applies = "applies" if work.dangling == 1 else "apply"
        return Judgement(due=True, why=f"{counted(work.dangling, 'delete file')} that {applies} to no live file")
    if work.equality_files:
        return Judgement(due=True, why=f"checks {counted(work.equality_files, 'equality delete file')}")
    return _none(
        Upkeep.PRUNE, "deletes that apply to no live file", "data files are rewritten or dropped without their deletes"
    )


def _none(operation: Upkeep, what: str, until: str) -> Judgement:
    return Judgement.unmet(NotDue(rule=operation, what=what, measured=0, threshold=1, until=until))
