"""Older and foreign files under the table's current schema: by field id, filled, widened, checked."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.kernels.arrow import RefusedError, SchemaMismatchError, WriteOptions
from neve.kernels.arrow.schema import LAST_UPDATED, LINEAGE_FIELDS, ROW_ID
from tests.builders.arrow_files import field, given, list_of, map_of, parquet, read, run, schema, struct
from tests.builders.parquet_files import with_field_ids


def one(data: bytes, of: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """One file rewritten under a schema, read back."""
    name_mapping = more.pop("name_mapping", None)
    return read(run([given(data, **more)], of, name_mapping=name_mapping)[1][0])


def test_columns_are_found_by_id_whatever_their_names_and_order() -> None:
    old = schema(field(1, "a", "long"), field(2, "b", "string"), field(3, "c", "int"))
    new = schema(field(3, "a", "int"), field(1, "renamed", "long"), field(4, "b", "string"))
    assert one(parquet([{"a": 1, "b": "dropped", "c": 3}], old), new) == [{"a": 3, "renamed": 1, "b": None}]


def test_a_column_dropped_and_added_again_under_its_name_is_another_column() -> None:
    old, new = schema(field(1, "id", "int"), field(2, "v", "int")), schema(field(1, "id", "int"), field(3, "v", "int"))
    inputs = [given(parquet([{"id": 1, "v": 5}], old)), given(parquet([{"id": 2, "v": 6}], new))]
    assert read(run(inputs, new)[1][0]) == [{"id": 1, "v": None}, {"id": 2, "v": 6}]


def test_nested_fields_are_projected_in_structs_lists_and_maps() -> None:
    old_item = struct(field(3, "x", "int"), field(4, "gone", "string"))
    new_item = struct(field(9, "added", "string", **{"initial-default": "d"}), field(3, "renamed", "long"))
    old = schema(field(1, "l", list_of(2, old_item)))
    new = schema(field(1, "items", list_of(2, new_item)))
    rows = [{"l": [{"x": 1, "gone": "g"}, None]}, {"l": None}, {"l": []}]
    expected = [{"items": [{"added": "d", "renamed": 1}, None]}, {"items": None}, {"items": []}]
    assert one(parquet(rows, old), new) == expected

    old = schema(field(1, "m", map_of(5, "string", 6, old_item)))
    new = schema(field(1, "m", map_of(5, "string", 6, new_item)))
    rows = [{"m": [("k", {"x": 1, "gone": "g"}), ("n", None)]}, {"m": None}, {"m": []}]
    expected = [{"m": [("k", {"added": "d", "renamed": 1}), ("n", None)]}, {"m": None}, {"m": []}]
    assert one(parquet(rows, old), new) == expected

    old, new = schema(field(1, "s", old_item)), schema(field(1, "s", new_item))
    assert one(parquet([{"s": {"x": 7, "gone": "g"}}, {"s": None}], old), new) == [
        {"s": {"added": "d", "renamed": 7}},
        {"s": None},
    ]


def test_deleted_rows_and_slices_are_right_for_nested_columns() -> None:
    old = schema(field(1, "l", list_of(2, struct(field(3, "x", "int")))))
    new = schema(field(1, "l", list_of(2, struct(field(3, "y", "long"), field(4, "z", "string")))))
    rows = [{"l": [{"x": i}] * (i % 3) if i % 5 else None} for i in range(50)]
    result, files = run([given(parquet(rows, old), deleted=[0, 7, 8])], new, WriteOptions(row_group_rows=7))
    expected = [
        {"l": None if row["l"] is None else [{"y": e["x"], "z": None} for e in row["l"]]}
        for i, row in enumerate(rows)
        if i not in {0, 7, 8}
    ]
    assert read(files[0]) == expected
    assert result.outputs[0].metrics[3].values == sum(max(len(row["l"] or []), 1) for row in expected)


@pytest.mark.parametrize(
    ("before", "after", "value", "expected"),
    [
        ("int", "long", -5, -5),
        ("float", "double", 1.5, 1.5),
        ("decimal(9, 2)", "decimal(18, 2)", Decimal("-1.25"), Decimal("-1.25")),
        ("decimal(18, 2)", "decimal(38, 2)", Decimal("1.25"), Decimal("1.25")),
        ("date", "timestamp", date(2024, 2, 29), datetime(2024, 2, 29)),  # noqa: DTZ001
    ],
)
def test_widened_columns_are_widened(before: str, after: str, value: Any, expected: Any) -> None:
    old, new = schema(field(1, "v", before)), schema(field(1, "v", after))
    assert one(parquet([{"v": value}, {"v": None}], old), new) == [{"v": expected}, {"v": None}]
    old, new = schema(field(1, "v", list_of(2, before))), schema(field(1, "v", list_of(2, after)))
    assert one(parquet([{"v": [value, None]}], old), new) == [{"v": [expected, None]}]


@pytest.mark.parametrize(
    ("before", "after", "value", "reason"),
    [
        ("long", "int", 1, "column v is int64 in the file, int32 in the table"),
        ("string", "int", "1", "column v is string in the file, int32 in the table"),
        ("decimal(9, 2)", "decimal(9, 3)", Decimal(1), r"column v is decimal128\(9, 2\) in the file"),
        (struct(field(2, "x", "int")), "int", {"x": 1}, "column v is struct<x: int32> in the file"),
        ("int", struct(field(2, "x", "int")), 1, "column v is int32 in the file, struct in the table"),
    ],
)
def test_other_changes_of_type_are_refused_by_column(before: Any, after: Any, value: Any, reason: str) -> None:
    old, new = schema(field(1, "v", before)), schema(field(1, "v", after))
    with pytest.raises(SchemaMismatchError, match=f"^Cannot read in.parquet: {reason}"):
        one(parquet([{"v": value}], old), new)


IDS = schema(field(1, "id", "int"))
DATA = parquet([{"id": 1}], IDS)


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("boolean", True, True),
        ("int", 34, 34),
        ("double", 1.5, 1.5),
        ("decimal(9, 2)", "14.20", Decimal("14.20")),
        ("date", "2017-11-16", date(2017, 11, 16)),
        ("time", "22:31:08.123456", time(22, 31, 8, 123456)),
        ("timestamp", "2017-11-16T22:31:08.123456", datetime(2017, 11, 16, 22, 31, 8, 123456)),  # noqa: DTZ001
        ("timestamptz", "2017-11-16T22:31:08.123456+00:00", datetime(2017, 11, 16, 22, 31, 8, 123456, UTC)),
        ("string", "iceberg", "iceberg"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes),
        ("fixed[4]", "00010203", b"\x00\x01\x02\x03"),
        ("binary", "00ff", b"\x00\xff"),
    ],
)
def test_a_missing_column_takes_its_initial_default(kind: str, default: Any, expected: Any) -> None:
    of = schema(field(1, "id", "int"), field(2, "v", kind, required=True, **{"initial-default": default}))
    assert one(DATA, of) == [{"id": 1, "v": expected}]


@pytest.mark.parametrize(
    ("digits", "expected"), [("123456789", 1_123_456_789), ("1234567", 1_123_456_700), ("5", 1_500_000_000)]
)
def test_a_default_of_nanoseconds_keeps_the_last_digits(digits: str, expected: int) -> None:
    default = {"initial-default": f"1970-01-01T00:00:01.{digits}"}
    _, files = run([given(DATA)], schema(field(2, "v", "timestamp_ns", **default)))
    assert pq.read_table(io.BytesIO(files[0])).column("v").cast(pa.int64()).to_pylist() == [expected]


def test_a_partition_value_comes_before_the_default_and_only_where_the_column_is_missing() -> None:
    of = schema(field(1, "id", "int"), field(2, "day", "date", **{"initial-default": "2000-01-01"}))
    assert one(DATA, of, constants={2: date(2024, 1, 2)}) == [{"id": 1, "day": date(2024, 1, 2)}]
    assert one(DATA, of, constants={2: 19_724}) == [{"id": 1, "day": date(2024, 1, 2)}]
    assert one(DATA, of, constants={2: None}) == [{"id": 1, "day": None}]
    assert one(DATA, of, constants={1: 99}) == [{"id": 1, "day": date(2000, 1, 1)}]


def test_each_input_has_its_own_partition_values() -> None:
    of = schema(field(1, "id", "int"), field(2, "region", "string"))
    inputs = [given(DATA, constants={2: region}) for region in ("eu", "us", "eu")]
    result, files = run(inputs, of)
    assert [row["region"] for row in read(files[0])] == ["eu", "us", "eu"]
    assert (result.outputs[0].metrics[2].lower, result.outputs[0].metrics[2].upper) == (b"eu", b"us")


def test_a_missing_required_column_is_an_error() -> None:
    of = schema(field(1, "id", "int"), field(2, "v", "int", required=True))
    with pytest.raises(SchemaMismatchError, match="column v is required, has no default and is not in the file"):
        one(DATA, of)


def test_nulls_in_a_required_column_are_an_error() -> None:
    of = schema(field(1, "id", "int", required=True))
    with pytest.raises(SchemaMismatchError, match="column id is required and holds nulls"):
        one(parquet([{"id": 1}, {"id": None}], IDS), of)


def test_nulls_in_a_required_nested_field_are_an_error_only_where_its_struct_is() -> None:
    old = schema(field(1, "s", struct(field(2, "x", "int"))))
    new = schema(field(1, "s", struct(field(2, "x", "int", required=True))))
    assert one(parquet([{"s": None}, {"s": {"x": 1}}], old), new) == [{"s": None}, {"s": {"x": 1}}]
    with pytest.raises(SchemaMismatchError, match=r"column s\.x is required and holds nulls"):
        one(parquet([{"s": {"x": None}}], old), new)


@pytest.mark.parametrize("required", [True, False])
def test_requiredness_follows_the_table_and_not_the_file(required: bool) -> None:
    old, new = schema(field(1, "v", "string", required=not required)), schema(field(1, "v", "string", required=required))
    _, files = run([given(parquet([{"v": "a"}], old))], new)
    assert pq.ParquetFile(io.BytesIO(files[0])).schema_arrow.field("v").nullable is not required
    assert read(files[0]) == [{"v": "a"}]


MAPPING = [
    {"field-id": 1, "names": ["id", "ident"]},
    {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["x"]}]},
    {
        "field-id": 4,
        "names": ["l"],
        "fields": [{"field-id": 5, "names": ["element"], "fields": [{"field-id": 9, "names": ["y"]}]}],
    },
    {"field-id": 6, "names": ["m"], "fields": [{"field-id": 7, "names": ["key"]}, {"field-id": 8, "names": ["value"]}]},
]


def test_a_file_without_ids_is_read_through_the_name_mapping() -> None:
    of = schema(
        field(1, "id", "long"),
        field(2, "s", struct(field(3, "renamed", "int"))),
        field(4, "l", list_of(5, struct(field(9, "z", "int")))),
        field(6, "m", map_of(7, "string", 8, "int")),
    )
    kinds = {
        "ident": pa.int64(),
        "s": pa.struct([("x", pa.int32()), ("y", pa.int32())]),
        "l": pa.list_(pa.struct([("y", pa.int32())])),
        "m": pa.map_(pa.string(), pa.int32()),
        "stranger": pa.string(),
    }
    row = {"ident": 1, "s": {"x": 2, "y": 9}, "l": [{"y": 3}], "m": [("k", 4)], "stranger": "?"}
    data = parquet(pa.Table.from_pylist([row], schema=pa.schema(kinds)))
    assert one(data, of, name_mapping=MAPPING) == [{"id": 1, "s": {"renamed": 2}, "l": [{"z": 3}], "m": [("k", 4)]}]


def test_a_file_without_ids_and_without_a_mapping_is_left_to_spark() -> None:
    """Iceberg's reader in Spark takes columns by their places then."""
    with pytest.raises(RefusedError, match=r"^Cannot read in.parquet: it has no field ids and the table has no name mapping$"):
        one(parquet(pa.table({"id": [1]})), IDS)


