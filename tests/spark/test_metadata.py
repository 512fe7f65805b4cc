"""Spark's reader of metadata against the plain one: the same columns for every kind of table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.core.depth import Depth
from neve.core.files import FileColumns
from neve.core.model import TableName
from neve.engines.spark.metadata import LargeTableReader
from neve.flow.inspect import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "metadata"


def by_path(files: FileColumns) -> list[dict[str, object]]:
    """The rows in an order of their own, partitions spelled out."""
    names = pa.array([f"{p.spec_id}:{p.path}" for p in files.partitions])
    spelled = files.table.set_column(3, "partition", pc.take(names, files.table.column("partition")))
    keys = [("path", "ascending"), ("size_bytes", "ascending"), ("records", "ascending")]
    return list(spelled.sort_by(keys).to_pylist())


def assert_readers_agree(spark: SparkSession, warehouse: Path, table: str) -> FileColumns:
    name, settings = open_warehouse(str(warehouse))
    reader = IcebergCatalog(name, settings, environ={}).open(TableName(catalog=name, namespace=(NAMESPACE,), name=table))
    plain = read(reader, Depth.FILES).files
    large = read(LargeTableReader(reader, lambda: spark, python_max_files=0), Depth.FILES).files
    assert plain is not None
    assert large is not None
    assert by_path(large) == by_path(plain)
    assert set(large.partitions) == set(plain.partitions)
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


def test_a_small_table_starts_no_spark(spark: SparkSession, warehouse: Path) -> None:
    spark.sql(f"CREATE TABLE local.{NAMESPACE}.small (id BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO local.{NAMESPACE}.small VALUES (1)")
    name, settings = open_warehouse(str(warehouse))
    reader = IcebergCatalog(name, settings, environ={}).open(TableName(catalog=name, namespace=(NAMESPACE,), name="small"))

    def refuse() -> SparkSession:
        raise AssertionError("Spark was asked for")

    large = LargeTableReader(reader, refuse, python_max_files=1)
    assert len(read(large, Depth.FILES).files or ()) == 1
