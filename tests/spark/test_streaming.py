"""Structured Streaming into and out of a table that is being compacted: every row arrives exactly once, restarts included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from neve.api import Neve
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome, RunRecord
from neve.settings import load_settings
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import duckdb_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS_PER_BATCH = 50
COUNTED = "count(*) AS rows, count(DISTINCT id) AS ids, min(id) AS low, max(id) AS high"
Compact = Callable[[], RunRecord]


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    made = Bench(spark, warehouse, f"streaming_{uuid4().hex[:12]}", "t")
    spark.sql(f"CREATE NAMESPACE local.{made.namespace}")
    made.sql("CREATE TABLE {} (id BIGINT, moment TIMESTAMP) USING iceberg")
    return made


@pytest.fixture
def compact(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compact]:
    """Compacts as soon as there is something to compact."""
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as neve:
        monkeypatch.setattr(neve.connection, "session", bench.spark)

        def once() -> RunRecord:
            while True:
                record = neve.compact(f"{bench.namespace}.{bench.name}", request=Request(force=True))
                if record.outcome is not RunOutcome.NOTHING_TO_DO:
                    return record

        yield once


class Streams:
    """A job that writes the table and a job that reads it, each with a checkpoint; both stop with the block."""

    def __init__(self, bench: Bench, directory: Path) -> None:
        self._bench, self._checkpoints, self.sink = bench, directory / "checkpoints", directory / "sink"

    def __enter__(self) -> Streams:
        self._stack = ExitStack()
        self.writer, self.reader = self._write(), self._read()
        for query in (self.writer, self.reader):
            self._stack.callback(query.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def assert_alive(self) -> None:
        for query in (self.writer, self.reader):
            assert query.exception() is None
            assert query.isActive

    def _write(self) -> StreamingQuery:
        source = self._bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH).load()
        job = source.selectExpr("value AS id", "timestamp AS moment").writeStream.format("iceberg").outputMode("append")
        return self._started(job, "write", "200 milliseconds").toTable(self._bench.sql_name)

    def _read(self) -> StreamingQuery:
        job = self._bench.spark.readStream.format("iceberg").load(self._bench.sql_name).writeStream.format("parquet")
        return self._started(job, "read", "300 milliseconds").start(str(self.sink))

    def _started(self, job, name: str, every: str):  # type: ignore[no-untyped-def]
        return job.trigger(processingTime=every).option("checkpointLocation", str(self._checkpoints / name))


@pytest.mark.parametrize("compactions", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_a_stream_in_and_a_stream_out_are_exactly_once_through_compactions(
    compactions: int, bench: Bench, compact: Compact, tmp_path: Path
) -> None:
    streams = Streams(bench, tmp_path)
    records: list[Any] = []
    for until in (compactions // 2, compactions):  # in the middle, both jobs stop and go on from their checkpoints
        with streams:
            while len(records) < until:
                records.append(compact())
                streams.assert_alive()
    with streams:
        streams.writer.stop()
        streams.reader.processAllAvailable()
    assert [record.outcome for record in records] == [RunOutcome.DONE] * compactions
    assert [record.files_written for record in records] == [1] * compactions
    (seen,) = duckdb_query(f"SELECT {COUNTED} FROM iceberg_scan('{bench.load().metadata_location}')")
    sunk = bench.spark.read.parquet(str(streams.sink)).selectExpr(*COUNTED.split(", ")).first()
    assert sunk is not None
    assert seen["ids"] >= ROWS_PER_BATCH * compactions
    assert seen == {"rows": seen["ids"], "ids": seen["ids"], "low": 0, "high": seen["ids"] - 1}
    assert sunk.asDict() == seen