LOST_IDS = schema(field(1, "id", "long"), field(2, "name", "string"), field(3, "s", struct(field(4, "x", "int"))))
LOST = [{"id": 1, "name": "a", "s": {"x": 5}}, {"id": 2, "name": "b", "s": None}]
ARROW_IDS = parquet(LOST, LOST_IDS, store_schema=True)
"""Has field ids twice: in the Parquet schema, and in Arrow's, which pyarrow prefers and Iceberg does not read."""
_BY_NAME = [
    {"field-id": 1, "names": ["id"]},
    {"field-id": 2, "names": ["s"]},
    {"field-id": 3, "names": ["name"]},
]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ((1, 2, 3, 4), LOST),
        ((1, None, 3, 4), [{**row, "name": None} for row in LOST]),
        ((1, 2, None, 4), [{**row, "s": None} for row in LOST]),
        ((None, None, None, 4), [{"id": None, "name": None, "s": None}] * 2),
        ((7, 2, 3, 4), [{**row, "id": None} for row in LOST]),
    ],
)
@pytest.mark.parametrize("mapping", [None, _BY_NAME])
def test_a_column_whose_id_is_in_the_arrow_schema_alone_is_null(
    ids: tuple[int | None, ...], expected: list[dict[str, Any]], mapping: Any
) -> None:
    """With one id in the file, no column is found by its name."""
    assert one(with_field_ids(ARROW_IDS, *ids), LOST_IDS, name_mapping=mapping) == expected


