"""Which partitions hurt most, by the scoring of seed 002.

score = 0.3 x min(data files / 100, 1) + 0.3 x min(delete files / data files, 1)
      + 0.2 x min(hours since the last compaction / 24, 1) + 0.2 x small files / data files

All partitions are scored at once over columns. The last compaction comes from our records, else from the newest file that a
replace snapshot wrote; a partition never compacted counts from its oldest file. Called by `operations.inspect`; pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.inspection import PartitionHealth
from neve.health.row_changes import changes_rows
from neve.policy.model import Policy
from neve.table.files import DATA, FileColumns, Partition
from neve.table.state import Snapshot

HOUR_MS = 3_600_000
NEVER = -1

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class PartitionColumns:
    """One row per partition, in the order of `FileColumns.partitions`. Times are milliseconds, NEVER where unknown."""

    data_files: Column
    delete_files: Column
    bytes: Column
    rows: Column
    small_files: Column
    small_bytes: Column
    fragments: Column
    last_write_ms: Column
    last_compaction_ms: Column
    first_write_ms: Column
    last_change_ms: Column
    """When another writer last changed rows there by UPDATE, DELETE or MERGE, as far as a live file shows it."""

    def removable_files(self, target_bytes: int) -> int:
        """Data files that merging each partition's small files would make superfluous."""
        merged = np.maximum(np.ceil(self.small_bytes / target_bytes), np.minimum(self.small_files, 1))
        return int(np.maximum(self.small_files - merged, 0).sum())

    @cached_property
    def delete_ratio(self) -> Column:
        """Delete files per data file."""
        ratio: Column = self.delete_files / np.maximum(self.data_files, 1)
        return ratio

    def scores(self, now_ms: int) -> Column:
        """The score of each partition, 0 to 1."""
        since = np.where(self.last_compaction_ms != NEVER, self.last_compaction_ms, self.first_write_ms)
        hours = np.where(since == NEVER, 24.0, (now_ms - since) / HOUR_MS)
        return (
            0.3 * np.minimum(self.data_files / 100, 1)
            + 0.3 * np.minimum(self.delete_ratio, 1)
            + 0.2 * np.clip(hours / 24, 0, 1)
            + 0.2 * self.small_files / np.maximum(self.data_files, 1)
        )


def partition_columns(
    files: FileColumns, policy: Policy, snapshots: Sequence[Snapshot], compacted: Mapping[Partition, int]
) -> PartitionColumns:
    """Sums up files by partition; `compacted` is what our records know of compactions."""
    is_data = files.column("content") == DATA
    sizes = files.column("size_bytes")
    written = _times(files.column("snapshot_id"), {s.snapshot_id: s.timestamp_ms for s in snapshots})
    rewritten = _times(
        files.column("snapshot_id"), {s.snapshot_id: s.timestamp_ms for s in snapshots if s.operation == "replace"}
    )

    changed = _times(
        files.column("snapshot_id"),
        {s.snapshot_id: s.timestamp_ms for s in snapshots if changes_rows(s.operation, s.summary)},
    )

    def total(values: Column) -> Column:
        sums = np.bincount(files.column("partition"), weights=values, minlength=len(files.partitions))
        return sums.astype(np.int64)

    ours = np.array([compacted.get(p, NEVER) for p in files.partitions], dtype=np.int64)
    return PartitionColumns(
        data_files=total(is_data),
        delete_files=total(~is_data),
        bytes=total(np.where(is_data, sizes, 0)),
        rows=total(np.where(is_data, files.column("records"), 0)),
        small_files=total(is_data & (sizes < policy.small_bytes)),
        small_bytes=total(np.where(is_data & (sizes < policy.small_bytes), sizes, 0)),
        fragments=total(is_data & (sizes < policy.fragment_bytes)),
        last_write_ms=_latest(files, np.where(rewritten == NEVER, written, NEVER)),
        last_compaction_ms=np.maximum(ours, _latest(files, rewritten)),
        first_write_ms=_earliest(files, written),
        last_change_ms=_latest(files, changed),
    )


def rank(files: FileColumns, columns: PartitionColumns, now_ms: int, limit: int) -> tuple[PartitionHealth, ...]:
    """The worst partitions first; equal scores in order of size, then name."""
    scores = columns.scores(now_ms)
    paths = np.array([p.path for p in files.partitions], dtype=object)
    order = np.lexsort((paths, -columns.bytes, -np.round(scores, 9)))[:limit] if len(paths) else np.array([], dtype=int)
    return tuple(_health(files.partitions[i], columns, float(scores[i]), int(i)) for i in order)


def _health(partition: Partition, columns: PartitionColumns, score: float, i: int) -> PartitionHealth:
    return PartitionHealth(
        partition=partition.path,
        spec_id=partition.spec_id,
        data_files=int(columns.data_files[i]),
        delete_files=int(columns.delete_files[i]),
        bytes=int(columns.bytes[i]),
        rows=int(columns.rows[i]),
        small_files=int(columns.small_files[i]),
        fragments=int(columns.fragments[i]),
        delete_ratio=round(float(columns.delete_ratio[i]), 6),
        last_write_ms=_known(columns.last_write_ms[i]),
        last_compaction_ms=_known(columns.last_compaction_ms[i]),
        score=round(score, 6),
    )


def _known(value: int) -> int | None:
    return None if value == NEVER else int(value)


def _times(snapshot_ids: Column, times: Mapping[int, int]) -> Column:
    """Each file's time by its snapshot, NEVER where the snapshot has been expired."""
    known, inverse = np.unique(snapshot_ids, return_inverse=True)
    return np.array([times.get(int(k), NEVER) for k in known], dtype=np.int64)[inverse]


def _latest(files: FileColumns, times: Column) -> Column:
    result = np.full(len(files.partitions), NEVER, dtype=np.int64)
    np.maximum.at(result, files.column("partition"), times)
    return result


def _earliest(files: FileColumns, times: Column) -> Column:
    """The oldest file's time; one file of unknown age makes the partition's age unknown, so old."""
    result = np.full(len(files.partitions), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(result, files.column("partition"), times)
    return result
