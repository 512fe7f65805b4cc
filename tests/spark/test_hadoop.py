"""A directory written by Spark's hadoop catalog, looked at without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.operations.inspect import read
from neve.table.depth import Depth
from neve.table.state import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_reads_what_sparks_hadoop_catalog_wrote(spark: SparkSession, tmp_path: Path) -> None:
    prefix = "spark.sql.catalog.directory"
    for key, value in {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(tmp_path)}.items():
        spark.conf.set(prefix + key, value)
    spark.sql("CREATE TABLE directory.db.t (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region)")
    for _ in range(3):
        spark.sql("INSERT INTO directory.db.t VALUES (1, 'eu'), (2, 'us')")
    name, settings = open_warehouse(str(tmp_path))
    catalog = IcebergCatalog(name, settings, environ={})
    state = read(catalog.open(TableName(catalog=name, namespace=("db",), name="t")), Depth.FILES)
    assert state.files is not None
    assert (len(state.files), state.metadata_location.endswith("v4.metadata.json")) == (6, True)
    assert [str(table) for table in catalog.tables()] == ["local.db.t"]
