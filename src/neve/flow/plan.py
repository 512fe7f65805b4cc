"""plan: from a table's state and a policy to a list of groups, each with its reason, its kernel and its price. Pure.

Called by `compose`; no IO, no clock. A strategy (`core.strategies`) proposes; the planner packs, prices and limits. Every
partition ends up either in groups or among the skipped with a named reason, and a plan without groups says why. After a run
of the plan, planning again finds nothing (docs/strategy-contract.md).
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

from neve.core.clustering import layout_columns
from neve.core.cost import Rates, predict, scan_seconds
from neve.core.deletes import may_have_deletes, unpartitioned
from neve.core.files import FileColumns
from neve.core.groups import TIERS, Groups, gather
from neve.core.kernels import REASONS, GroupTraits, choose_kernels
from neve.core.model import MAIN, TableState
from neve.core.packing import bins_wanted, pack, sort_indices
from neve.core.plan import Plan, Preferred, Skipped
from neve.core.plan_words import Kernel, Tier
from neve.core.policy import Policy
from neve.core.ranking import NEVER, partition_columns
from neve.core.row_groups import estimated, row_groups_by_file
from neve.core.selection import Files, Mask, alone
from neve.core.strategies.known import KNOWN
from neve.core.strategies.proposal import NOTHING, Proposal, joined
from neve.core.strategies.scoring import score
from neve.core.strategies.view import View
from neve.core.tiers import Choice
from neve.core.units import counted, format_bytes, format_seconds
from neve.flow.inspect import Memory, layout_of

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


def bounds_wanted(state: TableState, policy: Policy) -> tuple[int, ...]:
    """The columns whose bounds the policy's strategy looks at, or the prediction for its queries, by field id; `plan` does with
    less where they were not read."""
    layout = layout_of(state, policy)
    if layout is None or not (KNOWN[policy.strategy].needs_ranges or policy.queries):
        return ()
    return tuple(column.field_id for column in layout_columns(layout, state.fields))


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
    planner = _Planner(state, files, policy, memory or Memory(), footers or {}, request, now_ms)
    groups, skipped = planner.run()
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
        layout=planner.view.layout,
        gain_per_month=planner.gain(named),
        preferred=tuple(planner.preferred(groups)),
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
        layout = layout_of(state, policy)
        self.view = View(state, self.marked, self.by_partition, policy, now_ms, layout, request.rates)
        self.proposal = self._proposal()

    def run(self) -> tuple[Groups, list[Skipped]]:
        """Pack the candidates by partition, keep what is worth a commit and within the run's limits."""
        bins = self._bins(np.flatnonzero(self._candidates()))
        worth, left = self._worth(bins)
        kept, cut = self._limit(bins.take(self._neediest_first(bins, np.flatnonzero(worth))))
        return kept, [*self._skipped(kept, left, cut)]

    def gain(self, chosen: Mask) -> float:
        """What readers save in a month if these files are rewritten."""
        return float(score(self.view, replace(self.proposal, files=chosen)).gain.sum())

    def preferred(self, groups: Groups) -> Iterator[Preferred]:
        """The strategy of each partition that has groups, where it was chosen among several."""
        for i in np.unique(groups.partition).tolist() if self.proposal.verdicts else ():
            if (told := self.proposal.verdicts[i]) is not None and not self.view.changes_spec[i]:
                home = self.files.partitions[i]
                yield Preferred(partition=home.path, spec_id=home.spec_id, **vars(told))

    def _proposal(self) -> Proposal:
        """What the strategy proposes, or the request instead of it, but for partitions that are left out."""
        view, request = self.view, self.request
        if request.tier is not None:
            asked = Proposal.of(view, [Choice(request.tier, "asked for")] * len(view))
        else:
            asked = KNOWN[self.policy.strategy].propose(view)
        forced = Proposal.of(view, [Choice(Tier.MAJOR if request.force else None, "forced")] * len(view))
        proposals, which = [asked, forced], np.where(asked.wanted | ~forced.wanted, 0, 1)
        if view.changes_spec.any():
            proposals, which = [*proposals, self._moved()], np.where(view.changes_spec, 2, which)
        reasons = [proposals[number].reasons[i] for i, number in enumerate(which.tolist())]
        for i, reason in self._left_out():
            which[i], reasons[i] = NOTHING, reason
        return replace(joined(view, proposals, which, reasons), priority=asked.priority, verdicts=asked.verdicts)

    def _moved(self) -> Proposal:
        """All files of older specs, where the policy brings them to the current one; whoever writes them sorts as the table
        asks, and a clustering is left to a later run."""
        names = {spec.spec_id: f"spec {spec.spec_id} ({spec})" for spec in self.state.specs}
        now, none = names[self.state.default_spec_id], np.zeros(len(self.view), bool)
        homes = zip(self.files.partitions, self.view.changes_spec.tolist(), strict=True)
        choices = [
            Choice(Tier.FULL, f"of {names[home.spec_id]}, brought to {now}") if old else Choice(None, "") for home, old in homes
        ]
        return replace(Proposal.of(self.view, choices), ordered=none)

    def _left_out(self) -> Iterator[tuple[int, str]]:
        """Partitions that no strategy is to touch."""
        columns, policy, request = self.by_partition, self.policy, self.request
        quiet = (self.now_ms - columns.last_write_ms) / 1000
        warm = (columns.last_write_ms != NEVER) & (quiet < policy.cool_down_seconds) & (not request.force)
        for i, partition in enumerate(self.files.partitions):
            if not columns.data_files[i]:
                yield i, "no data files"
            elif request.partitions and not any(fnmatchcase(partition.path, pattern) for pattern in request.partitions):
                yield i, "not asked for"
            elif warm[i]:
                ago, wanted = format_seconds(quiet[i]), format_seconds(policy.cool_down_seconds)
                yield i, f"written {ago} ago, cools down for {wanted}"

    def _candidates(self) -> Mask:
        wanted = self.proposal.files & (self.files.column("size_bytes") <= self.policy.max_group_bytes)
        if self.request.paths is not None:
            asked = pc.is_in(self.files.table.column("path"), value_set=pa.array(sorted(self.request.paths), pa.string()))
            wanted &= np.asarray(asked.to_numpy())
        return wanted

    def _bins(self, rows: Column) -> Groups:
        """Every bin of candidates as a group, worth it or not."""
        files, policy, proposal = self.files, self.policy, self.proposal
        numbers = self._numbers(rows)
        order = sort_indices(numbers)
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
            tier=proposal.tier[home] if len(home) else home,
            all_parquet=total(files.is_parquet) == counts,
            has_deletes=total(self.marked.has_deletes) > 0,
            splits=counts < outputs,
            files=counts,
            columns=self.state.columns,
            is_remote=self.state.is_remote,
            bytes=input_bytes,
            row_groups=np.where(groups_known, total(np.maximum(self.marked.row_groups, 0)), 0),
            ordered=proposal.ordered[home] if len(home) else home > 0,
            inputs_sorted=total(self.view.in_order) == counts,
            changes_spec=self.view.changes_spec[home] if len(home) else home > 0,
        )
        kernel, why = choose_kernels(traits, policy, self.request.kernel)
        return Groups(
            partitions=files.partitions,
            reasons=proposal.reasons,
            kernel_reasons=REASONS,
            partition=home,
            tier=traits.tier,
            kernel=kernel,
            kernel_reason=why,
            ordered=traits.ordered.astype(np.int64),
            input_bytes=input_bytes,
            input_rows=total(files.column("records")),
            outputs=outputs,
            prices=predict(kernel, input_files=counts, input_bytes=input_bytes, outputs=outputs, rates=self.request.rates),
            offsets=offsets,
            files=members,
        )

    def _numbers(self, rows: Column) -> Column:
        """The bin of each candidate: files that are brought into order, or to another spec, are together, others are cut to
        outputs."""
        home, sizes, policy = self.files.column("partition")[rows], self.files.column("size_bytes")[rows], self.policy
        written = self._written_order()[rows]
        ordered = (self.proposal.ordered | self.view.changes_spec)[home] if len(rows) else home > 0
        plain = ~ordered
        numbers = np.empty(len(rows), dtype=np.int64)
        numbers[plain] = pack(home[plain], sizes[plain], written[plain], policy.target_file_size_bytes)
        if ordered.any():
            limit = min(policy.max_group_bytes, policy.max_bytes or policy.max_group_bytes)  # a larger one would wait for ever
            weights = np.maximum(sizes[ordered] / limit, 1 / policy.max_files)
            most = int(numbers[plain].max(initial=-1)) + 1
            numbers[ordered] = most + gather(home[ordered], weights, self._along(rows[ordered], written[ordered]))
        return numbers

    def _along(self, rows: Column, written: Column) -> Column:
        """The rank of files that are brought into order: by where their values begin, if that is known, so that groups of one
        partition overlap little."""
        if self.view.ranges is None:
            return written
        rank = np.empty(len(rows), dtype=np.int64)
        rank[np.lexsort((written, self.view.ranges.lower[rows, 0]))] = np.arange(len(rows))
        return rank

    def _written_order(self) -> Column:
        """Files in the order in which they were written, names breaking ties, so that the input's order does not matter."""
        keys = [("sequence_number", "ascending"), ("path", "ascending")]
        rank = np.empty(len(self.files), dtype=np.int64)
        rank[pc.sort_indices(self.files.table, sort_keys=keys).to_numpy()] = np.arange(len(self.files))
        return rank

    def _worth(self, bins: Groups) -> tuple[Mask, dict[int, tuple[str, str]]]:
        """Which bins are worth a commit, and by partition why the others are not, code and reason.

        A partition is judged as a whole: judged one by one, bins left over would be packed anew next time, and some of them
        found worth it then.
        """
        policy, counts = self.policy, np.diff(bins.offsets)
        number = np.repeat(np.arange(len(bins)), counts)
        by_itself = np.bincount(number, weights=alone(self.marked, policy)[bins.files], minlength=len(bins)) > 0
        decided = self.proposal.decided[bins.partition] if len(bins) else by_itself
        always = by_itself | (bins.tier == TIERS.index(Tier.FULL)) | (decided & (bins.ordered > 0))
        forced = np.full(len(bins), self.request.force)
        files, size = (
            np.bincount(bins.partition, weights=np.where(always, 0, column), minlength=len(bins.partitions))[bins.partition]
            for column in (counts, bins.input_bytes)
        )
        enough = (files >= policy.min_input_files) | (4 * size >= 3 * policy.target_file_size_bytes) | forced | decided
        conditions = {
            "one small file alone: nothing to merge it with": counts < 2,
            f"fewer small files than min-input-files ({policy.min_input_files})": ~enough,
            "fewer bytes than min-group-size": (size < policy.min_group_bytes) & ~forced,
        }
        worth: Mask = always | ~np.any(np.array(list(conditions.values())), axis=0)
        left: dict[int, tuple[str, str]] = {}
        for reason, applies in reversed(conditions.items()):
            left |= dict.fromkeys(bins.partition[applies & ~always].tolist(), ("too-few", reason))
        for i, reason in self._slower(bins, worth).items():
            worth &= bins.partition != i
            left[i] = "slower", reason
        return worth, left

    def _slower(self, bins: Groups, worth: Mask) -> dict[int, str]:
        """Partitions of which so few files would be left that a scan takes longer than before, with the reason."""
        tasks = self.policy.scan_parallelism
        if tasks is None or self.request.force or self.request.tier is not None:
            return {}
        before, size = self.by_partition.data_files, self.by_partition.bytes
        fewer = np.bincount(
            bins.partition, weights=worth * (np.diff(bins.offsets) - bins.outputs), minlength=len(bins.partitions)
        )
        now, then = (scan_seconds(files, size, tasks, self.request.rates) for files in (before, before - fewer))
        return {
            i: f"a scan by {tasks} tasks would take {format_seconds(then[i])}, not {format_seconds(now[i])}: "
            f"{counted(int(before[i] - fewer[i]), 'file')} would be too few (scan-parallelism)"
            for i in np.flatnonzero((fewer > 0) & (then > now) & ~self.view.changes_spec).tolist()
        }

    def _neediest_first(self, bins: Groups, rows: Column) -> Column:
        home = bins.partition[rows]
        needs = self.by_partition.scores(self.now_ms) if self.proposal.priority is None else self.proposal.priority
        ranked: Column = rows[np.lexsort((rows, home, -np.round(needs[home], 9)))]
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

    def _skipped(self, kept: Groups, left: dict[int, tuple[str, str]], cut: dict[int, str]) -> Iterator[Skipped]:
        done = set(np.unique(kept.partition).tolist())
        for i, partition in enumerate(self.files.partitions):
            count = int(self.by_partition.data_files[i])
            if i in done or not count:
                continue
            if i in cut:
                code, reason = "limit", cut[i]
            elif i in left:
                code, reason = left[i]
            elif self.proposal.tier[i] == NOTHING:
                code, reason = "no-trigger", self.proposal.reasons[i]
            else:
                code, reason = "good", f"no file is a candidate of the {TIERS[self.proposal.tier[i]]} tier"
            yield Skipped(partition=partition.path, spec_id=partition.spec_id, files=count, code=code, reason=reason)
