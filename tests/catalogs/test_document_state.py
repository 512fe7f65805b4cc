"""The state of a table from its metadata file as plain JSON, compared with what PyIceberg's models make of the same file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DecimalType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from neve.table.document_state import state_of
from neve.table.state import TableName
from tests.builders.pyiceberg_tables import state_by_pyiceberg

NAME = TableName(catalog="local", namespace=("db",), name="t")
Change = Callable[[dict[str, Any]], object]

_PLACE = StructType(NestedField(21, "city", StringType()), NestedField(22, "zip", LongType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "code", FixedType(4)),
    NestedField(5, "place", _PLACE),
    NestedField(6, "tags", ListType(61, StringType())),
    NestedField(7, "more", MapType(71, StringType(), 72, StructType(NestedField(73, "deep", LongType())))),
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table that has changed in many ways."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    order = SortOrder(
        SortField(1, IdentityTransform()),
        SortField(22, BucketTransform(8), SortDirection.DESC, NullOrder.NULLS_FIRST),
        order_id=1,
    )
    table = catalog.create_table("db.t", schema=SCHEMA, sort_order=order, properties={"owner": "x", "neve.keep": "5"})
    rows = pa.table({"id": pa.array([1, 2], pa.int64())}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    table.append(rows)
    table.append(rows)
    table.delete("id = 1")
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform())
        spec.add_field("id", BucketTransform(16))
    with table.update_spec() as spec:
        spec.remove_field("id_bucket_16")
        spec.add_field("place.city", TruncateTransform(3), "town")
    with table.update_schema() as schema:
        schema.add_column(("place", "country"), StringType())
        schema.rename_column("price", "amount")
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "first", max_ref_age_ms=5000).commit()
    table.manage_snapshots().create_branch(
        table.snapshots()[0].snapshot_id, "side", max_snapshot_age_ms=7, min_snapshots_to_keep=2
    ).commit()
    return table


def document_of(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    return found


def both(table: Table, document: dict[str, Any]) -> tuple[Any, Any]:
    """The state by our parser, and by PyIceberg's, of one document."""
    parsed = TableMetadataUtil.parse_raw(json.dumps(document))
    theirs = Table(table.name(), parsed, table.metadata_location, table.io, table.catalog)
    return state_of(NAME, document, table.metadata_location), state_by_pyiceberg(NAME, theirs)


def test_a_table_that_has_changed_in_many_ways(table: Table) -> None:
    ours, theirs = both(table, document_of(table))
    assert ours == theirs
    assert [column.name for column in ours.fields] == ["id", "at", "amount", "code", "place.city", "place.zip", "place.country"]
    assert {column.name: column.type for column in ours.fields}["amount"] == "decimal(9, 2)"
    assert len(ours.specs) == 3
    assert [ref.name for ref in ours.refs] == ["first", "main", "side"]
    assert ours.snapshots[-1].operation in ("overwrite", "delete")


def with_statistics(document: dict[str, Any]) -> None:
    snapshot = document["current-snapshot-id"]
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": snapshot, "sequence-number": 1, "fields": [1]}
    common = {"snapshot-id": snapshot, "file-size-in-bytes": 10, "statistics-path": "/a"}
    document["statistics"] = [
        common | {"file-footer-size-in-bytes": 4, "blob-metadata": [blob, blob | {"properties": {"ndv": "12"}}]}
    ]
    document["partition-statistics"] = [common | {"statistics-path": "/p"}]


def as_v1(document: dict[str, Any]) -> None:
    """As an early writer of format v1 would have left it."""
    schema = next(one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"])
    del schema["schema-id"]
    spec = next(one for one in document["partition-specs"] if one["spec-id"] == 1)
    document |= {"format-version": 1, "schema": schema, "partition-spec": spec["fields"]}
    for key in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id", "sort-orders"):
        del document[key]
    for key in ("default-sort-order-id", "refs", "last-sequence-number"):
        del document[key]
    for snapshot in document["snapshots"]:
        del snapshot["sequence-number"], snapshot["summary"]


@pytest.mark.parametrize(
    "change",
    [
        with_statistics,
        as_v1,
        lambda d: d.update({"current-snapshot-id": None, "snapshots": [], "snapshot-log": [], "refs": {}}),
        lambda d: d.pop("refs"),
        lambda d: d.pop("properties"),
        lambda d: d.pop("snapshot-log"),
        lambda d: d.pop("metadata-log"),
        lambda d: d["sort-orders"][-1]["fields"][0].update({"source-id": 99}),
        lambda d: d["schemas"][-1]["fields"][2].update({"type": "decimal(9,2)"}),
        lambda d: d["snapshots"][0].pop("parent-snapshot-id", None),
    ],
)
def test_other_writers_leave_out_or_spell_differently_what_they_may(table: Table, change: Change) -> None:
    document = document_of(table)
    change(document)
    ours, theirs = both(table, document)
    assert ours == theirs


def test_an_early_v1_table_has_the_same_uuid_each_time(table: Table) -> None:
    document = document_of(table)
    as_v1(document)
    del document["table-uuid"]
    first, second = (state_of(NAME, document, table.metadata_location) for _ in range(2))
    assert first.uuid == second.uuid
    assert len(first.uuid) == 36


def test_a_current_snapshot_of_minus_one_is_none(table: Table) -> None:
    document = document_of(table) | {"current-snapshot-id": -1, "snapshots": [], "refs": {}}
    assert state_of(NAME, document, "m").snapshot_id is None


def test_without_a_null_order_nulls_come_first_in_ascending_and_last_in_descending_order(table: Table) -> None:
    document = document_of(table)
    for field in document["sort-orders"][-1]["fields"]:
        del field["null-order"]
    assert state_of(NAME, document, "m").sort_orders[-1].fields == (
        "id asc nulls-first",
        "bucket[8](place.zip) desc nulls-last",
    )


def test_a_geometry_keeps_its_coordinate_system(table: Table) -> None:
    document = document_of(table)
    document["schemas"][-1]["fields"].append({"id": 90, "name": "g", "type": "geometry(srid:3857)", "required": False})
    assert state_of(NAME, document, "m").fields[-1].type == "geometry(srid:3857)"


def test_a_transform_with_several_sources_is_not_understood(table: Table) -> None:
    from neve.errors import NotUnderstoodError

    document = document_of(table)
    field = document["partition-specs"][-1]["fields"][0]
    field["source-ids"] = [field.pop("source-id"), 2]
    with pytest.raises(NotUnderstoodError, match=r"^Cannot read table local\.db\.t: "):
        state_of(NAME, document, "m")
