"""Upkeep of deletes: which data files get one delete of their own in place of what they have, and which deletes may then go.

Pure; carried out by `operations.delete_files`. No row changes and no data file is rewritten: rows that are deleted stay so, by
fewer and cheaper means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from neve.maintenance.record import OperationRecord
from neve.rewrite.live_files import EQUALITY, DataFile, DeleteKey, LiveFile, delete_key

_PATH_ID = 2147483546
"""The column of a position delete that names data files."""


class Upkeep(StrEnum):
    """What is asked for."""

    CONVERT = "convert"  # equality deletes become deletes by position
    REWRITE = "rewrite"  # deletes by position become one for each data file
    PRUNE = "prune"  # deletes that concern no live file go


class UpkeepRecord(OperationRecord):
    """What an upkeep of deletes came to, or, where `dry_run`, would come to. A vector counts as a delete file."""

    operation: Upkeep
    data_files: int = 0
    """That were given a delete of their own; where `dry_run`, at most."""
    rows: int = 0
    """That these delete; not known where `dry_run`."""
    deletes_before: int = 0
    equality_before: int = 0
    deletes_removed: int = 0
    equality_removed: int = 0
    left_alone: str | None = None
    """Data files that were not done, and why."""
    traceback: str | None = None
    """Of an unexpected exception that ended the operation."""

    @property
    def deletes_after(self) -> int:
        """Delete files of the table afterwards; where `dry_run`, at most."""
        return self.deletes_before + self.data_files - self.deletes_removed


def targets(operation: Upkeep, live: Iterable[LiveFile], *, vectors: bool) -> list[LiveFile]:
    """The data files to be done. Left alone are those whose deletes, or whose keys, are in no Parquet file."""
    if operation is Upkeep.PRUNE:
        return []
    wanted = _is_convertible if operation is Upkeep.CONVERT else lambda file: _is_scattered(file, vectors=vectors)
    return [file for file in live if file.has_deletes and wanted(file) and all(map(_is_readable, by_position(file)))]


def by_position(file: LiveFile) -> Sequence[DataFile]:
    """The deletes of a file that name its rows."""
    return file.position_delete_files


def names_rows(delete: DataFile) -> bool:
    """Whether a delete names rows by their position."""
    return bool(delete["content"] != EQUALITY)


def convertible(delete: DataFile) -> bool:
    """Whether it is an equality delete that can be resolved."""
    return delete["content"] == EQUALITY and _format(delete) == "parquet"


def _is_convertible(file: LiveFile) -> bool:
    return _format(file.data_file) == "parquet" and any(convertible(delete) for part in file.parts for delete in part)


def _is_scattered(file: LiveFile, *, vectors: bool) -> bool:
    """Has more than one, one shared with other files, or one that is not of the table's format version."""
    deletes = by_position(file)
    if len(deletes) != 1:
        return bool(deletes)
    is_vector = _format(deletes[0]) == "puffin"
    return is_vector is not vectors or not _names_one(deletes[0])


def _names_one(delete: DataFile) -> bool:
    """Whether a delete is for one data file: it says so, or begins and ends with the same path."""
    lower, upper = (_bound(delete, key) for key in ("lower-bounds", "upper-bounds"))
    return bool(delete.get("referenced-data-file")) or (lower is not None and lower == upper)


def _bound(delete: DataFile, key: str) -> str | None:
    bounds = delete.get(key) or {"keys": [], "values": []}
    return dict(zip(bounds["keys"], bounds["values"], strict=True)).get(_PATH_ID)


def _is_readable(delete: DataFile) -> bool:
    return _format(delete) in ("parquet", "puffin")


def _format(file: DataFile) -> str:
    return str(file["file-format"]).lower()


def superseded(live: Iterable[LiveFile], done: Collection[str], deletes: Iterable[DataFile]) -> dict[DeleteKey, DataFile]:
    """Those of `deletes` that concern no live file but the ones in `done`.

    One that concerns any other stays, for all: an equality delete may concern files of the whole table.
    """
    gone = {delete_key(delete): delete for delete in deletes}
    others = (file for file in live if file.path not in done)
    for key in deletes_of(others) if gone else ():
        gone.pop(key, None)
    return gone


def deletes_of(files: Iterable[LiveFile], chosen: Callable[[DataFile], bool] = lambda _: True) -> dict[DeleteKey, DataFile]:
    """The deletes of all these files, as far as they are chosen. What several files share is looked at once."""
    parts = {id(part): part for file in files for part in file.parts}
    return {delete_key(delete): delete for part in parts.values() for delete in part if chosen(delete)}


def concerned(files: Iterable[LiveFile], keys: Collection[DeleteKey]) -> list[LiveFile]:
    """The files that any of these deletes is attached to."""
    known: dict[int, bool] = {}

    def has_one(deletes: Sequence[DataFile]) -> bool:
        if id(deletes) not in known:
            known[id(deletes)] = any(delete_key(delete) in keys for delete in deletes)
        return known[id(deletes)]

    return [file for file in files if any(map(has_one, file.parts))]


def dangling(deletes: Iterable[DataFile], live: Iterable[LiveFile]) -> dict[DeleteKey, DataFile]:
    """Deletes that concern no live file, of all that the snapshot has."""
    used = deletes_of(live)
    return {key: delete for delete in deletes if (key := delete_key(delete)) not in used}


def still_resolved(then: Mapping[str, LiveFile], now: Mapping[str, LiveFile]) -> set[str]:
    """Data files that are live and have every equality delete that they had when they were resolved.

    Where one is gone, so may be its reason: after a rollback the rows are back.
    """
    known: dict[tuple[int, int], bool] = {}

    def holds(before: LiveFile, after: LiveFile) -> bool:
        if not all(map(names_rows, (*before.own, *after.own))):
            return before.equality_deletes <= after.equality_deletes
        pair = id(before.shared), id(after.shared)
        if pair not in known:
            known[pair] = before.shared.keys <= after.shared.keys
        return known[pair]

    return {path for path, file in then.items() if path in now and holds(file, now[path])}
