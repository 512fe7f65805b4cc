"""`neve jobs`, `neve hint` and `neve history`, as text and as JSON, and the same from Python."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import neve as library
from neve.api import Neve
from neve.errors import BadRequestError
from neve.scheduling.job import JobState, Spent
from neve.settings import load_settings
from neve.state import StateStore
from tests.builders.jobs import HOUR, MINUTE, decision, inspected, observation
from tests.builders.table_histories import make_history

Run = Callable[..., Any]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def settings(fresh_machine: Path) -> Path:
    file = fresh_machine / "neve.yaml"
    file.write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{fresh_machine}/lake.db\n"
        f"    warehouse: {fresh_machine}/lake\nstate:\n  url: sqlite:///{fresh_machine}/state.db\n"
    )
    return file


@pytest.fixture
def store(settings: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{settings.parent}/state.db") as opened:
        yield opened


@pytest.fixture
def filled(store: StateStore) -> StateStore:
    """A job that is done, one that failed after two workers had died, one that runs, and one that waits for its window."""
    for name in ("done", "failed", "running", "late"):
        store.fleet.record([observation(name, observed_ms=now_ms())])
    for name, deaths in (("done", 0), ("failed", 2)):
        store.jobs.enqueue([decision(name, policy="hot", owner="sales", predicted=Spent(bytes=2**30))], now_ms())
        for _ in range(deaths):
            store.jobs.claim("w0", now_ms=now_ms(), claim_ms=0)
        job = store.jobs.claim("w1", now_ms=now_ms(), claim_ms=MINUTE)
        assert job is not None
        store.jobs.start(job, now_ms=now_ms())
        state, said = (JobState.DONE, "212 files became 3") if name == "done" else (JobState.FAILED, "the disk is full")
        spent = Spent(core_seconds=12.5, money=0.02, prices="2026-07")
        store.jobs.finish(job, state=state, outcome=state.value, message=said, now_ms=now_ms(), actual=spent, run_id="ab" * 16)
    store.jobs.enqueue([decision("running")], now_ms())
    store.jobs.claim("w1", now_ms=now_ms(), claim_ms=MINUTE)
    store.jobs.enqueue([decision("late", not_before_ms=now_ms() + HOUR, not_after_ms=now_ms() + 2 * HOUR)], now_ms())
    return store


@pytest.fixture
def run(neve: Run, settings: Path) -> Run:
    def run(*arguments: str) -> Any:
        return neve(*arguments, "--config", str(settings))

    return run


def document(result: Any) -> Any:
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    found = json.loads(result.stdout)
    assert found.pop("schema_version") == 1
    return found


def the_job(run: Run, table: str) -> dict[str, Any]:
    [job] = [job for job in document(run("jobs", "list", "--json"))["jobs"] if job["table"] == f"lake.db.{table}"]
    return dict(job)


@pytest.mark.usefixtures("filled")
def test_jobs_are_listed_newest_first_with_what_came_of_them(run: Run) -> None:
    lines = [" ".join(line.split()) for line in run("jobs").stdout.splitlines()]
    told = [line.split("lake.db.")[1] for line in lines if "lake.db." in line]
    assert sorted(told) == ["done done", "failed failed", "late waiting", "running running"]
    assert {"212 files became 3", "the disk is full", "212 small files"} <= set(lines)
    only = document(run("jobs", "list", "lake.db.*", "--state", "failed", "--state", "waiting", "--json"))["jobs"]
    assert sorted(job["table"] for job in only) == ["lake.db.failed", "lake.db.late"]
    assert run("jobs", "list", "other.*").stdout == "No jobs.\n"


@pytest.mark.usefixtures("filled")
def test_one_job_says_who_tried_it_when_it_may_begin_and_what_it_used(run: Run) -> None:
    text = " ".join(run("jobs", "show", the_job(run, "failed")["job_id"][:13]).stdout.split())
    assert text.startswith("compact on lake.db.failed job ")
    for part in (
        "policy hot owner sales",
        "attempts 3; 2 workers died",
        "predicted 1 GB",
        "used 12.5 s on one core, 0.02 by prices",
    ):
        assert part in text
    assert "(`neve runs show abababab " in text
    late = " ".join(run("jobs", "show", the_job(run, "late")["job_id"]).stdout.split())
    assert "when its window closes" in late


@pytest.mark.usefixtures("filled")
def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked_to_stop(run: Run) -> None:
    assert "state cancelled" in " ".join(run("jobs", "cancel", the_job(run, "late")["job_id"]).stdout.split())
    asked = document(run("jobs", "cancel", the_job(run, "running")["job_id"], "--json"))["job"]
    assert (asked["state"], asked["cancel_requested_ms"] is None) == ("claimed", False)
    assert "state running, to be interrupted" in " ".join(run("jobs", "show", asked["job_id"]).stdout.split())


def test_the_service_does_not_begin_again_what_was_just_cancelled(run: Run, filled: StateStore) -> None:
    run("jobs", "cancel", the_job(run, "late")["job_id"])
    last = filled.jobs.last_runs()["uuid-late"]["compact"]
    assert last.paused_until_ms is not None
    assert abs(last.paused_until_ms - time.time() * 1000 - HOUR) < 5 * MINUTE
    run("jobs", "cancel", the_job(run, "done")["job_id"])
    assert filled.jobs.last_runs()["uuid-done"]["compact"].paused_until_ms is None


def test_a_name_needs_no_catalog_if_it_is_the_default_one(run: Run, filled: StateStore) -> None:
    assert run("hint", "db.late").stdout.startswith("The service will look at lake.db.late ")
    assert document(run("jobs", "unpause", "db.failed", "--json")) == {"table": "lake.db.failed", "ended": 0}
    assert len(document(run("jobs", "list", "db.*", "--json"))["jobs"]) == 4
    assert filled.fleet.entry("lake.db.late") is not None


def test_an_operation_is_paused_and_unpaused(run: Run, filled: StateStore) -> None:
    assert run("jobs", "pause", "lake.db.done", "compact", "--for", "12h").stdout.startswith(
        "compact on lake.db.done is paused until "
    )
    until_ms = filled.jobs.last_runs()["uuid-done"]["compact"].paused_until_ms
    assert until_ms is not None
    assert abs(until_ms - now_ms() - 12 * HOUR) < HOUR
    assert document(run("jobs", "unpause", "lake.db.done", "--json")) == {"table": "lake.db.done", "ended": 1}
    assert filled.jobs.last_runs()["uuid-done"]["compact"].paused_until_ms is None


def test_a_hint_is_noted(run: Run, filled: StateStore) -> None:
    assert run("hint", "lake.db.late").stdout == "The service will look at lake.db.late in its next round.\n"
    entry = filled.fleet.entry("lake.db.late")
    assert entry is not None
    assert entry.hinted_ms is not None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["jobs", "show", "zzz"], "Cannot find job 'zzz': no job's id begins so"),
        (["jobs", "show", ""], "Cannot choose job '': 4 jobs begin so"),
        (
            ["jobs", "list", "--state", "open"],
            "Cannot list jobs in state 'open': there are cancelled, done, failed, running, waiting",
        ),
        (["jobs", "pause", "lake.db.late", "polish"], "Cannot pause 'polish': there are "),
        (["jobs", "pause", "lake.db.late", "compact", "--for", "soon"], "Cannot pause for 'soon': "),
        (["jobs", "pause", "lake.db.none", "compact"], "Cannot find table lake.db.none: the service has not seen it"),
        (["hint", "late"], "Cannot find table late: the service has not seen it"),
    ],
)
@pytest.mark.usefixtures("filled")
def test_what_cannot_be_is_refused(run: Run, arguments: list[str], problem: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_without_a_state_store_there_are_no_jobs_and_none_is_made(run: Run, fresh_machine: Path, settings: Path) -> None:
    assert run("jobs").stdout == "No jobs.\n"
    assert "Cannot find the service's state store: there is none yet" in run("hint", "lake.db.t").stderr
    assert run("history", "lake.db.t").exit_code == 0
    assert sorted(path.name for path in fresh_machine.iterdir()) == [settings.name]


def test_the_history_of_a_table_and_of_many(run: Run, store: StateStore) -> None:
    make_history(store, now_ms())
    one = run("history", "lake.db.orders")
    assert one.exit_code == 0
    words = " ".join(one.stdout.split())
    assert words.startswith("lake.db.orders")
    for part in ("42", "97", "compact", "maintain"):
        assert part in words
    many = document(run("history", "lake.db.*", "--json"))
    assert [table["table"] for table in many["tables"]] == ["lake.db.items", "lake.db.orders"]
    assert {found["run_id"] for found in many["runs"]} >= {"a1", "b2", "c3"}
    assert "record" not in many["runs"][0]
    assert document(run("history", "orders", "--days", "1", "--limit", "1", "--json"))["runs"] == []


def test_the_same_from_python(filled: StateStore, settings: Path, fresh_machine: Path) -> None:
    (fresh_machine / "policies.yaml").write_text(
        "kind: policy\nname: merge\ntables: lake.*\noperations: [compact]\ntriggers: {hint: true}\n"
    )
    with Neve.open(load_settings(file=settings, environ={}), environ={}) as opened:
        service = library.Service(opened)
        assert {job.table for job in service.jobs.list(states=["failed"])} == {"lake.db.failed"}
        assert [change.name for change in service.policies.apply("policies.yaml").changes] == ["merge"]
        assert [one.name for one in service.policies.documents()] == ["merge"]
        make_history(filled, now_ms())
        assert [one.table for one in opened.history("lake.db.o*").tables] == ["lake.db.orders"]
    assert library.hint("db.late", config=settings)
    assert not library.hint("db.none", config=settings)
    with pytest.raises(BadRequestError):
        library.hint("db.none", config=settings, raise_errors=True)


def test_a_round_of_the_service_from_python_sees_the_tables(settings: Path, store: StateStore, fresh_machine: Path) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{fresh_machine}/lake.db", warehouse=str(fresh_machine / "lake"))
    catalog.create_namespace("db")
    catalog.create_table("db.t", schema=pa.schema([("id", pa.int64())]))
    store.fleet.add_health([observation("other", inspected=inspected(now_ms()))])
    with Neve.open(load_settings(file=settings, environ={}), environ={}) as opened:
        service = library.Service(opened)
        assert service.serve_once()
        assert service.explain("db.t").policies == ()
    assert library.hint("db.t", config=settings)


def test_a_round_in_which_a_catalog_does_not_answer_is_not_called_a_success(run: Run, settings: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    place = settings.parent
    SqlCatalog("lake", uri=f"sqlite:///{place}/lake.db", warehouse=str(place / "lake")).create_namespace("db")
    text = settings.read_text()
    settings.write_text(
        text.replace("state:", "  gone:\n    type: rest\n    uri: http://127.0.0.1:9\n    timeout: 1 s\nstate:")
    )
    assert run("serve", "--once").exit_code == 3
    settings.write_text(text)
    assert run("serve", "--once").exit_code == 0
