"""Files with timestamps in milliseconds, as pandas and pyarrow write them: Iceberg's vectorized reader takes them for 1970."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, TimestampType

from neve.api import Neve
from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState, RunOutcome
from neve.settings import load_settings
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
OLD, NEW = datetime(2020, 9, 13), datetime(2123, 11, 14)  # noqa: DTZ001 - the column has no zone


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path, catalog: SqlCatalog) -> Bench:
    """Two files, each with an old and a new row."""
    catalog.create_namespace_if_not_exists("milliseconds")
    name = f"t{next(NUMBERS)}"
    table = catalog.create_table(
        f"milliseconds.{name}", Schema(NestedField(1, "id", LongType()), NestedField(2, "ts", TimestampType()))
    )
    files = [str(warehouse / f"{name}-{number}.parquet") for number in range(2)]
    for number, file in enumerate(files):
        times = pa.array([OLD, NEW], pa.timestamp("ms"))
        pq.write_table(pa.table({"id": [2 * number, 2 * number + 1], "ts": times}), file)
    table.add_files(files)
    return Bench(spark, warehouse, "milliseconds", name)


def test_the_spark_kernel_leaves_such_files_alone_and_the_arrow_kernel_keeps_every_value(bench: Bench) -> None:
    expected = plain_rows([{"id": number, "ts": [OLD, NEW][number % 2]} for number in range(4)])
    assert bench.duckdb() == expected
    (group,) = bench.compact(Kernel.SPARK).groups
    assert group.state is GroupState.FAILED
    assert "column ts has milliseconds, which Iceberg's reader takes for microseconds" in group.reason
    (group,) = bench.compact(Kernel.ARROW).groups
    assert group.state is GroupState.COMMITTED
    assert bench.duckdb() == expected


@pytest.mark.parametrize("options", [{}, {"spark.datasource.iceberg.vectorization-enabled": "true"}], ids=["plain", "options"])
def test_ttl_deletes_by_the_times_that_were_written(
    bench: Bench, tmp_path: Path, spark: SparkSession, options: dict[str, str]
) -> None:
    loaded = load_settings(environ={}, flags={"state.url": f"sqlite:///{tmp_path / 'state.db'}"})
    name = f"{bench.namespace}.{bench.name}"
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('neve.ttl' = '30 days', 'neve.ttl-column' = 'ts')")
    caller = spark.newSession()
    for key, value in options.items():
        caller.conf.set(key, value)
    with Neve.open(loaded, spark=caller) as neve:
        neve.ttl(f"local.{name}")
        record = neve.ttl(f"local.{name}", enforce=True)
    assert (record.outcome, record.counts.rows_deleted) == (RunOutcome.DONE, 2)
    assert bench.duckdb() == plain_rows([{"id": 1, "ts": NEW}, {"id": 3, "ts": NEW}])
