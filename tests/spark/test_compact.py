"""Whole compactions of sample tables with every kernel that applies: the same rows before and after, as others read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.core.plan_words import Kernel
from neve.core.record import RunOutcome
from neve.samples import SAMPLES, Target
from tests.spark.rewriting import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPY, ARROW, SPARK = Kernel.COPY, Kernel.ARROW, Kernel.SPARK
BY_SAMPLE = {
    # Pinned kernel, and the kernel that did it: schemas that differ cannot be copied, deletes and lineage are Spark's.
    "stream": [(COPY, COPY), (ARROW, ARROW)],
    "evolved": [(COPY, ARROW), (ARROW, ARROW), (SPARK, SPARK)],
    "respecced": [(ARROW, ARROW)],
    "v1": [(COPY, COPY), (ARROW, ARROW), (SPARK, SPARK)],
    "floats": [(COPY, COPY), (ARROW, ARROW), (SPARK, SPARK)],
    "mixed_writers": [(COPY, ARROW), (ARROW, ARROW)],
    "wide": [(ARROW, ARROW)],
    "cdc": [(COPY, SPARK)],
    "v3": [(ARROW, SPARK)],
}


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> Iterator[SqlCatalog]:
    with closing(SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))) as opened:
        yield opened


@pytest.mark.parametrize("name", BY_SAMPLE)
def test_the_rows_are_the_same_before_and_after(name: str, spark: SparkSession, warehouse: Path, catalog: SqlCatalog) -> None:
    SAMPLES[name].build(Target(catalog, spark=spark, namespace="same"), seed=7, scale=0.1)
    bench = Bench(spark, warehouse, "same", name)
    everything = "_row_id, _last_updated_sequence_number, *" if name == "v3" else "*"
    before, spark_before, files = bench.duckdb(), bench.rows(everything), bench.paths()
    for pinned, used in BY_SAMPLE[name]:
        record = bench.compact(pinned)

        assert record.outcome is RunOutcome.DONE, record.groups
        assert set(record.kernels) == {used}
        assert bench.duckdb() == before
        assert bench.rows(everything) == spark_before
        assert not bench.paths() & files
        assert all(group.proof is not None and group.proof.holds for group in record.groups)
        assert bench.bridge.roll_back(record.snapshots[-1], record.snapshot_before or 0)
        assert bench.paths() == files


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


def test_a_delete_by_range_removes_no_nan_after_a_rewrite(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "nan", "t")
    bench.sql("CREATE TABLE {} (id BIGINT, v DOUBLE, f FLOAT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    bench.sql("INSERT INTO {} VALUES (1, 1.0D, CAST(1 AS FLOAT)), (2, DOUBLE('NaN'), FLOAT('NaN'))")
    bench.sql("INSERT INTO {} VALUES (3, 2.0D, CAST(-0.0 AS FLOAT)), (4, DOUBLE('Infinity'), NULL)")
    for kernel in Kernel:
        record = bench.compact(kernel)
        assert dict(record.kernels) == {kernel: 1}
        bench.sql("DELETE FROM {} WHERE v < 10")
        assert bench.ids() == [2, 4], kernel
        bench.sql(f"CALL local.system.rollback_to_snapshot('nan.t', {record.snapshots[-1]})")
        bench.sql("DELETE FROM {} WHERE f < 10")
        assert bench.ids() == [2, 4], kernel
        bench.sql(f"CALL local.system.rollback_to_snapshot('nan.t', {record.snapshot_before})")


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
