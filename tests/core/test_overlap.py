from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.health.overlap import SAMPLES, Boxes, Overlap, each_partition, layers, overlap, row_shares, stretch
from tests.builders.bounds import Box, grid, long_ranges


def make_boxes(boxes: list[Box]) -> Boxes:
    """Each box by its range in every column."""
    ends = np.array(boxes)
    return Boxes.of(long_ranges(ends[:, :, 0], ends[:, :, 1]), np.arange(len(boxes)))


def depth_of(boxes: list[Box], rows: list[int] | None = None) -> Overlap:
    return overlap(make_boxes(boxes), np.array(rows or [1] * len(boxes)))


def test_files_side_by_side_have_depth_one() -> None:
    assert depth_of([[(0, 9)], [(10, 19)], [(20, 29)]]) == Overlap(mean=1.0, worst=1.0, columns=(1.0,))


def test_files_that_only_touch_do_not_overlap_in_their_middles() -> None:
    assert depth_of([[(0, 10)], [(10, 20)], [(20, 30)]]) == Overlap(mean=1.0, worst=1.0, columns=(1.0,))


def test_files_as_wide_as_everything_lie_on_one_another() -> None:
    assert depth_of([[(i, 100 - i)] for i in range(5)]) == Overlap(mean=5.0, worst=5.0, columns=(5.0,))


def test_a_grid_has_depth_one_though_each_column_is_met_by_a_whole_row_of_it() -> None:
    assert depth_of(grid(4)) == Overlap(mean=1.0, worst=1.0, columns=(4.0, 4.0))


def test_depth_is_a_mean_over_rows() -> None:
    found = depth_of([[(0, 9)], [(20, 29)], [(0, 29)]], rows=[6, 3, 1])
    assert (found.mean, found.worst, found.columns) == (pytest.approx(2.0), 2.0, pytest.approx((2.0,)))
    found = depth_of([[(0, 9)], [(20, 29)], [(0, 9)]], rows=[6, 3, 1])
    assert (found.mean, found.worst, found.columns) == (pytest.approx(0.7 * 2 + 0.3 * 1), 2.0, pytest.approx((1.7,)))


def test_files_with_the_same_single_value_count_once() -> None:
    assert depth_of([[(7, 7)], [(7, 7)], [(7, 7)], [(0, 9)]]) == Overlap(mean=2.0, worst=2.0, columns=(2.0,))


def test_a_file_without_rows_counts_as_one_row() -> None:
    assert depth_of([[(0, 9)], [(5, 14)]], rows=[0, 0]).mean == depth_of([[(0, 9)], [(5, 14)]]).mean


def test_a_file_counts_as_often_as_it_is_asked_to() -> None:
    boxes = make_boxes([[(0, 9)], [(20, 29)]])
    assert overlap(boxes, np.array([1, 1]), weights=np.array([5, 1])) == Overlap(mean=3.0, worst=5.0, columns=(3.0,))


def test_classes_of_files_are_counted_apart() -> None:
    boxes = make_boxes([[(0, 29)], [(0, 9)], [(10, 19)], [(20, 29)]])
    found = layers(boxes, np.ones(4), classes=np.array([1, 0, 0, 0]))
    assert found.depth.tolist() == [[1.0] * 4, [1.0] * 4]
    assert found.overlap(1).mean == 1.0
    assert found.overlap(1, extra=2.0, by_column=3.0) == Overlap(mean=3.0, worst=3.0, columns=(4.0,))


def test_many_files_are_looked_at_in_some_points() -> None:
    boxes = make_boxes([*grid(40), *[[(i, 399 - i), (i, 399 - i)] for i in range(9)]])
    found = layers(boxes, np.ones(len(boxes)))
    assert len(found.points) == SAMPLES
    assert found.overlap().mean == pytest.approx(10.0, abs=0.6)


def test_each_partition_is_met_once_with_its_files_in_order() -> None:
    found = [(home, files.tolist()) for home, files in each_partition(np.array([5, 2, 5, 0, 2]))]
    assert found == [(0, [3]), (2, [1, 4]), (5, [0, 2])]
    assert list(each_partition(np.array([], dtype=np.int32))) == []


