"""examine: judges a table's state: numbers, partitions in need, clustering, and findings that agree with the operations' plans.

Called by `operations.inspect` and by tests; pure. A finding advises an operation only if that operation has a plan for this
state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from neve.errors import BadRequestError
from neve.health.clustering import runs_of
from neve.health.histogram import size_histogram
from neve.health.inspection import DeleteCounts, Inspection, ManifestCounts
from neve.health.not_due import NotDue
from neve.health.ranking import PartitionColumns, partition_columns, rank
from neve.health.row_groups import count_row_groups
from neve.health.score import Compaction, EqualityDeletes, Vitals, assess
from neve.health.skipping import Clustering, assess_clustering
from neve.health.workload import classify
from neve.maintenance.delete_work import DeleteWork
from neve.maintenance.manifests import plan_manifests
from neve.maintenance.retention import Rules, SnapshotHistory, next_expiry, retain
from neve.policy.model import Policy
from neve.rewrite.cost import Rates
from neve.rewrite.memory import Memory
from neve.rewrite.planner import Outlook, Request, look_ahead
from neve.rewrite.selection import SMALL_GROUPS
from neve.rewrite.table_layout import layout_of, sort_order_of
from neve.table.files import DATA, EQUALITY_DELETES, FileColumns
from neve.table.layout import Layout
from neve.table.state import MAIN, Manifest, TableState

MAX_PARTITIONS = 1000
"""How many of the worst partitions an inspection lists; `partition_count` tells how many there are."""


def examine(
    state: TableState,
    policy: Policy,
    *,
    now_ms: int,
    memory: Memory | None = None,
    footers: Mapping[str, int] | None = None,
    layout: Layout | None = None,
    rates: Rates | None = None,
    pinned: Mapping[int, str] | None = None,
    branch: str = MAIN,
) -> Inspection:
    """What the state tells.

    `footers` are row groups by path, from a sample; `layout` is one that the files tell bounds for; `rates` are the prices of a
    plan; `pinned` are snapshots that unfinished runs need, and why; `branch` is the one whose head the state is of.
    """
    memory, request = memory or Memory(), Request(rates=rates or Rates())
    files = state.files
    columns = None if files is None else partition_columns(files, policy, state.snapshots, memory.compacted)
    totals = _Totals.of(state, columns, policy)
    groups = None if files is None else count_row_groups(files, policy, memory.row_groups, footers or {})
    order = sort_order_of(state)
    sorted_files = None if files is None or order is None else _sorted_files(files, order.order_id)
    manifests = None if state.manifests is None else _manifest_counts(state.manifests)
    clustering = _clustering(state, policy, layout)
    outlook = _Outlook(state, _without_unknown_layout(state, policy), layout, now_ms, memory, footers or {}, request)
    expirable, expiry = _expirable(state, policy, now_ms, pinned or {})
    health = assess(
        Vitals(
            data_files=totals.data_files,
            data_bytes=totals.data_bytes,
            rows=totals.rows,
            small_files=totals.small_files,
            removable_files=totals.removable_files,
            partitions=totals.partitions,
            tiny_partitions=None if columns is None else int((columns.bytes < policy.fragment_bytes).sum()),
            deletes=totals.deletes,
            row_groups=groups,
            unsorted_files=None if sorted_files is None else (totals.data_files or 0) - sorted_files,
            clustering=clustering,
            manifests=manifests,
            expirable_snapshots=expirable,
            metadata_bytes=state.metadata_bytes,
            compaction=None if files is None else outlook.compaction(files),
            equality=None if files is None else _equality_deletes(state, files),
            # Manifests of another branch are rewritten by no operation.
            manifest_plan=None if state.manifests is None or branch != MAIN else plan_manifests(state, state.manifests, policy),
            expiry=expiry,
            cluster=outlook.cluster(clustering),
        ),
        policy,
    )
    return Inspection(
        table=str(state.name),
        uuid=state.uuid,
        format_version=state.format_version,
        location=state.location,
        depth=state.depth,
        inspected_at_ms=now_ms,
        metadata_from_cache=state.from_cache,
        branch=branch,
        snapshot_id=state.snapshot_id,
        partitioning=str(state.spec(state.default_spec_id)),
        specs=len(state.specs),
        columns=state.columns,
        sort_order=order,
        sorted_files=sorted_files,
        target_file_size_bytes=policy.target_file_size_bytes,
        small_file_threshold_bytes=policy.small_bytes,
        data_files=totals.data_files,
        data_bytes=totals.data_bytes,
        rows=totals.rows,
        average_file_bytes=totals.average_bytes,
        small_files=totals.small_files,
        small_file_share=totals.small_share,
        fragments=totals.fragments,
        histogram=None if files is None else size_histogram(files, policy),
        formats=None if files is None else _formats(files),
        deletes=totals.deletes,
        duplicate_ratio=totals.duplicate_ratio,
        row_groups=groups,
        partition_count=totals.partitions,
        partitions=None if files is None or columns is None else rank(files, columns, now_ms, MAX_PARTITIONS),
        manifests=manifests,
        snapshots=len(state.snapshots),
        oldest_snapshot_ms=min((s.timestamp_ms for s in state.snapshots), default=None),
        refs=state.refs,
        metadata_bytes=state.metadata_bytes,
        metadata_log_entries=state.metadata_log_entries,
        statistics_files=state.statistics_files,
        workload=classify(state.ancestors, now_ms),
        clustering=clustering,
        health=health,
    )


@dataclass(frozen=True)
class _Totals:
    """The table in numbers, from its files where they were read, else from the snapshot's summary."""

    data_files: int | None = None
    data_bytes: int | None = None
    rows: int | None = None
    small_files: int | None = None
    fragments: int | None = None
    removable_files: int | None = None
    partitions: int | None = None
    deletes: DeleteCounts | None = None

    @classmethod
    def of(cls, state: TableState, columns: PartitionColumns | None, policy: Policy) -> _Totals:
        if state.files is None or columns is None:
            return _totals_from_summary(state, policy)
        return cls(
            data_files=int(columns.data_files.sum()),
            data_bytes=int(columns.bytes.sum()),
            rows=int(columns.rows.sum()),
            small_files=int(columns.small_files.sum()),
            fragments=int(columns.fragments.sum()),
            removable_files=columns.removable_files(policy.target_file_size_bytes),
            partitions=len(state.files.partitions),
            deletes=_delete_counts(state.files),
        )

    @property
    def average_bytes(self) -> float | None:
        return self.data_bytes / self.data_files if self.data_files and self.data_bytes is not None else None

    @property
    def small_share(self) -> float | None:
        return self.small_files / self.data_files if self.data_files and self.small_files is not None else None

    @property
    def duplicate_ratio(self) -> float | None:
        return min(1.0, self.deletes.rows / self.rows) if self.rows and self.deletes is not None else None


