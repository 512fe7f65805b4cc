"""Lists, maps and times through every kernel; not collected where pyarrow is too old for the arrow kernel to take them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog.sql import SqlCatalog

from neve.rewrite.group import Kernel
from neve.rewrite.record import RunOutcome
from neve.samples import SAMPLES, Target
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPY, ARROW = Kernel.COPY, Kernel.ARROW


def test_columns_that_spark_cannot_read_are_rewritten_all_the_same(
    spark: SparkSession, warehouse: Path, catalog: SqlCatalog
) -> None:
    """The table has a column of type time: Spark has no such type, and the kernels do not ask it."""
    SAMPLES["nested"].build(Target(catalog, namespace="same"), seed=7, scale=0.1)
    bench = Bench(spark, warehouse, "same", "nested")
    before = bench.duckdb()
    for kernel in (COPY, ARROW):
        record = bench.compact(kernel)
        assert (record.outcome, dict(record.kernels)) == (RunOutcome.DONE, {kernel: 1}), record.groups
        assert bench.duckdb() == before
        assert bench.bridge.roll_back(record.snapshots[-1], record.snapshot_before or 0)


METRICS = "record_count, value_counts, null_value_counts, nan_value_counts, lower_bounds, upper_bounds, spec_id, partition"


def test_the_manifest_says_of_our_files_what_it_says_of_icebergs_own(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "metrics", "t")
    bench.sql(
        "CREATE TABLE {} (id BIGINT, part STRING, name STRING, v DOUBLE, day DATE, price DECIMAL(9, 2), raw BINARY, "
        "s STRUCT<x: INT, y: STRING>, tags ARRAY<STRING>) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('format-version' = '2', 'write.distribution-mode' = 'none', "
        "'write.metadata.metrics.column.raw' = 'truncate(3)')"
    )
    for start in (0, 50):
        bench.sql(
            f"INSERT INTO {{}} SELECT id, 'p', IF(id % 7 = 0, NULL, concat('a name longer than sixteen ', id)), "
            f"IF(id % 9 = 0, DOUBLE('NaN'), id * 1.5D), date_add(DATE'2024-01-01', CAST(id AS INT)), "
            f"CAST(id AS DECIMAL(9, 2)), CAST(concat('raw', id) AS BINARY), "
            f"named_struct('x', CAST(id AS INT), 'y', CAST(id AS STRING)), array('t', NULL) "
            f"FROM range({start}, {start + 50}, 1, 1)"
        )
    (start,) = spark.sql("SELECT snapshot_id FROM local.metrics.t.snapshots ORDER BY committed_at DESC LIMIT 1").collect()
    bench.sql("CALL local.system.rewrite_data_files(table => 'metrics.t', options => map('rewrite-all', 'true'))")
    (theirs,) = bench.sql(f"SELECT {METRICS} FROM {{}}.files").collect()
    for kernel in Kernel:
        bench.sql(f"CALL local.system.rollback_to_snapshot('metrics.t', {start.snapshot_id})")
        record = bench.compact(kernel)
        assert dict(record.kernels) == {kernel: 1}, record.groups
        spark.sql("REFRESH TABLE local.metrics.t")
        (ours,) = bench.sql(f"SELECT {METRICS}, file_path, split_offsets, file_size_in_bytes FROM {{}}.files").collect()
        for name in METRICS.split(", "):
            assert ours[name] == theirs[name], (kernel, name)
        offsets = ours.split_offsets
        assert offsets == sorted(set(offsets))
        assert offsets[0] == 4
        assert offsets[-1] < ours.file_size_in_bytes
