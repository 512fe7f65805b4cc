"""Metadata files that lie at a table's place: which are its own history, whose the others are, and what those still need.

Called by the search for orphans. A version that the table's history does not have may be current in a second catalog, or what a
lost commit left, or of a catalog that was set back. Nobody can tell these apart, so what such a version alone names stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from neve.errors import InDoubtError
from neve.spark.maintenance.expiry import snapshot_ids, without
from neve.spark.table.bridge import TableBridge
from neve.spark.table.descriptions import java_class
from neve.spark.tasks.shipping import reason_of

_CONCURRENT_READS = 8
_LOOK = "Look at that file."
_MOST_BESIDE = 50
"""Snapshots. So many are no accident, and Spark would have to plan for each."""


@dataclass
class Beside:
    """What versions have that the table has not. A snapshot stands in one of them alone."""

    versions: dict[str, Any] = field(default_factory=dict)
    """Their paths, each with metadata that has only such snapshots."""
    lost: set[str] = field(default_factory=set)
    """Manifests of them that are gone, such as those that they had in common with snapshots which are expired."""
    there: set[str] = field(default_factory=set)


class Versions:
    """Over one loaded table."""

    def __init__(self, bridge: TableBridge) -> None:
        self._bridge = bridge
        self._parser = java_class(bridge.jvm, "TableMetadataParser")

    def log(self) -> set[str]:
        """Paths of the current version and of those before it that its log has."""
        current = self._bridge.table.operations().current()
        return {str(current.metadataFileLocation()), *_log(current)}

    def history(self) -> set[str]:
        """Paths of the table's own versions: its log, the log of the oldest in it, and so on."""
        found, log = self.log(), _log(self._bridge.table.operations().current())
        while log and (oldest := self._read(log[0])) is not None:
            log = [path for path in _log(oldest) if path not in found]
            found.update(log)
        return found

    def owners(self, metadata_files: Iterable[str]) -> dict[str, str]:
        """Table uuids by path, except for files that are gone. Raises InDoubtError where one does not tell."""
        wanted = list(metadata_files)
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            found = zip(wanted, threads.map(self._owner, wanted), strict=True)
            return {path: owner for path, owner in found if owner is not None}

    def beside(self, metadata_files: Iterable[str]) -> Beside:
        """Snapshots of these that the table has not, if their manifest lists are there. Raises InDoubtError for too many."""
        seen, found, number = snapshot_ids(self._bridge, self._bridge.table.operations().current()), Beside(), 0
        # Names begin with a number that grows, and the last version of a table has most of what those before it have.
        for path in sorted(metadata_files, reverse=True):
            if (metadata := self._read(path)) is None:
                continue
            listed, own = snapshot_ids(self._bridge, metadata), set[int]()
            for snapshot in sorted(listed - seen):
                if self._is_there(metadata.snapshot(snapshot), path, found):
                    own.add(snapshot)
                if number + len(own) > _MOST_BESIDE:
                    raise _too_many(path)
            seen |= listed
            number += len(own)
            if own:
                found.versions[path] = without(self._bridge, metadata, listed - own)
        return found

    def _is_there(self, snapshot: Any, path: str, found: Beside) -> bool:
        """Whether its manifest list is, if it has one, as all but the oldest tables have. Looks for each manifest once."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        io, manifest_list = self._bridge.table.io(), snapshot.manifestListLocation()
        try:
            if manifest_list is not None and not io.newInputFile(manifest_list).exists():
                return False
            for manifest in {str(manifest.path()) for manifest in snapshot.allManifests(io)} - found.there - found.lost:
                (found.there if io.newInputFile(manifest).exists() else found.lost).add(manifest)
        except (Py4JJavaError, PySparkException) as error:
            raise InDoubtError(f"Cannot tell what {path} needs: {reason_of(error)}", hint=_LOOK) from error
        return True

    def _owner(self, metadata_file: str) -> str | None:
        metadata = self._read(metadata_file)
        if metadata is None:
            return None
        if (uuid := metadata.uuid()) is None:
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: it has no table uuid", hint=_LOOK)
        return str(uuid)

    def _read(self, metadata_file: str) -> Any:
        """None if it is gone or empty, as a writer leaves it that ran out of space: it names nothing."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        io = self._bridge.table.io()
        try:
            return self._parser.read(io, metadata_file)
        except (Py4JJavaError, PySparkException) as error:
            # Asked for by itself: what may not be read is not found either, as some stores put it.
            with suppress(Py4JJavaError, PySparkException):
                file = io.newInputFile(metadata_file)
                if not file.exists() or not file.getLength():
                    return None
            reason = reason_of(error)
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: {reason}", hint=_LOOK) from error


def _log(metadata: Any) -> list[str]:
    """The oldest first."""
    return [str(entry.file()) for entry in metadata.previousFiles()]


def _too_many(path: str) -> InDoubtError:
    return InDoubtError(
        f"Cannot tell what is needed: versions of the table such as {path} are not in its history, and have over "
        f"{_MOST_BESIDE} snapshots of their own",
        hint="The table may be registered in a second catalog, or its catalog was set back. If they are only its own old "
        "versions, to which its log leads no more, `neve orphans TABLE --i-know-that-no-other-table-is-here` lets go of them.",
    )
