"""The files that a table's metadata needs, over all refs and snapshots (implements `ports.Reachability`).

Metadata of most tables is small: it is read here, in plain Python and without a Spark job. What is large, or cannot be read so,
is left to `spark.maintenance.reachable`, which gives the same answers. Paths are compared without scheme and authority, so that
s3a://b/f is s3://b/f: in doubt a file is needed. Called for expiry, settle, purge and restore.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

from neve.context.table import TableContext
from neve.errors import NeveError, NotUnderstoodError, TableGoneError
from neve.index_ports import TableVersion
from neve.maintenance.quarantine import Candidate
from neve.ports import Reachability, TableEntry
from neve.table.location import Spellings, as_read
from neve.table.state import Manifest

log = logging.getLogger(__name__)

LiveFiles = Callable[[bytes, str], Iterable[tuple[str, int]]]
"""Paths and sizes of the live files in the bytes of a manifest, whose path is the second argument."""

_MOST_LISTS = 500
_MOST_FILES = 50_000
"""Entries of manifests. More of them are read faster by Spark's tasks."""
_CONCURRENT_READS = 16
_REMOVES_METADATA = "write.metadata.delete-after-commit.enabled"
_PLAIN = Spellings.of()
_DATA_FILE = "data file of expired snapshots"
_DELETE_FILE = "delete file of expired snapshots"
_MANIFEST = "manifest of expired snapshots"
_LIST = "manifest list of an expired snapshot"
_STATISTICS = "statistics of an expired snapshot"
_METADATA = "metadata or statistics that the table names no more"

_Found = TypeVar("_Found")


