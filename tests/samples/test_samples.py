"""Every sample that pyiceberg writes alone: deterministic, readable by others, and as bad as it claims to be."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from neve.errors import BadRequestError
from neve.samples import SAMPLES, Target
from neve.samples.evolution import COMMITS
from neve.samples.shapes import FLOAT_COMMITS, WIDE_COMMITS
from neve.samples.streams import EVENT_DAYS, ORDER_COMMITS, ORDER_FILES, STREAM_BATCHES
from tests.builders.table_contents import data_files, duckdb_rows, local, pyiceberg_rows
from tests.builders.warehouses import Build

WITHOUT_SPARK = [name for name, sample in SAMPLES.items() if not sample.needs_spark]


def test_the_registry_names_each_kind_of_bad_table_once() -> None:
    assert list(SAMPLES) == [
        "stream", "events", "cdc", "wide", "nested", "evolved", "respecced", "v1", "v3", "mixed_writers", "floats",
        "scattered",
    ]  # fmt: skip
    assert all(name == sample.name and sample.description for name, sample in SAMPLES.items())


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_one_seed_gives_equal_rows_and_equally_many_files(name: str, build: Build) -> None:
    first, second = build(name), build(name, place="second")

    assert first.location() != second.location()
    assert duckdb_rows(first) == duckdb_rows(second)
    assert _files_by_partition(first) == _files_by_partition(second)
    assert [file.record_count for file in data_files(first)] == [file.record_count for file in data_files(second)]


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_another_engine_reads_the_same_rows(name: str, build: Build) -> None:
    table = build(name)

    assert duckdb_rows(table) == pyiceberg_rows(table)


def test_another_seed_gives_other_rows_in_equally_many_files(build: Build) -> None:
    first, other = build("respecced"), build("respecced", place="other seed", seed=8)

    assert duckdb_rows(first) != duckdb_rows(other)
    assert _files_by_partition(first) == _files_by_partition(other)


def test_scale_multiplies_rows_and_not_files(target: Target) -> None:
    small = SAMPLES["floats"].build(target, scale=1)
    counts = (len(data_files(small)), small.scan().count())
    large = SAMPLES["floats"].build(target, scale=3, replace=True)

    assert counts == (FLOAT_COMMITS, 250)
    assert (len(data_files(large)), large.scan().count()) == (FLOAT_COMMITS, 750)


def test_stream_is_fifty_micro_batches_of_a_file_per_event_type(build: Build) -> None:
    table = build("stream")
    per_partition = _files_by_partition(table)

    assert table.schema().column_names == [
        "event_id", "user_id", "event_type", "event_timestamp", "event_value", "device_type", "session_id",
    ]  # fmt: skip
    assert [snapshot.summary["added-records"] for snapshot in table.snapshots() if snapshot.summary] == ["40"] * STREAM_BATCHES
    assert set(per_partition) == {("add_to_cart",), ("click",), ("page_view",), ("purchase",), ("search",)}
    assert all(45 <= files <= STREAM_BATCHES for files in per_partition.values())
    rows = table.scan().to_arrow().to_pylist()
    assert len({row["event_id"] for row in rows}) == len(rows) == 2000
    assert {row["event_type"] for row in rows if row["event_value"] is not None} == {"purchase"}


def test_events_are_skewed_crumbs_today_and_one_huge_file_a_week_ago(build: Build) -> None:
    files = data_files(build("events"))
    days = Counter(file.partition[0] for file in files)
    counts = [days[day] for day in sorted(days, reverse=True)]
    largest = max(files, key=lambda file: file.file_size_in_bytes)

    assert counts == [40, 20, 13, 10, 8, 6, 5, 1, 4, 4, 3, 3, 3, 2]
    assert len(counts) == EVENT_DAYS
    assert max(days) - largest.partition[0] == 7
    assert largest.file_size_in_bytes > 20 * sorted(file.file_size_in_bytes for file in files)[-2]


def test_scattered_has_every_city_and_any_amount_in_every_file(build: Build) -> None:
    table = build("scattered")
    ranges = {(file.lower_bounds[2], file.upper_bounds[2]) for file in data_files(table)}

    assert ranges == {(b"Amsterdam", b"Tokyo")}
    assert len(data_files(table)) == ORDER_COMMITS * ORDER_FILES
    assert table.properties["neve.cluster-by"] == "hilbert(city, amount)"


def test_wide_has_200_columns_in_every_footer(build: Build) -> None:
    footers = [_footer(file) for file in data_files(build("wide"))]

    assert [footer.num_columns for footer in footers] == [200] * WIDE_COMMITS


def test_nested_holds_every_type_with_nulls_inside(build: Build) -> None:
    table = build("nested")
    rows = table.scan().to_arrow().to_pylist()

    assert [re.sub(r"\d+: ", "", str(field.field_type)) for field in table.schema().fields] == [
        "long", "struct<name: optional string, age: optional int>", "list<string>",
        "list<struct<name: optional string, age: optional int>>", "map<string, long>",
        "decimal(9, 2)", "decimal(38, 10)", "timestamp", "timestamptz", "uuid", "binary", "fixed[4]", "date", "time", "boolean",
    ]  # fmt: skip
    never_null = [column for column in rows[0] if all(row[column] is not None for row in rows)]
    assert never_null == ["id", "people"]  # pyiceberg 0.12 writes a null list of structs as an empty one
    assert any(None in row["people"] for row in rows)
    assert any(None in (row["tags"] or ()) for row in rows)
    assert any(person and person["name"] is None for row in rows for person in row["people"] or ())
    assert any(value is None for row in rows for _, value in row["scores"] or ())


def test_evolved_files_keep_the_schema_they_were_written_with(build: Build) -> None:
    table = build("evolved")
    schemas = Counter(_physical(file) for file in data_files(table))
    old = "id:1:int64 quantity:2:int32 weight:3:float price:4:decimal128(9, 2) label:5:string obsolete:6:string note:7:string"
    new = "note:7:string id:1:int64 quantity:2:int64 weight:3:double price:4:decimal128(18, 2) title:5:string channel:8:string"

    assert schemas == {old: COMMITS // 2, new: COMMITS // 2}
    rows = table.scan().to_arrow().to_pylist()
    assert any(abs(row["quantity"] or 0) > 2**31 for row in rows)
    assert all(row["title"].startswith("label ") for row in rows)
    assert all(row["channel"] is None for row in rows if row["id"] < 4_000_000)


def test_respecced_has_files_of_two_specs(build: Build) -> None:
    table = build("respecced")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = Counter[int]()
    for manifest in snapshot.manifests(table.io):
        files[manifest.partition_spec_id] += len(manifest.fetch_manifest_entry(table.io))

    assert [str(field.transform) for spec in table.specs().values() for field in spec.fields] == ["month", "day", "identity"]
    assert files == {0: 4 * 2, 1: 4 * 12}  # two months; four days in three regions


def test_v1_is_format_version_1_with_a_null_partition(build: Build) -> None:
    table = build("v1")

    assert table.format_version == 1
    assert _files_by_partition(table) == {("de",): 12, ("fr",): 12, (None,): 12}


def test_floats_go_from_none_odd_to_all_nan(build: Build) -> None:
    files = sorted(data_files(build("floats")), key=lambda file: _column(file, "id")[0])
    nan_shares = [sum(map(math.isnan, _column(file, "d"))) / file.record_count for file in files]
    seen = {str(value) for file in files for column in ("f", "d") for value in _column(file, column)}

    assert nan_shares[0] == 0
    assert nan_shares[-1] == 1
    assert all(0 < share < 1 for share in nan_shares[1:-1])
    assert {"nan", "inf", "-inf", "-0.0", "0.0"} <= seen


def test_ids_rise_from_commit_to_commit(build: Build) -> None:
    files = sorted(data_files(build("wide")), key=lambda file: _column(file, "id")[0])

    assert all(max(_column(left, "id")) < min(_column(right, "id")) for left, right in pairwise(files))


@pytest.mark.parametrize("name", [name for name, sample in SAMPLES.items() if sample.needs_spark])
def test_a_sample_that_needs_spark_says_so_and_creates_nothing(name: str, target: Target) -> None:
    with pytest.raises(BadRequestError, match=re.escape(f"Cannot build sample '{name}': it needs a Spark session")):
        SAMPLES[name].build(target)
    assert target.catalog.list_namespaces() == []


def test_an_existing_table_is_not_touched_unless_asked(target: Target) -> None:
    before = SAMPLES["v1"].build(target)
    with pytest.raises(BadRequestError, match=re.escape("Cannot build sample 'v1': table db.v1 is there already")):
        SAMPLES["v1"].build(target)
    assert target.load("v1").metadata_location == before.metadata_location


def test_replacing_a_table_leaves_no_file_of_the_old_one(target: Target, tmp_path: Path) -> None:
    before = {local(file.file_path) for file in data_files(SAMPLES["v1"].build(target))}
    after = {local(file.file_path) for file in data_files(SAMPLES["v1"].build(target, replace=True))}

    assert set(tmp_path.rglob("*.parquet")) == after
    assert not before & after


def _files_by_partition(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(file.partition[n] for n in range(len(file.partition))) for file in data_files(table))


def _footer(file: DataFile) -> pq.FileMetaData:
    return pq.read_metadata(local(file.file_path))


def _physical(file: DataFile) -> str:
    fields: list[pa.Field] = list(_footer(file).schema.to_arrow_schema())
    described = " ".join(f"{field.name}:{field.metadata[b'PARQUET:field_id'].decode()}:{field.type}" for field in fields)
    return described.replace("large_string", "string")  # the same bytes in the file


def _column(file: DataFile, name: str) -> list[Any]:
    values: list[Any] = pq.ParquetFile(local(file.file_path)).read([name]).column(name).to_pylist()
    return values
