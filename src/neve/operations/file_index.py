"""Keeps the file index, and finds the files that other tables need. Called for orphans, settle and purge.

A refresh loads every table of every configured catalog, and reads only manifest lists and manifests that it has not seen. A
table or namespace that cannot be read is reported as a neighbour with its trouble; the callers refuse to go on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from glob import escape

from neve.context.connection import Connection
from neve.errors import CorruptMetadataError, InDoubtError, NeveError, StateError, TableNotFoundError
from neve.index_ports import FileIndexStore, ManifestPaths, References
from neve.maintenance.file_index import (
    Comparison,
    ManifestPlaces,
    Real,
    TableIndex,
    TheseFiles,
    Trust,
    advice,
    kept_manifests,
    swapped,
    unresolved,
)
from neve.maintenance.orphans import Neighbour
from neve.maintenance.quarantine import Candidate
from neve.ports import Clock, Progress, Reachability
from neve.table.location import Spellings
from neve.table.state import Manifest, TableName

log = logging.getLogger(__name__)

_CONCURRENT_LOADS = 16
_TABLES_AT_A_TIME = 64
"""Their metadata is in memory together."""
_MOST_PASSES = 5

Listing = Callable[[], tuple[list[TableName], list[Neighbour]]]
"""All tables of all catalogs, and namespaces and catalogs that cannot be listed, each with its trouble."""


OWN_FILES = "Neve's settings, state store or catalog"
"""Stands for the table that needs a file, where that is none."""


@dataclass(frozen=True)
class IndexTools:
    """Made by `open_index`."""

    listing: Listing
    open: Callable[[TableName], References | None]
    """None for an entry of a catalog that has no metadata, so that nobody can reach a file through it."""
    paths: ManifestPaths
    clock: Clock
    store: FileIndexStore
    progress: Progress | None = None
    own_files: Callable[[], Iterable[str]] = tuple
    """What Neve itself works with: the state store, the settings file, databases of catalogs."""


@dataclass
class _Pending:
    """A table that has changed since it was indexed."""

    name: TableName
    references: References
    lists: dict[str, int]
    manifests: dict[str, ManifestPlaces]
    unread: dict[str, Manifest] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    trouble: str | None = None

    def note(self, manifest_list: str, manifests: Iterable[Manifest]) -> None:
        """Gives a list the next number, and notes which manifests it names."""
        number = self.lists[manifest_list] = max(self.lists.values(), default=-1) + 1
        for manifest in manifests:
            known = self.manifests.get(manifest.path)
            if known is not None and known.length == manifest.length_bytes:
                self.manifests[manifest.path] = known._replace(last=number)
            else:
                first = number if known is None else known.first
                self.manifests[manifest.path] = ManifestPlaces(manifest.length_bytes, first, number, 0, ())
                self.unread[manifest.path] = manifest

    def forget(self, manifest: str, reason: NeveError) -> None:
        """Drops a manifest that cannot be read, and the lists that may name it: the next refresh reads these again."""
        self.trouble = str(reason)
        failed = self.manifests.pop(manifest)
        self.lists = {path: number for path, number in self.lists.items() if not failed.first <= number <= failed.last}
        self.unreadable.append(manifest)

    def indexed(self) -> TableIndex:
        """A table of which something could not be read has no fingerprint, so that it is read again next time.

        Lists and manifests that could not be read are kept as files, so that at least they are known to be needed.
        """
        of = self.references
        digest = of.fingerprint if self.trouble is None else ""
        files = (*of.files, *(path for path in of.lists if path not in self.lists), *self.unreadable)
        return TableIndex(of.uuid, digest, of.own, files, dict(self.lists), self.manifests)


@dataclass(frozen=True)
class _Loaded:
    """What one load of a table came to. Without a fingerprint, what is known of its files may be incomplete."""

    neighbour: Neighbour
    uuid: str | None = None
    fingerprint: str | None = None
    is_gone: bool = False
    is_empty: bool = False
    """Whether it is an entry without metadata."""


class FileIndex:
    """The index over all configured catalogs. `counts` says how much was read: loads, unchanged tables, lists, manifests."""

    def __init__(self, tools: IndexTools) -> None:
        self._tools = tools
        self.counts = Counter[str]()
        self._tables: dict[TableName, _Loaded] | None = None

    def refresh(self) -> tuple[Neighbour, ...]:
        """Brings the index up to date; returns every table with its own places, and what could not be read.

        The catalogs are listed again at the end: a table that is renamed meanwhile could be missed under both names.
        """
        names, troubles = self._tools.listing()
        loaded = dict[TableName, _Loaded]()
        for _ in range(_MOST_PASSES):
            self._load(sorted(set(names), key=str), loaded)
            names, troubles = self._tools.listing()
            names = [name for name in names if name not in loaded] or self._renamed(loaded)
            if not names:
                break
        else:
            reason = "tables are created, renamed or dropped faster than they can be read"
            troubles = [*troubles, Neighbour(name=str(names[0]), trouble=reason)]
        last, late = self._tools.listing() if any(one.is_gone for one in loaded.values()) else ([], [])
        listed, troubles = set(last), [*troubles, *(one for one in late if one not in troubles)]
        there = {name: one for name, one in loaded.items() if not one.is_empty}
        self._tables = found = {name: one for name, one in there.items() if not one.is_gone or name in listed}
        self._forget({*found, *listed}, troubles)
        return (*(one.neighbour for one in found.values()), *troubles)

    def _load(self, names: Sequence[TableName], loaded: dict[TableName, _Loaded]) -> dict[TableName, TableIndex]:
        """Loads these tables; returns the index of those that have changed."""
        done, changed = 0, dict[TableName, TableIndex]()
        with ThreadPoolExecutor(_CONCURRENT_LOADS) as threads:
            for some in _batches(names, _TABLES_AT_A_TIME):
                kept = self._tools.store.index_fingerprints([str(name) for name in some])
                opened = zip(some, threads.map(self._open, some), strict=True)
                found = ((name, self._noted(name, one, kept, loaded)) for name, one in opened)
                stale = {name: one for name, one in found if one is not None}
                changed |= self._index(self._pending(stale, threads), loaded)
                done += len(some)
                if self._tools.progress:
                    self._tools.progress("index", done, len(names))
        return changed

    def _open(self, name: TableName) -> References | NeveError | None:
        try:
            return self._tools.open(name)
        except NeveError as error:
            return error

    def _noted(
        self, name: TableName, found: References | NeveError | None, kept: Mapping[str, str], loaded: dict[TableName, _Loaded]
    ) -> References | None:
        """Notes what a load came to; returns the table if it has changed."""
        self.counts["loads"] += 1
        if isinstance(found, NeveError):
            loaded[name] = self._not_loaded(name, found)
            return None
        if found is None:
            loaded[name] = _Loaded(Neighbour(name=str(name)), is_empty=True)
            return None
        neighbour = Neighbour(name=str(name), places=found.own, trouble=found.trouble, uuid=found.uuid)
        loaded[name] = _Loaded(neighbour, found.uuid, found.fingerprint)
        unchanged = kept.get(str(name)) == found.fingerprint
        self.counts["unchanged"] += unchanged
        return None if unchanged else found

    def _not_loaded(self, name: TableName, error: NeveError) -> _Loaded:
        if isinstance(error, TableNotFoundError):
            trouble = f"its catalog lists it and cannot load it: {error}"
            return _Loaded(Neighbour(name=str(name), trouble=trouble), is_gone=True)
        known = self._tools.store.table_indexes([str(name)]).get(str(name))
        return _Loaded(Neighbour(name=str(name), places=known.own if known else (), trouble=str(error)))

    def _renamed(self, loaded: dict[TableName, _Loaded]) -> list[TableName]:
        """Tables whose uuid was seen twice, if loading them again shows another one."""
        uuids = {name: one.uuid for name, one in loaded.items() if one.uuid is not None}
        twice = sorted(swapped(uuids), key=str)
        self._load(twice, loaded)
        return [name for name in twice if loaded[name].uuid != uuids[name]]

    def _pending(self, found: Mapping[TableName, References], threads: ThreadPoolExecutor) -> list[_Pending]:
        """Tables that have changed, with the manifests that their new lists name; several lists are read at a time."""
        known = self._tools.store.table_indexes([str(name) for name in found])
        pending = [_Pending(name, one, *kept_manifests(known.get(str(name)), one.lists)) for name, one in found.items()]
        new = [(table, path) for table in pending for path in table.references.lists if path not in table.lists]
        for (table, path), manifests in zip(new, threads.map(_named, new), strict=True):
            self.counts["lists"] += 1
            if isinstance(manifests, NeveError):
                table.trouble = str(manifests)
            else:
                table.note(path, manifests)
        return pending

    def _index(self, pending: Sequence[_Pending], loaded: dict[TableName, _Loaded]) -> dict[TableName, TableIndex]:
        """Reads the manifests that are new, and keeps what was found."""
        if not pending:
            return {}
        jobs = [
            ((table, manifest), path, _reading(table.references, path, manifest.length_bytes))
            for table in pending
            for path, manifest in table.unread.items()
        ]
        entries = sum(manifest.live_files or 0 for table in pending for manifest in table.unread.values())
        for (table, manifest), found in self._tools.paths.summaries(jobs, entries):
            self.counts["manifests"] += 1
            if isinstance(found, NeveError):
                table.forget(manifest.path, found)
            else:
                number, places = found
                self.counts["entries"] += number
                table.manifests[manifest.path] = table.manifests[manifest.path]._replace(entries=number, places=places)
        kept = {table.name: table.indexed() for table in pending}
        self._tools.store.keep_table_indexes({str(name): one for name, one in kept.items()}, self._tools.clock.now_ms())
        for table in pending:
            if table.trouble is not None:
                neighbour = loaded[table.name].neighbour.model_copy(update={"trouble": table.trouble})
                loaded[table.name] = replace(loaded[table.name], neighbour=neighbour, fingerprint=None)
        return kept

    def _forget(self, known: Iterable[TableName], troubles: Sequence[Neighbour]) -> None:
        """Drops entries of tables that are gone, of catalogs that could be listed completely."""
        by_catalog: dict[str, list[str]] = {}
        for name in known:
            by_catalog.setdefault(name.catalog, []).append(str(name))
        for catalog, names in by_catalog.items():
            if not any(f"{trouble.name}.".startswith(f"{catalog}.") for trouble in troubles):
                self._tools.store.forget_table_indexes(catalog, names)

    def needed(self, comparison: Comparison, own: TableName) -> Iterator[tuple[str, str]]:
        """Yields what any table needs of the files that are asked about, spelled as they are, each with the table's name.

        Of the table `own` only files that it names in another way are found. Raises InDoubtError if a manifest cannot be read.
        """
        if self._tables is None:
            self.refresh()
        yield from ((path, OWN_FILES) for path in comparison.matches(self._tools.own_files()))
        tables = dict(self._tables or {})
        for some in _batches(list(tables), _TABLES_AT_A_TIME):
            kept = self._tools.store.table_indexes([str(name) for name in some])
            for name in some:
                index = self._as_refreshed(name, tables[name].fingerprint, kept.get(str(name)))
                if index is not None:
                    yield from ((path, str(name)) for path in self._of_table(name, index, comparison, is_own=name == own))

    def _as_refreshed(self, name: TableName, seen: str | None, kept: TableIndex | None) -> TableIndex | None:
        """What was kept, if it is what the refresh saw: another process may have kept an older version, or removed it."""
        if seen is None or (kept is not None and kept.fingerprint == seen):
            return kept
        loaded = dict[TableName, _Loaded]()
        found = self._load([name], loaded).get(name) or self._tools.store.table_indexes([str(name)]).get(str(name))
        if found is None or loaded[name].fingerprint != found.fingerprint:
            message = f"Cannot tell which files {name} needs: it changed, or another process changed its index"
            raise InDoubtError(message, hint="Try again.")
        return found

    def _of_table(self, name: TableName, index: TableIndex, comparison: Comparison, *, is_own: bool) -> Iterator[str]:
        seen: dict[tuple[str, ...], bool] = {}

        def may_match(places: tuple[str, ...]) -> bool:
            if places not in seen:
                seen[places] = any(comparison.may_match(place, is_own=is_own) for place in places)
            return seen[places]

        if may_match(index.metadata_places):
            yield from comparison.matches(index.metadata_files())
        matching = {path: one for path, one in index.manifests.items() if may_match(one.places)}
        if not matching:
            return
        references = self._reopened(name)
        for path, one in matching.items():
            self.counts["manifests"] += 1
            try:
                yield from comparison.matches(self._tools.paths.paths(references.read(path, one.length), path))
            except NeveError as error:
                if self._is_named(references, index, path, one):
                    raise _unreadable(name, error) from error

    def _reopened(self, name: TableName) -> References:
        self.counts["loads"] += 1
        try:
            found = self._tools.open(name)
        except NeveError as error:
            raise _unreadable(name, error) from error
        if found is None:
            raise _unreadable(name, CorruptMetadataError("its metadata is gone"))
        return found

    def _is_named(self, references: References, index: TableIndex, path: str, one: ManifestPlaces) -> bool:
        """Whether a snapshot still has the manifest: the index remembers a range of lists, of which some may not name it."""
        for manifest_list in references.lists:
            number = index.lists.get(manifest_list)
            if number is None or one.first <= number <= one.last:
                self.counts["lists"] += 1
                try:
                    if any(manifest.path == path for manifest in references.manifests(manifest_list)):
                        return True
                except NeveError:
                    return True
        return False


def _named(new: tuple[_Pending, str]) -> tuple[Manifest, ...] | NeveError:
    table, path = new
    try:
        return table.references.manifests(path)
    except NeveError as error:
        return error


def _unreadable(name: TableName, error: NeveError) -> InDoubtError:
    """For a table that is known to have files there: nobody can vouch for it."""
    message = f"Cannot tell which files {name} needs in the places that are to be cleaned: {error}"
    return InDoubtError(message, hint=f"Repair {name}, or drop it from its catalog. It had files there when it was last read.")


def _batches(names: Sequence[TableName], size: int) -> Iterator[Sequence[TableName]]:
    yield from (names[start : start + size] for start in range(0, len(names), size))


def _reading(references: References, path: str, length: int) -> Callable[[], bytes]:
    return lambda: references.read(path, length)


@dataclass(frozen=True)
class EveryTable:
    """What the table and every other table needs (implements `ports.Reachability`), for the checks before files are moved."""

    table: TableName
    reach: Reachability
    index: FileIndex
    real: Callable[[], Real]
    """Links may change between two questions, so each has a new one."""
    trust: Trust

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        """Of the table alone."""
        return self.reach.lost_since(metadata_location)

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        """Of the table alone."""
        return self.reach.lost_without(snapshots)

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Those that any table needs. Raises InDoubtError where a table cannot be read that may need one of them.

        If that is the table itself, what reading it in full raises comes first: it says which file is missing.
        """
        asked = list(paths)
        if not asked:
            return
        spellings, neighbours = Spellings.of(), self.index.refresh()
        if any(one.name == str(self.table) and one.trouble is not None for one in neighbours):
            list(self.reach.needed(asked))
        refuse_doubt(neighbours, asked, self.trust, spellings, purpose=f"remove files of {self.table}")
        found = {path for path, _ in self.index.needed(self._comparison(asked, spellings), self.table)}
        yield from found
        yield from (path for path in self.reach.needed(asked) if path not in found)

    def _comparison(self, asked: list[str], spellings: Spellings) -> Comparison:
        real = self.real()
        return Comparison(TheseFiles(asked, spellings, real), real, spellings)


