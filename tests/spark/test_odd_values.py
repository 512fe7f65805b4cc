"""Values that other engines store and Python has no word for, on real Iceberg: bytes that are no text, years beyond 9999, and
keys inside structs. The other partitions are compacted whatever happens, no row changes, and no run stays open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from tests.builders.delete_kernel_tables import SPACE, Written
from tests.builders.spark_connections import opened
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAD = "concat('x', repeat(cast(X'C3' as string),30))"
FLAGS = {"policy.min-input-files": "2", "policy.cool-down": "0 s"}


def made(spark: SparkSession, columns: str, partitioned: str, *inserts: str) -> str:
    """A table with one data file in each partition for each insert, twice."""
    name = f"odd.t{uuid4().hex[:8]}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.odd")
    spark.sql(f"CREATE TABLE local.{name} ({columns}) USING iceberg {partitioned} TBLPROPERTIES ('format-version'='2')")
    for _ in range(2):
        for values in inserts:
            spark.sql(f"INSERT INTO local.{name} {values}")
    return name


def rows(spark: SparkSession, name: str, columns: str) -> list[tuple[Any, ...]]:
    spark.sql(f"REFRESH TABLE local.{name}")
    return sorted(tuple(row) for row in spark.sql(f"SELECT {columns} FROM local.{name}").collect())


def files(spark: SparkSession, name: str) -> int:
    spark.sql(f"REFRESH TABLE local.{name}")
    return int(spark.sql(f"SELECT count(*) AS n FROM local.{name}.data_files").first().n)


@pytest.mark.parametrize("kernel", [None, Kernel.ARROW, Kernel.SPARK])
def test_a_string_that_is_not_utf_8_stops_nothing_and_stays_as_it_is(
    spark: SparkSession, warehouse: Path, tmp_path: Path, kernel: Kernel | None
) -> None:
    inserts = [f"SELECT {p}, {p}, {value}" for p, value in ((1, "'a'"), (2, BAD), (3, "'c'"))]
    name = made(spark, "id BIGINT, p INT, v STRING", "PARTITIONED BY (p)", *inserts)
    columns = "id, p, hex(cast(v AS BINARY))"
    before = rows(spark, name, columns)
    assert before[2][2].startswith("78C3C3")
    with opened(spark, warehouse, tmp_path / "state.db", **FLAGS) as neve:
        neve.inspect(name)
        record = neve.compact(name, request=Request(tier=Tier.FULL, kernel=kernel, force=True))
        assert [(group.state, group.reason) for group in record.groups if group.state is not GroupState.COMMITTED] == []
        assert record.outcome is RunOutcome.DONE
        assert len(record.groups) == 3
        assert rows(spark, name, columns) == before
        assert files(spark, name) == 3
        if kernel is None:
            kept = neve.maintain(name, skip=["orphans"])
            assert kept.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO)
        assert neve.unfinished() == ()
        assert all(run.finished_ms is not None for run in neve.runs(name))
    assert rows(spark, name, columns) == before
    bounds = spark.sql(f"SELECT lower_bounds[3] AS low, upper_bounds[3] AS high FROM local.{name}.files WHERE partition.p = 2")
    for row in bounds.collect():
        assert row.low is None or bytes(row.low) <= b"x" + b"\xc3" * 30
        assert row.high is None or bytes(row.high) >= b"x" + b"\xc3" * 30


ODD_DATE = "date_from_unix_date({})"
ODD_TIME = "timestamp_micros({})"


@pytest.mark.parametrize(
    ("partitioned", "python_max_files"),
    [("d", 10_000), ("ts, d", 0), ("days(ts), months(d)", 10_000), ("hours(ts), years(d)", 0)],
)
def test_partition_values_beyond_the_years_of_python_are_inspected_planned_and_compacted(
    spark: SparkSession, warehouse: Path, tmp_path: Path, partitioned: str, python_max_files: int
) -> None:
    """Under transforms too; from metadata that plain Python reads, and that Spark reads."""
    values = [(20_105, 1_737_115_975_038_194), (4_000_000, 1_737_115_975_038_194_000), (-800_000, -70_000_000_000_000_000)]
    inserts = [f"SELECT {i}, {ODD_DATE.format(d)}, {ODD_TIME.format(t)}" for i, (d, t) in enumerate(values)]
    name = made(spark, "id BIGINT, d DATE, ts TIMESTAMP", f"PARTITIONED BY ({partitioned})", *inserts)
    columns = "id, unix_date(d), unix_micros(ts)"
    before = rows(spark, name, columns)
    assert len(before) == 6
    flags = FLAGS | {"inspect.python-max-files": str(python_max_files)}
    with opened(spark, warehouse, tmp_path / "state.db", **flags) as neve:
        neve.inspect(name)
        plan = neve.plan(name, request=Request(tier=Tier.FULL, force=True))
        # Iceberg names directories after partitions: ours has the same name.
        homes = {group.partition for group in plan.groups}
        spark.sql(f"REFRESH TABLE local.{name}")
        paths = [row.file_path for row in spark.sql(f"SELECT file_path FROM local.{name}.data_files").collect()]
        assert homes == {path.partition("/data/")[2].rpartition("/")[0] for path in paths}
        record = neve.compact(name, request=Request(tier=Tier.FULL, force=True))
        assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 3
        assert neve.unfinished() == ()
    assert rows(spark, name, columns) == before
    assert files(spark, name) == 3


def test_files_with_equality_deletes_on_a_nested_key_are_left_alone_by_every_kernel(
    spark: SparkSession, warehouse: Path, tmp_path: Path
) -> None:
    table = Written(spark, warehouse, "id BIGINT, s STRUCT<k: INT>", 2)
    for i in range(3):
        spark.sql(f"INSERT INTO {table.sql_name} SELECT {i}, named_struct('k', {i})")
    spark.sql(f"INSERT INTO {table.sql_name} SELECT 3, CAST(NULL AS STRUCT<k: INT>)")
    key = table.java.schema().findField("s.k").fieldId()
    leaf = pa.field("k", pa.int32(), metadata={"PARQUET:field_id": str(key)})
    top = pa.field("s", pa.struct([leaf]), metadata={"PARQUET:field_id": str(table.java.schema().findField("s").fieldId())})
    path = table.data / "equality.parquet"
    pq.write_table(pa.Table.from_pylist([{"s": {"k": None}}], schema=pa.schema([top])), path)
    ids = spark.sparkContext._gateway.new_array(table.jvm.int, 1)
    ids[0] = key
    table.commit(table.builder(path, "parquet", 1).ofEqualityDeletes(ids).build())
    # What the guard is for: the same table gives two answers.
    counts = [len(spark.sql(f"SELECT {columns} FROM {table.sql_name}").collect()) for columns in ("*", "id")]
    assert counts[0] != counts[1]
    before = {local(file) for file in table.paths()}
    name = f"{SPACE}.{table.name}"
    with opened(spark, warehouse, tmp_path / "state.db", **FLAGS) as neve:
        for kernel in (None, *Kernel):
            plan = neve.plan(name, request=Request(tier=Tier.FULL, kernel=kernel, force=True))
            assert [skipped.reason for skipped in plan.skipped] == [
                "equality deletes compare the nested column s.k, and Iceberg contradicts itself about which rows these delete"
            ]
            assert len(plan.groups) == 0
        converted = neve.deletes(name, "convert")
        assert converted.outcome is RunOutcome.NOTHING_TO_DO
        assert converted.reason is not None
        assert "nested column s.k" in converted.reason
    assert {local(file) for file in table.paths()} == before
