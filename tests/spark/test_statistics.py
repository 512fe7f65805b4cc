"""Statistics on real Iceberg: what pyiceberg finds in the metadata is near what DuckDB counts, and as Iceberg's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from neve.api import Neve
from neve.maintenance.statistics import RELATIVE_ERROR, THETA, StatisticsRecord
from neve.rewrite.record import RunOutcome
from neve.spark.maintenance.statistics import SparkStatistics
from tests.builders.spark_connections import opened
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
ROWS = 60_000


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.counted")
    with opened(spark, warehouse, tmp_path_factory.mktemp("state") / "state.db") as neve:
        yield neve


Make = Callable[..., Bench]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, neve: Neve) -> Make:  # noqa: ARG001 - it makes the namespace
    def make(how: str = "") -> Bench:
        bench = Bench(spark, warehouse, "counted", f"t{next(NUMBERS)}")
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, city STRING, day INT) USING iceberg {how}")
        append(bench, 0, ROWS)
        return bench

    return make


def append(bench: Bench, start: int, stop: int) -> None:
    values = "id, concat('city ', id % 7919), CAST(id % 3 AS INT)"
    bench.sql(f"INSERT INTO {{}} SELECT {values} FROM range({start}, {stop}, 1, 2)")


def run(neve: Neve, bench: Bench, **words: Any) -> StatisticsRecord:
    return neve.stats(f"{bench.namespace}.{bench.name}", **words)


def published(bench: Bench) -> dict[int, dict[int, int]]:
    """Different values by field, by snapshot, as the table's metadata says."""
    found: dict[int, dict[int, int]] = {}
    for file in bench.load().metadata.statistics:
        assert local(file.statistics_path).stat().st_size == file.file_size_in_bytes
        for blob in file.blob_metadata:
            assert blob.type == THETA
            assert blob.properties is not None
            found.setdefault(file.snapshot_id, {})[blob.fields[0]] = int(blob.properties["ndv"])
    return found


def truth(bench: Bench) -> tuple[int, ...]:
    """What DuckDB counts in the data files."""
    files = [str(local(path)) for path in bench.paths()]
    columns = "count(DISTINCT id), count(DISTINCT city), count(DISTINCT day)"
    return duckdb.sql(f"SELECT {columns} FROM read_parquet({files})").fetchall()[0]


def test_sketches_are_within_their_error_of_the_truth_and_equal_to_icebergs_own(make: Make, neve: Neve) -> None:
    bench = make("PARTITIONED BY (day)")
    head = bench.load().metadata.current_snapshot_id
    assert head is not None
    record = run(neve, bench)
    assert (record.outcome, record.columns, record.partitions) == (RunOutcome.DONE, ("id", "city", "day"), True)
    told = published(bench)[head]
    assert told == {1: record.distinct[0].values, 2: record.distinct[1].values, 3: record.distinct[2].values}
    real = truth(bench)
    assert real == (ROWS, 7919, 3)
    for field_id, values in enumerate(real, 1):
        assert abs(told[field_id] / values - 1) <= 3 * RELATIVE_ERROR
    assert told[3] == 3  # few values are counted exactly
    (partitions,) = bench.load().metadata.partition_statistics
    by_day = f"SELECT partition.day, data_record_count FROM read_parquet('{local(partitions.statistics_path)}') ORDER BY 1"
    assert duckdb.sql(by_day).fetchall() == [(0, 20_000), (1, 20_000), (2, 20_000)]
    bench.spark.sql(f"CALL local.system.compute_table_stats('counted.{bench.name}')").collect()
    assert published(bench)[head] == told
    assert neve.runs(limit=1)[0].kind == "stats"
    assert bench.load().metadata.current_snapshot_id == head
    assert "neve.lease" not in bench.load().properties


def test_they_are_made_again_only_after_enough_has_changed(make: Make, neve: Neve) -> None:
    bench = make()
    assert run(neve, bench, columns=["city"]).outcome is RunOutcome.DONE
    append(bench, ROWS, ROWS + ROWS // 20)
    again = run(neve, bench, columns=["city"])
    assert (again.outcome, again.changed) == (RunOutcome.NOTHING_TO_DO, 0.05)
    append(bench, ROWS, ROWS + ROWS // 20)
    dry = run(neve, bench, columns=["city"], dry_run=True)
    assert (dry.outcome, dry.changed, dry.columns, dry.files) == (RunOutcome.DONE, 0.1, ("city",), ())
    assert len(published(bench)) == 1
    assert run(neve, bench, columns=["city"]).outcome is RunOutcome.DONE
    assert [sorted(fields) for fields in published(bench).values()] == [[2], [2]]
    more = run(neve, bench, columns=["day"])
    assert more.columns == ("city", "day")
    head = bench.load().metadata.current_snapshot_id
    assert head is not None
    assert sorted(published(bench)[head]) == [2, 3]


def test_commits_of_others_meanwhile_cost_no_second_count(make: Make, neve: Neve, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make()
    head, write, written = bench.load().metadata.current_snapshot_id, SparkStatistics.write, []

    def struck(self: SparkStatistics, *args: Any, **words: Any) -> Any:
        written.append(write(self, *args, **words))
        append(bench, ROWS, ROWS + 10)
        return written[-1]

    monkeypatch.setattr(SparkStatistics, "write", struck)
    record = run(neve, bench, columns=["day"])
    assert (record.outcome, len(written)) == (RunOutcome.DONE, 1)
    assert list(published(bench)) == [head]
    assert len(bench.ids()) == ROWS + 10


def test_statistics_that_others_published_meanwhile_are_not_replaced(
    make: Make, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    write = SparkStatistics.write

    def struck(self: SparkStatistics, *args: Any, **words: Any) -> Any:
        done = write(self, *args, **words)
        bench.spark.sql(f"CALL local.system.compute_table_stats('counted.{bench.name}')").collect()
        return done

    monkeypatch.setattr(SparkStatistics, "write", struck)
    monkeypatch.setattr("neve.operations.statistics.ATTEMPTS", 2)
    record = run(neve, bench, columns=["day"])
    head = bench.load().metadata.current_snapshot_id
    assert head is not None
    assert record.outcome is RunOutcome.FAILED
    assert record.reason == f"snapshot {head} is gone or was given other statistics, or the catalog does not answer"
    assert sorted(published(bench)[head]) == [1, 2, 3]
