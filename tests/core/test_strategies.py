"""Each strategy on small tables: what it takes, what it leaves, and the words for it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from neve.policy.model import Policy
from neve.policy.rewrite_knobs import STRATEGIES
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.memory import Memory
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, bounds_wanted, plan
from neve.rewrite.strategies.known import KNOWN
from neve.table.files import FileColumns
from neve.table.state import Column, PartitionField, PartitionSpec, Snapshot, SortOrder, TableState
from neve.table.units import MIB
from tests.builders.files import make_files
from tests.builders.table_states import make_state

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 20_000 * DAY
SPECS = (PartitionSpec(spec_id=0, fields=(PartitionField(name="day", transform="day", source_id=2, field_id=1000),)),)
TODAY, YESTERDAY, LAST_YEAR = "day=2024-10-04", "day=2024-10-03", "day=2023-10-04"
PLAIN = PartitionSpec(spec_id=0, fields=(PartitionField(name="p", transform="identity", source_id=2, field_id=1000),))


def table(rows: list[dict[str, Any]], partitions: list[str], **changes: Any) -> TableState:
    """Files that say in `hours` how long ago they were written, and in `range` what the column `a` holds."""
    hours = sorted({row.get("hours", 1) for row in rows})
    snapshots = tuple(
        Snapshot(
            snapshot_id=10 + i,
            parent_id=None,
            sequence_number=60,
            timestamp_ms=int(NOW - ago * HOUR),
            operation="append",
            summary={},
        )
        for i, ago in enumerate(hours)
    )
    told = [
        {"snapshot_id": 10 + hours.index(row.get("hours", 1))} | {k: v for k, v in row.items() if k not in ("hours", "range")}
        for row in rows
    ]
    files = make_files(told, partitions=partitions)
    fields = (Column(field_id=1, name="a", type="long"), Column(field_id=2, name="ts", type="timestamptz"))
    plain = {"specs": SPECS, "sort_orders": (), "default_sort_order_id": 0, "refs": (), "snapshot_id": 10, "fields": fields}
    return make_state(**plain | {"snapshots": snapshots, "files": bounded(files, rows)} | changes)


def bounded(files: FileColumns, rows: list[dict[str, Any]]) -> FileColumns:
    if not any("range" in row for row in rows):
        return files
    sides = zip(*(row["range"] for row in rows), strict=True)
    lower, upper = (pa.array([value.to_bytes(8, "little") for value in side], pa.binary()) for side in sides)
    return FileColumns(files.table, files.partitions, pa.table({"1.lower": lower, "1.upper": upper}))


def planned(
    state: TableState, strategy: str, *, memory: Memory | None = None, request: Request | None = None, **knobs: Any
) -> Plan:
    policy = Policy.model_validate({"strategy": strategy} | {key.replace("_", "-"): value for key, value in knobs.items()})
    return plan(state, policy, now_ms=NOW, memory=memory, request=request)


def reasons(found: Plan) -> dict[str, str]:
    return {s.partition: s.reason for s in found.skipped} | {g.partition: g.reason for g in found.groups}


def crumbs(count: int, partition: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"partition": partition, "size_bytes": MIB, "row_groups": 1, **more} for _ in range(count)]


def good(count: int, partition: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"partition": partition, "size_bytes": 128 * MIB, "row_groups": 1, **more} for _ in range(count)]


def test_the_knob_names_every_strategy() -> None:
    assert tuple(KNOWN) == STRATEGIES


def test_an_unknown_strategy_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match="there is no strategy 'addaptive', did you mean adaptive\\?; write one of small-files, "
    ):
        Policy.model_validate({"strategy": "addaptive"})


class TestDeleteFiles:
    def test_only_files_that_deletes_apply_to_are_rewritten(self) -> None:
        rows = [{"path": "old", "sequence_number": 1}, {"path": "new", "sequence_number": 9}, *crumbs(20, 1)]
        delete = {"content": 2, "sequence_number": 5, "records": 50, "equality_ids": "1"}
        found = planned(table([*rows, delete], [TODAY, YESTERDAY]), "delete-files")
        (group,) = found.groups
        assert (found.paths(group), group.tier, group.kernel) == (["old"], Tier.MAJOR, Kernel.ARROW)
        assert reasons(found) == {
            TODAY: "0.50 delete files per data file",
            YESTERDAY: "no delete applies to its files",
        }

    @pytest.mark.parametrize(("content", "cure"), [(2, "convert"), (1, "rewrite")])
    def test_the_cheaper_cure_is_named_where_deletes_hide_few_rows(self, content: int, cure: str) -> None:
        delete = {"content": content, "sequence_number": 5, "records": 1, "equality_ids": "1" if content == 2 else ""}
        found = planned(table([*good(2), delete], [TODAY]), "delete-files")
        assert reasons(found) == {
            TODAY: f"0.50 delete files per data file, hiding 0.5% of the rows: `neve deletes {cure} TABLE` is cheaper"
        }

    def test_few_deletes_are_left(self) -> None:
        delete = {"content": 1, "sequence_number": 5, "records": 1}
        found = planned(table([*good(20), delete], [TODAY]), "delete-files")
        assert reasons(found) == {TODAY: "deletes are below delete-ratio (0.1)"}


class TestTimeSeries:
    def test_hot_partitions_get_the_minor_tier_only(self) -> None:
        undersized = [{"size_bytes": 40 * MIB, "row_groups": 1} for _ in range(10)]
        found = planned(table([*crumbs(20), *undersized], [TODAY]), "time-series")
        (group,) = found.groups
        assert (group.tier, len(group.files), group.reason) == (Tier.MINOR, 20, "20 files below 16 MB")

    def test_a_partition_is_hot_while_its_own_time_lasts(self) -> None:
        found = planned(table(crumbs(3, hours=20), [TODAY]), "time-series", memory=compacted(TODAY, hours=0.5))
        assert reasons(found) == {TODAY: "hot for 30 h yet, with few fragments"}

    def test_a_cooling_partition_is_done_properly_even_if_few_files_are_left(self) -> None:
        found = planned(table([*crumbs(2, hours=10), *good(1, hours=10)], ["day=2024-10-02"]), "time-series")
        (group,) = found.groups
        assert (group.tier, len(group.files), group.reason) == (Tier.MAJOR, 2, "cooled down: 2 small files")

    def test_a_late_write_makes_it_hot_again(self) -> None:
        found = planned(
            table([*crumbs(2, hours=100), *crumbs(1, hours=1)], ["day=2024-09-01"]), "time-series", min_input_files=2
        )
        (group,) = found.groups
        assert group.tier is Tier.MINOR

    def test_cold_partitions_are_left_alone(self) -> None:
        found = planned(table(crumbs(50, hours=24 * 365), [LAST_YEAR]), "time-series")
        assert reasons(found) == {LAST_YEAR: "cold: nothing was written for 365 days"}
        assert len(planned(table(crumbs(50, hours=24 * 365), [LAST_YEAR]), "time-series", cold_after="400 days").groups) == 1

    def test_windows_are_knobs(self) -> None:
        state = table(crumbs(2, hours=3), ["p=1"], specs=(PLAIN,))
        assert reasons(planned(state, "time-series", memory=compacted("p=1", hours=0.5)))["p=1"].startswith("hot for 5.5 h yet")
        assert reasons(planned(state, "time-series", hot_window="2 h")) == {"p=1": "cooled down: 2 small files"}

    def test_without_any_known_time_a_partition_is_cold(self) -> None:
        state = table(crumbs(30), ["p=1"], specs=(PLAIN,))
        found = planned(state.model_copy(update={"snapshots": ()}), "time-series")
        assert reasons(found) == {"p=1": "cold: nobody knows when it was written"}

    @pytest.mark.parametrize(
        ("transform", "text", "end"),
        [
            ("year", "2024", "2025-01-01T00:00"),
            ("year", "2023", "2024-01-01T00:00"),
            ("month", "2024-02", "2024-03-01T00:00"),
            ("month", "2024-12", "2025-01-01T00:00"),
            ("day", "2024-02-28", "2024-02-29T00:00"),
            ("hour", "2024-02-28-23", "2024-02-29T00:00"),
            ("day", "null", None),
            ("bucket[4]", "3", None),
        ],
    )
    def test_a_partition_ends_when_its_time_is_over(self, transform: str, text: str, end: str | None) -> None:
        import datetime as dt

        from neve.rewrite.strategies.periods import period_end_ms

        expected = int(dt.datetime.fromisoformat(end + "+00:00").timestamp() * 1000) if end else -1
        assert period_end_ms(transform, text) == expected

    @pytest.mark.parametrize(
        ("transform", "text", "days"),
        [
            ("day", "9999-12-31", 2_932_897),
            ("day", "10000-01-01", 2_932_898),
            ("day", "-044-03-15", -735_524),
            ("month", "9999-12", 2_932_897),
            ("year", "9999", 2_932_897),
            ("hour", "9999-12-31-23", 2_932_897),
        ],
    )
    def test_years_that_python_does_not_count_end_too(self, transform: str, text: str, days: int) -> None:
        from neve.rewrite.strategies.periods import period_end_ms

        assert period_end_ms(transform, text) == days * 86_400_000

    def test_dates_are_days(self) -> None:
        dates = PartitionSpec(spec_id=0, fields=(PartitionField(name="d", transform="identity", source_id=2, field_id=1000),))
        fields = (Column(field_id=2, name="d", type="date"),)
        state = table(crumbs(3, hours=90), ["d=2024-10-04"], specs=(dates,), fields=fields)
        assert reasons(planned(state, "time-series", memory=compacted("d=2024-10-04", hours=0.5)))["d=2024-10-04"].startswith(
            "hot"
        )


def compacted(path: str, *, hours: float) -> Memory:
    from neve.table.files import Partition

    return Memory(compacted={Partition(0, path): int(NOW - hours * HOUR)})


def wide(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return good(count, partition, range=(0, 1000))


def tight(count: int, partition: int = 0) -> list[dict[str, Any]]:
    return [row | {"range": (100 * i, 100 * i + 99)} for i, row in enumerate(good(count, partition))]


class TestDimensional:
    def test_overlapping_files_are_clustered_and_others_left(self) -> None:
        found = planned(table([*wide(8), *tight(8, 1)], [TODAY, YESTERDAY]), "dimensional", cluster_by="a")
        (group,) = found.groups
        assert (group.partition, group.ordered, group.kernel, len(group.files), group.outputs) == (
            TODAY,
            True,
            Kernel.SPARK,
            8,
            8,
        )
        assert reasons(found) == {TODAY: "depth 8.0 is above 4", YESTERDAY: "depth 1.0 is within 4"}
        assert str(found.layout) == "sort(a asc nulls-first)"

    def test_a_table_without_a_layout_has_nothing_to_cluster(self) -> None:
        found = planned(table(wide(8), [TODAY]), "dimensional")
        assert found.empty_reason == "the table has no layout: neither neve.cluster-by nor a sort order"

    def test_bounds_that_were_not_read_are_missed(self) -> None:
        found = planned(table(good(8), [TODAY]), "dimensional", cluster_by="a")
        assert found.empty_reason == "the bounds of a are not known"

    def test_all_files_can_be_asked_for(self) -> None:
        found = planned(table(tight(8), [TODAY]), "dimensional", cluster_by="a", request=Request(tier=Tier.FULL))
        (group,) = found.groups
        assert (group.tier, group.ordered, len(group.files)) == (Tier.FULL, True, 8)

    def test_bounds_are_wanted_only_by_strategies_that_look_at_them(self) -> None:
        state = table(wide(8), [TODAY])
        wanted = {
            name: bounds_wanted(state, Policy.model_validate({"strategy": name, "cluster-by": "a"})) for name in STRATEGIES
        }
        assert wanted == dict.fromkeys(STRATEGIES, (1,)) | {"small-files": (), "delete-files": ()}
        assert bounds_wanted(state, Policy.model_validate({"strategy": "adaptive"})) == ()

    def test_files_of_a_run_in_this_layout_are_known_by_their_snapshot(self) -> None:
        state = table(wide(8), [TODAY])
        ours = state.snapshots[0].model_copy(
            update={"operation": "replace", "summary": {"neve.layout": "sort(a asc nulls-first)"}}
        )
        again = planned(state.model_copy(update={"snapshots": (ours,)}), "dimensional", cluster_by="a")
        assert len(again.groups) == 0


class TestCostOptimized:
    def test_what_pays_for_itself_is_done_and_says_so(self) -> None:
        found = planned(table(crumbs(40, hours=24), [YESTERDAY]), "cost-optimized")
        (group,) = found.groups
        assert group.reason.startswith("40 files for ")
        assert group.reason.endswith(" a month")
        assert found.gain_per_month > 30 * found.price.money > 0

    def test_what_nobody_reads_is_left(self) -> None:
        found = planned(table(crumbs(40, hours=24), [YESTERDAY]), "cost-optimized", reads_per_day=0)
        assert found.empty_reason == "no rewrite pays for itself within 30 days"

    def test_a_short_payback_drops_what_a_long_one_takes(self) -> None:
        state = table(crumbs(40, hours=24 * 20), [YESTERDAY])
        assert len(planned(state, "cost-optimized", reads_per_day=1).groups) == 1
        found = planned(state, "cost-optimized", reads_per_day=1, payback="1 h")
        assert found.empty_reason == "no rewrite pays for itself within 60 min"

    def test_a_partition_rests_after_a_compaction(self) -> None:
        state = table(crumbs(40, hours=24), [YESTERDAY])
        found = planned(state, "cost-optimized", memory=compacted(YESTERDAY, hours=0.9))
        assert found.empty_reason == "compacted within 60 min"
        assert len(planned(state, "cost-optimized", memory=compacted(YESTERDAY, hours=1)).groups) == 1

    def test_partitions_of_the_past_gain_less(self) -> None:
        days = ["day=2024-10-03", "day=2024-10-02", "day=2024-09-24"]
        gains = [planned(table(crumbs(40, hours=24), [day]), "cost-optimized").gain_per_month for day in days]
        assert gains == pytest.approx([gains[0], gains[0] / 2, gains[0] / 10])

    def test_the_best_gain_for_the_money_comes_first(self) -> None:
        state = table([*crumbs(10, 0, hours=24), *crumbs(80, 1, hours=24)], [TODAY, YESTERDAY])
        everything = planned(state, "cost-optimized")
        assert [group.partition for group in everything.groups] == [YESTERDAY, TODAY]
        cheap = planned(state, "cost-optimized", max_cost=everything.groups[0].price.money * 1.01)
        assert [group.partition for group in cheap.groups] == [YESTERDAY]
        assert reasons(cheap)[TODAY].startswith("the run would cost more than ")


class TestAdaptive:
    def test_the_choice_and_the_runner_up_are_told_with_both_scores(self) -> None:
        found = planned(table(crumbs(40, hours=24), [YESTERDAY]), "adaptive")
        (told,) = found.preferred
        assert told.partition == YESTERDAY
        assert told.strategy in STRATEGIES
        assert told.runner_up in STRATEGIES
        assert told.runner_up_score is not None
        assert told.score >= told.runner_up_score > 0
        assert found.groups[0].reason.startswith(f"{told.strategy} is worth {told.score:.2g}; next {told.runner_up} with ")

    def test_each_partition_gets_what_is_best_there(self) -> None:
        rows = [*[row | {"range": (0, 1000)} for row in crumbs(40, 0, hours=24)], *[row | {"hours": 24} for row in wide(30, 1)]]
        found = planned(table(rows, [TODAY, YESTERDAY]), "adaptive", cluster_by="a", reads_per_day=1000)
        by_home = {group.partition: group for group in found.groups}
        assert by_home[YESTERDAY].ordered
        assert len(by_home[TODAY].files) == 40
        assert {told.partition: told.strategy for told in found.preferred}[YESTERDAY] in (
            "dimensional",
            "time-series",
            "cost-optimized",
        )

    def test_it_waits_while_waiting_is_cheaper(self) -> None:
        found = planned(table(crumbs(6, hours=0.01), [TODAY]), "adaptive")
        assert found.empty_reason == "too early: readers lose less by waiting than a rewrite costs"
        assert len(planned(table(crumbs(6, hours=24), [TODAY]), "adaptive").groups) == 1

    def test_nothing_worth_doing_has_a_reason(self) -> None:
        found = planned(table(good(8, hours=24), [YESTERDAY]), "adaptive")
        assert found.empty_reason == "no rewrite pays for itself within 30 days"
        assert found.preferred == ()


class TestScanParallelism:
    def test_a_merge_that_would_slow_scans_is_declined(self) -> None:
        rows = [{"size_bytes": 100 * MIB, "row_groups": 1} for _ in range(8)]
        state = table(rows, [TODAY])
        merged = planned(state, "small-files", target_file_size="1 GB")
        assert (len(merged.groups), merged.output_files) == (1, 1)
        kept = planned(state, "small-files", target_file_size="1 GB", scan_parallelism=8)
        (skipped,) = kept.skipped
        assert skipped.code == "slower"
        assert skipped.reason == ("a scan by 8 tasks would take 8.02 s, not 1.02 s: 1 file would be too few (scan-parallelism)")

    def test_a_merge_of_very_many_files_is_done_all_the_same(self) -> None:
        state = table([{"size_bytes": MIB // 10, "row_groups": 1} for _ in range(2000)], [TODAY])
        assert planned(state, "small-files", scan_parallelism=8).output_files < 20

    def test_one_file_that_is_forced_misses_one_more_whatever_the_knobs_say(self) -> None:
        found = planned(table(crumbs(1), [TODAY]), "small-files", min_input_files=5, request=Request(force=True))
        (rule,) = found.not_due
        assert str(rule).endswith(": 1, due from 2, with 1 more file")
        assert (rule.threshold, rule.knob, rule.more) == (2, None, 1)

    def test_files_that_are_forced_and_fit_into_no_group_are_not_told_of_the_smallest_group(self) -> None:
        forced = Request(force=True)
        found = planned(table(good(2), [TODAY]), "small-files", request=forced, min_group_size="1 GB", target_file_size="1 GB")
        assert [rule.knob for rule in found.not_due] != ["min-group-size"]

    def test_who_forces_it_gets_it(self) -> None:
        state = table([{"size_bytes": 100 * MIB, "row_groups": 1} for _ in range(8)], [TODAY])
        found = planned(state, "small-files", target_file_size="1 GB", scan_parallelism=8, request=Request(force=True))
        assert len(found.groups) == 1


class TestLayouts:
    ORDER = {"sort_orders": (SortOrder(order_id=3, fields=("a asc nulls-first",)),), "default_sort_order_id": 3}

    def test_files_of_a_sorted_table_are_brought_into_its_order_in_every_tier(self) -> None:
        found = planned(table(crumbs(20), [TODAY], **self.ORDER), "small-files")
        (group,) = found.groups
        assert (group.tier, group.ordered, group.kernel) == (Tier.MINOR, True, Kernel.ARROW)
        assert group.kernel_reason == "small enough to be brought into order in one task"
        assert found.layout is not None
        assert found.layout.order_id == 3

    def test_files_that_are_sorted_already_are_merged(self) -> None:
        rows = [{"size_bytes": 50 * MIB, "sort_order_id": 3} for _ in range(20)]
        (group,) = planned(table(rows, [TODAY], **self.ORDER), "small-files").groups
        assert (group.kernel, group.kernel_reason) == (Kernel.ARROW, "its files are sorted already, and are merged")
        assert (group.input_bytes, group.outputs) == (1000 * MIB, 8)

    def test_large_groups_are_sorted_by_spark_unless_arrow_is_asked_for(self) -> None:
        rows = [{"size_bytes": 50 * MIB} for _ in range(20)]
        state = table(rows, [TODAY], **self.ORDER)
        (group,) = planned(state, "small-files").groups
        assert (group.kernel, group.kernel_reason) == (Kernel.SPARK, "so large that many tasks bring it into order")
        (asked,) = planned(state, "small-files", request=Request(kernel=Kernel.ARROW)).groups
        assert (asked.kernel, asked.kernel_reason) == (Kernel.ARROW, "asked for")

    @pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
    def test_nothing_in_order_is_ever_copied(self, kernel: Kernel) -> None:
        (group,) = planned(table(crumbs(20), [TODAY], **self.ORDER), "small-files", request=Request(kernel=kernel)).groups
        assert group.kernel is Kernel.ARROW

    def test_on_a_clustered_table_fragments_are_joined_as_they_are_and_larger_tiers_follow_the_layout(self) -> None:
        state = table([*crumbs(20), *[{"partition": 1, "size_bytes": 40 * MIB} for _ in range(6)]], [TODAY, YESTERDAY])
        minor, major = sorted(planned(state, "small-files", cluster_by="a").groups, key=lambda group: -len(group.files))
        assert (minor.tier, minor.ordered, major.tier, major.ordered) == (Tier.MINOR, False, Tier.MAJOR, True)

    def test_no_group_is_too_large_for_the_limits_of_a_run(self) -> None:
        state = table([{"size_bytes": MIB, "path": f"f{i:03d}"} for i in range(300)], [TODAY], **self.ORDER)
        by_files = planned(state, "small-files", max_files=100, min_input_files=2)
        assert by_files.input_files == 75
        by_bytes = planned(state, "small-files", max_bytes="50 MB")
        assert 40 <= by_bytes.input_files <= 50

    def test_the_clustering_that_is_asked_for_comes_before_the_sort_order(self) -> None:
        state = table(crumbs(20), [TODAY], **self.ORDER)
        assert str(planned(state, "small-files", cluster_by="z-order(a, ts)").layout) == "z-order(a, ts)"
        own = planned(state, "small-files", cluster_by="a").layout
        assert own is not None
        assert own.order_id == 3