def test_a_file_whose_ids_are_all_in_the_arrow_schema_has_none() -> None:
    data = with_field_ids(ARROW_IDS, None, None, None, None)
    with pytest.raises(RefusedError, match="it has no field ids and the table has no name mapping"):
        one(data, LOST_IDS)
    of = schema(field(1, "id", "long"), field(3, "name", "string"))
    assert one(data, of, name_mapping=_BY_NAME) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("below", [struct(field(9, "y", "int")), list_of(8, struct(field(9, "y", "int")))])
def test_a_struct_of_which_a_file_has_no_field_is_left_to_spark(below: Any) -> None:
    """Iceberg's reader in Spark takes it for null. A field that was added beside another is null in a struct that is not."""
    of = schema(field(1, "id", "long"), field(3, "s", struct(field(4, "x", "int"), field(5, "more", below))))
    new = schema(field(1, "id", "long"), field(3, "s", struct(field(6, "new", "int"))))
    row = {"id": 1, "s": {"x": 5, "more": {"y": 6} if below["type"] == "struct" else [{"y": 6}]}}
    with pytest.raises(RefusedError, match=r"^Cannot read in.parquet: it has no field of the struct s$"):
        one(parquet([row], of), new)
    other = (
        {**below, "fields": [field(7, "z", "int")]} if below["type"] == "struct" else list_of(8, struct(field(7, "z", "int")))
    )
    deep = schema(field(3, "s", struct(field(4, "x", "int"), field(5, "more", other))))
    with pytest.raises(RefusedError, match=r"^Cannot read in.parquet: it has no field of the struct s.more"):
        one(parquet([row], of), deep)
    beside = schema(field(3, "s", struct(field(6, "new", "int"), field(4, "x", "int"))))
    assert one(parquet([row], of), beside) == [{"s": {"new": None, "x": 5}}]


