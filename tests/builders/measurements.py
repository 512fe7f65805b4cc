"""Measurements of a healthy and of an unhealthy table."""

from __future__ import annotations

from dataclasses import replace

from neve.health.inspection import DeleteCounts, ManifestCounts, RowGroups
from neve.health.not_due import NotDue
from neve.health.score import Compaction, EqualityDeletes, Vitals
from neve.maintenance.manifests import ManifestGroup, ManifestPlan, ManifestReads, Motive
from neve.table.units import GIB, MIB


def manifest_plan(before: int, after: int, *rules: NotDue, one: tuple[float, float] | None = None) -> ManifestPlan:
    group = ManifestGroup(spec_id=0, holds_deletes=False, motive=Motive.MERGE, paths=(), bytes=1, files=1, outputs=after)
    reads = [
        ManifestReads(whole=whole, one=None if one is None else one[place], seconds=1)
        for place, whole in enumerate((before, after))
    ]
    groups = () if rules else (group,)
    return ManifestPlan(
        snapshot_id=1, by=("day",), groups=groups, not_due=rules, target_bytes=8 * MIB, before=reads[0], after=reads[1]
    )


HEALTHY = Vitals(
    data_files=10,
    data_bytes=GIB,
    rows=1000,
    small_files=0,
    removable_files=0,
    partitions=1,
    tiny_partitions=0,
    deletes=DeleteCounts(),
    row_groups=None,
    unsorted_files=None,
    clustering=None,
    manifests=ManifestCounts(data_manifests=1, delete_manifests=0, bytes=1000, average_files=10),
    expirable_snapshots=0,
    metadata_bytes=1000,
    compaction=Compaction(),
)


SICK = replace(
    HEALTHY,
    data_files=100,
    small_files=100,
    removable_files=100,
    partitions=200,
    tiny_partitions=200,
    deletes=DeleteCounts(equality_files=100, equality_rows=1000),
    row_groups=RowGroups(files_known=5, row_groups=50, average_bytes=1, source="footers", files_with_small_groups=5),
    unsorted_files=100,
    manifests=ManifestCounts(data_manifests=500, delete_manifests=1, bytes=1000, average_files=1),
    expirable_snapshots=1000,
    metadata_bytes=100 * MIB,
    compaction=Compaction(removed_files=100, files_with_deletes=100, applied_files=100, reencoded_files=5, sorted_files=100),
    equality=EqualityDeletes(convertible=100, prunable=0),
    manifest_plan=manifest_plan(501, 1),
)
