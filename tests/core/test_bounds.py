from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.table.bounds import Ranges
from neve.table.metrics import to_bytes, truncate_lower, truncate_upper
from tests.builders.bounds import bounded, make_column, ranges_of
from tests.builders.files import make_files


def ranks(ranges: Ranges) -> list[tuple[int, int]]:
    return list(zip(ranges.lower[:, 0].tolist(), ranges.upper[:, 0].tolist(), strict=True))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "date": st.integers(-100_000, 100_000),
    "timestamptz_ns": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "decimal(9, 2)": st.integers(-(10**9), 10**9),
    "decimal(38, 0)": st.integers(-(10**38), 10**38),
    "string": st.text(max_size=6),
    "uuid": st.binary(min_size=16, max_size=16),
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "binary": st.binary(max_size=6),
}


@pytest.mark.parametrize("kind", VALUES)
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_ranks_compare_as_the_values_do(kind: str, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(VALUES[kind], VALUES[kind]), min_size=1, max_size=8))
    ranges = ranges_of(kind, pairs)
    values = [value for pair in pairs for value in pair]
    found = [rank for pair in ranks(ranges) for rank in pair]
    for value, rank in zip(values, found, strict=True):
        for other, other_rank in zip(values, found, strict=True):
            if kind == "string":
                assert (value.encode() < other.encode()) == (rank < other_rank)
            else:
                assert (value < other) == (rank < other_rank)
                assert (value == other) == (rank == other_rank)


def test_a_negative_number_is_below_a_positive_one_of_any_width() -> None:
    assert ranks(ranges_of("decimal(38, 0)", [(-1, 10**30), (-(10**30), 0), (255, 256)])) == [(1, 5), (0, 2), (3, 4)]


def test_bounds_from_before_a_column_was_widened_compare_with_those_after() -> None:
    old = (to_bytes("int", -5), to_bytes("int", 7))
    new = (to_bytes("long", -6), to_bytes("long", 2**40))
    files = bounded(make_files([{}, {}]), {1: [old, new]})
    assert ranks(Ranges.of(files, [make_column("long")])) == [(1, 2), (0, 3)]

    old = (to_bytes("float", 0.5), to_bytes("float", 2.0))
    new = (to_bytes("double", 0.25), to_bytes("double", 2.0))
    files = bounded(make_files([{}, {}]), {1: [old, new]})
    assert ranks(Ranges.of(files, [make_column("double")])) == [(1, 2), (0, 2)]


def test_dates_compare_with_the_timestamps_that_they_became() -> None:
    day = 86_400_000_000
    old = (to_bytes("date", 1), to_bytes("date", 2))
    new = (to_bytes("timestamp", day), to_bytes("timestamp", 2 * day + 1))
    files = bounded(make_files([{}, {}]), {1: [old, new]})
    assert ranks(Ranges.of(files, [make_column("timestamp")])) == [(0, 1), (0, 2)]


def test_zero_has_no_sign() -> None:
    assert ranks(ranges_of("double", [(-0.0, 0.0), (0.0, 1.0), (-1.0, -0.0)])) == [(1, 1), (1, 2), (0, 1)]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_a_bound_that_is_not_a_number_is_not_known(kind: str) -> None:
    ranges = ranges_of(kind, [(math.nan, math.nan), (1.0, math.nan), (1.0, 2.0)])
    assert ranks(ranges) == [(-1, 2), (0, 2), (0, 1)]
    assert ranges.single[:, 0].tolist() == [True, True, False]


def test_an_unknown_bound_spans_everything() -> None:
    ranges = ranges_of("long", [(None, 5), (3, None), (None, None), (3, 5)])
    assert ranks(ranges) == [(-1, 1), (0, 2), (-1, 2), (0, 1)]


@pytest.mark.parametrize("kind", ["long", "double", "decimal(9, 2)"])
def test_bytes_of_a_wrong_length_are_not_known(kind: str) -> None:
    files = bounded(make_files([{}]), {1: [(b"", bytes(17))]})
    assert ranks(Ranges.of(files, [make_column(kind)])) == [(-1, 0)]


def test_a_type_without_an_order_has_no_known_bounds() -> None:
    files = bounded(make_files([{}, {}]), {1: [(b"\x01", b"\x02"), (b"\x03", b"\x04")]})
    ranges = Ranges.of(files, [make_column("geometry(srid:4326)")])
    assert (ranks(ranges), ranges.single[:, 0].tolist()) == ([(-1, 0), (-1, 0)], [True, True])


def test_a_table_without_files_has_no_ranges() -> None:
    ranges = Ranges.of(bounded(make_files([]), {1: []}), [make_column()])
    assert (len(ranges), ranges.lower.shape, len(ranges.keys[0])) == (0, (0, 1), 0)


