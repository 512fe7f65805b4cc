"""Files that are brought into order go together; plans from before there were layouts can still be read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neve.policy.model import Policy
from neve.rewrite.groups import Groups, gather
from neve.rewrite.planner import Request, plan
from neve.rewrite.selection import listed_twice
from tests.builders.files import make_files
from tests.builders.planned_tables import NOW, table


def test_a_partition_is_one_group_while_it_is_not_overloaded() -> None:
    home, weights = np.array([1, 0, 1, 0, 1]), np.array([0.3, 0.5, 0.3, 0.5, 0.4])
    assert gather(home, weights, np.arange(5)).tolist() == [1, 0, 1, 0, 1]


def test_a_larger_one_is_cut_evenly_in_the_order_of_its_files() -> None:
    weights = np.full(9, 0.25)
    assert gather(np.zeros(9, dtype=np.int64), weights, np.arange(9)[::-1]).tolist() == [2, 2, 2, 1, 1, 1, 0, 0, 0]


def test_no_files_are_no_groups() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert gather(nothing, nothing, nothing).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0.001, 2)), min_size=1, max_size=60))
def test_groups_are_numbered_without_gaps_and_never_overloaded_by_small_files(files: list[tuple[int, float]]) -> None:
    home, weights = (np.array(column) for column in zip(*files, strict=True))
    groups = gather(home, weights, np.arange(len(files)))
    assert sorted(set(groups.tolist())) == list(range(groups.max() + 1))
    for number in range(groups.max() + 1):
        members = groups == number
        assert len(set(home[members].tolist())) == 1
        if weights[home == home[members][0]].max() <= 0.5:
            assert weights[members].sum() <= 1 + 1e-9
    for partition in set(home.tolist()):
        if weights[home == partition].sum() <= 1:
            assert len(set(groups[home == partition].tolist())) == 1


def test_groups_of_a_plan_without_layouts_are_read_as_unordered() -> None:
    planned = plan(table([{"size_bytes": 1000}] * 20), Policy(), now_ms=NOW)
    before = {key: value for key, value in planned.groups.to_json().items() if key != "ordered"}
    assert Groups.from_json(before) == planned.groups


def test_partitions_with_a_data_file_that_is_listed_twice_are_left_alone_with_the_reason() -> None:
    """Iceberg counts the rows of a path once when it is replaced, and refuses the commit."""
    twice = {"path": "a.parquet", "size_bytes": 1000}
    files = [{"size_bytes": 1000, "partition": i % 3} for i in range(30)]
    state = table([*files, {**twice, "partition": 0}, {**twice, "partition": 1}])
    planned = plan(state, Policy(), now_ms=NOW, request=Request(force=True))
    assert {group.partition for group in planned.groups} == {"p=2"}
    told = {skipped.partition: skipped.reason for skipped in planned.skipped}
    for home in ("p=0", "p=1"):
        assert told[home] == (
            "the table lists data file a.parquet more than once: write its rows to new files, or remove it and add it once"
        )


def test_vectors_that_share_a_puffin_file_are_no_data_files_that_are_listed_twice() -> None:
    vectors = [{"path": "v.puffin", "format": "puffin", "content": 1, "content_offset": at} for at in (4, 50)]
    assert listed_twice(make_files([{}, {}, *vectors])) == {}
    assert listed_twice(make_files([])) == {}
