"""Takes snapshots out of a table's metadata, exactly those that were planned (implements `SnapshotRemoval`).

Iceberg's own expiry decides again by itself: it goes by ages that branches and the table give, and drops refs. So the metadata
is put together here and swapped in one step, and not sent if it would lose any other ref. No file is touched.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from neve.errors import CommitConflictError, VerificationError
from neve.maintenance.retention import SnapshotHistory
from neve.spark.table.bridge import TableBridge
from neve.spark.table.descriptions import java_class
from neve.spark.table.outcome import committing
from neve.table.state import Ref, RefKind, Snapshot


class SparkSnapshotRemoval:
    """The past of one loaded table."""

    def __init__(self, bridge: TableBridge) -> None:
        self._bridge = bridge
        self._base: Any = None

    def history(self) -> SnapshotHistory:
        """The newest."""
        self._base = self._bridge.newest("read the table's history")
        text = java_class(self._bridge.jvm, "TableMetadataParser").toJson(self._base)
        return _history(str(self._base.metadataFileLocation()), json.loads(text))

    def expire(
        self, history: SnapshotHistory, snapshots: Collection[int], *, refs: Collection[str] = (), properties: Mapping[str, str]
    ) -> bool:
        """One step that fails if anything at all has changed; where the catalog merges changes, if these cannot be merged."""
        base = self._judged_metadata()
        changed = without(self._bridge, base, snapshots, refs=refs, properties=properties)
        if lost := lost_refs(history, changed, refs):
            raise VerificationError(f"Cannot expire snapshots: {', '.join(sorted(lost))} would go with them")
        try:
            with committing():
                self._bridge.table.operations().commit(base, changed)
        except CommitConflictError:
            return False
        return True

    def _judged_metadata(self) -> Any:
        """The metadata that the last history was read from: a commit onto it fails if the table has changed since."""
        return self._base


def lost_refs(history: SnapshotHistory, changed: Any, removed: Collection[str]) -> set[str]:
    """Refs of a history that changed metadata does not have, besides those that are to be removed."""
    return {ref.name for ref in history.refs} - {str(name) for name in changed.refs()} - set(removed)


def without(
    bridge: TableBridge,
    base: Any,
    snapshots: Collection[int],
    *,
    refs: Collection[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Any:
    """Metadata without these snapshots and refs, in memory."""
    jvm = bridge.jvm
    builder = jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
    for name in refs:
        builder.removeRef(name)
    builder.removeSnapshots(long_set(jvm, snapshots))
    if properties:
        changes = jvm.java.util.HashMap()
        for key, value in properties.items():
            changes.put(key, value)
        builder.setProperties(changes)
    return builder.build()


def snapshot_ids(bridge: TableBridge, metadata: Any) -> set[int]:
    """Of all snapshots, in one call."""
    text = java_class(bridge.jvm, "TableMetadataParser").toJson(metadata)
    return {int(found["snapshot-id"]) for found in json.loads(text).get("snapshots") or ()}


def long_set(jvm: Any, ids: Collection[int]) -> Any:
    """A Java set of long integers in one call; by itself Py4J makes small ones short."""
    parsing = java_class(jvm, "util.JsonUtil")
    return parsing.getLongSet("ids", parsing.mapper().readTree(json.dumps({"ids": sorted(ids)})))


def _history(location: str, metadata: Mapping[str, Any]) -> SnapshotHistory:
    head = metadata.get("current-snapshot-id")
    return SnapshotHistory(
        metadata_location=location,
        properties=metadata.get("properties") or {},
        snapshots=tuple(_snapshot(found) for found in metadata.get("snapshots") or ()),
        refs=tuple(_ref(name, found) for name, found in sorted((metadata.get("refs") or {}).items())),
        head=None if head in (None, -1) else int(head),
    )


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    summary = dict(found.get("summary") or {})
    return Snapshot(
        snapshot_id=found["snapshot-id"],
        parent_id=found.get("parent-snapshot-id"),
        sequence_number=found.get("sequence-number", 0),
        timestamp_ms=found["timestamp-ms"],
        operation=summary.pop("operation", "unknown"),
        summary=summary,
    )


def _ref(name: str, found: Mapping[str, Any]) -> Ref:
    return Ref(
        name=name,
        kind=RefKind(found["type"]),
        snapshot_id=found["snapshot-id"],
        min_snapshots_to_keep=found.get("min-snapshots-to-keep"),
        max_snapshot_age_ms=found.get("max-snapshot-age-ms"),
        max_ref_age_ms=found.get("max-ref-age-ms"),
    )
