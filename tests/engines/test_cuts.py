"""Cuts between parts, and curves in SQL: found in a sample, and told in SQL that DuckDB understands as well as Spark."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.spark.tasks.curve_columns import SqlCurve
from neve.spark.tasks.cuts import choose, find_cuts, literal
from neve.table.layout import LayoutKind, SortField

UTC = ZoneInfo("UTC")
FIELD = SortField(name="a")


def cut(values: list[Any], parts: int, *fields: SortField) -> list[tuple[Any, int]]:
    found = find_cuts([pa.array(values)], pa.array(range(len(values)), pa.int64()), fields or (FIELD,), parts)
    return [(one.values[0].as_py(), one.place) for one in found]


def test_parts_have_equally_many_rows() -> None:
    assert cut([7, 0, 3, 4, 2, 6, 5, 1], 4) == [(2, -1), (4, -1), (6, -1)]


def test_a_part_begins_with_another_key_if_one_is_near() -> None:
    assert cut([0] * 9 + [1] * 11 + [2] * 20, 2) == [(2, -1)]
    assert cut([0] * 16 + [1] * 24, 2) == [(1, -1)]
    assert cut([0] * 15 + [1] * 25, 2) == [(1, 20)]


def test_a_part_begins_with_another_value_of_the_first_field_if_one_is_near() -> None:
    days, hours = pa.array([0] * 17 + [1] * 23), pa.array(range(40))
    (found,) = find_cuts([days, hours], hours, [FIELD, SortField(name="b")], 2)

    assert ([value.as_py() for value in found.values], found.place) == ([1, 17], -1)


def test_a_part_begins_in_another_large_cell_of_a_curve_if_one_is_near() -> None:
    keys, places = pa.array(range(9, 73)), pa.array(range(64))
    found = find_cuts([keys], places, [FIELD], 4, is_curve=True)

    assert [one.values[0].as_py() for one in found] == [24, 40, 56]
    assert [one.values[0].as_py() for one in find_cuts([keys], places, [FIELD], 4)] == [25, 41, 57]


def test_rows_with_one_key_are_cut_by_their_places() -> None:
    assert cut([5] * 8, 4) == [(5, 2), (5, 4), (5, 6)]


def test_an_empty_sample_and_a_single_part_need_no_cut() -> None:
    assert cut([], 4) == []
    assert cut([1, 2, 3], 1) == []


def test_more_parts_than_rows_leave_some_empty() -> None:
    assert [value for value, _ in cut([1, 2], 5)] == [1, 2, 2, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(True), "TRUE"),
        (pa.scalar(-(2**63)), "CAST(-9223372036854775808 AS BIGINT)"),
        (pa.scalar(float("nan")), "CAST('nan' AS DOUBLE)"),
        (pa.scalar(0.1), "CAST('0.1' AS DOUBLE)"),
        (pa.scalar(Decimal("-0.00000001"), pa.decimal128(20, 8)), "CAST('-0.00000001' AS DECIMAL(20, 8))"),
        (pa.scalar(date(1969, 12, 30)), "date_from_unix_date(-2)"),
        (pa.scalar(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), pa.timestamp("us", "UTC")), "timestamp_micros(1000000)"),
        (
            pa.scalar(-500_000, pa.timestamp("us")),
            "(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST('-0.500000' AS DECIMAL(18, 6))))",
        ),
        (pa.scalar("it's é"), "CAST(X'6974277320c3a9' AS STRING)"),
        (pa.scalar(b"\x00\xff"), "X'00ff'"),
    ],
)
def test_a_value_is_told_exactly(value: pa.Scalar, text: str) -> None:
    assert literal(value) == text


def test_what_has_no_order_is_no_cut() -> None:
    with pytest.raises(
        BadRequestError, match=r"Cannot order rows by a column of type list<item: int64>: its values have no order"
    ):
        literal(pa.scalar([1]))


def key_of(value: int | None, field: SortField) -> tuple[int, int]:
    if value is None:
        return (-1 if field.nulls_first else 1, 0)
    return (0, -value if field.descending else value)


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(-2, 2)), min_size=1, max_size=30)
FIELDS = st.builds(SortField, name=st.just("x"), descending=st.booleans(), nulls_first=st.booleans())


@settings(deadline=None)
@given(rows=ROWS, fields=st.tuples(FIELDS, FIELDS), parts=st.integers(2, 6))
def test_a_greater_row_is_never_in_an_earlier_part(
    rows: list[tuple[int | None, int | None]], fields: tuple[SortField, SortField], parts: int
) -> None:
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(2)]
    places = pa.array(range(len(rows)), pa.int64())
    cuts = find_cuts(columns, places, fields, parts)
    text = choose(("a", "b"), fields, "place", cuts=cuts, parts=range(parts))
    given_rows = pa.table([*columns, places], names=["a", "b", "place"])  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql(f"SELECT {text} AS part FROM given_rows ORDER BY place").fetchall()

    ordered = sorted(range(len(rows)), key=lambda i: (*map(key_of, rows[i], fields), i))
    assert [found[i][0] for i in ordered] == sorted(number for (number,) in found)
    assert len(cuts) == parts - 1


NUMBERS = st.none() | st.integers(-5, 5) | st.sampled_from([-(2**63), 2**63 - 1])
DOUBLES = st.none() | st.floats()


@settings(deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, DOUBLES), min_size=1, max_size=40), sampled=st.integers(1, 40))
def test_sql_gives_the_keys_that_the_driver_cuts_by(rows: list[tuple[int | None, float | None]], sampled: int) -> None:
    columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.float64())]
    curve = SqlCurve.of(LayoutKind.ZORDER, [column[:sampled] for column in columns])
    given_rows = pa.table(columns, names=["a", "b"])  # noqa: F841 - DuckDB finds it by its name

    found = duckdb.sql(f"SELECT {curve.z_order(['a', 'b'])} FROM given_rows").fetchall()

    assert [key for (key,) in found] == curve.keys(columns).to_pylist()


def test_a_few_values_spread_over_all_ranks_of_a_curve_in_sql() -> None:
    column = pa.array([1, 2, 3, None] * 100)
    (boundaries, codes), _ = SqlCurve.of(LayoutKind.ZORDER, [column, column]).scales

    assert boundaries.to_pylist() == [1, 2, 3]
    assert [code >> 12 for code in codes] == [0b0000, 0b0010, 0b1000, 0b1010]  # of null, then of each value


def test_cells_next_to_each_other_on_the_curve_in_sql_touch() -> None:
    values = pa.array(range(64))
    columns = [pa.array([i for i in range(64) for _ in range(64)]), pa.array(list(range(64)) * 64)]
    curve = SqlCurve.of(LayoutKind.HILBERT, [values, values])

    cells = np.argsort(curve.keys(columns).to_numpy())

    steps = np.abs(np.diff(cells // 64)) + np.abs(np.diff(cells % 64))
    assert steps.mean() < 1.1