class Reachable:
    """Over one table, which `entry` has loaded: what one loads the other sees."""

    def __init__(
        self, entry: TableEntry, version: Callable[[], TableVersion], live_files: LiveFiles, large: Reachability
    ) -> None:
        self._entry, self._version, self._live_files, self._large = entry, version, live_files, large

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        """Files that an older metadata file needs and the newest one does not. Raises at once if the older is not readable."""
        self._entry.refresh()
        found = _tried(lambda: self._lost_since(metadata_location))
        return self._large.lost_since(metadata_location) if found is None else iter(found)

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        """Files that only these snapshots need."""
        found = _tried(lambda: self._lost_without(snapshots))
        return self._large.lost_without(snapshots) if found is None else iter(found)

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Those that the newest metadata names."""
        asked = iter(paths)
        first = next(asked, None)
        if first is None:
            return
        self._entry.refresh()
        known, rest = _tried(self._known), chain([first], asked)
        yield from self._large.needed(rest) if known is None else (path for path in rest if _key(path) in known)

    def _lost_since(self, metadata_location: str) -> list[Candidate] | None:
        current = self._version()
        before, after = _at(current, metadata_location), _at(current, self._entry.metadata_location())
        # Where Iceberg removes versions itself that leave the log, they are gone already.
        metadata_too = after.outline.properties.get(_REMOVES_METADATA, "").lower() != "true"
        return self._lost(_Needs.of(before), _Needs.of(after), metadata_too=metadata_too)

    def _lost_without(self, snapshots: Collection[int]) -> list[Candidate] | None:
        before = _Needs.of(_at(self._version(), self._entry.metadata_location()))
        return self._lost(before, before.without(snapshots), metadata_too=False)

    def _lost(self, before: _Needs, after: _Needs, *, metadata_too: bool) -> list[Candidate] | None:
        left = set(after.lists)
        gone = [path for path in before.lists if path not in left]
        if len(gone) + len(after.lists) > _MOST_LISTS:
            return None
        kept = self._kept_manifests(after)
        let_go = {path: one for path, one in self._manifests(before.version, gone).items() if path not in kept}
        if _is_large([*kept.values(), *let_go.values()]):
            return None
        candidates = chain(
            self._expired_files(before.version, let_go.values()),
            (Candidate(path=one.path, reason=_MANIFEST, size_bytes=one.length_bytes) for one in let_go.values()),
            (Candidate(path=path, reason=_LIST) for path in gone),
            (
                Candidate(path=path, reason=_STATISTICS, size_bytes=before.version.outline.statistics_sizes.get(path))
                for path in before.statistics
                if metadata_too or path not in after.statistics
            ),
            (Candidate(path=path, reason=_METADATA) for path in before.metadata if metadata_too),
        )
        valid = {_key(opened) for path in self._everything(after, kept.values()) for opened in as_read(path)}
        found: dict[str, Candidate] = {}
        for one in candidates:
            if (key := _key(one.path)) not in valid:
                found.setdefault(key, one)
        return list(found.values())

    def _known(self) -> set[str] | None:
        needs = _Needs.of(_at(self._version(), self._entry.metadata_location()))
        if len(needs.lists) > _MOST_LISTS or _is_large((kept := self._manifests(needs.version, needs.lists)).values()):
            return None
        return {_key(opened) for path in self._everything(needs, kept.values()) for opened in as_read(path)}

    def _everything(self, needs: _Needs, manifests: Collection[Manifest]) -> Iterator[str]:
        yield from (*needs.metadata, *needs.statistics, *needs.lists, *(one.path for one in manifests))
        for files in self._files(needs.version, manifests):
            yield from (path for path, _ in files)

    def _expired_files(self, version: TableVersion, manifests: Collection[Manifest]) -> Iterator[Candidate]:
        for one, files in zip(manifests, self._files(version, manifests), strict=True):
            reason = _DELETE_FILE if one.holds_deletes else _DATA_FILE
            yield from (Candidate(path=path, reason=reason, size_bytes=size) for path, size in files)

    def _files(self, version: TableVersion, manifests: Collection[Manifest]) -> list[list[tuple[str, int]]]:
        def read(one: Manifest) -> list[tuple[str, int]]:
            return list(self._live_files(version.read(one.path, one.length_bytes), one.path))

        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            return list(threads.map(read, manifests))

    def _kept_manifests(self, after: _Needs) -> dict[str, Manifest]:
        """The manifests of all snapshots that are left, whichever ref needs them: of data and of deletes."""
        return self._manifests(after.version, after.lists)

    def _manifests(self, version: TableVersion, lists: Iterable[str]) -> dict[str, Manifest]:
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            return {one.path: one for manifests in threads.map(version.manifests, lists) for one in manifests}


@dataclass(frozen=True)
class _Needs:
    """What a version of the table names directly, or would without some snapshots."""

    version: TableVersion
    snapshots: dict[int, str]
    metadata: tuple[str, ...]
    statistics: tuple[str, ...]

    @classmethod
    def of(cls, version: TableVersion) -> _Needs:
        outline = version.outline
        if outline.manifests or version.trouble is not None:
            raise NotUnderstoodError(f"Cannot read {outline.metadata_location}: a snapshot has no manifest list")
        files = (outline.metadata_location, *outline.metadata_log)
        return cls(version, outline.manifest_lists, files, outline.statistics)

    @property
    def lists(self) -> tuple[str, ...]:
        return tuple(self.snapshots.values())

    def without(self, snapshots: Collection[int]) -> _Needs:
        left = {number: path for number, path in self.snapshots.items() if number not in snapshots}
        owners = self.version.outline.statistics_snapshots
        statistics = tuple(path for path in self.statistics if owners.get(path) not in snapshots)
        return _Needs(self.version, left, self.metadata, statistics)


def _tried(work: Callable[[], _Found | None]) -> _Found | None:
    """None if the table is large, or cannot be read here: then Spark reads it, or says what is wrong."""
    try:
        return work()
    except NeveError as error:
        log.info("metadata is read by Spark: %s", error)
        return None


def _at(version: TableVersion, metadata_location: str) -> TableVersion:
    found = version.at(metadata_location)
    if found is None:
        raise NotUnderstoodError(f"Cannot read {metadata_location}: it is gone")
    return found


def _is_large(manifests: Collection[Manifest]) -> bool:
    """Also where a manifest list does not say how many files there are."""
    counts = [one.live_files for one in manifests]
    return None in counts or sum(filter(None, counts)) > _MOST_FILES


def _key(path: str) -> str:
    return _PLAIN.parse(path).key


class _OnSpark:
    """The same on Spark, which is started by the first question (implements `ports.Reachability`)."""

    def __init__(self, context: TableContext, entry: TableEntry) -> None:
        self._context, self._entry = context, entry

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        """Of a large table."""
        return self._opened.lost_since(metadata_location)

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        """Of a large table."""
        return self._opened.lost_without(snapshots)

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        """Of a large table."""
        return self._opened.needed(paths)

    @cached_property
    def _opened(self) -> Reachability:
        from neve.spark.maintenance.reachable import SparkReachability

        bridge = self._context.bridge
        if (found := bridge.uuid()) != (asked := self._entry.uuid()):
            raise TableGoneError(
                f"Cannot tell which files {self._context.name} needs: another table has its name ({found} instead of {asked})",
                hint="No file was removed. Run the command again to see the table that has the name now.",
            )
        return SparkReachability(self._context.spark, bridge)


def open_reachable(context: TableContext, entry: TableEntry) -> Reachable:
    """Over a context's table as `entry` has loaded it. Starts Spark only for a large table."""
    from neve.catalogs.live_paths import live_files

    def version() -> TableVersion:
        return context.connection.version(context.name)

    return Reachable(entry, version, live_files, _OnSpark(context, entry))
