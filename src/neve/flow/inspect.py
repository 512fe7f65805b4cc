"""inspect: reads a table's metadata, as deep as asked, and says what hurts. Nothing is written, no data file is opened.

Called by every surface through `compose`, and by the plan stage. `read` gathers, `examine` judges; the latter is pure, so that
tests and the fleet view can judge states from anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from neve.core.clustering import runs_of
from neve.core.depth import Depth
from neve.core.files import DATA, EQUALITY_DELETES, FileColumns, Partition
from neve.core.health import Vitals, assess
from neve.core.histogram import size_histogram
from neve.core.inspection import DeleteCounts, Inspection, ManifestCounts
from neve.core.layout import Layout, sorted_by
from neve.core.model import Manifest, SortOrder, TableState
from neve.core.policy import Policy
from neve.core.ranking import PartitionColumns, partition_columns, rank
from neve.core.retention import History, Rules, retain
from neve.core.row_groups import count_row_groups
from neve.core.skipping import Clustering, assess_clustering
from neve.core.workload import classify
from neve.errors import BadRequestError
from neve.ports import Progress, Records, TableReader

log = logging.getLogger(__name__)

MAX_PARTITIONS = 1000
"""How many of the worst partitions an inspection lists; `partition_count` tells how many there are."""

_NAMED = 8
"""How many columns an error lists."""


@dataclass(frozen=True)
class Memory:
    """What earlier runs know of the table."""

    row_groups: Mapping[str, int] = field(default_factory=dict)
    compacted: Mapping[Partition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Records | None, table_uuid: str) -> Memory:
        """From the state store, or nothing where there is none yet."""
        if records is None:
            return cls()
        return cls(row_groups=records.row_groups(table_uuid), compacted=records.last_compactions(table_uuid))


def read(reader: TableReader, depth: Depth, progress: Progress | None = None, *, bounds: Collection[int] = ()) -> TableState:
    """The state at the depth asked for; `bounds` are the field ids of columns whose bounds the files shall tell."""
    state = reader.state()
    log.info("inspect %s: snapshot %s, depth %s", state.name, state.snapshot_id, depth)
    if depth is Depth.SUMMARY:
        return state
    manifests = reader.manifests()
    state = state.model_copy(update={"manifests": manifests})
    if depth is Depth.MANIFESTS:
        return state
    return state.model_copy(update={"files": reader.files(manifests, progress, bounds=bounds)})


def layout_of(state: TableState, policy: Policy) -> Layout | None:
    """The order of rows that the table is to have: the policy's clustering, of which the table's own `neve.cluster-by` is part,
    else the table's sort order. Raises BadRequestError for columns that the table does not have."""
    own = _own_layout(state)
    if policy.cluster_by is None:
        return own
    asked = Layout.parse(policy.cluster_by)
    known = [column.name for column in state.fields]
    for name in asked.columns if known else ():
        if name not in known:
            raise _no_such_column(state, name, known)
    return own if own is not None and (own.kind, own.fields) == (asked.kind, asked.fields) else asked


def _own_layout(state: TableState) -> Layout | None:
    order = _sort_order(state)
    try:
        return sorted_by(order.order_id, order.fields) if order else None
    except ValueError:
        return None  # a column whose name a layout cannot be written with, such as one with a comma


def _no_such_column(state: TableState, name: str, known: list[str]) -> BadRequestError:
    inside = [column for column in known if column.endswith(f".{name}")]
    close = inside or get_close_matches(name, known) or get_close_matches(name.lower(), known)
    some = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    hint = f"Did you mean {' or '.join(close)}?" if close else f"It has {some}."
    return BadRequestError(f"Cannot lay {state.name} out by {name}: it has no such column of single values", hint=hint)


def examine(
    state: TableState,
    policy: Policy,
    *,
    now_ms: int,
    memory: Memory | None = None,
    footers: Mapping[str, int] | None = None,
    layout: Layout | None = None,
) -> Inspection:
    """What the state tells. `footers` are row groups by path, from a sample; `layout` is one that the files tell bounds for."""
    memory = memory or Memory()
    files = state.files
    columns = None if files is None else partition_columns(files, policy, state.snapshots, memory.compacted)
    totals = _Totals.of(state, columns, policy)
    groups = None if files is None else count_row_groups(files, policy, memory.row_groups, footers or {})
    order = _sort_order(state)
    sorted_files = None if files is None or order is None else _sorted_files(files, order.order_id)
    manifests = None if state.manifests is None else _manifest_counts(state.manifests)
    clustering = _clustering(state, policy, layout)
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
            expirable_snapshots=_expirable(state, policy, now_ms),
            metadata_bytes=state.metadata_bytes,
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
        workload=classify(state.snapshots, now_ms),
        clustering=clustering,
        health=health,
    )


def sample(files: FileColumns, size: int, seed: int = 0) -> list[str]:
    """Paths of Parquet data files whose footers are worth reading: the same ones for the same table."""
    parquet = np.flatnonzero((files.column("content") == DATA) & files.is_parquet)
    chosen = np.random.default_rng(seed).choice(parquet, min(size, len(parquet)), replace=False)
    return [str(path) for path in files.table.column("path").take(np.sort(chosen)).to_pylist()]


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


def _sort_order(state: TableState) -> SortOrder | None:
    return next((o for o in state.sort_orders if o.order_id == state.default_sort_order_id and o.fields), None)


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


def _expirable(state: TableState, policy: Policy, now_ms: int) -> int:
    """Snapshots that `neve expire` would let go, in as many runs as it takes."""
    rules = replace(Rules.of(policy), limit=len(state.snapshots) or 1)
    return len(retain(History.of(state), rules, now_ms=now_ms).expired)
