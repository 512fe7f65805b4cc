from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neve.errors import BadRequestError
from neve.health.clustering import (
    NO_RUN,
    ClusteringChoice,
    ClusteringLimits,
    Outcome,
    choose,
    layout_columns,
    layout_ranges,
    runs_of,
)
from neve.table.bounds import Ranges
from neve.table.layout import Layout, LayoutKind
from neve.table.metrics import to_bytes
from neve.table.state import Column, Snapshot
from tests.builders.bounds import Box, bounded, grid, long_ranges, ranges_of
from tests.builders.files import make_files

TARGET = 100


def choices(boxes: list[Box], **changes: Any) -> list[ClusteringChoice]:
    """Files of the target's size and a hundred rows, unless said otherwise; a limit of 6."""
    ends = np.array(boxes)
    files = len(boxes)
    given = {"sizes": [TARGET] * files, "rows": [100] * files, "partition": [0] * files, "runs": None} | changes
    arrays = {name: None if given[name] is None else np.array(given.pop(name)) for name in ("sizes", "rows", "partition")}
    runs = given.pop("runs")
    return choose(
        long_ranges(ends[:, :, 0], ends[:, :, 1]),
        **arrays,  # type: ignore[arg-type]
        runs=None if runs is None else np.array(runs),
        **{"max_depth": 6, "target_bytes": TARGET} | given,  # type: ignore[arg-type]
    )


def wide(files: int, *, side: int = 400) -> list[Box]:
    """Files as wide as everything, each a little different."""
    return [[(-1 - i, side + i), (-1 - i, side + i)] for i in range(files)]


def test_a_grid_is_left_alone() -> None:
    [choice] = choices(grid(10))
    assert (choice.files.tolist(), choice.reason) == ([], "depth 1.0 is within 6")
    assert choice.predicted == choice.before


def test_fresh_files_are_gathered_and_the_grid_below_them_is_left_alone() -> None:
    [choice] = choices([*grid(10), *wide(8, side=100)])
    assert choice.files.tolist() == list(range(100, 108))
    assert choice.reason == "depth 9.0 is above 6"
    assert choice.before.mean == pytest.approx(9.0)
    assert choice.predicted.mean == pytest.approx(1 + 1.5, abs=0.1)  # the grid, and one run along Hilbert's curve


def test_a_few_fresh_files_are_not_worth_a_run() -> None:
    [choice] = choices([*grid(10), *wide(4, side=100)])
    assert (choice.files.tolist(), choice.reason) == ([], "depth 5.0 is within 6")


def test_all_files_of_a_table_in_random_order_are_gathered() -> None:
    [choice] = choices(wide(20))
    assert choice.files.tolist() == list(range(20))
    assert (choice.before.mean, choice.predicted.mean) == pytest.approx((20.0, 1.5))


def test_of_two_earlier_runs_the_smaller_is_gathered_with_what_is_fresh() -> None:
    small_run = [[(25 * x, 25 * x + 24), (25 * y, 25 * y + 24)] for x in range(4) for y in range(4)]
    middle_run = [[(20 * x, 20 * x + 19), (20 * y, 20 * y + 19)] for x in range(5) for y in range(5)]
    boxes = [*grid(10), *middle_run, *small_run, *wide(5, side=100)]
    [choice] = choices(boxes)
    assert choice.before.mean == pytest.approx(8.0)
    assert set(range(141, 146)) <= set(choice.files.tolist()) <= set(range(100, 146))
    assert choice.predicted.mean <= 4.0


def test_a_file_much_larger_than_the_target_is_cut_even_if_it_is_alone() -> None:
    [choice] = choices([[(0, 9), (0, 9)]], sizes=[20 * TARGET])
    assert (choice.files.tolist(), choice.before.mean, choice.predicted.mean) == ([0], 20.0, 1.5)