def refuse_doubt(
    neighbours: Iterable[Neighbour], places: Sequence[str], trust: Trust, spellings: Spellings, *, purpose: str
) -> None:
    """Raises InDoubtError for a table, a namespace or a catalog that cannot be read, unless somebody vouches for it."""
    doubtful = unresolved(neighbours, places, trust, spellings)
    if doubtful is not None:
        place = places[0].rpartition("/")[0] if len(places) > 1 else places[0]
        message = f"Cannot {purpose}: it is not known where {doubtful.name} has its files ({doubtful.trouble})"
        raise InDoubtError(message, hint=advice(doubtful, place))


class OptionalStore:
    """An index for one run, written to the store if there is one that can be written (implements `FileIndexStore`)."""

    def __init__(self, stored: FileIndexStore | None = None) -> None:
        self._stored, self._found = stored, dict[str, TableIndex]()

    def index_fingerprints(self, tables: Collection[str]) -> dict[str, str]:
        """Of what this run found, and of what was stored."""
        stored = self._stored.index_fingerprints(tables) if self._stored is not None else {}
        return {**stored, **{name: self._found[name].fingerprint for name in tables if name in self._found}}

    def table_indexes(self, tables: Collection[str]) -> dict[str, TableIndex]:
        """What this run found, and what was stored."""
        stored = self._stored.table_indexes(tables) if self._stored is not None else {}
        return {**stored, **{name: self._found[name] for name in tables if name in self._found}}

    def keep_table_indexes(self, found: Mapping[str, TableIndex], now_ms: int) -> None:
        """In the store, or in memory where it cannot be written."""
        self._found |= found
        try:
            if self._stored is not None:
                self._stored.keep_table_indexes(found, now_ms)
                for name in found:
                    del self._found[name]
        except StateError as error:
            log.info("the file index is not stored: %s", error)

    def forget_table_indexes(self, catalog: str, keep: Collection[str]) -> None:
        """Left to runs that write."""


