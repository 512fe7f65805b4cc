"""The history as Iceberg tables: every row once, whatever fails in between, readable by other engines, and kept healthy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from neve.api import Neve
from neve.policy.document import PolicyDocument
from neve.scheduling.job import JobState
from neve.service import history_writer
from neve.service.history_writer import HistoryWriter
from neve.service.scheduler import Scheduler
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.policies import PolicyChange
from tests.builders.clocks import FixedClock
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW, decision, inspected, observation
from tests.builders.table_contents import duckdb_query
from tests.builders.table_histories import make_history

EVERY_MS = HOUR


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake")


@pytest.fixture
def neve(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Neve]:  # noqa: ARG001 - the catalog must be there
    file = tmp_path / "neve.yaml"
    file.write_text(
        f"default-catalog: lake\n"
        f"catalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{tmp_path}/lake.db\n    warehouse: file://{tmp_path}/lake\n"
        f"  files:\n    type: hadoop\n    warehouse: {tmp_path}/files\n"
        f"state:\n  url: sqlite:///{tmp_path}/state.db\n"
        f"service:\n  history-namespace: lake.neve\n",
        encoding="utf-8",
    )
    with Neve.open(load_settings(file=file, environ={}), environ={}, clock=FixedClock(NOW)) as opened:
        yield opened


@pytest.fixture
def store(neve: Neve) -> Iterator[StateStore]:
    with neve.connection.store() as opened:
        make_history(opened, NOW)
        yield opened


@pytest.fixture
def writer(neve: Neve, store: StateStore) -> HistoryWriter:
    return HistoryWriter(neve.connection, store)


def table(catalog: SqlCatalog, name: str) -> Table:
    return catalog.load_table(("neve", name))


def rows(catalog: SqlCatalog, name: str, columns: str = "*") -> list[dict[str, Any]]:
    """As DuckDB reads them."""
    return duckdb_query(f"SELECT {columns} FROM iceberg_scan('{table(catalog, name).metadata_location}') ORDER BY ALL")


def end_job(store: StateStore, name: str, at_ms: int) -> None:
    store.jobs.enqueue([decision(name)], at_ms)
    job = store.jobs.claim("w", now_ms=at_ms, claim_ms=MINUTE)
    assert job is not None
    assert store.jobs.finish(job, state=JobState.DONE, outcome="done", message="60 files became 1", now_ms=at_ms)


def test_each_table_has_the_rows_of_its_view_with_times_as_times(writer: HistoryWriter, catalog: SqlCatalog) -> None:
    writer.write_due(NOW)
    runs = rows(catalog, "runs", "run_id, operation, outcome, started, finished, money, part_of_another, list_requests")
    assert [(row["run_id"], row["operation"], row["outcome"]) for row in runs] == [
        ("a1", "compact", "done"),
        ("b2", "maintain", "done"),
        ("c3", "expire", "failed"),
    ]
    first = runs[0]
    assert (first["finished"] - first["started"]).total_seconds() == 60
    assert (first["money"], first["part_of_another"], first["list_requests"]) == (0.015, True, None)
    assert [row["health"] for row in rows(catalog, "health", "inspected, health")] == [42, 55, 97]
    [job] = rows(catalog, "jobs", "policy, owner, state, bytes, core_seconds, prices")
    assert job == {
        "policy": "hot", "owner": "sales", "state": "done", "bytes": 2**34, "core_seconds": 12.5, "prices": "2026-07"
    }  # fmt: skip


def test_rows_are_appended_once_and_only_when_there_are_new_ones(
    writer: HistoryWriter, store: StateStore, catalog: SqlCatalog
) -> None:
    writer.write_due(NOW)
    before = table(catalog, "jobs").metadata_location
    end_job(store, "new", NOW + MINUTE)
    writer.write_due(NOW + 2 * MINUTE)
    assert table(catalog, "jobs").metadata_location == before, "it is not time yet"
    writer.write_due(NOW + EVERY_MS)
    assert [row["table_name"] for row in rows(catalog, "jobs", "table_name")] == ["lake.db.new", "lake.db.orders"]
    after = {name: table(catalog, name).metadata_location for name in ("runs", "jobs", "health")}
    writer.write_due(NOW + 2 * EVERY_MS)
    assert {name: table(catalog, name).metadata_location for name in after} == after


def test_a_row_that_comes_late_from_another_host_is_appended_as_well(
    writer: HistoryWriter, store: StateStore, catalog: SqlCatalog
) -> None:
    writer.write_due(NOW)
    store.fleet.add_health([observation("late", inspected=inspected(NOW - DAY - HOUR, health=7))])
    writer.write_due(NOW + EVERY_MS)
    assert [row["health"] for row in rows(catalog, "health", "inspected, health")] == [42, 55, 7, 97]


def test_a_time_by_a_clock_far_ahead_hides_no_later_rows(writer: HistoryWriter, store: StateStore, catalog: SqlCatalog) -> None:
    store.fleet.add_health([observation("ahead", inspected=inspected(NOW + 900 * DAY, health=1))])
    store.fleet.add_health([observation("odd", inspected=inspected(2**60, health=2))])
    writer.write_due(NOW)
    store.fleet.add_health([observation("orders", inspected=inspected(NOW + MINUTE, health=99))])
    writer.write_due(NOW + EVERY_MS)
    assert [row["health"] for row in rows(catalog, "health", "inspected, health")] == [42, 55, 97, 99, 1]


def test_a_long_history_comes_in_portions_each_of_which_can_be_the_last(
    writer: HistoryWriter, store: StateStore, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        store.fleet.add_health([observation(f"t{number}", inspected=inspected(NOW - 30 * DAY + number * DAY, health=number))])
    monkeypatch.setattr(history_writer, "_BATCH", 4)
    appended: list[int] = []
    append = history_writer.HistoryWriter._appended

    def stopping(self: HistoryWriter, *values: Any) -> Iterator[int]:
        for number in append(self, *values):
            appended.append(number)
            if len(appended) == 5:
                raise CommitFailedException("killed")
            yield number

    monkeypatch.setattr(history_writer.HistoryWriter, "_appended", stopping)
    writer.write_due(NOW)
    assert len(rows(catalog, "health")) < 13
    writer.write_due(NOW + EVERY_MS)
    assert sorted(row["health"] for row in rows(catalog, "health", "health")) == [*range(10), 42, 55, 97]


@pytest.mark.parametrize("has_landed", [False, True])
def test_a_commit_whose_answer_was_lost_appends_nothing_twice(
    has_landed: bool, writer: HistoryWriter, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, lost = SqlCatalog.commit_table, iter([True])

    def answer(self: SqlCatalog, at: Table, requirements: Any, updates: Any) -> Any:
        if "health" in at.name() and next(lost, False):
            if has_landed:
                commit(self, at, requirements, updates)
            raise OSError("Connection reset by peer")
        return commit(self, at, requirements, updates)

    writer.write_due(NOW)
    assert len(rows(catalog, "health")) == 3
    store_more = observation("more", inspected=inspected(NOW + MINUTE, health=5))
    writer._store.fleet.add_health([store_more])
    monkeypatch.setattr(SqlCatalog, "commit_table", answer)
    writer.write_due(NOW + EVERY_MS)
    assert len(rows(catalog, "health")) == (4 if has_landed else 3)
    writer.write_due(NOW + 2 * EVERY_MS)
    assert len(rows(catalog, "health")) == 4


def test_two_processes_that_append_at_the_same_time_append_nothing_twice(
    neve: Neve, store: StateStore, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was paused between its look at the table and its commit."""
    from neve.catalogs.appended_table import AppendedTable

    one, other = (HistoryWriter(neve.connection, store) for _ in range(2))
    one.write_due(NOW)
    store.fleet.add_health([observation("more", inspected=inspected(NOW + MINUTE, health=5))])
    append, paused = AppendedTable.append, iter([True])

    def slowly(self: AppendedTable, *values: Any, **more: Any) -> None:
        if next(paused, False):
            other.write_due(NOW + EVERY_MS)
        append(self, *values, **more)

    monkeypatch.setattr(AppendedTable, "append", slowly)
    one.write_due(NOW + EVERY_MS)
    assert [row["health"] for row in rows(catalog, "health", "inspected, health")] == [42, 55, 97, 5]


