"""Inspections for the tests of every surface: of an unhealthy, a healthy and an empty table, and one of the summary only."""

from __future__ import annotations

from typing import Any

from neve.health.inspection import (
    DeleteCounts,
    Finding,
    Health,
    Inspection,
    ManifestCounts,
    PartitionHealth,
    RowGroups,
    SizeBucket,
    Workload,
    WorkloadKind,
)
from neve.health.skipping import Clustering, ColumnClustering
from neve.table.depth import Depth
from neve.table.state import Ref, RefKind, SortOrder
from neve.table.units import GIB, KIB, MIB

NOW_MS = 1_750_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000

FINDINGS = (
    Finding(
        code="small-files",
        title="Small files",
        weight=35,
        severity=0.98,
        evidence="1,180 of 1,204 data files are below 64 MB",
        fix="neve compact local.db.events",
    ),
    Finding(
        code="deletes",
        title="Deletes to apply on every read",
        weight=25,
        severity=0.6,
        evidence="324 delete files for 1,204 data files, 3.1% of the rows",
        fix="neve compact --tier major local.db.events",
    ),
    Finding(
        code="snapshots",
        title="Old snapshots",
        weight=10,
        severity=0.02,
        evidence="2 of 50 snapshots are older than 7 days",
        fix="neve expire local.db.events",
    ),
)

BUCKETS = (
    (0, 64 * KIB, 12, 500 * KIB),
    (64 * KIB, 256 * KIB, 140, 25 * MIB),
    (256 * KIB, MIB, 610, 370 * MIB),
    (MIB, 4 * MIB, 402, 900 * MIB),
    (4 * MIB, 16 * MIB, 16, 150 * MIB),
    (16 * MIB, 64 * MIB, 0, 0),
    (64 * MIB, 128 * MIB, 9, GIB),
    (128 * MIB, 256 * MIB, 15, 2 * GIB),
    (256 * MIB, None, 0, 0),
)


def make_partition(index: int, **changes: Any) -> PartitionHealth:
    """A partition of the sick table; the higher the index, the less it needs care."""
    files = max(200 - 14 * index, 1)
    values: dict[str, Any] = {
        "partition": f"day=2025-06-{15 - index:02d}/region=eu-west",
        "spec_id": 0,
        "data_files": files,
        "delete_files": files // 4,
        "bytes": files * 2 * MIB,
        "rows": files * 10_000,
        "small_files": files - 1,
        "fragments": files // 2,
        "delete_ratio": 0.25,
        "last_write_ms": NOW_MS - index * DAY_MS,
        "last_compaction_ms": None,
        "score": max(0.95 - 0.075 * index, 0.0),
    }
    return PartitionHealth(**(values | changes))


def make_inspection(**changes: Any) -> Inspection:
    """The sick table, looked at in full; `changes` replace single fields."""
    values: dict[str, Any] = {
        "table": "local.db.events",
        "uuid": "6f9c1f1e-9a4b-4a6f-8c8e-1a2b3c4d5e6f",
        "format_version": 2,
        "location": "file:///data/warehouse/db/events",
        "depth": Depth.FILES,
        "inspected_at_ms": NOW_MS,
        "snapshot_id": 4_127_533_092_817_263_544,
        "partitioning": "day: day, region: identity",
        "specs": 2,
        "columns": 12,
        "sort_order": SortOrder(order_id=1, fields=("ts asc nulls-first",)),
        "sorted_files": 24,
        "target_file_size_bytes": 128 * MIB,
        "small_file_threshold_bytes": 64 * MIB,
        "data_files": 1_204,
        "data_bytes": 4 * GIB + 420 * MIB,
        "rows": 12_040_000,
        "average_file_bytes": (4 * GIB + 420 * MIB) / 1_204,
        "small_files": 1_180,
        "small_file_share": 1_180 / 1_204,
        "fragments": 1_164,
        "histogram": tuple(SizeBucket(low_bytes=a, high_bytes=b, files=n, bytes=s) for a, b, n, s in BUCKETS),
        "formats": {"parquet": 1_204},
        "deletes": DeleteCounts(position_files=300, position_rows=361_200, equality_files=24, equality_rows=12_000),
        "duplicate_ratio": 0.031,
        "row_groups": RowGroups(
            files_known=1_204,
            row_groups=1_310,
            average_bytes=3.4 * MIB,
            source="split-offsets",
            files_with_small_groups=1_180,
        ),
        "partition_count": 42,
        "partitions": tuple(make_partition(index) for index in range(12)),
        "manifests": ManifestCounts(data_manifests=50, delete_manifests=18, bytes=1_300_000, average_files=22.5),
        "snapshots": 50,
        "oldest_snapshot_ms": NOW_MS - 9 * DAY_MS,
        "refs": (
            Ref(name="main", kind=RefKind.BRANCH, snapshot_id=1),
            Ref(name="audit", kind=RefKind.BRANCH, snapshot_id=2),
            Ref(name="2025-q1", kind=RefKind.TAG, snapshot_id=3),
        ),
        "metadata_bytes": 210_000,
        "metadata_log_entries": 50,
        "statistics_files": 1,
        "workload": Workload(
            kind=WorkloadKind.CDC,
            evidence="18 of 50 commits delete rows, 32 s apart",
            commits=50,
            window_seconds=1_600.0,
            median_gap_seconds=32.0,
            last_write_ms=NOW_MS - 3 * MINUTE_MS,
        ),
        "health": Health(score=50, findings=FINDINGS),
    }
    return Inspection(**(values | changes))


