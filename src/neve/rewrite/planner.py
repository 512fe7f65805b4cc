"""plan: from a table's state and a policy to a list of groups, each with its reason, its kernel and its price. Pure.

A strategy (`rewrite.strategies`) proposes; the planner packs, prices and limits. Every partition ends up in groups or among the
skipped, with a reason. After a run of the plan, planning again finds nothing (docs/strategy-contract.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import BadRequestError
from neve.health.clustering import layout_columns
from neve.health.not_due import NotDue
from neve.health.ranking import NEVER, partition_columns
from neve.health.row_changes import changing_since_ms, row_changes
from neve.health.row_groups import estimated, row_groups_by_file
from neve.health.skipping import Clustering, assess_clustering
from neve.policy.model import Policy
from neve.rewrite.cost import Rates, predict, scan_seconds
from neve.rewrite.group import Kernel, RunKind, Tier
from neve.rewrite.groups import KERNELS, TIERS, Groups, gather
from neve.rewrite.kernel_choice import BLOOM_FILTERS, Chosen, GroupTraits, choose_kernels
from neve.rewrite.kernel_options import RewriteOption, declines, not_applied, wants_bloom_filters
from neve.rewrite.left_alone import Untouchable, changing, cooling, empty_reason, exceeded, over_limit, slower, too_few
from neve.rewrite.memory import Memory
from neve.rewrite.packing import bins_wanted, pack, sort_indices
from neve.rewrite.plan import Plan, Preferred, Skipped
from neve.rewrite.selection import Files, Mask, alone, enough, listed_twice
from neve.rewrite.strategies.known import KNOWN
from neve.rewrite.strategies.proposal import NOTHING, Proposal, joined
from neve.rewrite.strategies.scoring import score
from neve.rewrite.strategies.view import View
from neve.rewrite.table_layout import layout_of
from neve.rewrite.tiers import MINOR_RULES, TierChoice
from neve.table.delete_index import may_have_deletes, unpartitioned
from neve.table.files import FileColumns
from neve.table.nested_keys import left_alone
from neve.table.state import MAIN, TableState

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Request:
    """What a caller asks besides the policy. `paths` are the files that the predicate `where` chose, None for all; `options`
    are those of the policy that shape the output files, with their origins."""

    tier: Tier | None = None
    kernel: Kernel | None = None
    force: bool = False
    partitions: tuple[str, ...] = ()
    branch: str = MAIN
    where: str | None = None
    paths: Set[str] | None = None
    kind: RunKind = RunKind.COMPACT
    rates: Rates = field(default_factory=Rates)
    options: tuple[RewriteOption, ...] = ()


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
    return look_ahead(state, policy, now_ms=now_ms, memory=memory, footers=footers, request=request).plan


@dataclass(frozen=True, eq=False)
class Outlook:
    """A plan, and all that it and the plans after it would rewrite: a run that reaches its limit leaves the rest to others."""

    plan: Plan
    marked: Files
    files: Mask
    outputs: int


def look_ahead(
    state: TableState,
    policy: Policy,
    *,
    now_ms: int,
    memory: Memory | None = None,
    footers: Mapping[str, int] | None = None,
    request: Request | None = None,
) -> Outlook:
    """The same plan, with what its limits leave to later runs."""
    files = state.files if state.files is not None else FileColumns.empty()
    request = request or Request()
    if request.kernel is not None and (reason := declines(request.options).get(request.kernel)):
        message = f"Cannot rewrite {state.name} with kernel {request.kernel}: {reason}"
        raise BadRequestError(message, hint="Leave out the option, or --kernel.")
    planner = _Planner(state, files, policy, memory or Memory(), footers or {}, request, now_ms)
    groups, skipped = planner.run()
    named = np.zeros(len(files), dtype=bool)
    named[groups.files] = True
    chosen, place = np.flatnonzero(named), np.cumsum(named) - 1
    planned = Plan(
        kind=request.kind,
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
        clustering=planner.clustering(named) if request.kind is RunKind.CLUSTER else None,
        gain_per_month=planner.gain(named),
        preferred=tuple(planner.preferred(groups)),
        options=request.options,
        not_applied=not_applied(request.options, Counter(KERNELS[code] for code in groups.kernel.tolist())),
        groups=replace(groups, files=place[groups.files]),
        skipped=tuple(skipped),
        empty_reason=None if len(groups) else empty_reason(state, skipped),
        files=FileColumns(table=files.table.take(pa.array(chosen)), partitions=files.partitions),
    )
    worth = np.zeros(len(files), dtype=bool)
    worth[planner.worth.files] = True
    return Outlook(planned, planner.marked, worth, int(planner.worth.outputs.sum()))


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
        self.untouchable = {one.partition: one for one in self._untouchable()}
        self.rules: dict[int, NotDue] = {i: one.rule for i, one in self.untouchable.items()}
        """By partition, the rule of the planner that leaves it alone."""
        self.proposal = self._proposal()

    def run(self) -> tuple[Groups, list[Skipped]]:
        """Pack the candidates by partition, keep what is worth a commit and within the run's limits."""
        bins, refused = self._bins(np.flatnonzero(self._candidates()))
        worth, left = self._worth(bins, refused)
        self.worth = bins.take(self._neediest_first(bins, np.flatnonzero(worth)))
        """The groups of this run and of those after it."""
        kept, cut = self._limit(self.worth)
        return kept, [*self._skipped(kept, left, cut)]

    def gain(self, chosen: Mask) -> float:
        """What readers save in a month if these files are rewritten."""
        return float(score(self.view, replace(self.proposal, files=chosen)).gain.sum())

    def clustering(self, chosen: Mask) -> Clustering | None:
        """Depth and what queries read, now and after these files are rewritten in the layout; None where bounds are unknown."""
        view = self.view
        if view.ranges is None or view.layout is None:
            return None
        depth, target = self.policy.cluster_depth, self.policy.target_file_size_bytes
        fields = self.state.fields
        return assess_clustering(self.files, fields, view.layout, max_depth=depth, target_bytes=target, chosen=chosen)

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
            asked = Proposal.of(view, [TierChoice(request.tier, "asked for")] * len(view))
        else:
            asked = KNOWN[self.policy.strategy].propose(view)
        forced = Proposal.of(view, [TierChoice(Tier.MAJOR if request.force else None, "forced")] * len(view))
        proposals, which = [asked, forced], np.where(asked.wanted | ~forced.wanted, 0, 1)
        if view.changes_spec.any():
            proposals, which = [*proposals, self._moved()], np.where(view.changes_spec, 2, which)
        reasons = [proposals[number].reasons[i] for i, number in enumerate(which.tolist())]
        for i, one in self.untouchable.items():
            which[i], reasons[i] = NOTHING, one.reason
        told = joined(view, proposals, which, reasons)
        return replace(told, priority=asked.priority, verdicts=asked.verdicts, unmet=asked.unmet)

    def _moved(self) -> Proposal:
        """All files of older specs, where the policy brings them to the current one. Clustering is left to a later run."""
        names = {spec.spec_id: f"spec {spec.spec_id} ({spec})" for spec in self.state.specs}
        now, none = names[self.state.default_spec_id], np.zeros(len(self.view), bool)
        homes = zip(self.files.partitions, self.view.changes_spec.tolist(), strict=True)
        choices = [
            TierChoice(Tier.FULL, f"of {names[home.spec_id]}, brought to {now}") if old else TierChoice(None, "")
            for home, old in homes
        ]
        return replace(Proposal.of(self.view, choices), ordered=none)

    def _untouchable(self) -> Iterator[Untouchable]:
        """Yields the partitions that no strategy may touch."""
        request, unprovable = self.request, left_alone(self.files, self.state.specs, self.state.nested)
        twice = listed_twice(self.files)
        for i, partition in enumerate(self.files.partitions):
            where = self.view.where(i)
            if not self.by_partition.data_files[i]:
                yield Untouchable.until(i, where, "no data files", "rows are written there")
            elif i in unprovable:
                yield Untouchable.until(i, where, unprovable[i], "these deletes are gone")
            elif i in twice:
                yield Untouchable.until(i, where, twice[i], "each data file is listed once")
            elif request.partitions and not any(fnmatchcase(partition.path, pattern) for pattern in request.partitions):
                yield Untouchable.until(i, where, "not asked for", "--partition names it")

    def _candidates(self) -> Mask:
        wanted = self.proposal.files & (self.files.column("size_bytes") <= self.policy.max_group_bytes)
        if self.request.paths is not None:
            asked = pc.is_in(self.files.table.column("path"), value_set=pa.array(sorted(self.request.paths), pa.string()))
            wanted &= np.asarray(asked.to_numpy())
        return wanted

    def _bins(self, rows: Column) -> tuple[Groups, Mask]:
        """Every bin of candidates as a group, worth it or not, and which of them every kernel declines."""
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
        chosen = self._kernels(traits)
        groups = Groups(
            partitions=files.partitions,
            reasons=proposal.reasons,
            kernel_reasons=chosen.reasons,
            partition=home,
            tier=traits.tier,
            kernel=chosen.kernel,
            kernel_reason=chosen.reason,
            ordered=traits.ordered.astype(np.int64),
            input_bytes=input_bytes,
            input_rows=total(files.column("records")),
            outputs=outputs,
            prices=predict(
                chosen.kernel, input_files=counts, input_bytes=input_bytes, outputs=outputs, rates=self.request.rates
            ),
            offsets=offsets,
            files=members,
        )
        return groups, chosen.refused

    def _kernels(self, traits: GroupTraits) -> Chosen:
        """The kernel of each bin. Bloom filters are part of what is right, so that no pinned kernel overrules them."""
        declined = declines(self.request.options)
        if wants_bloom_filters(self.state.properties):
            declined.setdefault(Kernel.ARROW, BLOOM_FILTERS)
        return choose_kernels(traits, self.policy, self.request.kernel, declined=declined)

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

    def _worth(self, bins: Groups, refused: Mask) -> tuple[Mask, dict[int, tuple[str, str]]]:
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
        conditions = {
            "one small file alone: nothing to merge it with": counts < 2,
            f"fewer small files than min-input-files ({policy.min_input_files})": ~(
                enough(files, size, policy) | forced | decided
            ),
            "fewer bytes than min-group-size": (size < policy.min_group_bytes) & ~forced,
        }
        worth: Mask = always | ~np.any(np.array(list(conditions.values())), axis=0)
        left: dict[int, tuple[str, str]] = {}
        for reason, applies in reversed(conditions.items()):
            left |= dict.fromkeys(bins.partition[applies & ~always].tolist(), ("too-few", reason))
        for i, reason in self._slower(bins, worth).items():
            worth &= bins.partition != i
            left[i] = "slower", reason
        for home, code in zip(bins.partition[refused].tolist(), bins.kernel_reason[refused].tolist(), strict=True):
            left[home] = "unsupported-option", bins.kernel_reasons[code]
        worth &= ~refused
        wanted = bins.partition[worth]
        for i, reason in (self._cooling(wanted) | self._changing(wanted)).items():
            worth &= bins.partition != i
            left[i] = "no-trigger", reason
        return worth, left

    def _changing(self, wanted: Column) -> dict[int, str]:
        """Of these partitions, those that were compacted not long ago and whose rows another writer is changing."""
        changed, compacted = self.by_partition.last_change_ms, self.by_partition.last_compaction_ms
        now, interval = self.now_ms, self.policy.row_change_interval_seconds
        since = changing_since_ms(row_changes(self.state.snapshots, self.state.snapshot_id), now)
        rest = (compacted != NEVER) & (now - compacted < 1000 * interval) & (changed >= since) & (not self.request.force)
        reasons = dict[int, str]()
        for i in np.unique(wanted[rest[wanted]]).tolist():
            ago = (now - int(changed[i])) / 1000, (now - int(compacted[i])) / 1000
            reasons[i], self.rules[i] = changing(*ago, interval, now, self.view.where(i))
        return reasons

    def _cooling(self, wanted: Column) -> dict[int, str]:
        """Of these partitions, those that were written a short time ago, with the reason."""
        reasons, wait = dict[int, str](), self.policy.cool_down_seconds
        for i in np.unique(wanted).tolist():
            if self._is_warm[i]:
                quiet = (self.now_ms - int(self.by_partition.last_write_ms[i])) / 1000
                reasons[i], self.rules[i] = cooling(quiet, wait, self.now_ms, self.view.where(i))
        return reasons

    @cached_property
    def _is_warm(self) -> Mask:
        """Partitions that were written within the cool-down."""
        written, wait = self.by_partition.last_write_ms, self.policy.cool_down_seconds
        mask: Mask = (written != NEVER) & (self.now_ms - written < 1000 * wait) & (not self.request.force)
        return mask

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
        reasons = {}
        for i in np.flatnonzero((fewer > 0) & (then > now) & ~self.view.changes_spec).tolist():
            files = int(before[i] - fewer[i])
            reasons[i], self.rules[i] = slower(tasks, files, float(now[i]), float(then[i]), self.view.where(i))
        return reasons

    def _neediest_first(self, bins: Groups, rows: Column) -> Column:
        home = bins.partition[rows]
        needs = self.by_partition.scores(self.now_ms) if self.proposal.priority is None else self.proposal.priority
        ranked: Column = rows[np.lexsort((rows, home, -np.round(needs[home], 9)))]
        return ranked

    def _limit(self, groups: Groups) -> tuple[Groups, dict[int, str]]:
        """As many of the neediest groups as one run may take, and by partition which limit stopped the others."""
        counts, sizes, money = np.diff(groups.offsets), groups.prices.read_bytes, groups.prices.money
        if exceeded(self.policy, int(counts.sum()), int(sizes.sum()), float(money.sum())) is None:
            return groups, {}
        kept: list[int] = []
        cut: dict[int, str] = {}
        spent = (0, 0, 0.0)
        for i, price in enumerate(zip(counts.tolist(), sizes.tolist(), money.tolist(), strict=True)):
            together, home = (spent[0] + price[0], spent[1] + price[1], spent[2] + price[2]), int(groups.partition[i])
            if (knob := exceeded(self.policy, *together)) is None:
                kept.append(i)
                spent = together
            elif home not in cut:
                cut[home], self.rules[home] = over_limit(knob, self.policy, together, self.view.where(home))
        return groups.take(np.array(kept, dtype=np.int64)), cut

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
            rules = self._rules(i, code, reason)
            yield Skipped(
                partition=partition.path, spec_id=partition.spec_id, files=count, code=code, reason=reason, not_due=rules
            )

    def _rules(self, i: int, code: str, reason: str) -> tuple[NotDue, ...]:
        """The rules that leave a partition alone: the planner's own, else those of the strategy."""
        if i in self.rules:
            return (self.rules[i],)
        is_strategy = self.request.tier is None and not self.request.force
        unmet = self.proposal.unmet(i) if is_strategy and code in ("no-trigger", "too-few") else ()
        if self._is_warm[i]:
            cool_ms = int(self.by_partition.last_write_ms[i]) + ceil(1000 * self.policy.cool_down_seconds)
            unmet = tuple(rule.not_before(cool_ms) for rule in unmet)
        if code == "too-few":
            least = 2 if self.request.force or self.proposal.decided[i] else max(2, self.policy.min_input_files)
            wanted = int(self._wanted_files[i]), int(self._wanted_bytes[i])
            others = (rule for rule in unmet if rule.rule not in MINOR_RULES)
            return (too_few(*wanted, least, self.policy, self.view.where(i), is_forced=self.request.force), *others)
        return unmet or (NotDue(rule=code, what=reason, where=self.view.where(i), until="its files change"),)

    @cached_property
    def _wanted_files(self) -> Column:
        return self.view.total(self.proposal.files)

    @cached_property
    def _wanted_bytes(self) -> Column:
        return self.view.total(self.proposal.files * self.files.column("size_bytes"))