def _totals_from_summary(state: TableState, policy: Policy) -> _Totals:
    snapshot = state.snapshot
    if snapshot is None:
        return _Totals(data_files=0, data_bytes=0, rows=0)
    data_files, data_bytes = snapshot.count("total-data-files"), snapshot.count("total-files-size")
    removable = None
    if data_files and data_bytes is not None and data_bytes / data_files < policy.small_bytes:
        removable = max(0, data_files - max(1, -(-data_bytes // policy.target_file_size_bytes)))
    vectors = snapshot.count("total-dvs") or 0
    deletes = DeleteCounts(
        position_files=(snapshot.count("total-delete-files") or 0) - vectors,
        position_rows=snapshot.count("total-position-deletes") or 0,
        equality_rows=snapshot.count("total-equality-deletes") or 0,
        vectors=vectors,
    )
    return _Totals(
        data_files=data_files,
        data_bytes=data_bytes,
        rows=snapshot.count("total-records"),
        removable_files=removable,
        deletes=deletes,
    )


def _delete_counts(files: FileColumns) -> DeleteCounts:
    content, records = files.column("content"), files.column("records")

    def count(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
        return int(mask.sum()), int(records[mask].sum())

    equality = content == EQUALITY_DELETES
    vectors = files.is_vector
    position_files, position_rows = count((content != DATA) & ~equality & ~vectors)
    equality_files, equality_rows = count(equality)
    vector_files, vector_rows = count(vectors)
    return DeleteCounts(
        position_files=position_files,
        position_rows=position_rows,
        equality_files=equality_files,
        equality_rows=equality_rows,
        vectors=vector_files,
        vector_rows=vector_rows,
    )


def _clustering(state: TableState, policy: Policy, layout: Layout | None) -> Clustering | None:
    if state.files is None or state.files.bounds is None or layout is None:
        return None
    depth, target = policy.cluster_depth, policy.target_file_size_bytes
    runs = runs_of(layout, state.snapshots, state.files.column("snapshot_id"))
    return assess_clustering(state.files, state.fields, layout, max_depth=depth, target_bytes=target, runs=runs)


def _sorted_files(files: FileColumns, order_id: int) -> int:
    return int(((files.column("content") == DATA) & (files.column("sort_order_id") == order_id)).sum())


def _formats(files: FileColumns) -> dict[str, int]:
    data = files.table.filter(files.column("content") == DATA).column("format")
    return {str(pair["values"]): int(pair["counts"]) for pair in data.value_counts().to_pylist()}


def _manifest_counts(manifests: tuple[Manifest, ...]) -> ManifestCounts:
    deletes = sum(1 for m in manifests if m.holds_deletes)
    known = [m.live_files for m in manifests if m.live_files is not None]
    return ManifestCounts(
        data_manifests=len(manifests) - deletes,
        delete_manifests=deletes,
        bytes=sum(m.length_bytes for m in manifests),
        average_files=sum(known) / len(known) if known else 0.0,
    )


def _expirable(state: TableState, policy: Policy, now_ms: int, pinned: Mapping[int, str]) -> tuple[int, tuple[NotDue, ...]]:
    """How many snapshots `neve expire` would let go, in as many runs as it takes; if there are none, when one will be."""
    history, rules = SnapshotHistory.of(state), replace(Rules.of(policy), limit=len(state.snapshots) or 1)
    expired = len(retain(history, rules, now_ms=now_ms, pinned=pinned).expired)
    return expired, () if expired else (next_expiry(history, rules, now_ms=now_ms, pinned=pinned),)


def _without_unknown_layout(state: TableState, policy: Policy) -> Policy:
    """The policy without a layout that names no column of the table: files are merged without it."""
    try:
        layout_of(state, policy)
    except BadRequestError:
        return policy.model_copy(update={"cluster_by": None})
    return policy


@dataclass(frozen=True)
class _Outlook:
    """What operations would do to the state."""

    state: TableState
    policy: Policy
    layout: Layout | None
    """The layout whose columns have bounds."""
    now_ms: int
    memory: Memory
    footers: Mapping[str, int]
    request: Request

    def compaction(self, files: FileColumns) -> Compaction:
        """What `neve compact` would do, in as many runs as it takes."""
        is_known = layout_of(self.state, self.policy) == self.layout
        found = self._ahead(files if is_known else replace(files, bounds=None), self.policy)
        if not len(found.plan.groups):
            return Compaction(files_with_deletes=int(found.marked.has_deletes.sum()), not_due=found.plan.not_due)
        order = self.state.default_sort_order_id
        small_groups = SMALL_GROUPS.marks(found.marked, self.policy) & found.marked.is_data
        return Compaction(
            removed_files=max(int(found.files.sum()) - found.outputs, 0),
            files_with_deletes=int(found.marked.has_deletes.sum()),
            applied_files=int((found.files & found.marked.has_deletes).sum()),
            reencoded_files=int((found.files & small_groups).sum()),
            sorted_files=int((found.files & (files.column("sort_order_id") != order)).sum()) if order else 0,
            not_due=found.plan.not_due,
        )

    def cluster(self, clustering: Clustering | None) -> tuple[NotDue, ...] | None:
        """Why `neve cluster` would do nothing although it is advised; None if it is not."""
        if clustering is None or not clustering.advised:
            return None
        policy = self.policy.model_copy(update={"strategy": "dimensional", "cluster_by": clustering.layout})
        found = self._ahead(self.state.files, policy)
        return () if len(found.plan.groups) else found.plan.not_due

    def _ahead(self, files: FileColumns | None, policy: Policy) -> Outlook:
        state = self.state.model_copy(update={"files": files})
        return look_ahead(state, policy, now_ms=self.now_ms, memory=self.memory, footers=self.footers, request=self.request)


def _equality_deletes(state: TableState, files: FileColumns) -> EqualityDeletes | None:
    work = DeleteWork.of(state, files)
    return EqualityDeletes(work.convertible, work.dangling_equality) if work.equality_files else None
