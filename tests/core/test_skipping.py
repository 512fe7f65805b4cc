from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neve.health.clustering import Outcome
from neve.health.skipping import (
    Clustering,
    TypicalReads,
    assess_clustering,
    typical_reads,
)
from neve.table.files import POSITION_DELETES, FileColumns
from neve.table.layout import Layout, LayoutKind
from neve.table.metrics import to_bytes
from neve.table.state import Column
from neve.table.units import KIB, MIB
from tests.builders.bounds import Box, bounded, grid, long_ranges, ranges_of
from tests.builders.files import make_files


def reads(boxes: list[Box], **options: Any) -> tuple[TypicalReads, ...]:
    ends = np.array(boxes)
    sizes = np.array(options.pop("sizes", [10] * len(boxes)))
    return typical_reads(long_ranges(ends[:, :, 0], ends[:, :, 1]), sizes, np.full(len(boxes), 100), **options)


def test_a_query_for_one_value_reads_one_row_of_a_grid() -> None:
    for found in reads(grid(10)):
        assert (found.files, found.bytes) == (pytest.approx(0.1), pytest.approx(0.1))


def test_a_query_for_one_value_reads_everything_that_is_as_wide_as_everything() -> None:
    assert reads([[(i, 100 - i)] for i in range(9)]) == (TypicalReads(files=1.0, bytes=1.0),)


def test_bytes_are_those_of_the_files_read() -> None:
    [found] = reads([[(0, 9)], [(10, 19)], [(0, 19)]], sizes=[10, 10, 80])
    assert (found.files, found.bytes) == (pytest.approx(2 / 3), pytest.approx(0.9))


def test_a_range_reads_the_files_at_its_edges_too() -> None:
    tiles: list[Box] = [[(10 * i, 10 * i + 9)] for i in range(20)]
    [point], [wide] = reads(tiles), reads(tiles, share=0.1)
    assert point.files == pytest.approx(0.05)
    assert wide.files == pytest.approx(0.15, abs=0.01)


def test_a_file_whose_range_is_not_known_is_always_read() -> None:
    ranges = ranges_of("long", [(0, 9), (10, 19), (None, None)])
    [found] = typical_reads(ranges, np.array([1, 1, 2]), np.ones(3))
    assert (found.files, found.bytes) == (pytest.approx(2 / 3), pytest.approx(0.75))
    assert typical_reads(ranges_of("long", [(None, None)]), np.array([1]), np.ones(1)) == (TypicalReads(files=1.0, bytes=1.0),)


def test_after_a_run_the_files_left_alone_are_read_as_before_and_the_others_as_predicted() -> None:
    boxes = [*grid(10), *[[(0, 99), (0, 99)]] * 25]
    outcome = Outcome(LayoutKind.HILBERT, 2, 25)
    after = reads(boxes, run=[(np.arange(100, 125), outcome)])
    assert after[0].bytes == pytest.approx((100 * 0.1 + 25 * 0.25) / 125, rel=0.02)
    assert after[0].files == pytest.approx(after[0].bytes)
    assert reads(boxes)[0].bytes == pytest.approx((100 * 0.1 + 25) / 125, rel=0.02)


FIELDS = [Column(field_id=1, name="x", type="long"), Column(field_id=2, name="y", type="long")]
LAYOUT = Layout.parse("hilbert(x, y)")


def make_table(boxes: list[Box], **columns: list[Any]) -> FileColumns:
    rows = [{"size_bytes": 100} | {name: values[i] for name, values in columns.items()} for i in range(len(boxes))]
    pairs = {
        field.field_id: [(to_bytes("long", box[place][0]), to_bytes("long", box[place][1])) for box in boxes]
        for place, field in enumerate(FIELDS)
    }
    return bounded(make_files(rows, partitions=["p=0", "p=1"]), pairs)


def assess(files: FileColumns, layout: Layout = LAYOUT) -> Clustering:
    return assess_clustering(files, FIELDS, layout, max_depth=6, target_bytes=100)


def test_a_clustered_table_reads_little_and_needs_no_run() -> None:
    found = assess(make_table(grid(10)))
    assert (found.layout, found.run_files, found.run_bytes) == ("hilbert(x, y)", 0, 0)
    assert (found.depth, found.worst_depth, found.depth_after) == (pytest.approx(1.0), 1.0, pytest.approx(1.0))
    assert [(column.name, column.depth) for column in found.columns] == [("x", pytest.approx(10)), ("y", pytest.approx(10))]
    for column in found.columns:
        assert column.point_read == column.point_read_after == pytest.approx(0.1)
        assert column.range_read == column.range_read_after == pytest.approx(0.11, abs=0.02)