def test_small_files_count_like_others_and_become_one() -> None:
    [choice] = choices(wide(9), sizes=[5] * 9)
    assert (len(choice.files), choice.before.mean, choice.predicted.mean) == (9, 9.0, pytest.approx(1.0))


def test_partitions_are_chosen_apart() -> None:
    boxes = [*wide(8), *grid(3), [(0, 1), (0, 1)]]
    found = choices(boxes, partition=[4] * 8 + [2] * 9 + [7])
    assert [(choice.partition, len(choice.files)) for choice in found] == [(2, 0), (4, 8), (7, 0)]


def test_files_long_in_one_column_are_gathered_along_a_curve_but_not_for_a_sort() -> None:
    slabs: list[Box] = [[(10 * day, 10 * day + 9), (0, 1000)] for day in range(100)]
    [choice] = choices(slabs)
    assert len(choice.files) == 100
    assert choice.reason == "long thin files: queries on one column read as at depth 25.5, above 6"
    [choice] = choices(slabs, kind=LayoutKind.SORT)
    assert (len(choice.files), choice.reason) == (0, "depth 1.0 is within 6")


def test_files_of_one_value_are_never_gathered() -> None:
    [choice] = choices([[(5, 5), (7, 7)]] * 50)
    assert (choice.files.tolist(), choice.before.mean) == ([], 1.0)


@pytest.mark.parametrize(
    ("kind", "pair"),
    [("long", (None, None)), ("string", ("https://www.exam", "https://www.exan"))],
    ids=["nothing but nulls", "one cut prefix"],
)
def test_files_whose_bounds_no_rewrite_can_narrow_are_never_gathered(kind: str, pair: tuple[Any, Any]) -> None:
    number = np.full(50, 100)
    [choice] = choose(ranges_of(kind, [pair] * 50), number, number, np.zeros(50, dtype=np.int32), max_depth=6, target_bytes=100)
    assert (choice.files.tolist(), choice.reason) == ([], "depth 1.0 is within 6")


def test_three_runs_may_always_lie_on_one_another() -> None:
    assert ClusteringLimits(LayoutKind.ZORDER, 2, 2, TARGET).limit == pytest.approx(8.4)
    assert ClusteringLimits(LayoutKind.HILBERT, 3, 2, TARGET).limit == pytest.approx(5.4)
    assert ClusteringLimits(LayoutKind.SORT, 2, 2, TARGET).limit == 3.0
    assert ClusteringLimits(LayoutKind.SORT, 1, 12, TARGET).goal == 8.0


def test_a_run_is_predicted_from_its_kind_columns_and_files() -> None:
    assert Outcome(LayoutKind.SORT, 2, 50).shares.tolist() == [0.02, 1.0]
    assert Outcome(LayoutKind.HILBERT, 1, 50).shares.tolist() == [0.02]
    assert Outcome(LayoutKind.HILBERT, 2, 100).shares.tolist() == pytest.approx([0.125, 0.125])
    assert Outcome(LayoutKind.ZORDER, 3, 2).shares.tolist() == [1.0, 1.0, 1.0]
    assert [Outcome(LayoutKind.ZORDER, d, 100).depth for d in (1, 2, 3, 4)] == [1.0, 2.8, 4.2, 4.2]
    assert Outcome(LayoutKind.ZORDER, 2, 1).depth == 1.0


def test_files_of_one_run_are_not_taken_up_again_by_themselves() -> None:
    boxes = wide(20)  # as if the rewrite had not helped
    [choice] = choices(boxes, runs=[3] * 20)
    assert (choice.files.tolist(), choice.reason) == ([], "depth 20.0 is above 6, but most files are of one earlier run")
    [choice] = choices(boxes, runs=[3] * 10 + [4] * 5 + [NO_RUN] * 5)
    assert len(choice.files) == 20


