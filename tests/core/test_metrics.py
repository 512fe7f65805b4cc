from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.table.metrics import (
    COUNTS,
    FULL,
    NONE,
    TRUNCATE_16,
    ColumnMetrics,
    MetricsMode,
    for_manifest,
    from_bytes,
    merge,
    metrics_modes,
    order_key,
    restrict,
    to_bytes,
    truncate_lower,
    truncate_upper,
    with_sure_bounds,
)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, "01"),
        ("boolean", False, "00"),
        ("int", 34, "22000000"),
        ("int", -1, "ffffffff"),
        ("date", 17_501, "5d440000"),
        ("long", 34, "2200000000000000"),
        ("timestamptz", -1, "ffffffffffffffff"),
        ("float", 1.0, "0000803f"),
        ("double", -0.0, "0000000000000080"),
        ("string", "é", "c3a9"),
        ("decimal(9, 2)", 1420, "058c"),
        ("decimal(9, 2)", 127, "7f"),
        ("decimal(9, 2)", 128, "0080"),
        ("decimal(9, 2)", -128, "80"),
        ("decimal(38, 0)", 0, "00"),
        ("binary", b"\x00\xff", "00ff"),
        ("fixed[2]", b"ab", "6162"),
    ],
)
def test_a_value_is_serialized_as_the_specification_says(kind: str, value: Any, expected: str) -> None:
    assert to_bytes(kind, value).hex() == expected


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_a_decimal_takes_as_few_bytes_as_it_can_and_comes_back(unscaled: int) -> None:
    data = to_bytes("decimal(38, 0)", unscaled)
    assert from_bytes("decimal(38, 0)", data) == unscaled
    if len(data) > 1:
        with pytest.raises(OverflowError):
            unscaled.to_bytes(len(data) - 1, "big", signed=True)


def test_minus_zero_comes_before_zero() -> None:
    assert order_key("double", to_bytes("double", -0.0)) < order_key("double", to_bytes("double", 0.0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", NONE),
        ("Counts", COUNTS),
        ("full", FULL),
        ("truncate(3)", MetricsMode(counts=True, bounds=True, length=3)),
        ("truncate(0)", TRUNCATE_16),
        ("nonsense", TRUNCATE_16),
    ],
)
def test_a_mode_is_read_and_nonsense_means_the_default(text: str, expected: MetricsMode) -> None:
    assert MetricsMode.parse(text, TRUNCATE_16) == expected


def schema_of(*fields: tuple[int, str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"id": i, "name": n, "required": False, "type": t} for i, n, t in fields]}