def test_a_table_in_random_order_shows_what_a_run_would_gain() -> None:
    found = assess(make_table([[(i, 999 - i), (i, 999 - i)] for i in range(100)]))
    assert (found.run_files, found.run_bytes) == (100, 10_000)
    assert (found.depth, found.depth_after) == (pytest.approx(100), pytest.approx(1.5))
    for column in found.columns:
        assert (column.point_read, column.point_read_after) == (1.0, pytest.approx(0.125))
        assert (column.range_read, column.range_read_after) == (1.0, pytest.approx(0.135))
    assert Clustering.model_validate_json(found.model_dump_json()) == found


def test_depth_is_a_mean_over_the_rows_of_all_partitions() -> None:
    boxes: list[Box] = [[(0, 9), (0, 9)], [(1, 8), (1, 8)], [(0, 9), (0, 9)]]
    found = assess(make_table(boxes, partition=[0, 0, 1], records=[100, 100, 600]))
    assert (found.depth, found.worst_depth) == (pytest.approx(0.25 * 2 + 0.75 * 1), 2.0)


def test_deletes_are_no_part_of_it() -> None:
    files = make_table([[(0, 9), (0, 9)], [(0, 9), (0, 9)]], content=[0, POSITION_DELETES])
    assert assess(files).depth == 1.0


def test_runs_are_those_of_the_data_files() -> None:
    boxes: list[Box] = [[(i, 999 - i), (i, 999 - i)] for i in range(21)]
    files = make_table(boxes, content=[POSITION_DELETES] + [0] * 20)
    runs = np.array([-1] + [5] * 20)
    found = assess_clustering(files, FIELDS, LAYOUT, max_depth=6, target_bytes=100, runs=runs)
    assert (found.run_files, found.depth) == (0, pytest.approx(20))


@pytest.mark.parametrize("layout", ["hilbert(x, y)", "sort(bucket[4](x))"])
def test_a_table_without_files_or_without_measurable_columns_has_depth_zero(layout: str) -> None:
    found = assess(make_table([] if "x, y" in layout else [[(0, 9), (0, 9)]]), Layout.parse(layout))
    assert (found.depth, found.worst_depth, found.columns, found.run_files) == (0.0, 0.0, (), 0)


def crumbs(count: int) -> list[Box]:
    """Files that overlap at random, as those of many small writes do."""
    numbers = np.random.default_rng(7).integers(0, 1000, (count, 2, 2))
    return [[(int(min(pair)), int(max(pair))) for pair in box] for box in numbers]


def test_a_run_that_would_let_queries_read_more_is_not_advised() -> None:
    files = make_table(crumbs(60), size_bytes=[50 * KIB] * 60)
    found = assess_clustering(files, FIELDS, LAYOUT, max_depth=4, target_bytes=128 * MIB)
    assert found.run_files > 0
    assert all(column.point_read_after > column.point_read for column in found.columns)
    [rule] = found.not_due
    assert (found.advised, rule.rule, rule.threshold) == (False, "read-gain", 0.75)
    assert rule.measured is not None
    assert rule.measured > 1


def test_a_run_that_spares_a_query_less_than_a_file_is_not_advised() -> None:
    files = make_table([[(i, 999 - i), (i, 999 - i)] for i in range(100)])
    found = assess_clustering(files, FIELDS, LAYOUT, max_depth=6, target_bytes=3333)
    [rule] = found.not_due
    assert (found.advised, str(rule)) == (
        False,
        "bytes that a run spares a query for one value: 2.72 KB, due from 3.25 KB (target-file-size), once the table is larger",
    )


def test_a_run_that_lets_queries_skip_most_of_a_large_table_is_advised() -> None:
    found = assess(make_table([[(i, 999 - i), (i, 999 - i)] for i in range(100)]))
    assert (found.advised, found.not_due) == (True, ())


def test_a_clustered_table_says_how_deep_it_may_become() -> None:
    found = assess(make_table(grid(10)))
    assert [str(rule) for rule in found.not_due] == [
        "files over the same values in p=0: 1, due above 6 (cluster-depth), with 6 more overlapping files"
    ]
    assert found.advised is False


def test_of_files_that_are_chosen_already_the_depth_after_their_run_is_predicted() -> None:
    boxes: list[Box] = [*grid(10), *[[(i, 99 - i), (i, 99 - i)] for i in range(20)]]
    chosen = np.array([False] * 100 + [True] * 20)
    found = assess_clustering(make_table(boxes), FIELDS, LAYOUT, max_depth=6, target_bytes=100, chosen=chosen)
    assert (found.run_files, found.run_bytes) == (20, 2000)
    assert (found.depth, found.depth_after) == (pytest.approx(15.6, abs=0.1), pytest.approx(1 + 1.5, abs=0.1))
