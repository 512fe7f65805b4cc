from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from neve.kernels.arrow.model import WriteOptions
from neve.kernels.arrow.refusing import refusal
from neve.kernels.arrow.schema import leaves, parquet_name
from tests.builders.arrow_files import field, given, list_of, map_of, parquet, run, schema, struct

EVERYTHING = schema(
    field(1, "b", "boolean", required=True),
    field(2, "i", "int"),
    field(3, "d9", "decimal(9, 2)"),
    field(4, "d18", "decimal(18, 2)"),
    field(5, "d19", "decimal(19, 2)"),
    field(6, "dt", "date"),
    field(7, "t", "time"),
    field(8, "ts", "timestamp"),
    field(9, "tz", "timestamptz"),
    field(10, "ns", "timestamp_ns"),
    field(11, "nz", "timestamptz_ns"),
    field(12, "u", "uuid"),
    field(13, "fx", "fixed[5]"),
    field(14, "bin", "binary"),
    field(15, "l", list_of(16, "uuid", required=True)),
    field(17, "m", map_of(18, "string", 19, struct(field(20, "x", list_of(21, "float"))), required=True)),
)


def physical(text: str) -> list[str]:
    """The schema's lines without pyarrow's remarks."""
    lines = [line.strip() for line in text.splitlines()[1:]]
    return [line.replace(", is_from_converted_type=false, force_set_converted_type=false", "") for line in lines if line]


def test_every_type_is_written_as_icebergs_java_writer_does() -> None:
    row = {"b": True, "l": [], "m": []}
    _, files = run([given(parquet([row], EVERYTHING))], EVERYTHING)
    assert physical(str(pq.ParquetFile(io.BytesIO(files[0])).schema)) == [
        "required group field_id=-1 schema {",
        "required boolean field_id=1 b;",
        "optional int32 field_id=2 i;",
        "optional int32 field_id=3 d9 (Decimal(precision=9, scale=2));",
        "optional int64 field_id=4 d18 (Decimal(precision=18, scale=2));",
        "optional fixed_len_byte_array(9) field_id=5 d19 (Decimal(precision=19, scale=2));",
        "optional int32 field_id=6 dt (Date);",
        "optional int64 field_id=7 t (Time(isAdjustedToUTC=false, timeUnit=microseconds));",
        "optional int64 field_id=8 ts (Timestamp(isAdjustedToUTC=false, timeUnit=microseconds));",
        "optional int64 field_id=9 tz (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds));",
        "optional int64 field_id=10 ns (Timestamp(isAdjustedToUTC=false, timeUnit=nanoseconds));",
        "optional int64 field_id=11 nz (Timestamp(isAdjustedToUTC=true, timeUnit=nanoseconds));",
        "optional fixed_len_byte_array(16) field_id=12 u (UUID);",
        "optional fixed_len_byte_array(5) field_id=13 fx;",
        "optional binary field_id=14 bin;",
        "optional group field_id=15 l (List) {",
        "repeated group field_id=-1 list {",
        "required fixed_len_byte_array(16) field_id=16 element (UUID);",
        "}",
        "}",
        "optional group field_id=17 m (Map) {",
        "repeated group field_id=-1 key_value {",
        "required binary field_id=18 key (String);",
        "required group field_id=19 value {",
        "optional group field_id=20 x (List) {",
        "repeated group field_id=-1 list {",
        "optional float field_id=21 element;",
        "}",
        "}",
        "}",
        "}",
        "}",
        "}",
    ]


def test_leaves_are_listed_in_the_order_of_the_file() -> None:
    data = run([given(parquet([{"b": True, "l": [], "m": []}], EVERYTHING))], EVERYTHING)[1][0]
    columns = pq.read_metadata(io.BytesIO(data)).schema
    assert [leaf.path for leaf in leaves(EVERYTHING)] == [columns.column(i).path for i in range(len(columns))]
    assert [leaf.field_id for leaf in leaves(EVERYTHING) if leaf.repeated] == [16, 18, 21]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain_1", "plain_1"),
        ("_x", "_x"),
        ("1st", "_1st"),
        ("a.b", "a_x2Eb"),
        ("a b", "a_x20b"),
        ("-", "_x2D"),
        ("größe", "größe"),
        ("a😀", "a_xD83D_xDE00"),
    ],
)
def test_names_are_spelled_in_parquet_as_java_spells_them(name: str, expected: str) -> None:
    assert parquet_name(name) == expected


def test_columns_whose_names_hold_dots_do_not_get_mixed_up() -> None:
    of = schema(field(1, "a.b", "int"), field(2, "a", struct(field(3, "b", "int"))))
    rows = [{"a_x2Eb": 1, "a": {"b": 2}}]
    data = run([given(parquet(rows, of))], of)[1][0]
    assert pq.read_table(io.BytesIO(data)).to_pylist() == rows


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ((field(1, "1a", "int"), field(2, "_1a", "int")), "columns 1a and _1a have the same name in Parquet"),
        (
            (field(1, "a.b", "int"), field(2, "a_x2Eb", struct(field(3, "c", "int")))),
            "columns a.b and a_x2Eb have the same name",
        ),
        (
            (field(1, "s", struct(field(2, "a b", "int"), field(3, "a_x20b", "int"))),),
            "columns s.a b and s.a_x20b have the same",
        ),
        (
            (field(1, "l", list_of(2, struct(field(3, "#", "int"), field(4, "_x23", "int")))),),
            "l.element.# and l.element._x23 have",
        ),
        ((field(1, "id", "int"), field(2, "_row_id", "long")), "columns _row_id and _row_id have the same name in Parquet"),
    ],
)
def test_two_columns_with_the_same_name_in_parquet_are_refused(fields: tuple[dict[str, object], ...], reason: str) -> None:
    """Spark and PyIceberg cannot open such a file, or read one column for the other."""
    assert reason in str(refusal(schema(*fields), WriteOptions(row_lineage=True)))


def test_a_column_may_be_called_as_one_of_lineage_is_where_no_lineage_is_written() -> None:
    assert refusal(schema(field(1, "id", "int"), field(2, "_row_id", "long")), WriteOptions()) is None
