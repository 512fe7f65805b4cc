"""Versions of a table that its history does not have: whose metadata files these are, and which files they need.

Called by the search for orphans. Such a version may be current in a second catalog, or what a lost commit left, or of a catalog
that was reset. Nobody can tell these apart, so what such a version alone needs stays. Metadata is read in Python and in
parallel: a history with many lost commits must not make the search slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from neve.context.table import TableContext
from neve.errors import InDoubtError, NeveError
from neve.index_ports import TableVersion
from neve.table.location import as_read
from neve.table.state import Manifest

_CONCURRENT_READS = 16
_MOST_SNAPSHOTS = 1000
"""Of versions that the history does not have. What they need is held, however many they are; this bounds the reading. A table
that loses a commit now and then has some hundred of them: snapshots that were current at the time and have been expired since
count as well, until their files are purged."""
_CHECK = "Check that file."

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@dataclass
class Unlisted:
    """What versions need beyond the table itself. `paths` reads manifests while it is iterated."""

    versions: tuple[str, ...] = ()
    paths: Iterable[str] = ()


@dataclass
class _Found:
    known: set[int]
    """Snapshots that need no more looking at."""
    inline: set[str]
    """Manifests that snapshots of format v1 name without a list, likewise."""
    versions: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    manifests: dict[str, tuple[TableVersion, int]] = field(default_factory=dict)
    snapshots: int = 0


class OtherVersions:
    """Over one table. `load` gives its current version, `live_paths` the paths in a manifest's bytes."""

    def __init__(self, load: Callable[[], TableVersion], live_paths: Callable[[bytes, str], Iterable[str]]) -> None:
        self._load, self._live_paths = load, live_paths
        self._before = set[str]()
        self.reload()

    def reload(self) -> None:
        """Loads the current version. Versions that were known before stay known: catalogs cut old ones off the log."""
        self._current = self._load()
        self._before |= self.log()

    def log(self) -> set[str]:
        """Paths of the current version and of those before it that its log has."""
        return {self._current.outline.metadata_location, *self._current.outline.metadata_log}

    def history(self) -> set[str]:
        """Paths of the table's own versions: its log, the log of the oldest in it, and so on."""
        found, log = self._before | self.log(), self._current.outline.metadata_log
        while log and (oldest := self._at(log[0])) is not None:
            log = tuple(path for path in oldest.outline.metadata_log if path not in found)
            found.update(log)
        return found

    def owners(self, metadata_files: Iterable[str], *, may_be_gone: bool = False) -> dict[str, str]:
        """Table uuids by path. Raises InDoubtError where a file does not tell, or is gone unless that may be."""
        wanted, found = list(metadata_files), dict[str, str]()
        for path, uuid in zip(wanted, _in_parallel(self._owner, wanted), strict=True):
            if uuid is not None:
                found[path] = uuid
            elif not may_be_gone:
                raise InDoubtError(
                    f"Cannot tell which table {path} belonged to: it is gone since it was listed",
                    hint="Somebody commits often, and removes old metadata files. Try again, or keep more of them "
                    "(write.metadata.previous-versions-max).",
                )
        return found

    def needs(self, metadata_files: Iterable[str]) -> Unlisted:
        """What snapshots of these versions need that the table does not have, as far as it is there. Raises InDoubtError for
        too many snapshots, and for what cannot be read."""
        outline = self._current.outline
        found = _Found(set(outline.manifest_lists), set(outline.manifests))
        # Names begin with a number that grows, and the last version of a table has most of what those before it have.
        ordered = sorted(metadata_files, reverse=True)
        for path, version in zip(ordered, _in_parallel(self._at, ordered), strict=True):
            if version is not None:
                self._add(version, path, found)
        return Unlisted(tuple(found.versions), self._needed(found))

    def _add(self, version: TableVersion, path: str, found: _Found) -> None:
        """Adds the snapshots of a version that neither the table nor an earlier version has.

        They are compared by id: each attempt of a commit writes a manifest list, and one snapshot lands.
        """
        outline, files = version.outline, list[str]()
        new = {number: one for number, one in sorted(outline.manifest_lists.items()) if number not in found.known}
        lists = zip(new.values(), _in_parallel(lambda one: _manifests(version, one, path), new.values()), strict=True)
        for manifest_list, manifests in lists:
            if manifests is None:
                continue
            found.manifests |= {one.path: (version, one.length_bytes) for one in manifests if one.path not in found.manifests}
            files += [manifest_list, *(one.path for one in manifests)]
            found.snapshots += 1
            if found.snapshots > _MOST_SNAPSHOTS:
                raise _too_many(path)
        if unlisted := [one for one in outline.manifests if one not in found.inline]:
            inline = version.manifests(outline.metadata_location)
            found.manifests |= {one.path: (version, one.length_bytes) for one in inline if one.path in unlisted}
            files += unlisted
        found.known.update(new)
        found.inline.update(unlisted)
        if files:
            found.versions.append(path)
            found.files += [*files, *outline.statistics]

    def _needed(self, found: _Found) -> Iterator[str]:
        entries = chain.from_iterable(_in_parallel(self._entries, found.manifests.items()))
        yield from (opened for path in chain(found.files, entries) for opened in as_read(path))

    def _entries(self, manifest: tuple[str, tuple[TableVersion, int]]) -> list[str]:
        """The live files of a manifest; none if it is gone, as one may be that expired snapshots shared."""
        path, (version, length) = manifest
        try:
            return list(self._live_paths(version.read(path, length), path))
        except NeveError as error:
            if _is_gone(version, path):
                return []
            raise _unreadable(version.outline.metadata_location, error) from error

    def _owner(self, metadata_file: str) -> str | None:
        version = self._at(metadata_file)
        if version is not None and version.outline.uuid is None:
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: it has no table uuid", hint=_CHECK)
        return version.outline.uuid if version is not None else None

    def _at(self, metadata_file: str) -> TableVersion | None:
        try:
            return self._current.at(metadata_file)
        except NeveError as error:
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: {error}", hint=_CHECK) from error


def open_versions(context: TableContext) -> OtherVersions:
    """Those of a context's table."""
    from neve.catalogs.live_paths import live_paths

    return OtherVersions(lambda: context.connection.version(context.name), live_paths)


def _manifests(version: TableVersion, manifest_list: str, path: str) -> tuple[Manifest, ...] | None:
    """Those that a list names; None if it is gone."""
    try:
        return version.manifests(manifest_list)
    except NeveError as error:
        if _is_gone(version, manifest_list):
            return None
        raise _unreadable(path, error) from error


def _is_gone(version: TableVersion, path: str) -> bool:
    try:
        return not version.exists(path)
    except NeveError:
        return False


def _unreadable(metadata_file: str, error: NeveError) -> InDoubtError:
    return InDoubtError(f"Cannot tell what {metadata_file} needs: {error}", hint=_CHECK)


def _in_parallel(work: Callable[[_Asked], _Answer], asked: Iterable[_Asked]) -> Iterator[_Answer]:
    """The answers in order, a few at a time, so that not all of them are in memory."""
    rest = iter(asked)
    with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
        while some := list(islice(rest, 2 * _CONCURRENT_READS)):
            yield from threads.map(work, some)


def _too_many(path: str) -> InDoubtError:
    return InDoubtError(
        f"Cannot tell what is needed: versions of the table such as {path} are not in its history, and have over "
        f"{_MOST_SNAPSHOTS:,} snapshots of their own",
        hint="The table may be registered in a second catalog, or its catalog was set back. If they are only its own old "
        "versions, to which its log leads no more, `neve orphans TABLE --i-know-that-no-other-table-is-here` lets go of them.",
    )
