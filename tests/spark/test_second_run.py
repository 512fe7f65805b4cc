"""A run that gets the lease only after another has changed the table carries out a plan of the new head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.context.table import TableContext
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from neve.settings import load_settings
from neve.spark.tasks.rewrite import SparkEngine
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS = count()


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    """A new table with six files of ten rows."""
    bench = Bench(spark, warehouse, "second", f"t{next(_NUMBERS)}")
    bench.sql("CREATE TABLE {} (id BIGINT) USING iceberg")
    for start in range(0, 60, 10):
        add(bench, start)
    return bench


def add(bench: Bench, start: int) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + 10}, 1, 1)")


@pytest.fixture
def opened(bench: Bench) -> Iterator[Neve]:
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as neve:
        neve.connection.session = bench.spark
        yield neve


def delayed(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> list[int]:
    """Something happens once while Spark is starting for the next run; gives the groups that are executed after that."""
    executed: list[int] = []
    writer, run = TableContext.writer, SparkEngine.run

    def starting(self: TableContext) -> Any:
        monkeypatch.setattr(TableContext, "writer", writer)
        meanwhile()
        monkeypatch.setattr(SparkEngine, "run", counting)
        return self.writer

    def counting(self: SparkEngine, orders: Any) -> Any:
        executed.extend(order.group_id for order in orders)
        return run(self, orders)

    monkeypatch.setattr(TableContext, "writer", property(starting))
    return executed


def test_a_run_that_another_has_made_needless_executes_nothing(
    opened: Neve, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = delayed(monkeypatch, lambda: opened.compact(bench.sql_name))
    record = opened.compact(bench.sql_name)
    assert (record.outcome, record.groups, executed) == (RunOutcome.NOTHING_TO_DO, (), [])
    assert record.stats is not None
    assert (record.stats.files_before, record.stats.files_after) == (1, 1)
    assert [run.outcome for run in opened.runs(bench.sql_name)] == ["done"]
    assert bench.ids() == list(range(60))


def test_a_run_takes_in_what_was_written_while_it_waited(opened: Neve, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = delayed(monkeypatch, lambda: add(bench, 60))
    record = opened.compact(bench.sql_name, request=Request(force=True), probe_query=f"SELECT count(*) FROM {bench.sql_name}")
    assert [group.state for group in record.groups] == [GroupState.COMMITTED]
    assert (record.files_compacted, record.files_written, executed) == (7, 1, [0])
    assert record.before is not None
    assert record.before.data_files == 7
    assert record.probe is not None
    assert (record.probe.equal, record.probe.note) == (True, None)
    assert len(bench.paths()) == 1
    assert bench.duckdb() == sorted(bench.rows())
    assert bench.ids() == list(range(70))
