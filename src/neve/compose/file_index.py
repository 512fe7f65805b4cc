"""The file index with the adapters of a place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from glob import escape
from typing import TYPE_CHECKING

from neve.compose.place import Place

if TYPE_CHECKING:
    from neve.maintenance.file_index import Trust
    from neve.maintenance.orphans import Neighbour
    from neve.operations.file_index import FileIndex
    from neve.operations.index_ports import FileIndexStore
    from neve.ports import Clock, Progress
    from neve.table.state import TableName


def open_index(
    place: Place, store: FileIndexStore, clock: Clock, resources: ExitStack, progress: Progress | None = None
) -> FileIndex:
    """The index over all catalogs of a place; its processes end with `resources`."""
    from neve.catalogs.live_paths import ParallelManifestPaths
    from neve.operations.file_index import FileIndex, IndexTools

    tools = IndexTools(
        listing=lambda: _listing(place),
        open=place.references,
        paths=resources.enter_context(ParallelManifestPaths()),
        clock=clock,
        store=store,
        progress=progress,
        own_files=lambda: _own_files(place),
    )
    return FileIndex(tools)


def trust_of(place: Place, *ignored: str) -> Trust:
    """What the settings vouch for, and what the caller does."""
    from neve.maintenance.file_index import Trust

    declared = place.settings.orphans
    return Trust(exclusive_prefixes=declared.exclusive_prefixes, ignored=(*declared.ignore_tables, *ignored))


def _own_files(place: Place) -> Iterator[str]:
    """The settings file, and the SQLite files of the state store and of catalogs with what SQLite and we keep beside them."""
    from neve.state.location import sqlite_file

    if place.settings_file is not None:
        yield str(place.settings_file.absolute())
    for file in filter(None, map(sqlite_file, place.databases())):
        yield str(file.absolute())
        yield from (str(beside) for beside in file.absolute().parent.glob(f"{escape(file.name)}*"))


def _listing(place: Place) -> tuple[list[TableName], list[Neighbour]]:
    from neve.maintenance.orphans import Neighbour

    tables, troubles = list["TableName"](), list[Neighbour]()
    for found in place.survey():
        if isinstance(found, tuple):
            name, error = found
            troubles.append(Neighbour(name=name, trouble=str(error)))
        else:
            tables.append(found)
    return tables, troubles
