"""Fingerprints: equal for the same rows however they come, different as soon as one value is not the same."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.errors import NeveError
from neve.kernels.arrow import RefusedError
from neve.kernels.arrow.schema import arrow_schema
from neve.kernels.content import UnhashableError, fingerprint, fingerprint_files
from neve.rewrite.content import Fingerprint
from tests.builders import arrow_files as make
from tests.builders.random_schemas import plain, tables

MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
Row = dict[str, Any]


def of(rows: list[Row], kind: pa.Schema) -> Fingerprint:
    return fingerprint(pa.Table.from_pylist(rows, schema=kind).to_batches())


def of_values(values: Any, kind: pa.DataType | None = None) -> Fingerprint:
    array = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return fingerprint([pa.record_batch([array], ["v"])])


def meaning(value: Any) -> Any:
    """What a value is, apart from its form: maps have no order, one NaN is like another."""
    if isinstance(value, dict):
        return {key: meaning(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        found = [meaning(v) for v in value]
        return sorted(found, key=repr) if value and isinstance(value[0], tuple) else found
    return tuple(meaning(v) for v in value) if isinstance(value, tuple) else plain(value)


def same_rows(one: list[Row], other: list[Row]) -> bool:
    return Counter(repr(meaning(row)) for row in one) == Counter(repr(meaning(row)) for row in other)


@st.composite
def changes(draw: st.DrawFn, rows: list[Row]) -> list[Row]:
    """The rows after one accident: doubled and lost, moved between rows, shuffled; the outcome may be the same rows."""
    found = [dict(row) for row in draw(st.permutations(rows))]
    one, other = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows) - 1))
    name = draw(st.sampled_from(sorted(rows[0])))
    accident = draw(st.sampled_from(["none", "twice", "lost", "exchanged", "overwritten"]))
    if accident == "twice":
        found[one] = found[other]
    elif accident == "lost":
        del found[one]
    elif accident == "exchanged":
        found[one][name], found[other][name] = found[other][name], found[one][name]
    elif accident == "overwritten":
        found[one][name] = found[other][name]
    return found


@MANY
@given(tables(), st.data())
def test_fingerprints_are_equal_exactly_when_the_rows_are(table: tuple[Row, list[list[Row]]], data: st.DataObject) -> None:
    schema, files = table
    rows = [row for file in files for row in file]
    if not rows:
        return
    changed, kind = data.draw(changes(rows)), arrow_schema(schema)
    assert (of(rows, kind) == of(changed, kind)) is same_rows(rows, changed)


@MANY
@given(tables(), st.data())
def test_batches_slices_and_the_order_of_columns_do_not_matter(table: tuple[Row, list[list[Row]]], data: st.DataObject) -> None:
    schema, files = table
    whole = pa.Table.from_pylist([row for file in files for row in file], schema=arrow_schema(schema)).combine_chunks()
    cuts = sorted(data.draw(st.lists(st.integers(0, whole.num_rows), max_size=3)))
    pieces = [whole.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, whole.num_rows], strict=True)]
    names = data.draw(st.permutations(whole.schema.names))
    cut = [batch for piece in pieces for batch in piece.select(names).to_batches()]
    assert fingerprint(cut) == fingerprint(whole.to_batches())
    assert sum((fingerprint(piece.to_batches()) for piece in pieces), Fingerprint()) == fingerprint(whole.to_batches())


@settings(MANY, max_examples=40)
@given(tables())
def test_files_read_by_field_id_have_the_fingerprint_of_their_rows(table: tuple[Row, list[list[Row]]]) -> None:
    schema, files = table
    given_files = [make.given(make.parquet(rows, schema)) for rows in files]
    plain_rows = pa.Table.from_pylist([row for rows in files for row in rows], schema=arrow_schema(schema))
    expected = fingerprint(plain_rows.cast(arrow_schema(schema, written=True)).to_batches())
    assert fingerprint_files(given_files, schema) == expected


TEXTS = ["", "a", None, "eight...", "nine.....", "sixteen bytes...", "seventeen bytes..", "é" * 40, "\0", "\0\0"]
SAME = {
    "dictionary": (pa.array(TEXTS), pa.array(TEXTS).dictionary_encode()),
    "dictionary of few": (pa.array(["x", None, "x", "y"]), pa.array(["x", None, "x", "y"]).dictionary_encode()),
    "large string": (pa.array(TEXTS), pa.array(TEXTS, pa.large_string())),
    "string view": (pa.array(TEXTS), pa.array(TEXTS, pa.string_view())),
    "text as binary": (pa.array(TEXTS), pa.array(TEXTS).cast(pa.binary())),
    "binary view": (pa.array(TEXTS).cast(pa.binary()), pa.array(TEXTS).cast(pa.binary()).cast(pa.binary_view())),
    "fixed": (pa.array([b"abc", None], pa.binary()), pa.array([b"abc", None], pa.binary(3))),
    "promoted integer": (pa.array([-1, None, 2**31 - 1], pa.int32()), pa.array([-1, None, 2**31 - 1], pa.int64())),
    "promoted float": (pa.array([0.5, None, -0.0, math.nan], pa.float32()), pa.array([0.5, None, -0.0, math.nan])),
    "wider decimal": (pa.array([Decimal("-1.50")], pa.decimal128(9, 2)), pa.array([Decimal("-1.50")], pa.decimal128(38, 2))),
    "huge decimal": (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.array([Decimal("1.50")], pa.decimal256(40, 2))),
    "date64": (pa.array([date(1969, 12, 30)]), pa.array([date(1969, 12, 30)], pa.date64())),
    "time in milliseconds": (pa.array([time(1, 2, 3)], pa.time64("us")), pa.array([time(1, 2, 3)], pa.time32("ms"))),
    "zone": (pa.array([5], pa.timestamp("us")), pa.array([5], pa.timestamp("us", "Asia/Tokyo"))),
    "milliseconds": (pa.array([-5000], pa.timestamp("us")), pa.array([-5], pa.timestamp("ms"))),
    "nanoseconds": (pa.array([-5], pa.timestamp("us")), pa.array([-5000], pa.timestamp("ns"))),
    "uuid as text": (pa.array([UUID(int=5).bytes, None], pa.uuid()), pa.array([str(UUID(int=5)), None])),
    "large list": (pa.array([[1], None, []]), pa.array([[1], None, []], pa.large_list(pa.int64()))),
    "order of a map": (
        pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("b", None), ("a", 1)]], pa.map_(pa.string(), pa.int64())),
    ),
    "order of a struct": (
        pa.array([{"x": 1, "y": 2}]),
        pa.array([{"y": 2, "x": 1}]).cast(pa.struct([("y", "i8"), ("x", "i8")])),
    ),
    "escaped name": (pa.array([{"a b": 1}]), pa.array([{"a_x20b": 1}])),
    "no type": (pa.nulls(2), pa.nulls(2, pa.string())),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_values_in_another_form_are_equal(name: str) -> None:
    one, other = SAME[name]
    assert one.type != other.type or not one.equals(other)
    assert of_values(one) == of_values(other)


NANOS = pa.timestamp("ns")
TEXT_MAP = pa.map_(pa.string(), pa.string())
PAIR = pa.struct([("x", pa.int64()), ("y", pa.int64())])
DIFFERENT = {
    "null and empty text": (["", "x"], [None, "x"], pa.string()),
    "null and zero": ([0], [None], pa.int64()),
    "null and false": ([False], [None], pa.bool_()),
    "null and NaN": ([math.nan], [None], pa.float64()),
    "the two zeros": ([0.0], [-0.0], pa.float64()),
    "one bit": ([2**62], [2**62 + 1], pa.int64()),
    "one bit of a double": ([1.0], [math.nextafter(1.0, 2)], pa.float64()),
    "trailing zero byte": (["a"], ["a\0"], pa.string()),
    "text cut elsewhere": (["ab", "c"], ["a", "bc"], pa.string()),
    "eight bytes exchanged": (["aaaaaaaabbbbbbbb"], ["bbbbbbbbaaaaaaaa"], pa.string()),
    "high half of a decimal": ([Decimal(1)], [Decimal(1 + 2**64)], pa.decimal128(38, 0)),
    "one nanosecond": ([5000], [5001], NANOS),
    "one microsecond": ([datetime(2026, 1, 1, microsecond=1)], [datetime(2026, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
    "null and empty list": ([[]], [None], pa.list_(pa.int64())),
    "empty list and list of null": ([[]], [[None]], pa.list_(pa.int64())),
    "order of a list": ([[1, 2]], [[2, 1]], pa.list_(pa.int64())),
    "list cut elsewhere": ([[1, 2], [3]], [[1], [2, 3]], pa.list_(pa.int64())),
    "null and empty map": ([[]], [None], TEXT_MAP),
    "key and value exchanged": ([[("a", "b")]], [[("b", "a")]], TEXT_MAP),
    "values of two keys exchanged": ([[("a", "x"), ("b", "y")]], [[("a", "y"), ("b", "x")]], TEXT_MAP),
    "null struct and struct of nulls": ([{"x": None, "y": None}], [None], PAIR),
    "value in another field": ([{"x": 1, "y": None}], [{"x": None, "y": 1}], PAIR),
    "fields of two rows exchanged": ([{"x": 1, "y": 1}, {"x": 2, "y": 2}], [{"x": 1, "y": 2}, {"x": 2, "y": 1}], PAIR),
    "twice and four times": ([1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 2, 2], pa.int64()),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_values_are_told_apart(name: str) -> None:
    one, other, kind = DIFFERENT[name]
    before, after = of_values(one, kind), of_values(other, kind)
    assert before.rows == after.rows
    assert before.sums[0] != after.sums[0]
    assert before.sums[1] != after.sums[1]


def test_a_value_belongs_to_its_column() -> None:
    left, right = pa.array([1, 2]), pa.array([3, 4])
    found = {
        fingerprint([pa.record_batch([left, right], ["a", "b"])]),
        fingerprint([pa.record_batch([right, left], ["a", "b"])]),
        fingerprint([pa.record_batch([left, right], ["a", "c"])]),
        fingerprint([pa.record_batch([left, right], ["a", "a"])]),
        fingerprint([pa.record_batch([right, left], ["a", "a"])]),
    }
    assert len(found) == 5


def test_what_lies_under_a_null_does_not_count() -> None:
    values, present = pa.py_buffer(bytes(range(24))), pa.py_buffer(b"\x05")
    hidden = pa.Array.from_buffers(pa.int64(), 3, [present, values])
    assert hidden.null_count == 1
    assert of_values(hidden) == of_values(hidden.to_pylist(), pa.int64())
    struct = pa.StructArray.from_arrays([pa.array([1, 2])], ["x"], mask=pa.array([False, True]))
    assert of_values(struct) == of_values([{"x": 1}, None], struct.type)


def test_every_nan_is_the_same() -> None:
    odd = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(bytes.fromhex("010000000000f8ff"))])
    assert math.isnan(odd[0].as_py())
    assert of_values(odd) == of_values([math.nan], pa.float64())


def test_long_texts_do_not_depend_on_their_neighbours() -> None:
    texts = ["x" * n for n in (0, 1, 7, 8, 9, 5_000_000, 3)]
    together = of_values(texts, pa.string())
    assert together == sum((of_values([text], pa.string()) for text in texts), Fingerprint())


def test_no_rows_have_an_empty_fingerprint() -> None:
    assert fingerprint([]) == of_values([], pa.string()) == Fingerprint(rows=0, sums=(0, 0), xors=(0, 0))


def test_the_hash_is_the_same_on_every_machine_and_release() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "name": "névé", "tags": ["a", None], "v": -0.0},
        {"id": None, "name": "", "tags": None, "v": math.nan},
    ]
    kind = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string())), ("v", pa.float64())])
    assert of(rows, kind).model_dump_json() == (
        '{"rows":2,"sums":["96a622d205949211","d3900e6b97a9127b"],"xors":["0641992df98369d1","136fc9625628cd7b"]}'
    )


def test_a_fingerprint_survives_json() -> None:
    found = of_values([1, 2, 3])
    assert Fingerprint.model_validate_json(found.model_dump_json()) == found
    assert str(found) == f"3 rows, hash {found.sums[0]:016x}{found.sums[1]:016x}"


def test_a_type_without_a_common_form_is_refused() -> None:
    with pytest.raises(UnhashableError, match=r"^Cannot fingerprint a column of type month_day_nano_interval: "):
        of_values(pa.array([(1, 2, 3)], pa.month_day_nano_interval()))


def test_files_of_a_schema_that_pyarrow_does_not_read_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"^Cannot read with pyarrow: column v has type variant$") as caught:
        fingerprint_files([], make.schema(make.field(1, "v", "variant")))
    assert isinstance(caught.value, NeveError)


def test_a_column_that_a_file_lacks_is_null_or_its_partition_value() -> None:
    old = make.schema(make.field(1, "id", "long"))
    new = make.schema(make.field(1, "id", "long"), make.field(2, "day", "string"))
    data = make.parquet([{"id": 1}], old)
    assert fingerprint_files([make.given(data)], new) == of([{"id": 1, "day": None}], arrow_schema(new))
    assert fingerprint_files([make.given(data, constants={2: "mon"})], new) == of([{"id": 1, "day": "mon"}], arrow_schema(new))
