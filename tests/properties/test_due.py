"""What is not due says when it will be, and that is when it is: for random tables, policies and compactions of the past."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from neve.health.not_due import NotDue
from neve.maintenance.delete_files import Upkeep, dangling, targets
from neve.maintenance.manifests import plan_manifests
from neve.maintenance.retention import Rules, SnapshotHistory, retain
from neve.operations.examine import examine
from neve.policy.model import Policy
from neve.policy.rewrite_knobs import STRATEGIES
from neve.rewrite.live_files import LiveFile
from neve.rewrite.memory import Memory
from neve.rewrite.plan import Plan
from neve.rewrite.planner import plan
from neve.rewrite.table_layout import layout_of
from neve.table.files import FileColumns, Partition
from neve.table.state import Manifest, SortOrder, TableState
from neve.table.units import KIB, MIB
from tests.builders.files import make_files
from tests.builders.planned_tables import NOW, bounded, state_of

HOUR = 3_600_000
PARTITIONS = ["p=0", "p=1"]

PLAIN = {"strategy": "small-files", "max-bytes": None, "scan-parallelism": None}
COUNTED = ("fragments", "small-files", "many-fragments", "few-files")

data_files = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 1),
        "size_bytes": st.sampled_from([KIB, 100 * KIB, 15 * MIB, 17 * MIB, 63 * MIB, 65 * MIB, 128 * MIB]),
        "records": st.sampled_from([0, 100, 1000]),
        "row_groups": st.sampled_from([1, 1, 1, 30]),
        "snapshot_id": st.sampled_from([3, 4]),
    }
)
delete_files = st.fixed_dictionaries(
    {
        "partition": st.integers(0, 1),
        "content": st.sampled_from([1, 2]),
        "records": st.sampled_from([1, 30]),
        "sequence_number": st.sampled_from([0, 1, 9]),
        "snapshot_id": st.just(4),
    }
)
tables = st.lists(data_files, max_size=14).flatmap(
    lambda rows: st.lists(delete_files, max_size=3).map(lambda deletes: [*rows, *deletes])
)
knobs = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(STRATEGIES),
        "min-input-files": st.sampled_from([2, 5, 20]),
        "minor-file-count": st.sampled_from([3, 12]),
        "full-interval": st.sampled_from([None, "5 h"]),
        "cool-down": st.sampled_from([0, "1 h"]),
        "min-group-size": st.sampled_from([0, 0, "40 MB"]),
        "scan-parallelism": st.sampled_from([None, None, 4]),
        "max-bytes": st.sampled_from([None, None, "1 MB"]),
        "cluster-by": st.sampled_from([None, "a"]),
        "hot-window": st.just("2 h"),
        "cold-after": st.sampled_from(["9 days", "1000 days"]),
        "snapshot-keep": st.sampled_from(["7 days", "1 min"]),
    }
)
ages = st.lists(st.none() | st.sampled_from([1, 1_000, HOUR // 2, 4 * HOUR, 30 * HOUR]), min_size=2, max_size=2)
"""How long ago each partition was compacted, in milliseconds."""


def state(rows: list[dict[str, Any]], **changes: Any) -> TableState:
    columns = make_files(rows, partitions=PARTITIONS)
    found = state_of(bounded(columns, [(0, 1000)] * len(rows)) if rows else columns)
    return found.model_copy(update=changes)


def compacted(ages: list[int | None]) -> Memory:
    return Memory(compacted={Partition(0, f"p={i}"): NOW - ago for i, ago in enumerate(ages) if ago is not None})


def planned_in(found: Plan) -> set[str]:
    return {group.partition for group in found.groups}


def rules(found: Plan) -> list[NotDue]:
    return [rule for skipped in found.skipped for rule in skipped.not_due]


@settings(deadline=None)
@given(tables, knobs, ages)
def test_every_partition_that_is_left_alone_has_rules_that_say_when_it_is_due(
    rows: list[dict[str, Any]], chosen: dict[str, Any], ages: list[int | None]
) -> None:
    found = plan(state(rows), Policy.model_validate(chosen), now_ms=NOW, memory=compacted(ages))
    assert all(skipped.not_due for skipped in found.skipped)
    assert all(rule.where == skipped.partition for skipped in found.skipped for rule in skipped.not_due)
    assert bool(found.not_due) == bool(found.skipped or not len(found.groups))
    for rule in rules(found):
        assert rule.threshold is None or rule.measured is not None
        assert str(rule).endswith(rule.when_text)
        if rule.measured is not None and rule.threshold is not None:
            is_reached = {
                "from": rule.measured >= rule.threshold,
                "above": rule.measured > rule.threshold,
                "below": rule.measured < rule.threshold,
                "up to": rule.measured <= rule.threshold,
            }
            assert not is_reached[rule.comparison], rule


@settings(deadline=None)
@given(tables, knobs, ages)
def test_at_the_moment_that_is_named_a_partition_is_planned_and_not_before(
    rows: list[dict[str, Any]], chosen: dict[str, Any], ages: list[int | None]
) -> None:
    policy, memory = Policy.model_validate(chosen | PLAIN), compacted(ages)
    for skipped in plan(state(rows), policy, now_ms=NOW, memory=memory).skipped:
        due = min((rule.due_ms for rule in skipped.not_due if rule.due_ms is not None and rule.more is None), default=None)
        if due is not None:
            before, then = (plan(state(rows), policy, now_ms=at, memory=memory) for at in (due - 1, due))
            assert skipped.partition not in planned_in(before)
            assert skipped.partition in planned_in(then)


@settings(deadline=None)
@given(tables, knobs, ages)
def test_with_as_many_more_files_as_are_named_a_partition_is_planned_and_with_fewer_it_is_not(
    rows: list[dict[str, Any]], chosen: dict[str, Any], ages: list[int | None]
) -> None:
    policy, memory = Policy.model_validate(chosen | PLAIN | {"min-group-size": 0, "cool-down": 0}), compacted(ages)
    for skipped in plan(state(rows), policy, now_ms=NOW, memory=memory).skipped:
        counted = [rule for rule in skipped.not_due if rule.rule in COUNTED and rule.due_ms is None]
        if counted:
            more = int(min(rule.more or 0 for rule in counted))
            fragment = {"partition": PARTITIONS.index(skipped.partition), "size_bytes": KIB, "row_groups": 1}
            fragment |= {"sequence_number": 99, "snapshot_id": 4}
            fewer, enough = (
                plan(state([*rows, *[fragment] * count]), policy, now_ms=NOW, memory=memory) for count in (more - 1, more)
            )
            assert skipped.partition not in planned_in(fewer)
            assert skipped.partition in planned_in(enough)


def test_a_table_without_files_is_due_once_it_is_written() -> None:
    empty = state_of(FileColumns.empty())
    (rule,) = plan(empty, Policy(), now_ms=NOW).not_due
    assert str(rule) == "the table has no data files, due once rows are written"


manifests = st.tuples(st.integers(0, 40), st.sampled_from([[], [8 * MIB] * 3, [3 * MIB] * 30])).map(
    lambda counts: tuple(
        Manifest(
            path=f"m{i}",
            length_bytes=size,
            holds_deletes=i % 7 == 0,
            spec_id=0,
            sequence_number=1,
            added_snapshot_id=3,
            live_files=3,
        )
        for i, size in enumerate([10 * KIB] * counts[0] + counts[1])
    )
)
metadata = st.fixed_dictionaries(
    {
        "manifests": manifests,
        "format_version": st.sampled_from([1, 2, 3]),
        "metadata_bytes": st.sampled_from([KIB, 20 * MIB]),
        "default_sort_order_id": st.sampled_from([0, 1]),
        "sort_orders": st.just((SortOrder(order_id=1, fields=("a asc nulls-first",)),)),
    }
)


def live(table: TableState) -> tuple[list[LiveFile], list[dict[str, Any]]]:
    """Data files with the deletes that apply to them by the specification, and all deletes, in Iceberg's JSON."""
    rows = table.files.table.to_pylist() if table.files is not None else []
    content = {1: "position-deletes", 2: "equality-deletes"}
    described = {
        row["path"]: {"file-path": row["path"], "content": content.get(row["content"], "data"), "file-format": row["format"]}
        for row in rows
    }
    for row in rows:
        described[row["path"]]["equality-ids"] = [1]
    deletes = [row for row in rows if row["content"]]
    files = []
    for row in rows:
        least = {1: row["sequence_number"], 2: row["sequence_number"] + 1}
        attached = [
            described[delete["path"]]
            for delete in deletes
            if delete["partition"] == row["partition"] and delete["sequence_number"] >= least[delete["content"]]
        ]
        if not row["content"]:
            files.append(LiveFile(described[row["path"]], tuple(attached)))
    return files, [described[delete["path"]] for delete in deletes]


