"""The session that everything on Spark stands on, seen from inside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from neve.errors import EnvironmentFaultError
from neve.spark.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_reads_back_what_it_wrote_to_an_iceberg_table(spark: SparkSession, format_version: int) -> None:
    table = f"local.session.v{format_version}"
    spark.sql(
        f"CREATE TABLE {table} (id bigint, day date) USING iceberg PARTITIONED BY (day) "
        f"TBLPROPERTIES ('format-version' = '{format_version}')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, DATE '2025-01-17'), (2, DATE '2025-01-18'), (3, DATE '2025-01-18')")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")

    assert [row.id for row in spark.table(table).orderBy("id").collect()] == [1, 3]
    files = spark.sql(f"SELECT file_path, record_count FROM {table}.files").count()
    assert files == 2


def test_row_level_deletes_of_a_v3_table_are_vectors(spark: SparkSession) -> None:
    spark.sql(
        "CREATE TABLE local.session.vectors (id bigint) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql("INSERT INTO local.session.vectors SELECT id FROM range(0, 100, 1, 1)")
    spark.sql("DELETE FROM local.session.vectors WHERE id % 10 = 3")

    (vector,) = spark.sql("SELECT file_format, record_count FROM local.session.vectors.delete_files").collect()
    assert (vector.file_format, vector.record_count) == ("PUFFIN", 10)
    assert spark.table("local.session.vectors").count() == 90


def test_iceberg_procedures_can_be_called(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE local.session.procedures (id bigint) USING iceberg")
    for start in range(3):
        spark.sql(f"INSERT INTO local.session.procedures SELECT id FROM range({start}, {start + 1}, 1, 1)")

    (result,) = spark.sql(
        "CALL local.system.rewrite_data_files(table => 'session.procedures', options => map('min-input-files', '2'))"
    ).collect()
    assert (result.rewritten_data_files_count, result.added_data_files_count) == (3, 1)


def test_python_tasks_run_in_this_environment(spark: SparkSession) -> None:
    def look(number: int) -> tuple[int, str, str]:
        import pyarrow

        return number * 2, sys.executable, pyarrow.__version__

    results = spark.sparkContext.parallelize([1, 2], 2).map(look).collect()
    assert results == [(2, sys.executable, pa.__version__), (4, sys.executable, pa.__version__)]


def test_results_come_back_as_arrow(spark: SparkSession) -> None:
    frame = spark.range(0, 1000, 1, 4)
    batches = frame._collect_as_arrow()  # `toArrow` is this, and exists from Spark 4 on only
    assert sum(pa.Table.from_batches(batches).column("id").to_pylist()) == 499_500


def test_time_is_utc_and_nothing_is_served_or_drawn(spark: SparkSession) -> None:
    assert spark.sql("SELECT CAST(TIMESTAMP '1970-01-01 00:00:00' AS long)").collect()[0][0] == 0
    assert spark._jvm.java.util.TimeZone.getDefault().getID() == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"


def test_driver_listens_on_loopback_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


def test_catalog_settings_are_not_on_the_command_line(spark: SparkSession) -> None:
    process = spark.sparkContext._gateway.proc
    shown = " ".join(process.args)
    assert "--conf spark.driver.memory=1g" in shown
    assert "spark.sql.catalog.local" not in shown
    proc = Path(f"/proc/{process.pid}/cmdline")
    if proc.exists():
        command_line = proc.read_text(encoding="utf-8")
        assert "SparkSubmit" in command_line
        assert "spark.sql.catalog.local" not in command_line


def test_second_session_in_one_process_is_refused(spark: SparkSession) -> None:
    with (
        pytest.raises(EnvironmentFaultError, match=r"^Cannot start Spark: this process already runs a Spark session$"),
        open_session(),
    ):
        pass
    assert spark.range(3).count() == 3
