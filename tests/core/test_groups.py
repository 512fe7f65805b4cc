"""Files that are brought into order go together; plans from before there were layouts can still be read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neve.policy.model import Policy
from neve.rewrite.groups import Groups, gather
from neve.rewrite.planner import plan
from tests.properties.test_plan import NOW, table


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