def test_a_table_of_an_earlier_release_gets_the_columns_that_it_lacks(writer: HistoryWriter, catalog: SqlCatalog) -> None:
    catalog.create_namespace_if_not_exists(("neve",))
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, StringType, TimestamptzType

    catalog.create_table(
        ("neve", "health"),
        Schema(
            NestedField(1, "table_uuid", StringType()),
            NestedField(2, "inspected", TimestamptzType()),
            NestedField(3, "note", StringType()),
        ),
    )
    writer.write_due(NOW)
    found = rows(catalog, "health", "inspected, table_uuid, health, note")
    assert [(row["table_uuid"], row["health"], row["note"]) for row in found] == [
        ("uuid-orders", 42, None),
        ("uuid-orders", 55, None),
        ("uuid-orders", 97, None),
    ]


def test_the_tables_have_a_policy_of_their_own_that_people_may_change_or_remove(
    writer: HistoryWriter, store: StateStore, catalog: SqlCatalog
) -> None:
    writer.write_due(NOW)
    [stored] = store.policies.documents()
    assert isinstance(stored.document, PolicyDocument)
    assert (stored.name, [str(one) for one in stored.document.tables]) == ("neve-history", ["lake.neve.*"])
    removed = PolicyChange(kind="policy", name=stored.name, expected_version=stored.version)
    store.policies.apply([removed], by="anna", now_ms=NOW)
    catalog.drop_table(("neve", "runs"))
    writer.write_due(NOW + EVERY_MS)
    assert len(rows(catalog, "runs")) == 3
    assert store.policies.documents() == ()