@pytest.mark.parametrize(("ids", "reason"), [((1, 2, 3, -5), "-5"), ((1, 2, 3, 1), "1 twice")])
def test_odd_field_ids_are_left_to_spark(ids: tuple[int, ...], reason: str) -> None:
    with pytest.raises(RefusedError, match=f"^Cannot read in.parquet: it has the field id {reason}$"):
        one(with_field_ids(parquet(LOST, LOST_IDS), *ids), LOST_IDS)


@pytest.mark.parametrize("lost_first", [True, False])
def test_files_that_differ_in_the_id_of_a_struct_alone_are_read_apart(lost_first: bool) -> None:
    whole = parquet(LOST, LOST_IDS)
    lost = with_field_ids(whole, 1, 2, None, 4)
    files = [lost, whole] if lost_first else [whole, lost]
    null = [{**row, "s": None} for row in LOST]
    expected = null + LOST if lost_first else LOST + null
    assert read(run([given(data) for data in files], LOST_IDS)[1][0]) == expected


@pytest.mark.parametrize(("kind", "zone"), [("timestamp", None), ("timestamptz", UTC)])
def test_int96_timestamps_are_read_as_microseconds_in_utc(kind: str, zone: Any) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456)  # noqa: DTZ001
    stored = pa.schema([pa.field("t", pa.timestamp("ns"), metadata={"PARQUET:field_id": "1"})])
    data = parquet(pa.table({"t": [moment, None]}, schema=stored), use_deprecated_int96_timestamps=True)
    assert pq.read_metadata(io.BytesIO(data)).schema.column(0).physical_type == "INT96"
    assert one(data, schema(field(1, "t", kind))) == [{"t": moment.replace(tzinfo=zone)}, {"t": None}]