def has_work(operation: str, table: TableState, policy: Policy, memory: Memory) -> bool:
    """Whether a command has anything to do, by its own plan."""
    files, deletes = live(table)
    if operation == "compact":
        return len(plan(table, policy, now_ms=NOW, memory=memory).groups) > 0
    if operation == "cluster":
        clustering = policy.model_copy(update={"strategy": "dimensional"})
        return len(plan(table, clustering, now_ms=NOW, memory=memory).groups) > 0
    if operation == "manifests":
        return bool(plan_manifests(table, table.manifests or (), policy).groups)
    if operation == "expire":
        return bool(retain(SnapshotHistory.of(table), Rules.of(policy), now_ms=NOW).expired)
    if operation == "deletes convert":
        return bool(targets(Upkeep.CONVERT, files, vectors=table.format_version >= 3))
    assert operation == "deletes prune"
    return bool(dangling(deletes, files))


@settings(deadline=None, max_examples=200)
@given(tables, knobs, ages, metadata)
def test_a_finding_advises_an_operation_that_has_work_or_says_why_there_is_none(
    rows: list[dict[str, Any]], chosen: dict[str, Any], ages: list[int | None], changes: dict[str, Any]
) -> None:
    table, policy, memory = state(rows, **changes), Policy.model_validate(chosen), compacted(ages)
    found = examine(table, policy, now_ms=NOW, memory=memory, layout=layout_of(table, policy))
    for finding in found.health.findings:
        if finding.operation is not None:
            assert has_work(finding.operation, table, policy, memory), finding
        elif finding.code != "tiny-partitions":
            assert finding.not_due, finding
        assert finding.operation is not None or finding.points == 0 or finding.code == "metadata-size"
