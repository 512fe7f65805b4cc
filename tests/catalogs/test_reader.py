"""Reading a table in plain Python: how deep, how often, and what goes through the cache."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField
from pyiceberg.table.sorting import SortOrder as PyIcebergSortOrder
from pyiceberg.transforms import TruncateTransform
from pyiceberg.types import NestedField, StringType, StructType

from neve.catalogs import pool
from neve.catalogs.opening import IcebergCatalog
from neve.errors import CorruptMetadataError
from neve.operations.inspect import read
from neve.table.depth import Depth
from neve.table.files import FileColumns
from neve.table.state import Ref, RefKind, TableName, TableState
from tests.builders.warehouses import ROWS

NAME = TableName(catalog="local", namespace=("db",), name="t")
OpenAt = Callable[[Path], IcebergCatalog]


def test_reads_state_manifests_and_files(warehouse: Path, catalog_at: OpenAt) -> None:
    state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert state.files is not None
    assert state.manifests is not None
    assert (len(state.files), len(state.manifests), len(state.snapshots)) == (3, 3, 3)
    assert state.files.column("records").tolist() == [10, 10, 10]
    assert sorted(state.files.column("sequence_number").tolist()) == [1, 2, 3]
    assert state.metadata_bytes == Path(state.metadata_location).stat().st_size


def test_a_state_survives_json(warehouse: Path, catalog_at: OpenAt) -> None:
    state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert TableState.model_validate_json(state.model_dump_json()) == state


@pytest.mark.parametrize(("depth", "kinds"), [(Depth.SUMMARY, []), (Depth.MANIFESTS, ["snap"]), (Depth.FILES, ["snap", "m0"])])
def test_reads_no_deeper_than_asked(
    warehouse: Path, catalog_at: OpenAt, reads: list[str], depth: Depth, kinds: list[str]
) -> None:
    assert read(catalog_at(warehouse).open(NAME), depth).depth is depth
    avro = [Path(path).name for path in reads if path.endswith(".avro")]
    assert sorted({"snap" if name.startswith("snap") else "m0" for name in avro}, reverse=True) == kinds


def test_never_opens_a_data_file(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert [path for path in reads if path.endswith(".parquet")] == []


def test_a_second_look_reads_the_metadata_file_and_nothing_else(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    first = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    reads.clear()
    second = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert second == first
    assert reads == [first.metadata_location]


def test_after_a_commit_only_the_new_manifest_is_read(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    catalog = catalog_at(warehouse)
    read(catalog.open(NAME), Depth.FILES)
    catalog.client.load_table("db.t").append(ROWS)
    reads.clear()
    state = read(catalog.open(NAME), Depth.FILES)
    avro = [Path(path).name for path in reads if path.endswith(".avro")]
    assert len(state.files or ()) == 4
    assert len([name for name in avro if name.startswith("snap")]) == 1
    assert len(avro) == 2


def test_without_a_cache_every_look_reads_again(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    catalog = catalog_at(warehouse)
    catalog._cache = None
    for _ in range(2):
        read(catalog.open(NAME), Depth.FILES)
    assert len([path for path in reads if path.endswith(".avro")]) == 8


def bounds_of(state: TableState) -> dict[str, list[bytes | None]]:
    assert state.files is not None
    assert state.files.bounds is not None
    return dict(state.files.bounds.to_pydict())


ID = {"1.lower": [struct.pack("<q", 0)] * 3, "1.upper": [struct.pack("<q", 9)] * 3}
REGION = {"2.lower": [b"eu"] * 3, "2.upper": [b"us"] * 3}


@pytest.mark.parametrize(("ids", "expected"), [([1], ID), ([2, 1, 2], ID | REGION)])
def test_files_tell_the_bounds_that_were_asked_for(
    warehouse: Path, catalog_at: OpenAt, ids: list[int], expected: dict[str, list[bytes]]
) -> None:
    for _ in ("decoded", "from the cache"):
        assert bounds_of(read(catalog_at(warehouse).open(NAME), Depth.FILES, bounds=ids)) == expected


def test_files_in_the_cache_do_not_answer_for_bounds_and_bounds_answer_for_files(
    warehouse: Path, catalog_at: OpenAt, reads: list[str]
) -> None:
    def manifests_read(*bounds: int) -> int:
        reads.clear()
        state = read(catalog_at(warehouse).open(NAME), Depth.FILES, bounds=bounds)
        assert (state.files is not None and state.files.bounds is not None) is bool(bounds)
        return len([path for path in reads if path.endswith(".avro") and not Path(path).name.startswith("snap")])

    assert [manifests_read(), manifests_read(1), manifests_read(1, 2), manifests_read(2), manifests_read()] == [3, 3, 3, 0, 0]


def test_a_fresh_look_with_bounds_serves_a_later_one_without(warehouse: Path, catalog_at: OpenAt, reads: list[str]) -> None:
    read(catalog_at(warehouse).open(NAME), Depth.FILES, bounds=[2])
    reads.clear()
    state = read(catalog_at(warehouse).open(NAME), Depth.FILES)
    assert state.files is not None
    assert state.files.bounds is None
    assert reads == [state.metadata_location]


def test_columns_that_hold_values_are_listed_with_those_inside_structs(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    place = pa.struct([("city", pa.string()), ("at", pa.struct([("lat", pa.float64())]))])
    held = {"id": pa.int32(), "place": place, "tags": pa.list_(pa.string()), "price": pa.decimal128(9, 2)}
    catalog.client.create_table("db.nested", schema=pa.schema(list(held.items())))
    state = catalog.open(NAME.model_copy(update={"name": "nested"})).state()
    assert [(column.name, column.type) for column in state.fields] == [
        ("id", "int"),
        ("place.city", "string"),
        ("place.at.lat", "double"),
        ("price", "decimal(9, 2)"),
    ]
    schema = catalog.client.load_table("db.nested").schema()
    assert [column.field_id for column in state.fields] == [schema.find_field(column.name).field_id for column in state.fields]
    assert state.columns == 4


def test_a_sort_order_names_columns_inside_structs(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    schema = Schema(NestedField(1, "place", StructType(NestedField(2, "city", StringType(), required=False)), required=False))
    order = PyIcebergSortOrder(SortField(source_id=2, transform=TruncateTransform(4), direction=SortDirection.DESC))
    catalog.client.create_table("db.sorted", schema=schema, sort_order=order)
    state = catalog.open(NAME.model_copy(update={"name": "sorted"})).state()
    assert state.sort_orders[-1].fields == ("truncate[4](place.city) desc nulls-last",)


def test_a_table_without_a_snapshot_has_no_files(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    catalog.client.create_table("db.empty", schema=ROWS.schema)
    state = read(catalog.open(NAME.model_copy(update={"name": "empty"})), Depth.FILES)
    assert (state.snapshot, state.manifests, state.files) == (None, (), FileColumns.empty())
    state = read(catalog.open(NAME.model_copy(update={"name": "empty"})), Depth.FILES, bounds=[1])
    assert state.files == FileColumns.empty([1]) != FileColumns.empty()


def test_a_missing_manifest_is_named(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    manifests = reader.manifests()
    Path(manifests[0].path).unlink()
    with pytest.raises(CorruptMetadataError, match=f"Cannot read {manifests[0].path}: the file is missing"):
        reader.files(manifests)


def test_worker_processes_give_the_same_columns(warehouse: Path, catalog_at: OpenAt, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = catalog_at(warehouse)
    catalog._cache = None
    alone = read(catalog.open(NAME), Depth.FILES, bounds=[1, 2])
    assert bounds_of(alone) == ID | REGION
    monkeypatch.setattr(pool, "PARALLEL_FROM_FILES", 0)
    monkeypatch.setattr(pool, "usable_cores", lambda: 2)
    assert read(catalog.open(NAME), Depth.FILES, bounds=[1, 2]) == alone


def test_a_worker_process_hands_its_error_back(warehouse: Path, catalog_at: OpenAt, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = catalog_at(warehouse).open(NAME)
    manifests = reader.manifests()
    Path(manifests[1].path).write_bytes(b"x" * manifests[1].length_bytes)
    monkeypatch.setattr(pool, "PARALLEL_FROM_FILES", 0)
    monkeypatch.setattr(pool, "usable_cores", lambda: 2)
    with pytest.raises(CorruptMetadataError, match=f"Cannot decode manifest {manifests[1].path}"):
        reader.files(manifests)


def test_progress_counts_manifests(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    told: list[tuple[str, int, int | None]] = []

    def report(stage: str, done: int, total: int | None, unit: str = "") -> None:  # noqa: ARG001
        told.append((stage, done, total))

    reader.files(reader.manifests(), report)
    assert told == [("inspect", 1, 3), ("inspect", 2, 3), ("inspect", 3, 3)]


def test_samples_row_groups_from_footers(warehouse: Path, catalog_at: OpenAt) -> None:
    reader = catalog_at(warehouse).open(NAME)
    paths = reader.files(reader.manifests()).table.column("path").to_pylist()
    assert reader.sample_row_groups(paths) == dict.fromkeys(paths, 1)


def test_refs_tell_how_long_they_are_to_be_kept(warehouse: Path, catalog_at: OpenAt) -> None:
    catalog = catalog_at(warehouse)
    table = catalog.client.load_table("db.t")
    head = table.metadata.current_snapshot_id
    assert head is not None
    limits = {"max_ref_age_ms": 3, "max_snapshot_age_ms": 2, "min_snapshots_to_keep": 5}
    table.manage_snapshots().create_branch(head, "audit", **limits).create_tag(head, "v1", max_ref_age_ms=7).commit()
    audit, main, tag = catalog.open(NAME).state().refs
    assert audit == Ref(name="audit", kind=RefKind.BRANCH, snapshot_id=head, **limits)
    assert main == Ref(name="main", kind=RefKind.BRANCH, snapshot_id=head)
    assert tag == Ref(name="v1", kind=RefKind.TAG, snapshot_id=head, max_ref_age_ms=7)
