"""The bridge to a table: which table it stands for, which files exist, and a catalog that Spark cannot open says why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.errors import SettingsError
from neve.spark.table.bridge import TableBridge
from neve.spark.table.metadata import read_files
from neve.spark.tasks.probe import Probe
from neve.table.state import TableName
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("name", "properties", "reason", "lacks_jars"),
    [
        ("broken_a", {"type": "nonsense"}, "nonsense", False),
        ("broken_b", {"catalog-impl": "no.such.Class"}, "no.such.Class", True),
        ("broken_c", {"type": "hadoop", "warehouse": "/nowhere", "io-impl": "no.such.FileIO"}, "no.such.FileIO", True),
    ],
)
def test_a_catalog_that_cannot_be_opened_says_why(
    spark: SparkSession, name: str, properties: dict[str, str], reason: str, lacks_jars: bool
) -> None:
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    with pytest.raises(SettingsError, match=rf"^Cannot open catalog {name} in Spark: .*{re.escape(reason)}") as caught:
        TableBridge(spark, TableName(catalog=name, namespace=("db",), name="t"))
    hint = f"Describe its storage in catalogs.{name}.storage, or name jars in spark.jars."
    assert caught.value.hint == (hint if lacks_jars else None)


def test_a_bridge_knows_its_table_its_metadata_and_which_files_exist(spark: SparkSession, warehouse: Path) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.bridges")
    bench = Bench(spark, warehouse, "bridges", "t")
    bench.sql("CREATE TABLE {} (id BIGINT) USING iceberg")
    bench.sql("INSERT INTO {} VALUES (1)")
    bridge = TableBridge(spark, TableName(catalog="local", namespace=("bridges",), name="t"))
    before = bench.load()
    assert (bridge.uuid(), bridge.metadata_location()) == (str(before.metadata.table_uuid), before.metadata_location)
    (path,) = bench.paths()
    assert bridge.missing([path, f"{path}-gone"]) == {f"{path}-gone"}


def test_a_name_may_hold_backquotes(spark: SparkSession, warehouse: Path) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.`odd``names`")
    spark.sql("CREATE TABLE local.`odd``names`.`a``b` (id BIGINT, `p``q` STRING) USING iceberg PARTITIONED BY (`p``q`)")
    spark.sql("INSERT INTO local.`odd``names`.`a``b` VALUES (1, 'x')")
    name = TableName(catalog="local", namespace=("odd`names",), name="a`b")
    bridge = TableBridge(spark, name)
    catalog, settings = open_warehouse(str(warehouse))
    state = IcebergCatalog(catalog, settings, environ={}).open(name).state()
    assert bridge.head() == state.snapshot_id
    assert [partition.path for partition in read_files(spark, state).partitions] == ["p%60q=x"]
    assert Probe(spark, f"SELECT count(*) FROM {bridge.quoted}", name).measure().runs > 0
