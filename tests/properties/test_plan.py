"""The strategy contract (docs/strategy-contract.md), by property: random tables, random policies."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.model import Policy
from neve.policy.rewrite_knobs import STRATEGIES
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.memory import Memory
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.table.files import DEFAULTS, SCHEMA, FileColumns, Partition
from neve.table.state import TableState
from neve.table.units import KIB, MIB
from tests.builders.planned_tables import NOW, OURS, bounded, state_of, table
from tests.builders.table_states import make_state

TARGET = 128 * MIB

files = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.integers(0, 3),
            "size_bytes": st.one_of(st.integers(1, 20 * MIB), st.integers(20 * MIB, 400 * MIB)),
            "records": st.integers(0, 10_000),
            "row_groups": st.sampled_from([-1, 1, 2, 40]),
            "sequence_number": st.integers(1, 50),
            "snapshot_id": st.sampled_from([1, 3, 3, 4]),
            "range": st.tuples(st.integers(0, 1000), st.sampled_from([0, 1, 10, 100, 1000])),
        }
    ),
    max_size=120,
)
"""`range` is that of the column `a`: where it begins, and how long it is. Snapshot 1 has been expired."""
policies = st.builds(
    lambda target, small, ratio, least, rows, strategy, layout: Policy.model_validate(
        {
            "strategy": strategy,
            "cluster-by": layout,
            "cold-after": "1000 days",
            "row-group-rows": rows,
            "target-file-size": target,
            "small-file-threshold": max(1, int(target * small)),
            "fragment-ratio": ratio,
            "min-input-files": least,
        }
    ),
    target=st.sampled_from([MIB, 16 * MIB, 128 * MIB, 512 * MIB]),
    small=st.sampled_from([0.25, 0.5, 0.75, 1.0]),
    ratio=st.sampled_from([2, 8, 20]),
    least=st.integers(2, 12),
    rows=st.sampled_from([None, None, 1, 8192]),
    strategy=st.sampled_from(STRATEGIES),
    layout=st.sampled_from([None, None, "a"]),
)
requests = st.builds(Request, tier=st.none() | st.sampled_from(Tier), force=st.booleans())


def range_of(columns: FileColumns, i: int) -> tuple[int, int]:
    assert columns.bounds is not None
    lower, upper = (columns.bounds.column(f"1.{side}")[i].as_py() for side in ("lower", "upper"))
    return int.from_bytes(lower, "little", signed=True), int.from_bytes(upper, "little", signed=True)


def after(state: TableState, planned: Plan) -> tuple[TableState, Memory]:
    """The table as the plan's run leaves it: each group's files replaced by outputs of equal size."""
    columns = state.files
    assert columns is not None
    gone = {path for group in planned.groups for path in planned.paths(group)}
    places = {path: i for i, path in enumerate(columns.table.column("path").to_pylist())}
    rows = [row for row in columns.table.to_pylist() if row["path"] not in gone]
    ranges = [range_of(columns, places[row["path"]]) for row in rows]
    compacted = {}
    groups_by_path = {}
    homes = {(p.spec_id, p.path): i for i, p in enumerate(columns.partitions)}
    for group in planned.groups:
        compacted[Partition(group.spec_id, group.partition)] = NOW
        copied = sum(max(1, int(planned.files.column("row_groups")[i])) for i in group.files)
        inside = [range_of(columns, places[path]) for path in planned.paths(group)]
        begin, end = min(low for low, _ in inside), max(high for _, high in inside)
        for number in range(group.outputs):
            edges = [begin + (end - begin) * k // group.outputs for k in (number, number + 1)]
            ranges.append((edges[0], edges[1]) if group.ordered else (begin, end))
            path = f"out-{group.group_id}-{number}"
            size = group.input_bytes // group.outputs
            records = group.input_rows // group.outputs
            fixed = planned.policy.row_group_rows
            encoded = max(1, size // (128 * MIB)) if fixed is None else max(1, -(-records // fixed))
            groups_by_path[path] = copied if group.kernel is Kernel.COPY else encoded
            rows.append(
                {
                    "path": path,
                    "content": 0,
                    "format": "parquet",
                    "partition": homes[(group.spec_id, group.partition)],
                    "size_bytes": size,
                    "records": records,
                    "row_groups": groups_by_path[path],
                    "sort_order_id": -1,
                    "sequence_number": 60,
                    "snapshot_id": OURS,
                    **DEFAULTS,
                }
            )
    written = FileColumns(table=pa.Table.from_pylist(rows, schema=SCHEMA), partitions=columns.partitions)
    return state_of(bounded(written, ranges) if rows else written), Memory(row_groups=groups_by_path, compacted=compacted)


@settings(deadline=None)
@given(files, policies, requests)
def test_every_file_is_in_at_most_one_group_and_groups_keep_to_their_partition(
    rows: list[dict[str, Any]], policy: Policy, request: Request
) -> None:
    state = table(rows)
    planned = plan(state, policy, now_ms=NOW, request=request)
    members = [i for group in planned.groups for i in group.files]
    assert len(members) == len(set(members)) == len(planned.files)
    for group in planned.groups:
        homes = {planned.files.partitions[planned.files.column("partition")[i]].path for i in group.files}
        assert homes == {group.partition}
        assert group.input_bytes == sum(int(planned.files.column("size_bytes")[i]) for i in group.files)


@settings(deadline=None)
@given(files, policies, requests)
def test_no_group_exceeds_twice_the_target_or_its_largest_file(
    rows: list[dict[str, Any]], policy: Policy, request: Request
) -> None:
    planned = plan(table(rows), policy, now_ms=NOW, request=request)
    for group in planned.groups:
        largest = max(int(planned.files.column("size_bytes")[i]) for i in group.files)
        assert group.ordered or group.input_bytes <= max(2 * policy.target_file_size_bytes, largest)


@settings(deadline=None)
@given(files, policies, requests, st.sampled_from([MIB, 100 * MIB, 1000 * MIB]))
def test_files_brought_into_order_are_one_group_for_each_partition_unless_it_is_too_large(
    rows: list[dict[str, Any]], policy: Policy, request: Request, most: int
) -> None:
    policy = policy.model_copy(update={"max_group_bytes": most, "cluster_by": "a"})
    planned = plan(table(rows), policy, now_ms=NOW, request=request)
    ordered = [group for group in planned.groups if group.ordered]
    for home in {group.partition for group in ordered}:
        groups = [group for group in ordered if group.partition == home]
        sizes = planned.files.column("size_bytes")[[i for group in groups for i in group.files]]
        filled = float(np.maximum(sizes / most, 1 / policy.max_files).sum())  # a group is full of bytes, or of files
        assert len(groups) == 1 or filled > 1
        assert len(groups) <= ceil(2 * filled)
    assert all(group.kernel is not Kernel.COPY for group in ordered)


@settings(deadline=None)
@given(files, policies, requests, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(rows: list[dict[str, Any]], policy: Policy, request: Request, random: Any) -> None:
    named = [{**row, "path": f"f{i:03d}"} for i, row in enumerate(rows)]
    shuffled = list(named)
    random.shuffle(shuffled)
    plans = [plan(table(order), policy, now_ms=NOW, request=request) for order in (named, shuffled)]
    first, second = ([sorted(p.paths(group)) for group in p.groups] for p in plans)
    assert first == second


@settings(max_examples=300, deadline=None)
@given(files, policies)
def test_planning_again_after_the_run_finds_nothing(rows: list[dict[str, Any]], policy: Policy) -> None:
    state = table(rows)
    planned = plan(state, policy, now_ms=NOW)
    later, memory = after(state, planned)
    again = plan(later, policy, now_ms=NOW + 1000, memory=memory)
    touched = {group.partition for group in planned.groups}
    assert [group for group in again.groups if group.partition in touched] == []


@settings(deadline=None)
@given(files, policies)
def test_the_major_tier_leaves_no_file_with_small_row_groups(rows: list[dict[str, Any]], policy: Policy) -> None:
    state = table(rows)
    planned = plan(state, policy, now_ms=NOW, request=Request(tier=Tier.MAJOR, kernel=Kernel.ARROW))
    later, memory = after(state, planned)
    again = plan(later, policy, now_ms=NOW + 10**9, memory=memory, request=Request(tier=Tier.MAJOR))
    ours = set(memory.row_groups)
    small = [path for group in again.groups if "row group" in group.reason for path in again.paths(group)]
    assert not ours & set(small)


@settings(deadline=None)
@given(files, policies, requests)
def test_every_partition_is_either_in_a_group_or_left_with_a_reason(
    rows: list[dict[str, Any]], policy: Policy, request: Request
) -> None:
    planned = plan(table(rows), policy, now_ms=NOW, request=request)
    grouped = {group.partition for group in planned.groups}
    left = {s.partition for s in planned.skipped}
    assert grouped | left == {f"p={row['partition']}" for row in rows}
    assert not grouped & left
    assert all(group.reason and group.kernel_reason for group in planned.groups)
    assert all(s.reason for s in planned.skipped)
    assert (planned.empty_reason is None) == bool(len(planned.groups))


@settings(deadline=None)
@given(files, policies, requests)
def test_a_plan_survives_json(rows: list[dict[str, Any]], policy: Policy, request: Request) -> None:
    planned = plan(table(rows), policy, now_ms=NOW, request=request)
    assert Plan.model_validate_json(planned.model_dump_json(by_alias=True)) == planned


@settings(deadline=None)
@given(files, st.integers(1, 60), st.integers(1, 500 * MIB), st.floats(0, 0.001))
def test_a_run_keeps_to_its_limits(rows: list[dict[str, Any]], most: int, size: int, cost: float) -> None:
    policy = Policy.model_validate({"max-files": max(5, most), "max-bytes": size, "max-cost": cost})
    planned = plan(table(rows), policy, now_ms=NOW)
    assert planned.input_files <= policy.max_files
    assert planned.price.read_bytes <= size
    assert planned.price.money <= cost


def test_a_table_without_data_says_so() -> None:
    empty = make_state(files=FileColumns.empty(), snapshot_id=None, snapshots=(), refs=())
    assert plan(empty, Policy(), now_ms=NOW).empty_reason == "the table has no data"


def test_prices_add_up() -> None:
    planned = plan(table([{"partition": i % 4, "size_bytes": 10 * KIB} for i in range(100)]), Policy(), now_ms=NOW)
    assert planned.price.money == np.sum([group.price.money for group in planned.groups])
    assert planned.price.read_bytes == 100 * 10 * KIB
