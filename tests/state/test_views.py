"""The views for people: the same columns and values on every database, and the example queries of the guide."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from neve.scheduling.history_tables import HEALTH, HISTORY_TABLES, HistoryTable
from neve.state import StateStore
from neve.state.rows import Run
from neve.state.schema import VIEWS
from tests.builders.jobs import NOW, decision, inspected, observation
from tests.builders.table_histories import ITEMS, ORDERS, make_history

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "history.md"
ON_SQLITE = pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)


@pytest.fixture
def history(store: StateStore) -> StateStore:
    make_history(store, NOW)
    return store


def rows(store: StateStore, query: str) -> list[dict[str, Any]]:
    with store._engine.connect() as connection:
        return [dict(row._mapping) for row in connection.exec_driver_sql(query)]


def example_queries() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_runs_have_their_figures_in_plain_columns(history: StateStore) -> None:
    found = {row["run_id"]: row for row in rows(history, "SELECT * FROM v_runs")}
    assert found["a1"] == {
        "run_id": "a1",
        "table_name": ORDERS,
        "table_uuid": "uuid-orders",
        "operation": "compact",
        "outcome": "done",
        "day": "2026-09-19",
        "started_at": "2026-09-19 14:13:20",
        "finished_at": "2026-09-19 14:14:20",
        "started_ms": NOW - 2 * 86_400_000,
        "finished_ms": NOW - 2 * 86_400_000 + 60_000,
        "elapsed_seconds": 60.0,
        "session_start_seconds": 9.0,
        "planning_seconds": None,
        "health_before": 61,
        "health_after": 95,
        "files_compacted": 250,
        "files_written": 5,
        "bytes_read": 10 * 2**20,
        "bytes_written": 9 * 2**20,
        "read_requests": 20,
        "write_requests": 4,
        "list_requests": None,
        "delete_requests": None,
        "catalog_requests": 3,
        "python_cpu_seconds": 1.5,
        "jvm_cpu_seconds": 6.0,
        "workers_cpu_seconds": 2.5,
        "predicted_money": 0.01,
        "money": 0.015,
        "prices": "2026-07",
        "part_of_another": 1,
        "reason": None,
    }
    maintained, failed, running = found["b2"], found["c3"], found["d4"]
    assert (maintained["health_before"], maintained["health_after"], maintained["part_of_another"]) == (55, 97, 0)
    assert (failed["outcome"], failed["reason"], failed["money"], failed["part_of_another"]) == ("failed", "denied", None, 0)
    assert (running["outcome"], running["finished_at"], running["elapsed_seconds"]) == (None, None, None)


def test_jobs_have_what_was_predicted_and_what_was_used(history: StateStore) -> None:
    [job] = rows(history, "SELECT * FROM v_jobs")
    assert job["job_id"]
    expected: dict[str, Any] = {
        "table_name": ORDERS,
        "policy": "hot",
        "owner": "sales",
        "state": "done",
        "reason": "212 small files",
    }
    expected |= {"run_id": "a1", "worker": "worker-1", "attempts": 1, "prices": "2026-07", "message": "212 files"}
    assert {name: job[name] for name in expected} == expected
    assert (job["predicted_bytes"], job["predicted_core_seconds"], job["predicted_money"]) == (2**33, 10.0, 0.01)
    assert (job["bytes"], job["core_seconds"], job["money"]) == (2**34, 12.5, 0.02)


def test_a_job_at_work_is_called_running_as_in_the_list_of_jobs(history: StateStore) -> None:
    history.jobs.enqueue([decision("items")], NOW)
    assert history.jobs.claim("w", now_ms=NOW, claim_ms=60_000) is not None
    assert rows(history, "SELECT state FROM v_jobs WHERE table_uuid = 'uuid-items'") == [{"state": "running"}]


@ON_SQLITE
def test_jobs_have_their_times(history: StateStore) -> None:
    """On PostgreSQL its own clock counts."""
    [job] = rows(history, "SELECT * FROM v_jobs")
    assert (job["day"], job["created_at"], job["started_at"]) == ("2026-09-20", "2026-09-20 14:13:20", "2026-09-20 14:14:20")
    assert (job["waited_seconds"], job["worked_seconds"]) == (60.0, 60.0)


@pytest.mark.parametrize("described", HISTORY_TABLES, ids=lambda described: str(described.name))
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_rows_of_a_view_come_in_batches_the_oldest_first_without_those_that_have_not_ended(
    history: StateStore, described: HistoryTable, batch: int
) -> None:
    history.jobs.enqueue([decision("waiting")], NOW)
    moment = described.source(described.moment)
    wanted: dict[str, Any] = {"moment": moment, "key": described.key, "batch": batch}
    columns = [described.source(column) for column in described.columns]
    batches = list(history.view_rows(described.view, columns, since_ms=0, **wanted))
    found = [row for one in batches for row in one]
    assert {len(one) for one in batches[:-1]} <= {batch}
    assert len(found) == {"runs": 3, "jobs": 1, "health": 3}[described.name]
    assert [row[moment] for row in found] == sorted(row[moment] for row in found)
    assert {tuple(row) for row in found} == {tuple(columns)}
    later = history.view_rows(described.view, columns, since_ms=found[-1][moment], **wanted)
    assert [row[moment] for one in later for row in one][-1] == found[-1][moment]
    assert list(history.view_rows(described.view, columns, since_ms=found[-1][moment] + 1, **wanted)) == []


def test_rows_that_ended_at_the_same_moment_come_once_each(store: StateStore) -> None:
    for number in range(7):
        store.fleet.add_health([observation(f"t{number}", inspected=inspected(NOW, health=number))])
    wanted: dict[str, Any] = {"moment": HEALTH.source(HEALTH.moment), "key": HEALTH.key, "batch": 2}
    batches = store.view_rows(HEALTH.view, ["table_uuid", "inspected_ms"], since_ms=0, **wanted)
    assert [row["table_uuid"] for one in batches for row in one] == [f"uuid-t{number}" for number in range(7)]


def test_health_has_the_newest_of_each_table_marked(history: StateStore) -> None:
    found = rows(history, "SELECT day, health, data_files, average_file_bytes, is_newest FROM v_table_health ORDER BY day")
    assert [tuple(row.values()) for row in found] == [
        ("2026-09-18", 42, 333, 6006, 0),
        ("2026-09-19", 55, 500, 4000, 0),
        ("2026-09-20", 97, 1000, 2000, 1),
    ]


def test_costs_by_day_count_a_step_with_the_run_that_it_is_part_of(history: StateStore) -> None:
    found = rows(history, "SELECT * FROM v_costs_by_day ORDER BY day")
    assert [(row["day"], row["table_name"], row["operation"], row["runs"], row["money"]) for row in found] == [
        ("2026-09-19", ORDERS, "maintain", 1, 0.02),
        ("2026-09-21", ITEMS, "expire", 1, None),
    ]
    assert [(row["cpu_seconds"], row["failed_runs"], row["runs_without_money"]) for row in found] == [
        (10.0, 0, 0),
        (None, 1, 1),
    ]


def test_records_of_earlier_releases_and_of_rollbacks_have_rows(store: StateStore) -> None:
    records: dict[str, dict[str, Any]] = {"old": {}, "rollback": {"from_snapshot": 2}}
    records["newer"] = {"used": {"money": None}, "before": None}
    for run_id, record in records.items():
        store.start_run(Run(run_id, "t", "lake.db.t", "compact", 1))
        store.finish_run(run_id, finished_ms=2, outcome="done", record=record)
    found = rows(store, "SELECT run_id, money, health_before, part_of_another FROM v_runs ORDER BY run_id")
    assert [tuple(row.values()) for row in found] == [(name, None, None, 0) for name in ("newer", "old", "rollback")]


@ON_SQLITE
def test_a_record_that_is_no_json_does_not_hide_the_others(history: StateStore) -> None:
    """Python writes a number that is none as NaN."""
    history.start_run(Run("odd", "t", "lake.db.t", "compact", 1))
    history.finish_run("odd", finished_ms=2, outcome="done", record={"elapsed_seconds": float("nan")})
    found = {row["run_id"]: row["elapsed_seconds"] for row in rows(history, "SELECT run_id, elapsed_seconds FROM v_runs")}
    assert (found["odd"], found["a1"]) == (None, 60.0)


@pytest.mark.parametrize("number", range(len(example_queries())))
def test_the_example_queries_of_the_guide_find_something(history: StateStore, number: int) -> None:
    assert rows(history, example_queries()[number])


def test_the_guide_describes_every_column_of_every_view(history: StateStore) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for view in VIEWS:
        section = text.partition(f"### `{view}`")[2].partition("\n### ")[0].partition("\n## ")[0]
        with history._engine.connect() as connection:
            columns = set(connection.exec_driver_sql(f"SELECT * FROM {view}").keys())
        described = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))))
        assert described == columns
