"""Whole compactions of sample tables with every kernel that applies: the same rows before and after, as others read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.rewrite.group import Kernel
from neve.rewrite.record import RunOutcome
from neve.samples import SAMPLES, Target
from tests.builders.spark_tables import Bench

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
    "cdc": [(COPY, ARROW), (SPARK, SPARK)],
    "v3": [(ARROW, ARROW), (SPARK, SPARK)],
}


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


def test_a_delete_by_range_removes_no_nan_after_a_rewrite(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "nan", "t")
    bench.sql("CREATE TABLE {} (id BIGINT, v DOUBLE, f FLOAT) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    bench.sql("INSERT INTO {} VALUES (1, 1.0D, CAST(1 AS FLOAT)), (2, DOUBLE('NaN'), FLOAT('NaN'))")
    bench.sql("INSERT INTO {} VALUES (3, 2.0D, CAST(-0.0 AS FLOAT)), (4, DOUBLE('Infinity'), NULL)")
    for kernel in Kernel:
        record = bench.compact(kernel)
        assert dict(record.kernels) == {kernel: 1}
        assert (record.groups[0].cpu_seconds is None) is (kernel is SPARK)  # Spark's tasks are not measured
        bench.sql("DELETE FROM {} WHERE v < 10")
        assert bench.ids() == [2, 4], kernel
        bench.sql(f"CALL local.system.rollback_to_snapshot('nan.t', {record.snapshots[-1]})")
        bench.sql("DELETE FROM {} WHERE f < 10")
        assert bench.ids() == [2, 4], kernel
        bench.sql(f"CALL local.system.rollback_to_snapshot('nan.t', {record.snapshot_before})")


def test_partitions_of_nan_and_infinity_are_rewritten_like_any_other(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "nan", "homes")
    bench.sql("CREATE TABLE {} (id BIGINT, v DOUBLE, w STRING) USING iceberg PARTITIONED BY (v, w)")
    values = ["DOUBLE('NaN')", "DOUBLE('Infinity')", "DOUBLE('-Infinity')", "1.5D", "NULL"]
    for i in range(2):
        rows = ", ".join(f"({10 * i + n}, {value}, 'NaN')" for n, value in enumerate(values))
        bench.sql(f"INSERT INTO {{}} VALUES {rows}")
    before = bench.duckdb()
    for kernel in Kernel:
        record = bench.compact(kernel)
        assert (record.outcome, len(record.groups)) == (RunOutcome.DONE, 5), record.groups
        assert bench.duckdb() == before
        assert len(bench.paths()) == 5
        assert bench.bridge.roll_back(record.snapshots[-1], record.snapshot_before or 0)