def test_columns_that_were_not_read_are_named() -> None:
    files = bounded(make_files([{}]), {1: [(None, None)]})
    with pytest.raises(BadRequestError, match=r"^Cannot measure b, c: the files were read without the bounds") as error:
        Ranges.of(files, [make_column(), make_column(name="b", field_id=2), make_column(name="c", field_id=3)])
    assert error.value.hint == "Ask for bounds where files are read."
    with pytest.raises(BadRequestError, match="Cannot measure a"):
        Ranges.of(make_files([{}]), [make_column()])


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "single"),
    [
        ("string", "https://www.example.com/a", "https://www.example.com/b", True),
        ("string", "https://www.example.com/a", "https://www.fxample.com/b", False),
        ("string", "abc", "abd", False),  # short enough to be two values
        ("string", "é" * 15 + "\ud7ff" + "x", "é" * 15 + "\ud7ff" + "z", True),  # the next character is past the surrogates
        ("binary", b"p" * 20, b"p" * 16 + b"z", True),
        ("binary", b"p" * 20, b"p" * 15 + b"z", False),
    ],
)
def test_a_range_of_one_cut_prefix_cannot_be_made_narrower(kind: str, lower: Any, upper: Any, single: bool) -> None:
    pair = truncate_lower(kind, to_bytes(kind, lower), 16), truncate_upper(kind, to_bytes(kind, upper), 16)
    ranges = Ranges.of(bounded(make_files([{}]), {1: [pair]}), [make_column(kind)])
    assert ranges.single.tolist() == [[single]]
    assert ranks(ranges) == [(0, 1)]
    assert ranks(ranges.as_told_apart()) == [(0, 0 if single else 1)]


def test_told_apart_unknown_ranges_are_a_point_beyond_all_others() -> None:
    apart = ranges_of("long", [(None, None), (3, None), (3, 5), (4, 4)]).as_told_apart()
    assert ranks(apart) == [(4, 4), (4, 4), (0, 2), (1, 1)]
    assert apart.single[:, 0].tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    ("kind", "transform", "values", "expected"),
    [
        ("date", "identity", [0, 1, 30, 31], [0, 1, 2, 3]),
        ("date", "month", [0, 30, 31, 400], [0, 0, 1, 2]),
        ("date", "year", [-1, 0, 364, 365], [0, 1, 1, 2]),
        ("timestamp", "day", [-1, 0, 86_399_999_999, 86_400_000_000], [0, 1, 1, 2]),
        ("timestamptz_ns", "hour", [0, 3_599_999_999_999, 3_600_000_000_000], [0, 0, 1]),
        ("long", "truncate[10]", [-11, -10, -1, 0, 9, 10], [0, 1, 1, 2, 2, 3]),
        ("decimal(9, 2)", "truncate[10]", [-11, -1, 0, 9, 10], [0, 1, 2, 2, 3]),
        ("string", "truncate[2]", ["éa", "éab", "éac", "éb"], [0, 0, 0, 1]),
        ("binary", "truncate[1]", [b"a", b"ab", b"b"], [0, 0, 1]),
    ],
)
def test_coarsened_ranges_have_one_rank_for_what_the_transform_makes_equal(
    kind: str, transform: str, values: list[Any], expected: list[int]
) -> None:
    ranges = ranges_of(kind, [(value, value) for value in values]).coarsened([transform])
    assert ranges.lower[:, 0].tolist() == ranges.upper[:, 0].tolist() == expected


def test_coarsened_ranges_keep_unknown_bounds_unknown() -> None:
    ranges = ranges_of("date", [(None, 3), (1, None), (1, 40)]).coarsened(["month"])
    assert ranks(ranges) == [(-1, 0), (0, 2), (0, 1)]
    assert ranges.single[:, 0].tolist() == [True, True, False]
    assert ranks(ranges_of("date", [(None, None)]).coarsened(["month"])) == [(-1, 0)]


def test_a_value_has_a_key_that_compares_with_those_of_the_bounds() -> None:
    ranges = ranges_of("decimal(9, 2)", [(int(Decimal("-1.50").scaleb(2)), 100)])
    below, first, between, last = (ranges.key_of(0, to_bytes("decimal(9, 2)", value)).as_py() for value in (-151, -150, 0, 100))
    assert below < first < between < last
    assert [first, last] == ranges.keys[0].to_pylist()
    with pytest.raises(BadRequestError, match=r"^Cannot compare a with b'x': not a value of type long$"):
        ranges_of("long", [(1, 2)]).key_of(0, b"x")


def test_some_files_keep_the_ranks_of_all() -> None:
    ranges = ranges_of("long", [(1, 9), (2, 8), (3, 7)])
    assert ranks(ranges.take(np.array([False, True, True]))) == [(1, 4), (2, 3)]
    assert len(ranges) == 3


ODD = [b"x" + b"\xc3" * 15, b"\xff" * 16, b"caf\xc3\xa9", b"", b"\xed\xa0\x80", b"0123456789abcde\xc3"]


def test_bounds_that_are_not_utf_8_are_ranked_by_their_bytes() -> None:
    pairs = [(value, value) for value in ODD]
    ranges = Ranges.of(bounded(make_files([{} for _ in pairs]), {1: pairs}), [make_column("string")])
    order = sorted(ODD)
    assert ranks(ranges) == [(order.index(value), order.index(value)) for value in ODD]


def test_bounds_that_are_not_utf_8_can_be_truncated() -> None:
    pairs = [(value, value) for value in ODD]
    ranges = Ranges.of(bounded(make_files([{} for _ in pairs]), {1: pairs}), [make_column("string")])
    cut = ranges.coarsened(["truncate[2]"])
    assert cut.keys[0].to_pylist() == [b"", b"01", b"ca", b"x\xc3", b"\xed\xa0", b"\xff\xff"]
