"""A table's snapshots and files by its metadata alone, for dry runs: no Spark, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from neve.rewrite.live_files import Ancestor, LiveFile
from neve.table.files import DATA
from neve.table.state import MAIN, RefKind

if TYPE_CHECKING:
    from neve.ports import TableReader
    from neve.storage.files import Storage


class MetadataView:
    """One loaded version of a table (`commit.access.TableView`)."""

    def __init__(self, reader: TableReader, storage: Callable[[], Storage]) -> None:
        self._reader, self._storage, self._state = reader, storage, reader.state()
        self._snapshots = {snapshot.snapshot_id: snapshot for snapshot in self._state.snapshots}

    def refresh(self) -> None:
        """Does nothing: the table has just been loaded."""

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        if branch == MAIN:
            return self._state.snapshot_id
        heads = {ref.name: ref.snapshot_id for ref in self._state.refs if ref.kind is RefKind.BRANCH}
        return heads.get(branch)

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        return snapshot_id in self._snapshots

    def ancestry(self, snapshot_id: int, until: int | None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first."""
        found, at = list[Ancestor](), self._snapshots.get(snapshot_id)
        while at is not None and at.snapshot_id != until:
            found.append(Ancestor(at.snapshot_id, at.parent_id, at.operation, at.summary))
            at = self._snapshots.get(at.parent_id) if at.parent_id is not None else None
        return found

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:  # noqa: ARG002 - it has none
        """The paths of a snapshot's data files; which deletes are attached to them is not looked at."""
        if snapshot_id is None:
            return []
        reader = self._reader.at(snapshot_id)
        files = reader.files(reader.manifests())
        paths = files.table.column("path").filter(files.table.column("content").to_numpy() == DATA)
        return [LiveFile({"file-path": path}) for path in paths.to_pylist()]

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of the files that do not exist in the table's storage."""
        wanted = list(paths)
        storage = self._storage() if wanted else None
        return {path for path in wanted if storage is not None and path not in storage.begins_with(path)}
