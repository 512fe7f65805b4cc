"""What strategies look at: files and partitions as columns, the policy, history, and ranges where the table has a layout.

Built by `rewrite.planner` once for a plan; everything that not each strategy needs is worked out at its first use. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.clustering import ClusteringChoice as Cluster
from neve.health.clustering import choose, layout_ranges, runs_of
from neve.health.overlap import Overlap
from neve.health.ranking import NEVER, PartitionColumns
from neve.policy.model import Policy
from neve.rewrite.cost import Rates
from neve.rewrite.group import Tier
from neve.rewrite.selection import FRAGMENT, LARGE, SMALL_GROUPS, Files, Mask, alone
from neve.rewrite.strategies.periods import end_ms
from neve.rewrite.tiers import Traits
from neve.table.bounds import Ranges
from neve.table.layout import Layout, LayoutKind
from neve.table.state import TableState

Column = npt.NDArray[Any]

SELECTIVE_SHARE = 0.5
"""Of the reads: those that look for values of the columns by which the table is partitioned or laid out."""


@dataclass(frozen=True)
class View:
    """A table as a strategy sees it. Rows of files are those of `files.columns`, of partitions those of its partitions."""

    state: TableState
    files: Files
    partitions: PartitionColumns
    policy: Policy
    now_ms: int
    layout: Layout | None = None
    rates: Rates = field(default_factory=Rates)

    def __len__(self) -> int:
        """Partitions."""
        return len(self.files.columns.partitions)

    def where(self, partition: int) -> str | None:
        """The name of a partition; None for that of an unpartitioned table."""
        return self.files.columns.partitions[partition].path or None

    def total(self, weights: Column) -> Column:
        """The sum of something over the files of each partition, or how many a mask marks."""
        home = self.files.columns.column("partition")
        if weights.dtype == bool:
            return np.bincount(home[weights], minlength=len(self))
        return np.bincount(home, weights=weights, minlength=len(self))

    def orders(self, tier: Tier) -> bool:
        """Whether this tier follows the layout: always on a sorted table, which promises it to readers; on a clustered one the
        minor tier joins fragments as they are, which is cheap, and leaves their order to the tiers above."""
        return self.layout is not None and (self.layout.order_id != 0 or tier is not Tier.MINOR)

    def traits(self, partition: int) -> Traits:
        """The few numbers by which tiers are chosen."""
        columns, i = self.partitions, partition
        compacted = int(columns.last_compaction_ms[i])
        return Traits(
            data_files=int(columns.data_files[i]),
            fragments=int(columns.fragments[i]),
            fragment_bytes=int(self._fragment_bytes[i]),
            has_lone_fragment=bool(self._lone_fragments[i]),
            small_files=int(columns.small_files[i]),
            files_with_small_groups=int(self._small_group_files[i]),
            large_files=int(self._large_files[i]),
            delete_files=int(columns.delete_files[i]),
            delete_ratio=float(columns.delete_ratio[i]),
            rows=int(columns.rows[i]),
            duplicate_ratio=float(self.hidden[i]),
            seconds_since_compaction=None if compacted == NEVER else (self.now_ms - compacted) / 1000,
        )

    @cached_property
    def changes_spec(self) -> Mask:
        """Partitions of older specs, where the policy brings their rows to the current one."""
        specs = np.array([home.spec_id for home in self.files.columns.partitions], dtype=np.int64)
        mask: Mask = (specs != self.state.default_spec_id) & self.policy.evolve_specs
        return mask

    @cached_property
    def in_order(self) -> Mask:
        """Files that are recorded as sorted by the layout; never any where that is not the table's own sort order."""
        order_id = self.layout.order_id if self.layout is not None else 0
        mask: Mask = (self.files.columns.column("sort_order_id") == order_id) & (order_id != 0)
        return mask

    @cached_property
    def hidden(self) -> Column:
        """The share of rows that deletes hide, as far as their own rows tell."""
        deleted = self.total(np.where(self.files.is_data, 0, self.files.columns.column("records")))
        share: Column = deleted / np.maximum(self.partitions.rows, 1)
        return share

    @cached_property
    def rested(self) -> Mask:
        """Partitions that were not compacted within `minor-interval`."""
        compacted = self.partitions.last_compaction_ms
        mask: Mask = (compacted == NEVER) | (self.now_ms - compacted >= 1000 * self.policy.minor_interval_seconds)
        return mask

    @cached_property
    def ends_ms(self) -> Column:
        """When the time that a partition stands for is over, NEVER where it stands for none."""
        return np.array([end_ms(home, self.state) for home in self.files.columns.partitions], dtype=np.int64)

    @cached_property
    def interest(self) -> Column:
        """How often each partition is read, as a share of how often the table is: of those that stand for a time, old ones ever
        less often; others by every read but those that look for values of one of them."""
        days = np.maximum(self.now_ms - self.ends_ms, 0) / 86_400_000
        of_many = 1 - SELECTIVE_SHARE + SELECTIVE_SHARE / max(len(self), 1)
        share: Column = np.where(self.ends_ms == NEVER, of_many, 1 / (1 + days))
        return share

    @cached_property
    def ages(self) -> Column:
        """Seconds since each file was written, NaN where its snapshot has been expired."""
        times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in self.state.snapshots}
        known, inverse = np.unique(self.files.columns.column("snapshot_id"), return_inverse=True)
        written = np.array([times.get(int(one), np.nan) for one in known], dtype=np.float64)
        ages: Column = ((self.now_ms - written) / 1000)[inverse]
        return ages

    @cached_property
    def ranges(self) -> Ranges | None:
        """The ranges of the layout's columns; None where bounds were not read, or do not tell of the layout."""
        if self.layout is None or self.files.columns.bounds is None:
            return None
        found = layout_ranges(self.files.columns, self.layout, self.state.fields)
        return found if found.columns else None

    @cached_property
    def clusters(self) -> dict[int, Cluster]:
        """By partition what is worth clustering, and how deep files lie on one another; empty where ranges are not known."""
        if self.ranges is None or self.layout is None:
            return {}
        columns, rows = self.files.columns, np.flatnonzero(self.files.is_data)
        sizes, records, home = (columns.column(name)[rows] for name in ("size_bytes", "records", "partition"))
        found = choose(
            self.ranges.take(rows),
            sizes,
            records,
            home,
            max_depth=self.policy.cluster_depth,
            target_bytes=self.policy.target_file_size_bytes,
            kind=self.layout.kind,
            runs=runs_of(self.layout, self.state.snapshots, columns.column("snapshot_id")[rows]),
        )
        return {one.partition: replace(one, files=rows[one.files]) for one in found}

    def touched(self, overlap: Overlap) -> float:
        """Files that a query for one value meets: of the first column where rows are sorted, of any along a curve."""
        by_column = overlap.columns
        is_sort = self.layout is not None and self.layout.kind is LayoutKind.SORT
        return by_column[0] if is_sort else sum(by_column) / len(by_column)

    @cached_property
    def depth(self) -> Column:
        """Files that such a query meets in each partition; NaN where ranges are not known."""
        depth = np.full(len(self), np.nan)
        for i, one in self.clusters.items():
            depth[i] = self.touched(one.before)
        return depth

    @cached_property
    def _fragments(self) -> Mask:
        return FRAGMENT.marks(self.files, self.policy) & self.files.is_data

    @cached_property
    def _fragment_bytes(self) -> Column:
        return self.total(np.where(self._fragments, self.files.columns.column("size_bytes"), 0))

    @cached_property
    def _lone_fragments(self) -> Mask:
        mask: Mask = self.total(self._fragments & alone(self.files, self.policy)) > 0
        return mask

    @cached_property
    def _small_group_files(self) -> Column:
        return self.total(SMALL_GROUPS.marks(self.files, self.policy) & self.files.is_data)

    @cached_property
    def _large_files(self) -> Column:
        return self.total(LARGE.marks(self.files, self.policy) & self.files.is_data)