def make_clustering(**changes: Any) -> Clustering:
    """A table of random order."""
    columns = (
        ColumnClustering(name="city", depth=64.0, point_read=1.0, point_read_after=0.31, range_read=1.0, range_read_after=0.32),
        ColumnClustering(
            name="place.amount", depth=4.25, point_read=0.07, point_read_after=0.02, range_read=0.08, range_read_after=0.03
        ),
    )
    values: dict[str, Any] = {
        "layout": "hilbert(city, place.amount)",
        "depth": 52.6,
        "worst_depth": 64.0,
        "depth_after": 1.8,
        "columns": columns,
        "run_files": 1_180,
        "run_bytes": 2 * GIB,
        "advised": True,
    }
    return Clustering(**(values | changes))


def make_healthy() -> Inspection:
    """A table on which there is nothing to do."""
    return make_inspection(
        table="local.db.clean",
        small_files=0,
        small_file_share=0.0,
        fragments=0,
        deletes=DeleteCounts(),
        duplicate_ratio=0.0,
        partitions=(make_partition(0, partition="", data_files=4, delete_files=0, small_files=0, score=0.01),),
        partition_count=1,
        partitioning="unpartitioned",
        specs=1,
        refs=(Ref(name="main", kind=RefKind.BRANCH, snapshot_id=1),),
        health=Health(score=100, findings=()),
    )


DEEPER_THAN_SUMMARY = [
    "sorted_files",
    "small_files",
    "small_file_share",
    "fragments",
    "histogram",
    "formats",
    "deletes",
    "duplicate_ratio",
    "row_groups",
    "partition_count",
    "partitions",
    "manifests",
]


def make_shallow() -> Inspection:
    """A look at the snapshot summary only."""
    return make_inspection(depth=Depth.SUMMARY, **dict.fromkeys(DEEPER_THAN_SUMMARY))


def make_empty() -> Inspection:
    """A table that was created and never written."""
    return make_inspection(
        snapshot_id=None,
        snapshots=0,
        oldest_snapshot_ms=None,
        data_files=0,
        data_bytes=0,
        rows=0,
        average_file_bytes=None,
        small_files=0,
        small_file_share=None,
        fragments=0,
        histogram=(),
        formats={},
        deletes=DeleteCounts(),
        duplicate_ratio=None,
        row_groups=None,
        partition_count=0,
        partitions=(),
        manifests=None,
        refs=(),
        sort_order=None,
        sorted_files=0,
        workload=Workload(
            kind=WorkloadKind.EMPTY,
            evidence="no snapshot",
            commits=0,
            window_seconds=0,
            median_gap_seconds=None,
            last_write_ms=None,
        ),
        health=Health(score=100, findings=()),
    )
