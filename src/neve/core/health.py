"""The health score: 100 minus what each named finding takes off.

A finding has a weight (the most it can take; all weights add up to 100), a severity, the evidence and the cure. Only what can
be cured counts: a partition's single small file is nobody's fault. Called by `flow.inspect`; pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from neve.core.inspection import DeleteCounts, Finding, Health, ManifestCounts, RowGroups
from neve.core.policy import Policy
from neve.core.skipping import Clustering
from neve.core.units import MIB, counted, format_bytes, format_seconds


@dataclass(frozen=True)
class Vitals:
    """What the findings look at. None means that this depth of inspection did not tell."""

    data_files: int | None
    data_bytes: int | None
    rows: int | None
    small_files: int | None
    removable_files: int | None
    """Data files that merging within partitions would make superfluous."""
    partitions: int | None
    tiny_partitions: int | None
    """Partitions whose data together is smaller than one fragment."""
    deletes: DeleteCounts | None
    row_groups: RowGroups | None
    unsorted_files: int | None
    clustering: Clustering | None
    manifests: ManifestCounts | None
    expirable_snapshots: int
    metadata_bytes: int | None


def assess(vitals: Vitals, policy: Policy) -> Health:
    """Every rule in turn; the score is never below 0."""
    found = [finding for rule in RULES if (finding := rule(vitals, policy)) is not None]
    worst_first = sorted(found, key=lambda f: (-f.points, f.code))
    return Health(score=max(0, round(100 - sum(f.points for f in found))), findings=tuple(worst_first))


def _small_files(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.data_files or not vitals.removable_files:
        return None
    small = f"{vitals.small_files:,} of " if vitals.small_files is not None else ""
    average = format_bytes((vitals.data_bytes or 0) / vitals.data_files)
    left = vitals.data_files - vitals.removable_files
    return Finding(
        code="small-files",
        title="Too many small files",
        weight=35,
        severity=vitals.removable_files / vitals.data_files,
        evidence=f"{small}{vitals.data_files:,} data files are below {format_bytes(policy.small_bytes)}, {average} on average"
        if small
        else f"{vitals.data_files:,} data files of {average} on average",
        fix=f"Merge them: about {counted(left, 'file')} of up to {format_bytes(policy.target_file_size_bytes)} would remain",
    )


def _deletes(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.deletes or not vitals.deletes.files:
        return None
    by_files = vitals.deletes.files / max(vitals.data_files or 0, 1)
    by_rows = vitals.deletes.rows / max(vitals.rows or 0, 1)
    return Finding(
        code="deletes",
        title="Deletes slow every read",
        weight=15,
        severity=min(1.0, max(by_files, by_rows) / (5 * policy.delete_ratio_limit)),
        evidence=f"{counted(vitals.deletes.files, 'delete file')} for {counted(vitals.data_files or 0, 'data file')}, "
        f"hiding up to {min(by_rows, 1):.1%} of the rows",
        fix="Rewrite the files that they apply to, so that the deleted rows are gone for good",
    )


def _equality_deletes(vitals: Vitals, policy: Policy) -> Finding | None:  # noqa: ARG001 - every rule has one shape
    if not vitals.deletes or not vitals.deletes.equality_files:
        return None
    return Finding(
        code="equality-deletes",
        title="Equality deletes must be joined by every reader",
        weight=10,
        severity=min(1.0, vitals.deletes.equality_files / 10),
        evidence=f"{counted(vitals.deletes.equality_files, 'equality delete file')} "
        f"with {counted(vitals.deletes.equality_rows, 'row')}",
        fix="Turn them into position deletes or vectors, or apply them",
    )


def _row_groups(vitals: Vitals, policy: Policy) -> Finding | None:
    groups = vitals.row_groups
    if not groups or not groups.files_with_small_groups:
        return None
    return Finding(
        code="small-row-groups",
        title="Row groups too small to read well",
        weight=10,
        severity=groups.files_with_small_groups / max(groups.files_known, 1),
        evidence=f"{groups.files_with_small_groups:,} of {groups.files_known:,} files have row groups below "
        f"{format_bytes(policy.row_group_min_bytes)} on average",
        fix="Re-encode these files",
    )


def _manifests(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.manifests:
        return None
    count = vitals.manifests.data_manifests + vitals.manifests.delete_manifests
    needed = max(1, ceil(vitals.manifests.bytes / policy.manifest_target_bytes))
    if count - needed < policy.manifest_min_count:
        return None
    return Finding(
        code="manifests",
        title="Planning reads too many manifests",
        weight=10,
        severity=min(1.0, (count - needed) / 100),
        evidence=f"{count:,} manifests with {format_bytes(vitals.manifests.bytes)} in all, "
        f"{counted(round(vitals.manifests.average_files), 'file')} each",
        fix=f"Rewrite the manifests: {needed:,} would do",
    )


def _snapshots(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.expirable_snapshots:
        return None
    return Finding(
        code="snapshots",
        title="Old snapshots keep dead files alive",
        weight=5,
        severity=min(1.0, vitals.expirable_snapshots / 100),
        evidence=f"{counted(vitals.expirable_snapshots, 'snapshot')} older than {format_seconds(policy.snapshot_keep_seconds)}",
        fix="Expire them",
    )


def _metadata(vitals: Vitals, policy: Policy) -> Finding | None:  # noqa: ARG001
    if (vitals.metadata_bytes or 0) < MIB:
        return None
    size = vitals.metadata_bytes or 0
    return Finding(
        code="metadata-size",
        title="The metadata file is large",
        weight=5,
        severity=min(1.0, size / (10 * MIB)),
        evidence=f"every commit writes and every reader loads {format_bytes(size)}",
        fix="Expire snapshots, and drop unused schemas and specs",
    )


def _tiny_partitions(vitals: Vitals, policy: Policy) -> Finding | None:
    if not vitals.partitions or vitals.partitions < 100 or not vitals.tiny_partitions:
        return None
    if 2 * vitals.tiny_partitions < vitals.partitions:
        return None
    return Finding(
        code="tiny-partitions",
        title="Partitions too fine for the data",
        weight=5,
        severity=vitals.tiny_partitions / vitals.partitions,
        evidence=f"{vitals.tiny_partitions:,} of {vitals.partitions:,} partitions hold less than "
        f"{format_bytes(policy.fragment_bytes)}, so no rewrite can give them good files",
        fix="Partition more coarsely (months for days, fewer buckets)",
    )


def _layout(vitals: Vitals, policy: Policy) -> Finding | None:  # noqa: ARG001
    return _unsorted(vitals) or _overlap(vitals)


def _unsorted(vitals: Vitals) -> Finding | None:
    if not vitals.unsorted_files or not vitals.data_files:
        return None
    return Finding(
        code="unsorted",
        title="Files do not follow the table's sort order",
        weight=5,
        severity=vitals.unsorted_files / vitals.data_files,
        evidence=f"{vitals.unsorted_files:,} of {vitals.data_files:,} data files are not recorded as sorted",
        fix="Rewrite them sorted",
    )


def _overlap(vitals: Vitals) -> Finding | None:
    found = vitals.clustering
    if found is None or not found.run_bytes or not vitals.data_bytes:
        return None
    worst = max(found.columns, key=lambda column: column.point_read - column.point_read_after)
    if worst.point_read_after > worst.point_read * 3 / 4:
        return None  # a small table is one file, however its rows are ordered
    return Finding(
        code="overlap",
        title="Files overlap in the columns that they are laid out by",
        weight=5,
        severity=min(1.0, found.run_bytes / vitals.data_bytes),
        evidence=f"a row's values lie in {found.depth:.1f} files on average; a query for one value of {worst.name} reads "
        f"{worst.point_read:.0%} of the bytes",
        fix=f"Cluster {counted(found.run_files, 'file')} ({format_bytes(found.run_bytes)}): such a query would read "
        f"{worst.point_read_after:.0%}",
    )


RULES: tuple[Callable[[Vitals, Policy], Finding | None], ...] = (
    _small_files,
    _deletes,
    _equality_deletes,
    _row_groups,
    _manifests,
    _snapshots,
    _metadata,
    _tiny_partitions,
    _layout,
)
