"""plan: from a table's state and a policy to a list of groups, each with its reason, its kernel and its price. Pure.

Called by `compose`; no IO, no clock. Every partition ends up either in groups or among the skipped with a named reason, and a
plan without groups says why. After a run of the plan, planning again finds nothing (docs/strategy-contract.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.core.cost import Rates, predict
from neve.core.deletes import may_have_deletes, unpartitioned
from neve.core.files import FileColumns
from neve.core.groups import TIERS, Groups
from neve.core.kernels import REASONS, GroupTraits, choose_kernels
from neve.core.model import MAIN, TableState
from neve.core.packing import bins_wanted, pack
from neve.core.plan import Plan, Skipped
from neve.core.plan_words import Kernel, Tier
from neve.core.policy import Policy
from neve.core.ranking import NEVER, partition_columns
from neve.core.row_groups import estimated, row_groups_by_file
from neve.core.selection import LARGE, SMALL_GROUPS, Files, Mask, alone, candidates
from neve.core.tiers import Choice, Traits, choose_tier
from neve.core.units import counted, format_bytes, format_seconds
from neve.flow.inspect import Memory

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Request:
    """What a caller asks besides the policy. `paths` are the files that the predicate `where` chose, None for all."""

    tier: Tier | None = None
    kernel: Kernel | None = None
    force: bool = False
    partitions: tuple[str, ...] = ()
    branch: str = MAIN
    where: str | None = None
    paths: Set[str] | None = None
    rates: Rates = field(default_factory=Rates)


def plan(
    state: TableState,
    policy: Policy,
    *,
    now_ms: int,
    memory: Memory | None = None,
    footers: Mapping[str, int] | None = None,
    request: Request | None = None,
) -> Plan:
    """The plan for a state read at depth FILES; `footers` are row groups by path, from a sample."""
    files = state.files if state.files is not None else FileColumns.empty()
    request = request or Request()
    groups, skipped = _Planner(state, files, policy, memory or Memory(), footers or {}, request, now_ms).run()
    named = np.zeros(len(files), dtype=bool)
    named[groups.files] = True
    chosen, place = np.flatnonzero(named), np.cumsum(named) - 1
    return Plan(
        table=state.name,
        table_uuid=state.uuid,
        table_format_version=state.format_version,
        branch=request.branch,
        where=request.where,
        snapshot_id=state.snapshot_id,
        sequence_number=state.snapshot.sequence_number if state.snapshot else 0,
        schema_id=state.schema_id,
        default_spec_id=state.default_spec_id,
        sort_order_id=state.default_sort_order_id,
        planned_at_ms=now_ms,
        policy=policy,
        groups=replace(groups, files=place[groups.files]),
        skipped=tuple(skipped),
        empty_reason=None if len(groups) else _empty_reason(state, skipped),
        files=FileColumns(table=files.table.take(pa.array(chosen)), partitions=files.partitions),
    )


def _empty_reason(state: TableState, skipped: list[Skipped]) -> str:
    if not skipped:
        return "the table has no data" if state.snapshot is None else "the table has no data files"
    if len({s.reason for s in skipped}) == 1:
        return f"every partition: {skipped[0].reason}" if len(skipped) > 1 else skipped[0].reason
    return "no partition has anything worth doing"


class _Planner:
    """The columns that the steps share, and the steps."""

    def __init__(
        self,
        state: TableState,
        files: FileColumns,
        policy: Policy,
        memory: Memory,
        footers: Mapping[str, int],
        request: Request,
        now_ms: int,
    ) -> None:
        self.state, self.files, self.policy, self.request, self.now_ms = state, files, policy, request, now_ms
        self.by_partition = partition_columns(files, policy, state.snapshots, memory.compacted)
        row_groups, _ = row_groups_by_file(files, memory.row_groups, footers)
        deletes = may_have_deletes(files, unpartitioned_specs=unpartitioned(state.specs), ours=memory.row_groups)
        self.marked = Files(files, estimated(files, row_groups, footers), deletes)
        self.scores = self.by_partition.scores(now_ms)
        self._small_group_files = self._count(SMALL_GROUPS.marks(self.marked, policy) & self.marked.is_data)
        self._large_files = self._count(LARGE.marks(self.marked, policy) & self.marked.is_data)
        self._deleted_rows = self._count(np.where(self.marked.is_data, 0, files.column("records")))

    def run(self) -> tuple[Groups, list[Skipped]]:
        """Choose a tier by partition, pack its candidates, keep what is worth a commit and within the run's limits."""
        choices = [self._choose(i) for i in range(len(self.files.partitions))]
        tiers = np.array([TIERS.index(c.tier) if c.tier else -1 for c in choices], dtype=np.int64)
        bins = self._bins(np.flatnonzero(self._candidates(tiers)), choices, tiers)
        worth, left = self._worth(bins)
        kept, cut = self._limit(bins.take(self._neediest_first(bins, np.flatnonzero(worth))))
        return kept, [*self._skipped(choices, kept, left, cut)]

    def _count(self, weights: Column) -> Column:
        counts: Column = np.bincount(self.files.column("partition"), weights=weights, minlength=len(self.files.partitions))
        return counts

    def _choose(self, partition: int) -> Choice:
        columns, policy = self.by_partition, self.policy
        if not columns.data_files[partition]:
            return Choice(None, "no data files")
        if not self._partition_asked_for(partition):
            return Choice(None, "not asked for")
        quiet = (self.now_ms - columns.last_write_ms[partition]) / 1000
        if columns.last_write_ms[partition] != NEVER and quiet < policy.cool_down_seconds and not self.request.force:
            return Choice(
                None, f"written {format_seconds(quiet)} ago, cools down for {format_seconds(policy.cool_down_seconds)}"
            )
        if self.request.tier is not None:
            return Choice(self.request.tier, "asked for")
        choice = choose_tier(self._traits(partition), policy)
        return Choice(Tier.MAJOR, "forced") if choice.tier is None and self.request.force else choice

    def _partition_asked_for(self, partition: int) -> bool:
        path = self.files.partitions[partition].path
        return not self.request.partitions or any(fnmatchcase(path, pattern) for pattern in self.request.partitions)

    def _traits(self, i: int) -> Traits:
        columns = self.by_partition
        compacted = int(columns.last_compaction_ms[i])
        return Traits(
            data_files=int(columns.data_files[i]),
            fragments=int(columns.fragments[i]),
            small_files=int(columns.small_files[i]),
            files_with_small_groups=int(self._small_group_files[i]),
            large_files=int(self._large_files[i]),
            delete_ratio=float(columns.delete_ratio[i]),
            duplicate_ratio=float(self._deleted_rows[i] / max(columns.rows[i], 1)),
            seconds_since_compaction=None if compacted == NEVER else (self.now_ms - compacted) / 1000,
        )

    def _candidates(self, tiers: Column) -> Mask:
        tier_of_file = tiers[self.files.column("partition")] if len(tiers) else np.zeros(0, dtype=np.int64)
        wanted = np.zeros(len(self.files), dtype=bool)
        for code, tier in enumerate(TIERS):
            wanted |= (tier_of_file == code) & candidates(self.marked, tier, self.policy)
        wanted &= self.files.column("size_bytes") <= self.policy.max_group_bytes
        if self.request.paths is not None:
            asked = pc.is_in(self.files.table.column("path"), value_set=pa.array(sorted(self.request.paths), pa.string()))
            wanted &= np.asarray(asked.to_numpy())
        return wanted

    def _bins(self, rows: Column, choices: list[Choice], tiers: Column) -> Groups:
        """Every bin of candidates as a group, worth it or not."""
        files, policy = self.files, self.policy
        sizes = files.column("size_bytes")[rows]
        numbers = pack(files.column("partition")[rows], sizes, self._written_order()[rows], policy.target_file_size_bytes)
        order = np.argsort(numbers, kind="stable")
        members, numbers = rows[order], numbers[order]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        offsets = np.append(starts, len(members))

        def total(column: Column) -> Column:
            sums: Column = np.bincount(numbers, weights=column[members], minlength=len(starts)).astype(np.int64)
            return sums

        counts, home = np.diff(offsets), files.column("partition")[members[starts]]
        input_bytes = total(files.column("size_bytes"))
        outputs = bins_wanted(input_bytes, policy.target_file_size_bytes)
        groups_known = total(self.marked.row_groups > 0) == counts
        traits = GroupTraits(
            tier=tiers[home] if len(home) else home,
            all_parquet=total(files.is_parquet) == counts,
            has_deletes=total(self.marked.has_deletes) > 0,
            splits=counts < outputs,
            files=counts,
            columns=self.state.columns,
            bytes=input_bytes,
            row_groups=np.where(groups_known, total(np.maximum(self.marked.row_groups, 0)), 0),
            format_version=self.state.format_version,
            table_is_sorted=any(o.order_id == self.state.default_sort_order_id and o.fields for o in self.state.sort_orders),
        )
        kernel, why = choose_kernels(traits, policy, self.request.kernel)
        return Groups(
            partitions=files.partitions,
            reasons=tuple(choice.reason for choice in choices),
            kernel_reasons=REASONS,
            partition=home,
            tier=traits.tier,
            kernel=kernel,
            kernel_reason=why,
            input_bytes=input_bytes,
            input_rows=total(files.column("records")),
            outputs=outputs,
            prices=predict(kernel, input_files=counts, input_bytes=input_bytes, outputs=outputs, rates=self.request.rates),
            offsets=offsets,
            files=members,
        )

    def _written_order(self) -> Column:
        """Files in the order in which they were written, names breaking ties, so that the input's order does not matter."""
        keys = [("sequence_number", "ascending"), ("path", "ascending")]
        rank = np.empty(len(self.files), dtype=np.int64)
        rank[pc.sort_indices(self.files.table, sort_keys=keys).to_numpy()] = np.arange(len(self.files))
        return rank

    def _worth(self, bins: Groups) -> tuple[Mask, dict[int, str]]:
        """Which bins are worth a commit, and by partition why the others are not.

        A partition is judged as a whole: judged one by one, bins left over would be packed anew next time, and some of them
        found worth it then.
        """
        policy, counts = self.policy, np.diff(bins.offsets)
        number = np.repeat(np.arange(len(bins)), counts)
        by_itself = np.bincount(number, weights=alone(self.marked, policy)[bins.files], minlength=len(bins)) > 0
        always = by_itself | (bins.tier == TIERS.index(Tier.FULL))
        forced = np.full(len(bins), self.request.force)
        files, size = (
            np.bincount(bins.partition, weights=np.where(always, 0, column), minlength=len(bins.partitions))[bins.partition]
            for column in (counts, bins.input_bytes)
        )
        enough = (files >= policy.min_input_files) | (4 * size >= 3 * policy.target_file_size_bytes) | forced
        conditions = {
            "one small file alone: nothing to merge it with": counts < 2,
            f"fewer small files than min-input-files ({policy.min_input_files})": ~enough,
            "fewer bytes than min-group-size": (size < policy.min_group_bytes) & ~forced,
        }
        worth: Mask = always | ~np.any(np.array(list(conditions.values())), axis=0)
        left: dict[int, str] = {}
        for reason, applies in reversed(conditions.items()):
            left |= dict.fromkeys(bins.partition[applies & ~always].tolist(), reason)
        return worth, left

    def _neediest_first(self, bins: Groups, rows: Column) -> Column:
        home = bins.partition[rows]
        ranked: Column = rows[np.lexsort((rows, home, -np.round(self.scores[home], 9)))]
        return ranked

    def _limit(self, groups: Groups) -> tuple[Groups, dict[int, str]]:
        """As many of the neediest groups as one run may take, and by partition which limit stopped the others."""
        counts, sizes, money = np.diff(groups.offsets), groups.prices.read_bytes, groups.prices.money
        if not self._over(int(counts.sum()), int(sizes.sum()), float(money.sum())):
            return groups, {}
        kept: list[int] = []
        cut: dict[int, str] = {}
        spent = (0, 0, 0.0)
        for i, price in enumerate(zip(counts.tolist(), sizes.tolist(), money.tolist(), strict=True)):
            together = (spent[0] + price[0], spent[1] + price[1], spent[2] + price[2])
            if over := self._over(*together):
                cut.setdefault(int(groups.partition[i]), over)
            else:
                kept.append(i)
                spent = together
        return groups.take(np.array(kept, dtype=np.int64)), cut

    def _over(self, files: int, read_bytes: int, money: float) -> str | None:
        policy = self.policy
        if files > policy.max_files:
            return f"the run already has its {counted(policy.max_files, 'file')} (max-files)"
        if policy.max_bytes is not None and read_bytes > policy.max_bytes:
            return f"the run already reads its {format_bytes(policy.max_bytes)} (max-bytes)"
        if policy.max_cost is not None and money > policy.max_cost:
            return f"the run would cost more than {policy.max_cost:g} (max-cost)"
        return None

    def _skipped(self, choices: list[Choice], kept: Groups, left: dict[int, str], cut: dict[int, str]) -> Iterator[Skipped]:
        done = set(np.unique(kept.partition).tolist())
        for i, partition in enumerate(self.files.partitions):
            count = int(self.by_partition.data_files[i])
            if i in done or not count:
                continue
            if i in cut:
                code, reason = "limit", cut[i]
            elif i in left:
                code, reason = "too-few", left[i]
            elif choices[i].tier is None:
                code, reason = "no-trigger", choices[i].reason
            else:
                code, reason = "good", f"no file is a candidate of the {choices[i].tier} tier"
            yield Skipped(partition=partition.path, spec_id=partition.spec_id, files=count, code=code, reason=reason)
