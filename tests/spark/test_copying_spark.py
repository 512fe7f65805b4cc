"""Copied row groups of real Iceberg files, read by Spark: content, page indexes, bloom filters, splits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import duckdb

from neve.kernels.parquet.copying import copy_row_groups, read_footers
from neve.kernels.streams import LocalSink, LocalSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "local.copying.events"
WRITES = 4
ROWS_PER_WRITE = 3000


def write_files(spark: SparkSession) -> list[LocalSource]:
    """Files of Iceberg's Java writer with several pages per chunk and a bloom filter on `id`."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.copying")
    spark.sql(
        f"""CREATE TABLE {TABLE} (id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>, at TIMESTAMP) USING iceberg
        TBLPROPERTIES ('write.parquet.page-row-limit'='500', 'write.parquet.bloom-filter-enabled.column.id'='true',
                       'write.parquet.bloom-filter-max-bytes'='4096', 'write.distribution-mode'='none')"""
    )
    for number in range(WRITES):
        rows = spark.range(number * 10_000, number * 10_000 + ROWS_PER_WRITE, numPartitions=1).selectExpr(
            "id", "IF(id % 7 = 0, NULL, concat('name-', id % 50))", "array('a', CAST(id AS STRING))", "timestamp_seconds(id)"
        )
        rows.toDF("id", "name", "tags", "at").writeTo(TABLE).append()
    paths = [row.file_path for row in spark.sql(f"SELECT file_path FROM {TABLE}.files ORDER BY file_path").collect()]
    return [LocalSource(unquote(urlparse(path).path)) for path in paths]


def test_spark_reads_copied_row_groups_like_the_files_they_came_from(spark: SparkSession, tmp_path: Path) -> None:
    sources = write_files(spark)
    footers = read_footers(sources)
    chunks = [part for footer in footers for group in footer.groups for part in group.chunks]
    assert all(part.column_index is not None and part.offset_index is not None for part in chunks)
    assert sum(part.bloom is not None for part in chunks) == WRITES
    out = tmp_path / "merged.parquet"
    copied = copy_row_groups(sources, footers, LocalSink(out))
    assert (copied.rows, copied.row_groups) == (WRITES * ROWS_PER_WRITE, WRITES)
    assert copied.counts[1].values == WRITES * ROWS_PER_WRITE

    merged = spark.read.parquet(str(out))
    table = spark.table(TABLE)
    assert merged.exceptAll(table).count() == table.exceptAll(merged).count() == 0
    for id_, expected in ((10_777, 1), (30_000, 1), (5_000, 0)):
        assert merged.where(f"id = {id_}").select("id").collect() == table.where(f"id = {id_}").select("id").collect()
        assert merged.where(f"id = {id_}").count() == expected
    assert merged.where("id BETWEEN 20990 AND 21010 AND name IS NOT NULL").count() == 18

    # Cut into splits smaller than a row group: each row group must belong to exactly one of them.
    spark.conf.set("spark.sql.files.maxPartitionBytes", out.stat().st_size // 7)
    try:
        assert spark.read.parquet(str(out)).count() == WRITES * ROWS_PER_WRITE
        assert spark.read.parquet(str(out)).selectExpr("sum(id)").first() == table.selectExpr("sum(id)").first()
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    with duckdb.connect() as connection:
        probe = connection.sql(f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{out}', 'id', 30_000)").fetchall()
        names = connection.sql(f"SELECT count(name), sum(id) FROM '{out}'").fetchone()
    assert sorted(probe) == [(False,), (True,), (True,), (True,)]
    assert names == table.selectExpr("count(name)", "sum(id)").first()
