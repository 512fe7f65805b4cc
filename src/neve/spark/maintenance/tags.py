"""Tags, made and dropped in one exchange of the table's metadata (implements `ports.Tagger`).

Iceberg's own call tries again on whatever it finds, and would drop a tag that somebody has just moved elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neve.maintenance.tags import Tag
from neve.spark.table.bridge import TableBridge


class SparkTags:
    """The tags of one table."""

    def __init__(self, bridge: TableBridge) -> None:
        self._bridge = bridge

    def change_tags(self, created: Sequence[Tag], dropped: Sequence[Tag]) -> bool:
        """All of it or nothing."""
        iceberg = self._bridge.jvm.org.apache.iceberg
        base = self._bridge.newest("read the table's tags")
        if not all(_is_free(base, tag) for tag in created) or not all(_is_as_seen(base, tag) for tag in dropped):
            return False
        changed = iceberg.TableMetadata.buildFrom(base)
        for tag in dropped:
            changed = changed.removeRef(tag.name)
        for tag in created:
            made = iceberg.SnapshotRef.tagBuilder(tag.snapshot_id)
            made = made if tag.max_ref_age_ms is None else made.maxRefAgeMs(tag.max_ref_age_ms)
            changed = changed.setRef(tag.name, made.build())
        return self._bridge.swapped(base, changed.build())


def _is_free(base: Any, tag: Tag) -> bool:
    return base.ref(tag.name) is None and base.snapshot(tag.snapshot_id) is not None


def _is_as_seen(base: Any, tag: Tag) -> bool:
    ref = base.ref(tag.name)
    return ref is not None and bool(ref.isTag()) and ref.snapshotId() == tag.snapshot_id