def test_modes_come_from_the_column_then_the_default_then_iceberg() -> None:
    point = schema_of((4, "x", "double"), (5, "y", "double"))
    schema = schema_of((1, "a", "string"), (2, "b", "string"), (3, "p", point))
    assert set(metrics_modes(schema, {}).values()) == {TRUNCATE_16}
    properties = {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.p.y": "full"}
    assert metrics_modes(schema, properties) == {1: COUNTS, 2: COUNTS, 4: COUNTS, 5: FULL}


def test_a_sorted_column_keeps_bounds_unless_its_own_mode_says_otherwise() -> None:
    schema = schema_of((1, "a", "string"), (2, "b", "string"))
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.b": "none"}
    assert metrics_modes(schema, properties, sorted_ids=[1, 2]) == {1: TRUNCATE_16, 2: NONE}


def test_only_the_first_hundred_columns_have_metrics_by_default() -> None:
    modes = metrics_modes(schema_of(*[(i, f"c{i}", "int") for i in range(1, 103)]), {})
    assert [i for i, mode in modes.items() if mode == NONE] == [101, 102]


def test_list_and_map_columns_are_named_as_iceberg_names_them() -> None:
    tags = {"type": "list", "element-id": 2, "element": "string", "element-required": False}
    pairs = {"type": "map", "key-id": 4, "key": "string", "value-id": 5, "value": "int", "value-required": False}
    properties = {f"write.metadata.metrics.column.{n}": "none" for n in ("tags.element", "pairs.key", "pairs.value")}
    assert metrics_modes(schema_of((1, "tags", tags), (3, "pairs", pairs)), properties) == {2: NONE, 4: NONE, 5: NONE}


EXACT = ColumnMetrics(size_bytes=9, values=3, nulls=1, nans=None, lower=b"abcdef", upper=b"xyzxyz")


def test_each_mode_keeps_what_it_names() -> None:
    assert restrict(EXACT, "string", NONE) == ColumnMetrics(size_bytes=9)
    assert restrict(EXACT, "string", COUNTS) == ColumnMetrics(size_bytes=9, values=3, nulls=1)
    assert restrict(EXACT, "string", FULL) == EXACT
    cut = restrict(EXACT, "string", MetricsMode.parse("truncate(3)", FULL))
    assert (cut.lower, cut.upper) == (b"abc", b"xy{")


def test_numbers_are_never_truncated() -> None:
    column = ColumnMetrics(values=1, nulls=0, lower=to_bytes("long", 5), upper=to_bytes("long", 5))
    assert restrict(column, "long", MetricsMode.parse("truncate(2)", FULL)) == column


def test_float_bounds_without_a_nan_count_are_dropped() -> None:
    bound = to_bytes("double", 1.0)
    column = ColumnMetrics(values=1, nulls=0, nans=None, lower=bound, upper=bound)
    assert restrict(column, "double", FULL) == ColumnMetrics(values=1, nulls=0)


def test_a_manifest_holds_only_sizes_below_lists_and_maps() -> None:
    tags = {"type": "list", "element-id": 2, "element": "string", "element-required": False}
    schema = schema_of((1, "tags", tags), (3, "name", "string"), (4, "p", schema_of((5, "x", "string"))))
    kept = for_manifest(dict.fromkeys((2, 3, 5), EXACT), schema, {3: COUNTS})
    assert kept == {
        2: ColumnMetrics(size_bytes=9),
        3: ColumnMetrics(size_bytes=9, values=3, nulls=1),
        5: EXACT,
    }


@pytest.mark.parametrize(
    ("kind", "value", "length", "expected"),
    [
        ("string", "abc", 3, "abc"),
        ("string", "abcd", 3, "abd"),
        ("string", "ab\U0010ffffd", 3, "ac"),
        ("string", "\U0010ffff" * 4, 3, None),
        ("string", "a\ud7ffb", 2, "a\ue000"),
        ("string", "a\uffffb", 2, "a\U00010000"),
        ("string", "a😀b", 2, "a😁"),
        ("string", "éé", 1, "ê"),
        ("binary", b"\x01\xff\xff", 2, b"\x02"),
        ("binary", b"\xff\xff\xff", 2, None),
        ("binary", b"\xff\xff", 2, b"\xff\xff"),
    ],
)
def test_an_upper_bound_is_rounded_up_without_splitting_a_character(kind: str, value: Any, length: int, expected: Any) -> None:
    encoded = value.encode() if isinstance(value, str) else value
    wanted = expected.encode() if isinstance(expected, str) else expected
    assert truncate_upper(kind, encoded, length) == wanted


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.integers(1, 6))
def test_truncated_text_bounds_hold_and_are_short(text: str, length: int) -> None:
    data = text.encode()
    low, high = truncate_lower("string", data, length), truncate_upper("string", data, length)
    assert low <= data
    assert len(low.decode()) <= length
    if high is None:
        assert len(text) > length
        assert set(text[:length]) == {"\U0010ffff"}
    else:
        assert data <= high
        assert len(high.decode()) <= length


@given(st.binary(max_size=8), st.integers(1, 6))
def test_truncated_byte_bounds_hold_and_are_short(data: bytes, length: int) -> None:
    low, high = truncate_lower("binary", data, length), truncate_upper("binary", data, length)
    assert low <= data
    assert len(low) <= length
    assert (high is None and set(data[:length]) == {0xFF}) or (high is not None and data <= high and len(high) <= length)


def longs(low: int, high: int, **counts: int) -> ColumnMetrics:
    return ColumnMetrics(lower=to_bytes("long", low), upper=to_bytes("long", high), **counts)


def test_merging_adds_counts_and_widens_bounds_in_the_order_of_the_type() -> None:
    merged = merge([{1: longs(-5, 3, values=4, nulls=1)}, {1: longs(2, 900, values=6, nulls=0)}], {1: "long"})
    assert merged == {1: longs(-5, 900, values=10, nulls=1)}


def test_merging_leaves_out_what_any_file_lacks() -> None:
    merged = merge([{1: longs(1, 2, values=4, nulls=0)}, {1: ColumnMetrics(values=6)}], {1: "long"})
    assert merged == {1: ColumnMetrics(values=10)}
    assert merge([{1: longs(1, 2, values=4)}, {}], {1: "long"}) == {1: ColumnMetrics()}


