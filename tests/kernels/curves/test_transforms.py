"""Transforms of sort fields give what Iceberg's own definition gives, here in pyiceberg's words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, TruncateTransform, YearTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from neve.kernels.arrow.model import RefusedError
from neve.kernels.curves.transforms import transformed
from tests.builders.ordered_columns import BYTES, LAW, TEXT, decimals

TIMES = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}
# Years that Python's own calendar has, since pyiceberg counts by it.
DAYS = st.integers(-600_000, 2_000_000)
WIDTHS = st.integers(1, 20) | st.integers(1, 2**31 - 1)
CLOCKS = {
    "timestamp": (TimestampType(), pa.timestamp("us"), 10**6),
    "timestamptz": (TimestamptzType(), pa.timestamp("us", "UTC"), 10**6),
    "timestamp_ns": (TimestampNanoType(), pa.timestamp("ns"), 10**9),
    "timestamptz_ns": (TimestamptzNanoType(), pa.timestamp("ns", "UTC"), 10**9),
}


@pytest.mark.parametrize("unit", ["year", "month", "day"])
@LAW
@given(days=st.lists(st.none() | DAYS, max_size=20))
def test_dates_are_counted_as_iceberg_counts_them(unit: str, days: list[int | None]) -> None:
    expected = [TIMES[unit]().transform(DateType())(day) for day in days]
    assert transformed(pa.array(days, pa.int32()).view(pa.date32()), unit, "date").to_pylist() == expected


@pytest.mark.parametrize("unit", TIMES)
@pytest.mark.parametrize("kind", CLOCKS)
@LAW
@given(seconds=st.lists(st.none() | st.integers(-(9 * 10**9), 9 * 10**9) | st.integers(-5, 5), max_size=20), data=st.data())
def test_moments_are_counted_as_iceberg_counts_them(
    kind: str, unit: str, seconds: list[int | None], data: st.DataObject
) -> None:
    source, arrow, ticks = CLOCKS[kind]
    moments = [None if s is None else s * ticks + data.draw(st.sampled_from([0, 1, ticks - 1])) for s in seconds]
    expected = [TIMES[unit]().transform(source)(moment) for moment in moments]
    assert transformed(pa.array(moments, pa.int64()).view(arrow), unit, kind).to_pylist() == expected


@LAW
@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=20), WIDTHS)
def test_whole_numbers_are_truncated_downwards(values: list[int | None], width: int) -> None:
    expected = [TruncateTransform(width).transform(IntegerType())(value) for value in values]
    assert transformed(pa.array(values, pa.int32()), f"truncate[{width}]", "int").to_pylist() == expected
    expected = [TruncateTransform(width).transform(LongType())(value) for value in values]
    assert transformed(pa.array(values, pa.int64()), f"truncate[{width}]", "long").to_pylist() == expected


def test_the_least_long_stays_the_least() -> None:
    least = -(2**63)
    assert transformed(pa.array([least, least + 7, 0]), "truncate[10]", "long").to_pylist() == [least, least, 0]


@LAW
@given(st.lists(st.none() | decimals(38, 5), max_size=20), WIDTHS, st.booleans())
def test_decimals_are_truncated_downwards(values: list[Decimal | None], width: int, sliced: bool) -> None:
    kind = pa.decimal128(38, 5)
    column = pa.array([Decimal(1), *values], kind)[1:] if sliced else pa.array(values, kind)
    found = transformed(column, f"truncate[{width}]", "decimal(38, 5)")
    assert (found.type, found.is_null().to_pylist()) == (kind, [value is None for value in values])
    before, after = unscaled(column), unscaled(found)
    assert [after[i] for i, value in enumerate(values) if value is not None] == [
        before[i] - before[i] % width for i, value in enumerate(values) if value is not None
    ]


def unscaled(column: pa.Array) -> list[int]:
    """The numbers as they are stored: Python's decimals round what has more than 28 digits."""
    stored = memoryview(column.buffers()[1] or b"")[16 * column.offset :]
    return [int.from_bytes(stored[16 * i : 16 * i + 16], "little", signed=True) for i in range(len(column))]


@LAW
@given(st.lists(st.none() | TEXT, max_size=20), st.integers(1, 9))
def test_texts_are_cut_by_characters_and_bytes_by_bytes(values: list[str | None], width: int) -> None:
    truncate = f"truncate[{width}]"
    expected = [TruncateTransform(width).transform(StringType())(value) for value in values]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        assert transformed(pa.array(values, kind), truncate, "string").to_pylist() == expected


@LAW
@given(st.lists(st.none() | BYTES, max_size=20), st.integers(1, 9))
def test_bytes_are_cut(values: list[bytes | None], width: int) -> None:
    expected = [TruncateTransform(width).transform(BinaryType())(value) for value in values]
    assert transformed(pa.array(values, pa.binary()), f"truncate[{width}]", "binary").to_pylist() == expected


def test_identity_and_void() -> None:
    column = pa.chunked_array([["b"], ["a", None]])
    assert transformed(column, "identity", "string").to_pylist() == ["b", "a", None]
    assert transformed(column, "void", "string").to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    ("transform", "kind"),
    [
        ("bucket[16]", "long"),
        ("truncate[3]", "uuid"),
        ("truncate[0]", "int"),
        ("truncate", "int"),
        ("year", "string"),
        ("hour", "date"),
        ("hour[2]", "timestamp"),
        ("zorder", "long"),
        ("a(b)", "long"),
    ],
)
def test_what_is_not_done_here_is_refused_by_name(transform: str, kind: str) -> None:
    with pytest.raises(RefusedError) as caught:
        transformed(pa.array([], pa.int64()), transform, kind)
    expected: Any = f"Cannot sort with the arrow kernel: it has no transform {transform} of a column of type {kind}"
    assert (str(caught.value), caught.value.hint) == (expected, "The spark kernel can.")
