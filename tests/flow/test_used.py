"""What a record says about requests, CPU time and money of its request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neve.context.connection import Connection
from neve.context.meter import Meter
from neve.context.table import TableContext
from neve.kernels import request_counts
from neve.kernels.streams import LocalSink, LocalSource
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.rewrite.record import GroupRecord, GroupState, RunOutcome
from neve.rewrite.usage import Used
from neve.settings import load_settings
from neve.spark.runtime import cpu, session
from neve.spark.runtime.cpu import SparkCpu, descendants_seconds

CATALOGS: dict[str, Any] = {name: SimpleNamespace(type=name) for name in ("sql", "rest", "nessie", "glue")}


def opened(flags: Mapping[str, str] | None = None) -> Connection:
    loaded = load_settings(environ={}, flags={"spark.class-archive": "off", **(flags or {})})
    return Connection(loaded, CATALOGS, None, environ={}, clock=SimpleNamespace(now_ms=lambda: 0))


def record(table: str = "sql.db.t", **changes: Any) -> MaintenanceRecord:
    known = {"run_id": "a", "table": table, "table_uuid": "u", "operation": Operation.EXPIRE, "outcome": RunOutcome.DONE}
    return MaintenanceRecord(**known | {"started_ms": 0, "finished_ms": 900} | changes)


def group(**measured: Any) -> GroupRecord:
    return GroupRecord(group_id=0, state=GroupState.COMMITTED, reason="", **measured)


def used(context: TableContext, table: str = "sql.db.t") -> Used:
    found = context.timed(record(table)).used
    assert found is not None
    return found


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SparkCpu]]:
    """What the JVM and its Python processes have used, at each reading."""
    readings: list[SparkCpu] = []

    @contextmanager
    def start(*_: object, **__: object) -> Iterator[Any]:
        yield SimpleNamespace()

    monkeypatch.setattr(session, "open_session", start)
    monkeypatch.setattr(cpu, "spark_cpu", lambda _: readings.pop(0))
    monkeypatch.setattr(Connection, "spark_catalogs", lambda _: ({}, set()))
    yield readings
    assert readings == []


def test_requests_to_files_count_from_the_begin_of_the_request(tmp_path: Path) -> None:
    LocalSink(tmp_path / "before").close()
    context = TableContext(opened(), "sql.db.t")
    sink = LocalSink(tmp_path / "file")
    sink.write(b"abc")
    sink.close()
    source = LocalSource(tmp_path / "file")
    assert source.read_at(0, 1) + source.read_at(1, 2) == b"abc"
    sink.take_back()
    request_counts.count("list")
    found = used(context).requests
    assert found.model_dump() == {"read": 2, "write": 1, "list": 1, "delete": 1, "catalog": 0, "uncounted": ()}


@pytest.mark.parametrize(("catalog", "known"), [("sql", 0), ("rest", 0), ("nessie", 0), ("glue", None), ("other", None)])
def test_requests_to_a_catalog_are_unknown_where_nobody_counts_them(catalog: str, known: int | None) -> None:
    found = used(TableContext(opened(), "t"), f"{catalog}.db.t").requests
    assert (found.catalog, found.uncounted) == (known, () if known is not None else ("catalog",))


def test_without_spark_the_jvm_and_the_workers_use_nothing() -> None:
    found = used(TableContext(opened(), "t")).cpu_seconds
    assert (found.jvm, found.workers) == (0.0, 0.0)
    assert found.python is not None


def test_cpu_time_of_processes_that_this_one_waited_for_is_its_own() -> None:
    context = TableContext(opened(), "t")
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert (used(context).cpu_seconds.python or 0) >= 0.3


def test_a_jvm_that_the_request_started_has_its_whole_time_and_what_started_it_is_no_worker(times: list[SparkCpu]) -> None:
    times[:] = [SparkCpu(5.0, 0.4), SparkCpu(9.0, 1.9)]
    context = TableContext(opened(), "t")
    _ = context.spark
    found = used(context)
    assert (found.cpu_seconds.jvm, found.cpu_seconds.workers) == (9.0, 1.5)
    assert found.requests.uncounted == ("jvm", "workers")
    assert (found.requests.read, found.requests.write) == (None, None)


def test_a_jvm_that_was_running_before_has_the_time_since_the_request_began(times: list[SparkCpu]) -> None:
    times[:] = [SparkCpu(5.0, 0.4), SparkCpu(20.0, 3.0), SparkCpu(21.0, 3.5)]
    connection = opened()
    _ = connection.spark
    found = used(TableContext(connection, "t"))
    assert (found.cpu_seconds.jvm, found.cpu_seconds.workers) == (1.0, 0.5)
    assert found.requests.uncounted == (), "the request did not use the session"


def test_on_a_cluster_the_workers_are_the_tasks_if_all_were_measured(times: list[SparkCpu]) -> None:
    times[:] = [SparkCpu(5.0, None), SparkCpu(9.0, None), SparkCpu(9.0, None), SparkCpu(9.0, None)]
    connection = opened()
    meter = Meter(connection)
    _ = connection.spark
    counted = group(cpu_seconds=1.25, requests={"read": 4, "write": 1})
    both = meter.used("sql", [counted, counted])
    assert both.cpu_seconds.workers == 2.5
    assert (both.requests.read, both.requests.write, both.requests.uncounted) == (8, 2, ("jvm",))
    some = meter.used("sql", [counted, group()])
    assert (some.cpu_seconds.workers, some.money) == (None, None)
    assert (some.requests.read, some.requests.uncounted) == (4, ("jvm", "workers"))
    assert meter.used("sql").cpu_seconds.workers is None


def test_money_has_the_prices_of_the_settings() -> None:
    flags = {"cost.core-hour": "0", "cost.thousand-writes": "2000", "cost.version": "2026-07"}
    context = TableContext(opened(flags), "t")
    request_counts.count("list", 3)
    found = context.timed(record(), predicted_money=7.5).used
    assert found is not None
    assert (found.money, found.predicted_money, found.prices) == (6.0, 7.5, "2026-07")


def test_a_step_says_that_another_record_includes_it() -> None:
    context = TableContext(opened(), "t")
    assert [used(context.fresh(part_of_another=part)).part_of_another for part in (True, False)] == [True, False]


def test_nobody_knows_what_an_interrupted_run_used() -> None:
    assert TableContext(opened(), "t").timed(record(interrupted=True)).used is None


def test_cpu_time_of_descendants_includes_those_that_have_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    waits = "print('done', flush=True)\nsys.stdin.read()"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n{waits}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        assert (descendants_seconds(parent.pid) or 0) > 0.2, "the kernel rounds to its ticks"
        parent.communicate()
    assert descendants_seconds(parent.pid) is None


def test_a_session_that_cannot_be_asked_has_unknown_times() -> None:
    assert cpu.spark_cpu(SimpleNamespace()) == SparkCpu(None, None)