def test_a_file_with_nulls_only_does_not_take_the_bounds_away() -> None:
    merged = merge([{1: longs(1, 2, values=4, nulls=0)}, {1: ColumnMetrics(values=6, nulls=6)}], {1: "long"})
    assert merged == {1: longs(1, 2, values=10, nulls=6)}


def test_merging_floats_needs_every_nan_count() -> None:
    bound = to_bytes("double", 1.0)
    known = ColumnMetrics(values=1, nulls=0, nans=0, lower=bound, upper=bound)
    unknown = ColumnMetrics(values=1, nulls=0, nans=None, lower=bound, upper=bound)
    assert merge([{1: known}, {1: unknown}], {1: "double"}) == {1: ColumnMetrics(values=2, nulls=0)}
    only_nan = ColumnMetrics(values=2, nulls=0, nans=2)
    assert merge([{1: known}, {1: only_nan}], {1: "double"})[1] == ColumnMetrics(
        values=3, nulls=0, nans=2, lower=bound, upper=bound
    )


def test_bounds_written_before_a_column_was_widened_are_widened_too() -> None:
    narrow = ColumnMetrics(values=1, nulls=0, nans=0, lower=to_bytes("float", 1.5), upper=to_bytes("float", 1.5))
    wide = ColumnMetrics(values=1, nulls=0, nans=0, lower=to_bytes("double", -math.inf), upper=to_bytes("double", 1.0))
    merged = merge([{1: narrow}, {1: wide}], {1: "double"})[1]
    assert (merged.lower, merged.upper) == (to_bytes("double", -math.inf), to_bytes("double", 1.5))
    integers = [{1: ColumnMetrics(lower=to_bytes("int", -3), upper=to_bytes("int", -3))}, {1: longs(1, 1)}]
    assert merge(integers, {1: "long"})[1] == longs(-3, 1)


def test_columns_that_the_schema_no_longer_has_are_left_out() -> None:
    assert merge([{1: longs(1, 1), 2: longs(1, 1)}], {1: "long"}) == {1: longs(1, 1)}


@given(st.lists(st.binary(max_size=24), min_size=1), st.integers(1, 20))
def test_bounds_of_bytes_that_are_not_utf_8_hold_and_can_be_decoded(values: list[bytes], length: int) -> None:
    mode = MetricsMode(counts=True, bounds=True, length=length)
    for each in (mode, FULL):
        kept = restrict(ColumnMetrics(values=len(values), nulls=0, lower=min(values), upper=max(values)), "string", each)
        if kept.lower is not None:
            assert kept.lower <= min(values)
            kept.lower.decode()
        if kept.upper is not None:
            assert kept.upper >= max(values)
            kept.upper.decode()
    assert truncate_lower("string", min(values), length) <= min(values)


@given(st.lists(st.binary(max_size=8), min_size=1))
def test_bounds_that_java_decoded_are_made_to_hold(values: list[bytes]) -> None:
    """As Iceberg's Java writer makes them: decoded, with U+FFFD in place of what is not UTF-8, cut to 4 and rounded up."""
    low, high = (value.decode("utf-8", "replace").encode() for value in (min(values), max(values)))
    said = ColumnMetrics(lower=truncate_lower("string", low, 4), upper=truncate_upper("string", high, 4))
    kept = with_sure_bounds({1: said}, {1: "string"})[1]
    assert kept.lower is not None
    assert kept.lower <= min(values)
    assert kept.upper is None or kept.upper >= max(values)


def test_sure_bounds_are_left_as_they_are_and_others_are_cut_or_left_out() -> None:
    sure = ColumnMetrics(lower=b"abc", upper="caf\u00e9".encode())
    assert with_sure_bounds({1: sure, 2: EXACT}, {1: "string", 2: "binary"}, exact=[1]) == {1: sure, 2: EXACT}
    doubt = ColumnMetrics(lower="x\ufffd\ufffd".encode(), upper="x\ufffd\ufffe".encode())
    assert with_sure_bounds({1: doubt}, {1: "string"}) == {1: ColumnMetrics(lower=b"x", upper=b"y")}
    assert with_sure_bounds({1: doubt}, {1: "string"}, exact=[1]) == {1: ColumnMetrics()}
    assert with_sure_bounds({1: doubt}, {1: "binary"}) == {1: doubt}
