"""A table's metadata file as writers, Neve and expiry change it, and what others really did to its main branch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from neve.scheduling.observation import Counters
from neve.table.state import RUN_ID
from tests.builders.scheduling import MINUTE, NOW

FILE_BYTES = 10


@dataclass
class MetadataHistory:
    """The document, a version at a time. `truth` counts the commits of others to main."""

    version: int = 2
    uuid: str | None = "u"
    now_ms: int = NOW
    document: dict[str, Any] = field(init=False)
    truth: Counters = field(default_factory=Counters)
    writes: int = 0
    _ids: int = 0

    def __post_init__(self) -> None:
        self.document = {"format-version": self.version, "current-snapshot-id": -1, "snapshots": [], "snapshot-log": []}
        self.document |= {"properties": {}} | ({"table-uuid": self.uuid} if self.uuid is not None else {})
        if self.version > 1:
            self.document["last-sequence-number"] = 0

    @property
    def head(self) -> int | None:
        found: int = self.document["current-snapshot-id"]
        return None if found == -1 else found

    def files(self, head: int | None) -> int:
        found = next((one for one in self.document["snapshots"] if one["snapshot-id"] == head), None)
        return 0 if found is None else int(found["summary"]["total-data-files"])

    def append(self, files: int = 1) -> int:
        """Others add files."""
        self._count(files)
        return self.add(files, "append")

    def compact(self, *, neve: bool = True) -> int:
        """All files become one. Of Neve, or of another tool."""
        total = self.files(self.head)
        return self.add(min(total, 1), "replace", removed=total, run="r" if neve else None)

    def stage(self, files: int = 1) -> int:
        """Others commit to another branch."""
        return self.add(files, "append", main=False)

    def publish(self, snapshot_id: int) -> None:
        """Main is moved to a staged snapshot, whose commit counts from now on."""
        self._count(self._added(snapshot_id))
        self.move(snapshot_id)

    def move(self, snapshot_id: int) -> None:
        """Main is moved to a snapshot without a commit, as by a rollback."""
        self.now_ms += MINUTE
        self.document["current-snapshot-id"] = snapshot_id
        self.document["snapshot-log"].append({"timestamp-ms": self.now_ms, "snapshot-id": snapshot_id})

    def expire(self, *snapshot_ids: int) -> None:
        """Removes snapshots, and the log up to the last of them as Iceberg does."""
        kept = [one for one in self.document["snapshots"] if one["snapshot-id"] not in snapshot_ids]
        log = self.document["snapshot-log"]
        last = max((number for number, one in enumerate(log, 1) if one["snapshot-id"] in snapshot_ids), default=0)
        self.document |= {"snapshots": kept, "snapshot-log": log[last:]}

    def copy(self) -> dict[str, Any]:
        """The document as it is now."""
        return deepcopy(self.document)

    def add(self, files: int, operation: str, *, removed: int = 0, main: bool = True, run: str | None = None) -> int:
        """Commits a snapshot, of Neve if a run is given."""
        self._ids += 1
        self.now_ms += MINUTE
        total = self.files(self.head) + files - removed
        summary = {"operation": operation, "added-data-files": str(files), "added-files-size": str(files * FILE_BYTES)}
        summary |= {"deleted-data-files": str(removed), "removed-files-size": str(removed * FILE_BYTES)}
        summary |= {"total-data-files": str(total), "total-files-size": str(total * FILE_BYTES), "total-delete-files": "0"}
        summary |= {RUN_ID: run} if run is not None else {}
        snapshot: dict[str, Any] = {"snapshot-id": self._ids, "timestamp-ms": self.now_ms, "summary": summary}
        if self.head is not None:
            snapshot["parent-snapshot-id"] = self.head
        if self.version > 1:
            self.document["last-sequence-number"] += 1
            snapshot["sequence-number"] = self.document["last-sequence-number"]
        self.document["snapshots"].append(snapshot)
        if main:
            self.document["current-snapshot-id"] = self._ids
            self.document["snapshot-log"].append({"timestamp-ms": self.now_ms, "snapshot-id": self._ids})
        return self._ids

    def _added(self, snapshot_id: int) -> int:
        found = next(one for one in self.document["snapshots"] if one["snapshot-id"] == snapshot_id)
        return int(found["summary"]["added-data-files"])

    def _count(self, files: int) -> None:
        known = self.truth
        self.truth = Counters(
            commits=known.commits + 1,
            bytes_added=known.bytes_added + files * FILE_BYTES,
            files_added=known.files_added + files,
        )
