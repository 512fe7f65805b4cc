"""Metadata files that lie at a table's place: which are its own history, whose the others are, and what those still need.

Called by the search for orphans. A version that the table's history does not have may be current in a second catalog, or what a
lost commit left, or of a catalog that was set back. Nobody can tell these apart, so what such a version alone can read stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from neve.engines.spark.bridge import TableBridge
from neve.engines.spark.descriptions import java_class
from neve.engines.spark.expiry import snapshot_ids, without
from neve.engines.spark.outcome import reading
from neve.engines.spark.shipping import reason_of
from neve.errors import InDoubtError

_CONCURRENT_READS = 8
_LOOK = "Look at that file."
_MOST_BESIDE = 50
"""Snapshots. So many are no accident, and Spark would have to plan for each."""


class Versions:
    """Over one loaded table."""

    def __init__(self, bridge: TableBridge) -> None:
        self._bridge = bridge
        self._parser = java_class(bridge.jvm, "TableMetadataParser")

    def history(self) -> Iterator[str]:
        """Paths of the table's own versions, the newest ones first: its log, the log of the oldest in it, and so on."""
        metadata, seen = self._bridge.table.operations().current(), set[str]()
        while metadata is not None:
            log = [str(entry.file()) for entry in metadata.previousFiles()]
            yield from (path for path in reversed(log) if path not in seen)
            goes_on = bool(log) and log[0] not in seen
            seen.update(log)
            metadata = self._read(log[0]) if goes_on else None

    def owners(self, metadata_files: Iterable[str]) -> dict[str, str]:
        """Table uuids by path, except for files that are gone. Raises InDoubtError where one does not tell."""
        wanted = list(metadata_files)
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            found = zip(wanted, threads.map(self._owner, wanted), strict=True)
            return {path: owner for path, owner in found if owner is not None}

    def beside(self, metadata_files: Iterable[str]) -> dict[str, Any]:
        """Those with snapshots that the table has not and that can be read: each with metadata that has only them.

        A snapshot stands in one of them alone. Raises InDoubtError if there are too many.
        """
        seen = snapshot_ids(self._bridge, self._bridge.table.operations().current())
        beside, number = dict[str, Any](), 0
        # Names begin with a number that grows, and the last version of a table has most of what those before it have.
        for path in sorted(metadata_files, reverse=True):
            if (metadata := self._read(path)) is None:
                continue
            listed = snapshot_ids(self._bridge, metadata)
            with reading(f"look for what {path} needs"):
                readable = {found for found in listed - seen if self._is_readable(metadata.snapshot(found))}
            seen |= listed
            number += len(readable)
            if number > _MOST_BESIDE:
                raise InDoubtError(
                    f"Cannot tell what is needed: versions of the table such as {path} are not in its history, and have over "
                    f"{_MOST_BESIDE} snapshots of their own",
                    hint="The table may be registered in a second catalog, or its catalog was set back.",
                )
            if readable:
                beside[path] = without(self._bridge, metadata, listed - readable)
        return beside

    def _is_readable(self, snapshot: Any) -> bool:
        """Whether its manifest list and all manifests are there. Of a commit that was lost long ago some are expired."""
        io, manifest_list = self._bridge.table.io(), snapshot.manifestListLocation()
        if manifest_list is not None and not io.newInputFile(manifest_list).exists():
            return False
        return all(io.newInputFile(manifest.path()).exists() for manifest in snapshot.allManifests(io))

    def _owner(self, metadata_file: str) -> str | None:
        metadata = self._read(metadata_file)
        if metadata is None:
            return None
        if (uuid := metadata.uuid()) is None:
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: it has no table uuid", hint=_LOOK)
        return str(uuid)

    def _read(self, metadata_file: str) -> Any:
        """None if it is gone: a busy table's oldest metadata file goes with each commit, so it may have been listed."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return self._parser.read(self._bridge.table.io(), metadata_file)
        except (Py4JJavaError, PySparkException) as error:
            if "NotFoundException" in str(error) or "FileNotFoundException" in str(error):
                return None
            reason = reason_of(error)
            raise InDoubtError(f"Cannot tell which table {metadata_file} belongs to: {reason}", hint=_LOOK) from error