def test_shares_are_of_the_rows_whose_files_have_their_middle_in_the_range() -> None:
    shares = row_shares(make_boxes([[(0, 9)], [(20, 29)], [(0, 29)]]), np.array([6, 3, 1]))
    assert shares[:, 0].tolist() == [0.7, 0.3, 1.0]


def test_stretch_is_one_in_a_grid_and_tells_how_small_a_part_of_the_rows_lies_as_wide_as_all() -> None:
    boxes = [*grid(4), [(0, 39), (0, 39)]]
    found = stretch(make_boxes(boxes), np.array([6] * 16 + [4]))
    assert found[:16].tolist() == pytest.approx([1.0] * 16, rel=0.35)
    assert found[16] == 25.0


def test_long_thin_files_are_stretched_along_a_curve_but_not_in_a_sort() -> None:
    slabs = make_boxes([[(10 * x, 10 * x + 9), (0, 100)] for x in range(10)])
    assert stretch(slabs, np.ones(10), curve=False).tolist() == pytest.approx([1.0] * 10)
    assert stretch(slabs, np.ones(10)).tolist() == pytest.approx([0.55**2 * 10] * 10)


def value_depth(boxes: list[Box], rows: list[int]) -> float:
    """The definition, slowly: bounds are even numbers, the points between two of them odd."""
    total = 0
    places = [sorted({end for box in boxes for end in box[i]}) for i in range(len(boxes[0]))]
    at = [[(2 * places[i].index(lo), 2 * places[i].index(hi)) for i, (lo, hi) in enumerate(box)] for box in boxes]
    for box, count in zip(at, rows, strict=True):
        point = [(lo + hi) // 2 if hi - lo <= 2 else (lo + hi) // 4 * 2 for lo, hi in box]
        over = [other for other in at if all(lo <= p <= hi for p, (lo, hi) in zip(point, other, strict=True))]
        wide = [other for other in over if any(lo < hi for lo, hi in other)]
        total += count * (len(wide) + (len(wide) < len(over)))
    return total / sum(rows)


ends = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (min(pair), max(pair)))
tables = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.tuples(st.lists(ends, min_size=d, max_size=d), st.integers(1, 9)), min_size=1, max_size=30)
)


@settings(deadline=None, max_examples=50)
@given(tables)
def test_depth_is_as_defined(table: list[tuple[Box, int]]) -> None:
    boxes, rows = [box for box, _ in table], [count for _, count in table]
    assert depth_of(boxes, rows).mean == pytest.approx(value_depth(boxes, rows))


@settings(deadline=None, max_examples=50)
@given(tables, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(table: list[tuple[Box, int]], random: object) -> None:
    many = table * 6  # some of them more than the samples
    shuffled = list(many)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    before, after = (depth_of([box for box, _ in t], [count for _, count in t]) for t in (many, shuffled))
    assert after.mean == pytest.approx(before.mean)
    assert (after.worst, after.columns) == (before.worst, pytest.approx(before.columns))


@settings(deadline=None, max_examples=50)
@given(tables)
def test_a_file_apart_from_all_others_never_makes_it_deeper(table: list[tuple[Box, int]]) -> None:
    boxes, rows = [box for box, _ in table], [count for _, count in table]
    apart: Box = [(100, 101)] * len(boxes[0])
    before, after = depth_of(boxes, rows), depth_of([*boxes, apart], [*rows, 5])
    assert (after.worst, after.mean <= before.mean + 1e-9) == (before.worst, True)


@settings(deadline=None, max_examples=50)
@given(tables)
def test_a_file_as_wide_as_all_adds_one_wherever_there_is_a_file(table: list[tuple[Box, int]]) -> None:
    boxes = [box for box, _ in table]
    everything: Box = [(-1, 13)] * len(boxes[0])
    more = [*boxes, everything]
    found = layers(make_boxes(more), np.ones(len(more)), classes=np.array([0] * len(boxes) + [1]))
    assert found.depth[1].tolist() == [1.0] * len(more)


@settings(deadline=None, max_examples=50)
@given(tables)
def test_no_column_alone_is_less_deep_than_all_together(table: list[tuple[Box, int]]) -> None:
    boxes = [[(lo, hi + 1) for lo, hi in box] for box, _ in table]
    found = depth_of(boxes, [count for _, count in table])
    assert 1 <= found.mean <= min(found.columns) + 1e-9
    assert found.mean <= found.worst + 1e-9
