"""What a record says about the time of its command: the whole, Spark's start, and planning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from neve.context import connection as connections
from neve.context import table as tables
from neve.context.connection import Connection
from neve.context.table import TableContext
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.spark.runtime import session


class Stopwatch:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    watch = Stopwatch()
    for module in (tables, connections):
        monkeypatch.setattr(module, "time", watch)

    @contextmanager
    def start(*_: object, **__: object) -> Iterator[Any]:
        watch.sleep(14.2)
        yield SimpleNamespace()

    monkeypatch.setattr(session, "open_session", start)
    return watch


def opened() -> Connection:
    loaded = load_settings(environ={}, flags={"spark.class-archive": "off"})
    return Connection(loaded, {}, None, environ={}, clock=SimpleNamespace(now_ms=lambda: 0))


def record(**changes: Any) -> MaintenanceRecord:
    known = {"run_id": "a", "table": "l.db.t", "table_uuid": "u", "operation": Operation.EXPIRE, "outcome": RunOutcome.DONE}
    return MaintenanceRecord(**known | {"started_ms": 0, "finished_ms": 900} | changes)


def times(record: MaintenanceRecord) -> tuple[float | None, ...]:
    return record.elapsed_seconds, record.session_start_seconds, record.planning_seconds


def test_a_record_has_the_whole_time_and_its_parts(watch: Stopwatch) -> None:
    context = TableContext(opened(), "db.t")
    with context.planning():
        watch.sleep(3.1)
    _ = context.spark
    watch.sleep(9.0)
    assert times(context.timed(record())) == (26.3, 14.2, 3.1)


def test_spark_that_starts_while_planning_is_not_counted_twice(watch: Stopwatch) -> None:
    context = TableContext(opened(), "db.t")
    with context.planning():
        watch.sleep(1.0)
        _ = context.spark
    assert times(context.timed(record())) == (15.2, 14.2, 1.0)


def test_spark_that_was_running_before_is_no_part_of_the_time(watch: Stopwatch) -> None:
    connection = opened()
    _ = TableContext(connection, "db.t").spark
    watch.sleep(5.0)
    context = TableContext(connection, "db.t")
    watch.sleep(2.0)
    assert times(context.timed(record())) == (2.0, None, None)


def test_nobody_knows_the_time_of_an_interrupted_run(watch: Stopwatch) -> None:
    context = TableContext(opened(), "db.t")
    watch.sleep(2.0)
    assert times(context.timed(record(interrupted=True))) == (None, None, None)


def test_a_stored_record_keeps_its_time(watch: Stopwatch) -> None:
    first = TableContext(opened(), "db.t").timed(record())
    watch.sleep(2.0)
    context = TableContext(opened(), "db.t")
    watch.sleep(1.0)
    assert context.timed(first) == first


def test_the_progress_shows_that_spark_starts(watch: Stopwatch) -> None:
    shown: list[tuple[str, float]] = []
    context = TableContext(opened(), "db.t", lambda stage, *_: shown.append((stage, watch.now)))
    _, _ = context.spark, context.spark
    assert shown == [("starting Spark", 100.0), ("running on Spark", 114.2)]