def open_index(
    connection: Connection, store: FileIndexStore, resources: ExitStack, progress: Progress | None = None
) -> FileIndex:
    """The index over all catalogs of a connection; its processes end with `resources`."""
    from neve.catalogs.live_paths import ParallelManifestPaths

    tools = IndexTools(
        listing=lambda: _listing(connection),
        open=connection.references,
        paths=resources.enter_context(ParallelManifestPaths()),
        clock=connection.clock,
        store=store,
        progress=progress,
        own_files=lambda: _own_files(connection),
    )
    return FileIndex(tools)


def trust_of(connection: Connection, *ignored: str) -> Trust:
    """What the settings vouch for, and what the caller does."""
    declared = connection.settings.orphans
    return Trust(exclusive_prefixes=declared.exclusive_prefixes, ignored=(*declared.ignore_tables, *ignored))


def _own_files(connection: Connection) -> Iterator[str]:
    """The settings file, and the SQLite files of the state store and of catalogs with what SQLite and we keep beside them."""
    from neve.state.location import sqlite_file

    if connection.loaded.file is not None:
        yield str(connection.loaded.file.absolute())
    for file in filter(None, map(sqlite_file, connection.databases())):
        yield str(file.absolute())
        yield from (str(beside) for beside in file.absolute().parent.glob(f"{escape(file.name)}*"))


def _listing(connection: Connection) -> tuple[list[TableName], list[Neighbour]]:
    tables, troubles = list[TableName](), list[Neighbour]()
    for found in connection.survey():
        if isinstance(found, tuple):
            name, error = found
            troubles.append(Neighbour(name=name, trouble=str(error)))
        else:
            tables.append(found)
    return tables, troubles