def test_the_policy_is_applied_although_the_process_died_after_it_had_made_the_tables(
    writer: HistoryWriter, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as dying:
        dying.setattr(HistoryWriter, "_apply_policy", lambda *_: None)
        writer.write_due(NOW)
    assert store.policies.documents() == ()
    writer.write_due(NOW + EVERY_MS)
    assert [one.name for one in store.policies.documents()] == ["neve-history"]


def test_the_service_wants_its_own_tables_maintained_once_they_have_many_small_files(
    neve: Neve, store: StateStore, catalog: SqlCatalog
) -> None:
    scheduler = Scheduler(neve.connection, store, holder="one")
    clock = neve.connection.clock
    assert isinstance(clock, FixedClock)
    for number in range(25):
        store.fleet.add_health([observation("orders", inspected=inspected(NOW + number * HOUR, health=50))])
        scheduler.tick()
        clock.advance(HOUR)
    scheduler.tick()
    wanted = {(job.table, job.operation, job.policy) for job in store.jobs.waiting()}
    assert wanted == {("lake.neve.health", name, "neve-history") for name in ("compact", "expire", "manifests")}
    assert len(list(table(catalog, "health").scan().plan_files())) >= 24


def test_without_the_setting_nothing_is_written(neve: Neve, store: StateStore, catalog: SqlCatalog) -> None:
    neve.connection.settings.service.__dict__["history_namespace"] = None
    HistoryWriter(neve.connection, store).write_due(NOW)
    assert catalog.list_namespaces() == []


@pytest.mark.parametrize("namespace", ["files.ops", "nowhere.", "lake.neve"])
def test_what_fails_is_told_once_and_ends_no_round(
    namespace: str, neve: Neve, store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    neve.connection.settings.service.__dict__["history_namespace"] = namespace
    if namespace == "lake.neve":
        (tmp_path / "lake.db").write_bytes(b"not a database" * 100)
    writer = HistoryWriter(neve.connection, store)
    for hour in range(3):
        writer.write_due(NOW + hour * EVERY_MS)
    assert caplog.text.count("the history is not written: ") == 1


def test_duckdb_can_ask_across_the_tables(writer: HistoryWriter, catalog: SqlCatalog) -> None:
    writer.write_due(NOW)
    places = {name: f"iceberg_scan('{table(catalog, name).metadata_location}')" for name in ("runs", "health")}
    query = (
        f"SELECT h.table_name, max(h.health) AS best, sum(DISTINCT r.money) AS money FROM {places['health']} h "
        f"JOIN {places['runs']} r USING (table_uuid) WHERE NOT r.part_of_another GROUP BY 1"
    )
    assert duckdb_query(query) == [{"table_name": "lake.db.orders", "best": 97, "money": pytest.approx(0.02)}]
    assert duckdb.__version__