def test_types_that_only_arrow_knows_are_read_as_the_tables() -> None:
    stored = pa.schema(
        [
            pa.field("a", pa.large_string(), metadata={"PARQUET:field_id": "1"}),
            pa.field("b", pa.dictionary(pa.int8(), pa.string()), metadata={"PARQUET:field_id": "2"}),
            pa.field("c", pa.int16(), metadata={"PARQUET:field_id": "3"}),
            pa.field("d", pa.timestamp("ms", "Europe/Rome"), metadata={"PARQUET:field_id": "4"}),
            pa.field(
                "e",
                pa.large_list(pa.field("element", pa.string(), metadata={"PARQUET:field_id": "6"})),
                metadata={"PARQUET:field_id": "5"},
            ),
        ]
    )
    table = pa.table(
        [["x"], pa.array(["y"]).dictionary_encode().cast(stored.field(1).type), [3], [1000], [["z"]]], schema=stored
    )
    of = schema(
        field(1, "a", "string"),
        field(2, "b", "string"),
        field(3, "c", "int"),
        field(4, "d", "timestamptz"),
        field(5, "e", list_of(6, "string")),
    )
    expected = {"a": "x", "b": "y", "c": 3, "d": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "e": ["z"]}
    assert one(parquet(table, store_schema=True), of) == [expected]


LINEAGE = WriteOptions(row_lineage=True)


def test_row_lineage_is_taken_from_the_file_and_else_from_its_entry() -> None:
    with_ids = schema(field(1, "id", "int"), *LINEAGE_FIELDS)
    stored = [{"id": 1, "_row_id": 70, "_last_updated_sequence_number": None}, {"id": 2, "_row_id": None}]
    inputs = [
        given(parquet([{"id": i} for i in range(4)], IDS), deleted=[1], first_row_id=100, sequence_number=5),
        given(parquet(stored, with_ids), first_row_id=200, sequence_number=6),
        given(parquet([{"id": 9}], IDS), sequence_number=7),
    ]
    result, files = run(inputs, IDS, LINEAGE)
    rows = [tuple(row.values()) for row in read(files[0])]
    assert rows == [(0, 100, 5), (2, 102, 5), (3, 103, 5), (1, 70, 6), (2, 201, 6), (9, None, 7)]
    names = pq.ParquetFile(io.BytesIO(files[0])).schema_arrow
    assert names.names == ["id", "_row_id", "_last_updated_sequence_number"]
    assert [names.field(i).metadata[b"PARQUET:field_id"] for i in (1, 2)] == [str(ROW_ID).encode(), str(LAST_UPDATED).encode()]
    assert result.outputs[0].metrics[ROW_ID].nulls == 1


def test_lineage_columns_of_the_inputs_are_not_carried_unless_asked() -> None:
    with_ids = schema(field(1, "id", "int"), *LINEAGE_FIELDS)
    assert one(parquet([{"id": 1, "_row_id": 7}], with_ids), IDS) == [{"id": 1}]
