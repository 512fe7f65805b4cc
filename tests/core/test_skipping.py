from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.core.clustering import Outcome
from neve.core.files import POSITION_DELETES, FileColumns
from neve.core.layout import Layout, LayoutKind
from neve.core.metrics import to_bytes
from neve.core.model import Column
from neve.core.skipping import (
    Clustering,
    Comparison,
    Operator,
    Reads,
    Touched,
    assess_clustering,
    surviving,
    touched,
    typical_reads,
)
from neve.errors import BadRequestError
from tests.core.make import make_files
from tests.core.test_bounds import bounded, long_ranges, ranges_of
from tests.core.test_overlap import Box, grid


def reads(boxes: list[Box], **options: Any) -> tuple[Reads, ...]:
    ends = np.array(boxes)
    sizes = np.array(options.pop("sizes", [10] * len(boxes)))
    return typical_reads(long_ranges(ends[:, :, 0], ends[:, :, 1]), sizes, np.full(len(boxes), 100), **options)


def test_a_query_for_one_value_reads_one_row_of_a_grid() -> None:
    for found in reads(grid(10)):
        assert (found.files, found.bytes) == (pytest.approx(0.1), pytest.approx(0.1))


def test_a_query_for_one_value_reads_everything_that_is_as_wide_as_everything() -> None:
    assert reads([[(i, 100 - i)] for i in range(9)]) == (Reads(files=1.0, bytes=1.0),)


def test_bytes_are_those_of_the_files_read() -> None:
    [found] = reads([[(0, 9)], [(10, 19)], [(0, 19)]], sizes=[10, 10, 80])
    assert found == Reads(files=pytest.approx(2 / 3), bytes=pytest.approx(0.9))


def test_a_range_reads_the_files_at_its_edges_too() -> None:
    tiles: list[Box] = [[(10 * i, 10 * i + 9)] for i in range(20)]
    [point], [wide] = reads(tiles), reads(tiles, share=0.1)
    assert point.files == pytest.approx(0.05)
    assert wide.files == pytest.approx(0.15, abs=0.01)


def test_a_file_whose_range_is_not_known_is_always_read() -> None:
    ranges = ranges_of("long", [(0, 9), (10, 19), (None, None)])
    [found] = typical_reads(ranges, np.array([1, 1, 2]), np.ones(3))
    assert found == Reads(files=pytest.approx(2 / 3), bytes=pytest.approx(0.75))
    assert typical_reads(ranges_of("long", [(None, None)]), np.array([1]), np.ones(1)) == (Reads(files=1.0, bytes=1.0),)


def test_after_a_run_the_files_left_alone_are_read_as_before_and_the_others_as_predicted() -> None:
    boxes = [*grid(10), *[[(0, 99), (0, 99)]] * 25]
    outcome = Outcome(LayoutKind.HILBERT, 2, 25)
    after = reads(boxes, run=[(np.arange(100, 125), outcome)])
    assert after[0].bytes == pytest.approx((100 * 0.1 + 25 * 0.25) / 125, rel=0.02)
    assert after[0].files == pytest.approx(after[0].bytes)
    assert reads(boxes)[0].bytes == pytest.approx((100 * 0.1 + 25) / 125, rel=0.02)


QUERIES: list[tuple[str, tuple[Any, ...], list[int]]] = [
    ("=", (10,), [1, 3]),
    ("=", (9,), [0, 3]),
    ("=", (9_5,), [3]),
    ("=", (15,), [1, 3]),
    ("=", (1000,), [3]),
    ("<", (10,), [0, 3]),
    ("<=", (10,), [0, 1, 3]),
    (">", (19,), [2, 3]),
    (">=", (19,), [1, 2, 3]),
    (">=", (30,), [3]),
    ("between", (9, 10), [0, 1, 3]),
    ("between", (30, 20), [3]),
    ("in", (5, 25), [0, 2, 3]),
    ("in", (), []),
]


@pytest.mark.parametrize(("operator", "values", "expected"), QUERIES)
def test_a_comparison_leaves_the_files_whose_bounds_allow_it(
    operator: str, values: tuple[Any, ...], expected: list[int]
) -> None:
    ranges = ranges_of("long", [(0, 9), (10, 19), (20, 29), (None, None)])
    query = [Comparison(column="a", operator=Operator(operator), values=values)]
    assert np.flatnonzero(surviving(ranges, query)).tolist() == expected


