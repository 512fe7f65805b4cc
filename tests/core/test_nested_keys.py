"""Equality deletes on columns inside structs: which files they concern, and that nothing else is left alone."""

from __future__ import annotations

import pytest

from neve.errors import UnprovableDeletesError
from neve.table.files import DATA, EQUALITY_DELETES
from neve.table.nested_keys import check_provable, compared, left_alone, nested_columns
from neve.table.state import PartitionField, PartitionSpec
from tests.builders.arrow_files import field, list_of, schema, struct
from tests.builders.files import make_files

SCHEMAS = [
    schema(field(1, "id", "long"), field(2, "s", struct(field(3, "k", "int"), field(4, "t", struct(field(5, "x", "int")))))),
    schema(field(1, "id", "long"), field(6, "s.k", "int"), field(7, "l", list_of(8, struct(field(9, "y", "int"))))),
]
PARTITIONED = PartitionSpec(spec_id=0, fields=(PartitionField(name="p", transform="identity", source_id=1, field_id=1000),))
NESTED = {3: "s.k"}


def test_columns_inside_structs_are_found_in_every_schema_and_names_with_dots_are_not() -> None:
    assert nested_columns(SCHEMAS) == {3: "s.k", 4: "s.t", 5: "s.t.x"}


def test_a_delete_that_compares_any_of_them_is_not_provable() -> None:
    nested = nested_columns(SCHEMAS)
    assert compared([(1,), (6,)], nested) == []
    check_provable([(1,), (6,)], nested)
    with pytest.raises(UnprovableDeletesError, match=r"nested column s.k, s.t.x, and Iceberg contradicts itself"):
        check_provable([(1, 3), (5,)], nested)


def test_partitions_with_files_that_such_a_delete_applies_to_are_left_alone() -> None:
    rows = [
        {"path": "a1", "partition": 0, "sequence_number": 1, "content": DATA},
        {"path": "b1", "partition": 1, "sequence_number": 1, "content": DATA},
        {"path": "c3", "partition": 2, "sequence_number": 3, "content": DATA},
        {"path": "da", "partition": 0, "sequence_number": 2, "content": EQUALITY_DELETES, "equality_ids": "1,3"},
        {"path": "db", "partition": 1, "sequence_number": 2, "content": EQUALITY_DELETES, "equality_ids": "1"},
        {"path": "dc", "partition": 2, "sequence_number": 2, "content": EQUALITY_DELETES, "equality_ids": "3"},
    ]
    files = make_files(rows, ["p=1", "p=2", "p=3"])
    found = left_alone(files, [PARTITIONED], NESTED)
    assert list(found) == [0]  # in the third, the delete is older than every file
    assert "nested column s.k" in found[0]
    assert left_alone(files, [PARTITIONED], {}) == {}
    everywhere = PartitionSpec(spec_id=0, fields=())
    assert sorted(left_alone(files, [everywhere], NESTED)) == [0, 1]