def test_a_run_is_taken_up_whole() -> None:
    tiles: list[Box] = [[(25 * x, 25 * x + 24), (25 * y, 25 * y + 24)] for x in range(4) for y in range(4)]
    straddling: list[Box] = [[(0, 99), (40, 60)]]
    boxes = [*tiles, *straddling, *wide(8, side=100)]
    [alone] = choices(boxes)
    assert alone.files.tolist() == [16, *range(17, 25)]
    [choice] = choices(boxes, runs=[1] * 17 + [NO_RUN] * 8)
    assert choice.files.tolist() == list(range(17, 25))


def test_a_rewrite_that_would_change_little_is_not_made() -> None:
    stacks: list[Box] = [[(10 * x + i, 10 * x + 9 - i)] for x in range(2) for i in range(4)]
    [choice] = choices(stacks, kind=LayoutKind.SORT, max_depth=3, runs=[1] * 4 + [2] * 4)
    assert len(choice.files) == 8
    [choice] = choices([*stacks, [(0, 19)]], kind=LayoutKind.SORT, max_depth=3, runs=[1] * 4 + [1] * 4 + [NO_RUN])
    assert (choice.files.tolist(), choice.reason) == ([], "depth 4.7 is above 3, but a rewrite would change little")


def test_a_layout_that_bounds_do_not_tell_has_no_choice() -> None:
    fields = [Column(field_id=1, name="a", type="long"), Column(field_id=2, name="b", type="long")]
    files = bounded(make_files([{}]), {1: [(b"\0" * 8, b"\1" * 8)], 2: [(None, None)]})
    ranges = layout_ranges(files, Layout.parse("sort(bucket[4](a), b)"), fields)
    assert (ranges.columns, len(ranges)) == ((), 1)
    assert choose(ranges, np.ones(1), np.ones(1), np.zeros(1), max_depth=6, target_bytes=1) == []


def test_columns_are_measured_up_to_a_transform_that_does_not_keep_the_order() -> None:
    fields = [Column(field_id=i, name=name, type="long") for i, name in enumerate("abcd")]
    layout = Layout.parse("sort(c desc, truncate[5](a), bucket[8](b), d)")
    assert [column.name for column in layout_columns(layout, fields)] == ["c", "a"]


def test_a_column_that_the_table_does_not_have_is_named() -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot cluster by z: the table has no such column") as error:
        layout_columns(Layout.parse("z"), [Column(field_id=1, name="a", type="long")])
    assert error.value.hint == "Columns are a."


def test_ranges_of_a_layout_are_those_of_its_transforms() -> None:
    days = [(to_bytes("date", 0), to_bytes("date", 20)), (to_bytes("date", 10), to_bytes("date", 40))]
    fields = [Column(field_id=9, name="day", type="date")]
    ranges = layout_ranges(bounded(make_files([{}, {}]), {9: days}), Layout.parse("sort(month(day))"), fields)
    assert isinstance(ranges, Ranges)
    assert (ranges.lower.tolist(), ranges.upper.tolist()) == ([[0], [0]], [[0], [1]])


def test_commits_of_one_run_are_one_run_and_those_in_another_layout_are_none() -> None:
    def commit(number: int, **summary: str) -> Snapshot:
        named = {f"neve.{key.replace('_', '-')}": value for key, value in summary.items()}
        return Snapshot(
            snapshot_id=number, parent_id=None, sequence_number=number, timestamp_ms=0, operation="replace", summary=named
        )

    layout = Layout.parse("sort(a)")
    snapshots = [
        commit(10, run_id="x", layout=str(layout)),
        commit(11, run_id="x", layout=str(layout)),
        commit(12, run_id="y", layout="sort(b)"),
        commit(13, run_id="z", layout=str(layout)),
        commit(14, run_id="z"),
    ]
    first, same, other, second, unordered, gone = runs_of(layout, snapshots, np.array([10, 11, 12, 13, 14, 99])).tolist()
    assert first == same != second
    assert {other, unordered, gone} == {NO_RUN}
