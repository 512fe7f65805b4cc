"""Keys: exact whatever the hashes, by field id in every schema a file may have, the newest delete of a key decides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from neve.kernels.arrow import SchemaMismatchError
from neve.kernels.deletes import equality
from neve.kernels.deletes.equality import KeySet
from neve.kernels.deletes.keys import canonical, read_keys
from neve.kernels.faults import CorruptFileError
from neve.kernels.streams import BytesSource
from tests.builders.arrow_files import field, list_of, parquet, schema, struct
from tests.builders.delete_orders import Case

ID, NAME = field(1, "id", "long"), field(2, "name", "string")


def left(case: Case, column: str = "id", **changes: Any) -> list[Any]:
    return [row[column] for row in case.run(**changes)[1]]


def numbered(*values: Any) -> list[dict[str, Any]]:
    return [{"id": value} for value in values]


def test_only_deletes_that_are_newer_than_the_file_apply() -> None:
    case = Case(ID)
    case.data(numbered(1, 2, 3), 5)
    for number, key in ((4, 1), (5, 2), (6, 3)):
        case.equality(numbered(key), [1], number)
    assert left(case) == [1, 2]


def test_of_several_deletes_of_a_key_the_newest_decides() -> None:
    case = Case(ID)
    for number in (1, 3, 5):
        case.data(numbered(7), number)
    for number in (4, 2, 1):
        case.equality(numbered(7), [1], number)
    result, rows = case.run()
    assert (len(rows), result.rows_dropped) == (1, 2)
    assert result.positions is not None
    assert result.positions.inputs.tolist() == [2]


def test_deletes_over_different_columns_apply_together() -> None:
    case = Case(ID, NAME)
    case.data([{"id": i, "name": n} for i, n in ((1, "a"), (2, "b"), (3, "b"), (4, None), (5, "e"))])
    case.equality([{"id": 1, "name": "x"}], [1])
    case.equality([{"id": 9, "name": "b"}], [2])
    case.equality([{"id": 4, "name": None}, {"id": 5, "name": None}], [2, 1])
    assert left(case) == [5]


def test_the_hash_of_a_key_never_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one hash for all values, the values themselves must tell them apart."""
    monkeypatch.setattr(equality, "joined", lambda _names, _column, rows: (np.zeros(rows, np.uint64), None))
    case = Case(ID, NAME)
    case.data([{"id": i % 50, "name": str(i % 20)} for i in range(300)])
    case.equality([{"id": i % 50, "name": str(i % 20)} for i in range(0, 300, 4)], [1, 2])
    gone = {(i % 50, str(i % 20)) for i in range(0, 300, 4)}
    assert len(gone) == 25
    assert left(case) == [i % 50 for i in range(300) if (i % 50, str(i % 20)) not in gone]


