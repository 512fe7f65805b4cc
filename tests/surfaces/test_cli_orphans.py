"""`neve orphans` on the command line and in Python: what is asked for, and how the answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.errors import InDoubtError
from neve.maintenance.orphans import OrphanRecord, Verdict
from neve.maintenance.quarantine import Candidate
from neve.operations import requests
from neve.operations.requests import OrphansRequest
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_orphans
from tests.builders.run_records import RUN_ID


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; every search ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(answer: OrphanRecord | Exception) -> list[Any]:
        def orphans(_: Neve, table: str, *, progress: Any = None, **options: Any) -> OrphanRecord:  # noqa: ARG001
            found.append((table, OrphansRequest(**options)))
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(Neve, "orphans", orphans)
        return found

    return arm


def test_every_word_is_handed_on(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_orphans())
    flags = "--older-than 1h --i-know-that-writers-may-be-running --i-know-that-no-other-table-is-here --dry-run --limit 7"
    places = "--location s3://lake/x --inventory i.csv --equal-scheme a=b --equal-scheme c=d --equal-authority e=f"
    ignored = "--ignore-table c.db.t --ignore-table d"
    dropped = "--dropped-table U1 --dropped-table U2"
    words = [*flags.split(), *places.split(), *ignored.split(), *dropped.split()]
    result = neve("orphans", "db.floats", *words, "--warehouse", str(warehouse))
    assert result.exit_code == 0
    expected = OrphansRequest(
        older_than="1h",
        location="s3://lake/x",
        inventory="i.csv",
        equal_schemes=("a=b", "c=d"),
        equal_authorities=("e=f",),
        limit=7,
        dry_run=True,
        writers_may_be_running=True,
        no_other_table_is_here=True,
        ignore_tables=("c.db.t", "d"),
        dropped_tables=("U1", "U2"),
    )
    assert found == [("db.floats", expected)]


def test_a_bare_call_asks_for_the_defaults(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_orphans())
    neve("orphans", "db.floats", "--warehouse", str(warehouse))
    assert found == [("db.floats", OrphansRequest())]
    assert OrphansRequest().limit == requests.LIMIT


def test_a_search_is_told_with_what_to_type_next(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_orphans())
    result = neve("orphans", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Recorded 2 orphans in 2.4 s, as many as one run may take; no file was moved",
        "",
        "  location            s3://lake/db/events",
        "  older than          3 days",
        "  listed              1,204 files",
        "  in use              1,190",
        "  orphans             3 (3 MB)",
        "  too young           4",
        "  of unfinished runs  2",
        "  never taken         5",
        f"  id                  {RUN_ID}",
        "  started             2025-06-15 15:06:40 UTC",
        "",
        "Next",
        f"  neve quarantine list local.db.events --warehouse {warehouse}",
    ]


def test_a_dry_run_lists_some_files_and_json_all(neve: Any, warehouse: Path, asked: Any) -> None:
    files = tuple(Candidate(path=f"/t/data/{i:02}", reason="orphan", size_bytes=1) for i in range(22))
    asked(make_orphans(dry_run=True, files=files, taken=22, limited=False))
    lines = neve("orphans", "db.floats", "--dry-run", "--warehouse", str(warehouse)).stdout.splitlines()
    assert lines[1] == "Would record 22 orphans"
    assert [line for line in lines if "/t/data/" in line] == [f"  {file.path}" for file in files[:20]]
    assert "  and 2 more; --json lists them all" in lines
    assert lines[-1] == f"  neve orphans db.floats --warehouse {warehouse}"
    told = json.loads(neve("orphans", "db.floats", "--dry-run", "--json", "--warehouse", str(warehouse)).stdout)
    assert ([file["path"] for file in told["files"]], told["schema_version"]) == ([file.path for file in files], 1)
    assert (told["verdicts"]["orphan"], told["operation"]) == (3, "orphans")


def test_nothing_to_do_is_a_success_with_the_reason(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_orphans(outcome=RunOutcome.NOTHING_TO_DO, reason="every file is accounted for", taken=0))
    result = neve("orphans", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, "Nothing to do: every file is accounted for")


def test_orphans_that_wait_in_the_quarantine_are_told_apart_from_those_that_are_new(
    neve: Any, warehouse: Path, asked: Any
) -> None:
    new = (Candidate(path="/t/data/new", reason="orphan", size_bytes=1),)
    found = {"dry_run": True, "files": new, "taken": 1, "limited": False, "already_recorded": 29}
    asked(make_orphans(**found, verdicts={Verdict.ORPHAN: 30}))
    lines = [line.rstrip() for line in neve("orphans", "db.floats", "--warehouse", str(warehouse)).stdout.splitlines()]
    assert lines[1] == "Would record 1 orphan; 29 are in the quarantine already"
    assert lines[6:8] == ["  orphans              30 (3 MB)", "    in the quarantine  29"]
    asked(make_orphans(already_recorded=1))
    page = neve("orphans", "db.floats", "--warehouse", str(warehouse)).stdout
    assert " ".join(page.splitlines()[1].split()).startswith("Recorded 2 orphans in 2.4 s, as many as one run may take")
    assert "; at least 1 is in the quarantine already" in " ".join(page.split())


def test_warnings_come_before_the_numbers(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_orphans(warnings=("1 file that the table needs is not there, such as /a",)))
    lines = neve("orphans", "db.floats", "--warehouse", str(warehouse)).stdout.splitlines()
    assert lines[2].rstrip() == "1 file that the table needs is not there, such as /a"


def test_doubt_is_a_failure_with_a_code(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(InDoubtError("Cannot tell orphans in /t: x", hint="y"))
    result = neve("orphans", "db.floats", "--json", "--warehouse", str(warehouse))
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"], error["hint"], error["retryable"]) == (1, "in-doubt", "y", False)


@pytest.mark.parametrize("flag", ["--older-than", "--limit"])
def test_a_word_that_cannot_be_read_is_refused(neve: Any, warehouse: Path, flag: str) -> None:
    result = neve("orphans", "db.floats", flag, "often", "--warehouse", str(warehouse))
    assert result.exit_code == 2


def test_the_floor_holds_before_anything_is_started(neve: Any, warehouse: Path) -> None:
    result = neve("orphans", "db.floats", "--older-than", "2 days", "--json", "--warehouse", str(warehouse))
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["code"]) == (2, "bad-request")
    assert "--i-know-that-writers-may-be-running" in error["hint"]


def test_the_floor_holds_for_the_knob_as_well(neve: Any, warehouse: Path) -> None:
    result = neve("orphans", "db.floats", "--set", "policy.orphan-age=1h", "--warehouse", str(warehouse))
    assert result.exit_code == 2
    assert "Cannot take files of 60 min for orphans" in result.stderr


def test_a_search_is_among_the_runs(neve: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", "orphans", NOW_MS))
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="done", record=make_orphans().model_dump(mode="json"))
    shown = neve("runs", "show", "3f9c", "--set", f"state.url={url}").stdout.splitlines()
    assert shown[1] == "Recorded 2 orphans in 2.4 s, as many as one run may take; no file was moved"


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked(make_orphans())
    assert package.orphans("db.floats", older_than="5 days", dry_run=True, warehouse=warehouse).taken == 2
    package.table("db.floats", warehouse=warehouse).orphans(limit=3)
    assert found == [
        ("db.floats", OrphansRequest(older_than="5 days", dry_run=True)),
        ("db.floats", OrphansRequest(limit=3)),
    ]
