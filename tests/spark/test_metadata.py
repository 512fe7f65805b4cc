"""Spark's reader of metadata against the plain one: the same columns for every kind of table."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.catalogs.cache import MetadataCache
from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.operations.inspect import read
from neve.ports import TableReader
from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.spark.table.metadata import LargeTableReader
from neve.table.depth import Depth
from neve.table.files import FileColumns
from neve.table.state import TableName
from tests.builders.table_contents import by_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "metadata"


def assert_readers_agree(spark: SparkSession, warehouse: Path, table: str, cache: MetadataCache | None = None) -> FileColumns:
    name, settings = open_warehouse(str(warehouse))
    reader = IcebergCatalog(name, settings, environ={}, cache=cache).open(
        TableName(catalog=name, namespace=(NAMESPACE,), name=table)
    )
    return assert_equal_answers(reader, LargeTableReader(reader, lambda: spark, python_max_files=0))


def assert_equal_answers(reader: TableReader, another: TableReader) -> FileColumns:
    """With the bounds of all columns, and without any."""
    for bounds in ([], [column.field_id for column in reader.state().fields]):
        plain, large = (read(one, Depth.FILES, bounds=bounds).files for one in (reader, another))
        assert plain is not None
        assert large is not None
        assert by_path(large) == by_path(plain)
        assert set(large.partitions) == set(plain.partitions)
        assert [files.bounds is not None for files in (plain, large)] == [bool(bounds)] * 2
    assert plain is not None
    return plain


@pytest.fixture(autouse=True, scope="module")
def _namespace(spark: SparkSession) -> None:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{NAMESPACE}")


PARTITIONINGS = {
    "plain": "",
    "by_day": "PARTITIONED BY (days(ts))",
    "by_hour_bucket": "PARTITIONED BY (hours(ts), bucket(4, id))",
    "by_month_year": "PARTITIONED BY (months(ts), years(day))",
    "by_values": "PARTITIONED BY (region, day, amount, flag)",
    "by_truncate": "PARTITIONED BY (truncate(2, region), truncate(10, id))",
    "by_time": "PARTITIONED BY (ts, ntz)",
}


@pytest.mark.parametrize("table", PARTITIONINGS)
def test_readers_agree_on_every_partitioning(spark: SparkSession, warehouse: Path, table: str) -> None:
    spark.sql(
        f"CREATE TABLE local.{NAMESPACE}.{table} (id BIGINT, ts TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, region STRING,"
        f" amount DECIMAL(9, 2), flag BOOLEAN) USING iceberg {PARTITIONINGS[table]}"
    )
    spark.sql(
        f"INSERT INTO local.{NAMESPACE}.{table} SELECT id, timestamp_micros(1737115975038194 + id * 3600000000),"
        " to_timestamp_ntz('2025-01-17 12:00:00.5'), date_add(DATE '2025-01-17', CAST(id % 2 AS INT)),"
        " CASE WHEN id % 3 = 0 THEN NULL ELSE concat('a/b c', id % 2) END, CAST(id % 2 AS DECIMAL(9, 2)), id % 2 = 0"
        " FROM range(6)"
    )
    files = assert_readers_agree(spark, warehouse, table)
    assert files.column("records").sum() == 6
    assert files.bounds is not None
    assert min(files.bounds.column("1.lower").to_pylist()) == struct.pack("<q", 0)
    assert max(files.bounds.column("1.upper").to_pylist()) == struct.pack("<q", 5)


def test_readers_agree_after_the_spec_and_names_have_changed(spark: SparkSession, warehouse: Path) -> None:
    table = f"local.{NAMESPACE}.respecced"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'eu'), (2, 'us')")
    spark.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD region WITH bucket(2, id) AS shard")
    spark.sql(f"INSERT INTO {table} VALUES (3, 'eu'), (4, 'us')")
    files = assert_readers_agree(spark, warehouse, "respecced")
    assert {p.spec_id for p in files.partitions} == {0, 1}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_readers_agree_on_every_format_version(spark: SparkSession, warehouse: Path, version: int) -> None:
    table = f"local.{NAMESPACE}.v{version}"
    merge_on_read = "'write.delete.mode'='merge-on-read'," if version > 1 else ""
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part)"
        f" TBLPROPERTIES ({merge_on_read} 'format-version'='{version}')"
    )
    for _ in range(2):
        spark.sql(f"INSERT INTO {table} SELECT id, CAST(id % 2 AS INT) FROM range(100)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    files = assert_readers_agree(spark, warehouse, f"v{version}")
    deletes = int((files.column("content") != 0).sum())
    assert (deletes > 0, int(files.is_vector.sum()) == deletes) == {1: (False, True), 2: (True, False), 3: (True, True)}[
        version
    ]


def told(files: FileColumns, *, is_data: bool) -> list[dict[str, object]]:
    """What the columns about deletes and rows say, paths left out."""
    chosen = files.table.filter(pa.array((files.column("content") == 0) == is_data)).sort_by("first_row_id")
    rows = chosen.select(["referenced", "content_offset", "equality_ids", "first_row_id"]).to_pylist()
    paths = set(files.table.column("path").to_pylist())
    assert {row["referenced"] for row in rows} <= {"", *paths}
    return [{**row, "referenced": bool(row["referenced"])} for row in rows]


NOTHING = {"referenced": False, "content_offset": -1, "equality_ids": "", "first_row_id": -1}


@pytest.mark.parametrize(("granularity", "names_one"), [("file", True), ("partition", False)])
def test_readers_agree_on_what_position_deletes_name(
    spark: SparkSession, warehouse: Path, granularity: str, names_one: bool
) -> None:
    table = f"local.{NAMESPACE}.by_{granularity}"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2',"
        f" 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='{granularity}')"
    )
    for _ in range(2):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(100)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    files = assert_readers_agree(spark, warehouse, f"by_{granularity}")
    assert told(files, is_data=False) == [{**NOTHING, "referenced": names_one}] * (2 if names_one else 1)
    assert told(files, is_data=True) == [NOTHING] * 2


def test_readers_agree_on_equality_deletes(spark: SparkSession, warehouse: Path, catalog: SqlCatalog) -> None:
    table = f"local.{NAMESPACE}.by_key"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, kind STRING) USING iceberg TBLPROPERTIES ('format-version'='2')")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    target = Target(catalog, spark=spark, namespace=NAMESPACE)
    add_equality_deletes(target, "by_key", rows=[{"kind": "a", "id": 1}])
    add_equality_deletes(target, "by_key", rows=[{"id": 1}])
    files = assert_readers_agree(spark, warehouse, "by_key")
    ids = sorted(str(row["equality_ids"]) for row in told(files, is_data=False))
    assert ids == ["1", "1,2"]


def test_readers_agree_on_vectors_and_row_ids_of_a_table_that_went_to_v3(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    table = f"local.{NAMESPACE}.upgraded"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(100)")
    cache = MetadataCache(tmp_path, max_bytes=10**6, ttl_seconds=3600)
    files = assert_readers_agree(spark, warehouse, "upgraded", cache)
    assert told(files, is_data=True) == [NOTHING]
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='3')")
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range(50)")
    spark.sql(f"DELETE FROM {table} WHERE id < 10")
    files = assert_readers_agree(spark, warehouse, "upgraded", cache)
    assert sorted(row["first_row_id"] for row in files.table.to_pylist() if row["content"] == 0) == sorted(
        row[0] for row in spark.sql(f"SELECT first_row_id FROM {table}.data_files").collect()
    )
    vectors = told(files, is_data=False)
    assert [row["referenced"] for row in vectors] == [True, True]
    assert sorted(int(str(row["content_offset"])) for row in vectors)[0] == 4
    spark.sql(f"CALL local.system.rewrite_manifests('{NAMESPACE}.upgraded')")
    assert told(assert_readers_agree(spark, warehouse, "upgraded", cache), is_data=True) == told(files, is_data=True)


def test_a_small_table_starts_no_spark(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(f"CREATE TABLE local.{NAMESPACE}.small (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO local.{NAMESPACE}.small VALUES (1)")
    name, settings = open_warehouse(str(warehouse))
    reader = IcebergCatalog(name, settings, environ={}).open(TableName(catalog=name, namespace=(NAMESPACE,), name="small"))

    def refuse() -> SparkSession:
        raise AssertionError("Spark was asked for")

    large = LargeTableReader(reader, refuse, python_max_files=1)
    assert len(read(large, Depth.FILES).files or ()) == 1