def test_a_column_that_was_dropped_is_still_compared() -> None:
    old = schema(ID, field(3, "gone", "int"), NAME)
    case = Case(ID, NAME)
    case.data([{"id": 1, "gone": 10, "name": "a"}, {"id": 2, "gone": None, "name": "b"}], of=old)
    case.data([{"id": 3, "name": "c"}])
    case.equality([{"gone": 10}], [3], of=schema(field(3, "gone", "int")))
    result, rows = case.run(key_fields=(field(3, "gone", "int"),))
    assert rows == [{"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    assert sorted(result.dropped) == [1, 2]


def test_a_field_of_a_struct_that_was_dropped_is_still_compared() -> None:
    inner = field(5, "t", struct(field(6, "x", "long"), field(7, "y", "long")))
    old = schema(field(4, "s", struct(inner)), ID)
    rows = [{"t": {"x": 1, "y": 0}}, None, {"t": {"x": 0, "y": None}}, {"t": None}, {"t": {"x": 0, "y": 1}}]
    case = Case(ID)
    case.data([{"s": value, "id": i} for i, value in enumerate(rows)], of=old)
    case.equality([{"s": {"t": {"y": 0}}}], [7], of=schema(field(4, "s", struct(field(5, "t", struct(field(7, "y", "long")))))))
    assert left(case, key_fields=(field(7, "y", "long"),)) == [1, 2, 3, 4]
    case.equality([{"s": None}], [7], of=old)
    assert left(case, key_fields=(field(7, "y", "long"),)) == [4]


def test_a_missing_struct_has_missing_fields() -> None:
    case = Case(ID, field(4, "s", struct(field(5, "x", "long"))))
    case.data([{"id": 1, "s": None}, {"id": 2, "s": {"x": None}}, {"id": 3, "s": {"x": 3}}])
    case.equality([{"id": 0, "s": None}], [5])
    assert left(case) == [3]


@pytest.mark.parametrize(
    ("constants", "default", "key"), [({}, {}, None), ({}, {"initial-default": 4}, 4), ({3: 6}, {"initial-default": 4}, 6)]
)
def test_a_column_that_a_file_lacks_is_its_partition_value_its_default_or_null(
    constants: dict[int, Any], default: dict[str, Any], key: int | None
) -> None:
    added = field(3, "added", "int", **default)
    for value in (None, 4, 6):
        case = Case(ID, added)
        case.data(numbered(1), of=schema(ID), constants=constants)
        case.equality([{"id": 0, "added": value}], [3])
        assert left(case) == ([] if value == key else [1])


def test_a_delete_file_that_lacks_a_column_has_its_default() -> None:
    case = Case(ID, field(3, "added", "int", **{"initial-default": 4}))
    case.data([{"id": 1, "added": 4}, {"id": 1, "added": 5}])
    case.equality(numbered(1), [1, 3], of=schema(ID))
    assert left(case, "added") == [5]


def test_a_partition_value_fills_a_key_that_the_table_has_dropped() -> None:
    case = Case(ID)
    case.data(numbered(1), constants={3: "2024-02-29"})
    case.data(numbered(2), constants={3: None})
    case.equality([{"day": 19782}], [3], of=schema(field(3, "day", "date")))
    assert left(case, key_fields=(field(3, "day", "date"),)) == [2]


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [("int", "long", (-1, 7)), ("float", "double", (0.1, 1.5)), ("decimal(4,2)", "decimal(30,2)", ("1.25", "-3.00"))],
)
def test_files_from_before_a_column_was_widened_compare_with_those_after(narrow: str, wide: str, values: Any) -> None:
    from decimal import Decimal

    one, other = (Decimal(v) if isinstance(v, str) else v for v in values)
    old, new = schema(field(1, "k", narrow)), schema(field(1, "k", wide))
    as_wide = np.float64(np.float32(one)).item() if narrow == "float" else one
    for data_of, data_value, delete_of, delete_value in ((old, one, new, as_wide), (new, as_wide, old, one)):
        case = Case(field(1, "k", wide))
        case.data([{"k": data_value}, {"k": other}], of=data_of)
        case.equality([{"k": delete_value}], [1], of=delete_of)
        assert left(case, "k") == [other]


def test_a_delete_that_was_read_before_a_column_was_widened_is_read_again() -> None:
    """Values of the old type would not compare with those of the new one."""
    narrow, wide = schema(field(1, "id", "float")), schema(field(1, "id", "double"))
    case = Case()
    case.data(numbered(1.5, 2.5), of=narrow)
    case.equality(numbered(1.5), [1], of=narrow)
    for of in (narrow, wide):
        assert left(case, table_schema=of, key_fields=tuple(of["fields"])) == [2.5]


def test_text_that_is_read_as_a_dictionary_compares_like_any_other() -> None:
    case = Case(ID, NAME)
    names = ["red", None, "blue", "red", "green"] * 200
    case.data([{"id": i, "name": name} for i, name in enumerate(names)])
    case.equality([{"id": 0, "name": "red"}, {"id": 0, "name": None}], [2])
    assert left(case) == [i for i, name in enumerate(names) if name in ("blue", "green")]


def test_a_file_without_ids_is_read_by_the_name_mapping() -> None:
    case = Case(ID)
    case.data(pa.table({"old_id": [1, 2]}))
    case.equality(numbered(2), [1])
    assert left(case, name_mapping=[{"field-id": 1, "names": ["id", "old_id"]}]) == [1]


def test_rows_beyond_one_slice_of_the_search_are_found_where_they_are() -> None:
    keys = KeySet([([pa.array([70_000, 199_999, 65_535])], 2)])
    assert keys.deleted([pa.array(np.arange(200_000))], 1).tolist() == [65_535, 70_000, 199_999]
    assert keys.deleted([pa.array(np.arange(200_000))], 2).tolist() == []


def test_a_key_that_many_deletes_repeat_is_kept_once() -> None:
    keys = KeySet([([pa.array([1, 2, 1]), pa.array(["a", None, "a"])], number) for number in (3, 9, 6)])
    assert (len(keys), keys.newest) == (2, 9)
    assert keys.deleted([pa.array([1, 1, 2]), pa.array(["a", "b", None])], 8).tolist() == [0, 2]


def test_no_keys_delete_nothing() -> None:
    assert KeySet([]).deleted([pa.array([1])], 0).tolist() == []
    assert KeySet([([pa.array([], pa.int64())], 4)]).deleted([pa.array([1])], 0).tolist() == []


def test_floats_are_their_bits_with_one_nan() -> None:
    odd_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    bits = canonical(pa.array(np.concatenate([odd_nan, [math.nan, 0.0, -0.0]]))).to_pylist()
    assert bits == [0x7FF8000000000000] * 3 + [0, -(2**63)]
    assert canonical(pa.array([None, 1.0], pa.float32()).slice(1)).to_pylist() == [0x3F800000]
    assert canonical(pa.array([None, 1.0])).null_count == 1


def keys_of(data: bytes, fields: list[dict[str, Any]], records: int = 1) -> list[list[Any]]:
    batches = read_keys([(BytesSource(data, "s3://b/eq.parquet"), records)], fields)
    return [[column.to_pylist() for column in columns] for _, columns in batches]


def test_keys_are_found_below_structs_and_not_below_lists() -> None:
    of = schema(field(1, "l", list_of(2, struct(field(3, "x", "int")))), field(4, "s", struct(field(5, "x", "int"))))
    data = parquet([{"l": [{"x": 1}], "s": {"x": 2}}], of)
    assert keys_of(data, [field(5, "x", "int"), field(3, "x", "int")]) == [[[2], [None]]]


def test_a_delete_file_of_the_wrong_type_or_damaged_is_told_by_its_name() -> None:
    text = parquet([{"id": "1"}], schema(field(1, "id", "string")))
    with pytest.raises(SchemaMismatchError, match=r"^Cannot read s3://b/eq.parquet: column id is string in the file, int64 in"):
        keys_of(text, [ID])
    with pytest.raises(CorruptFileError, match=r"^Cannot read s3://b/eq.parquet: it holds 1 rows, the table says 2"):
        keys_of(parquet(numbered(1), schema(ID)), [ID], records=2)
    with pytest.raises(CorruptFileError, match=r"^Cannot read s3://b/eq.parquet: "):
        keys_of(parquet(numbered(1), schema(ID))[:-20], [ID])