def test_all_conditions_of_a_query_must_hold() -> None:
    ends = np.array(grid(3))
    ranges = long_ranges(ends[:, :, 0], ends[:, :, 1])
    query = [
        Comparison(column="c0", operator=Operator.EQUAL, values=(15,)),
        Comparison(column="c1", operator=Operator.MORE, values=(9,)),
        Comparison(column="elsewhere", operator=Operator.EQUAL, values=(1,)),
    ]
    assert touched(ranges, np.arange(9), query) == Touched(files=2, bytes=4 + 5)
    assert touched(ranges, np.arange(9), []) == Touched(files=9, bytes=36)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), min_size=1, max_size=12),
    st.sampled_from(Operator),
    st.tuples(st.integers(-2, 22), st.integers(-2, 22)),
)
def test_no_file_that_holds_a_matching_row_is_ruled_out(
    pairs: list[list[int]], operator: Operator, values: tuple[int, int]
) -> None:
    query = Comparison(column="a", operator=operator, values=values if operator in ("between", "in") else values[:1])
    first, last = values
    holds = {
        "=": lambda v: v == first,
        "<": lambda v: v < first,
        "<=": lambda v: v <= first,
        ">": lambda v: v > first,
        ">=": lambda v: v >= first,
        "between": lambda v: first <= v <= last,
        "in": lambda v: v in values,
    }[operator]
    found = surviving(ranges_of("long", [(lo, hi) for lo, hi in pairs]), [query])
    for (low, high), read in zip(pairs, found.tolist(), strict=True):
        assert read >= any(holds(value) for value in range(low, high + 1))
        if not read:
            assert not holds(low)
            assert not holds(high)


LITERALS: list[tuple[str, Any, Any]] = [
    ("int", 7, 7),
    ("double", 1, 1.0),
    ("boolean", True, True),
    ("date", "1970-01-03", 2),
    ("date", date(1970, 1, 3), 2),
    ("time", "00:00:01.5", 1_500_000),
    ("time", time(1), 3_600_000_000),
    ("timestamp", "1970-01-02T00:00:00", 86_400_000_000),
    ("timestamptz", datetime(1970, 1, 1, 1, tzinfo=UTC), 3_600_000_000),
    ("timestamptz", "1970-01-01T02:00:00+01:00", 3_600_000_000),
    ("timestamp_ns", "1970-01-01T00:00:00.000001", 1000),
    ("decimal(9, 2)", "-1.50", -150),
    ("decimal(9, 2)", Decimal("3"), 300),
    ("uuid", "00000000-0000-0000-0000-000000000001", bytes(15) + b"\x01"),
    ("uuid", UUID(int=1), bytes(15) + b"\x01"),
    ("string", "é", "é"),
    ("binary", b"\x00", b"\x00"),
]


@pytest.mark.parametrize(("kind", "written", "value"), LITERALS)
def test_values_are_written_as_people_write_them(kind: str, written: Any, value: Any) -> None:
    ranges = ranges_of(kind, [(value, value), (None, None)])
    query = [Comparison(column="a", operator=Operator.EQUAL, values=(written,))]
    assert surviving(ranges, query).tolist() == [True, True]
    assert ranges.locate(0, to_bytes(kind, value)) == 0


WRONG: list[tuple[str, Any]] = [
    ("long", 1.5),
    ("long", "x"),
    ("long", 2**70),
    ("date", "yesterday"),
    ("decimal(9, 2)", "x"),
    ("uuid", "x"),
    ("string", 5),
    ("boolean", "true"),
    ("binary", "x"),
]


@pytest.mark.parametrize(("kind", "value"), WRONG)
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    query = [Comparison(column="a", operator=Operator.EQUAL, values=(value,))]
    with pytest.raises(BadRequestError) as error:
        surviving(ranges_of(kind, [(None, None)]), query)
    assert str(error.value) == f"Cannot compare a with {value!r}: not a value of type {kind}"


def test_a_comparison_with_the_wrong_number_of_values_is_refused() -> None:
    query = [Comparison(column="a", operator=Operator.BETWEEN, values=(1,))]
    with pytest.raises(BadRequestError, match=r"^Cannot compare a: between does not take 1 values$"):
        surviving(ranges_of("long", [(0, 1)]), query)


FIELDS = [Column(field_id=1, name="x", type="long"), Column(field_id=2, name="y", type="long")]
LAYOUT = Layout.parse("hilbert(x, y)")


def make_table(boxes: list[Box], **columns: list[Any]) -> FileColumns:
    rows = [{"size_bytes": 100} | {name: values[i] for name, values in columns.items()} for i in range(len(boxes))]
    pairs = {
        field.field_id: [(to_bytes("long", box[place][0]), to_bytes("long", box[place][1])) for box in boxes]
        for place, field in enumerate(FIELDS)
    }
    return bounded(make_files(rows, partitions=["p=0", "p=1"]), pairs)  # type: ignore[arg-type]


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
