"""`neve quarantine` and `neve restore`: what is asked for, how it is told, and what is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.maintenance.quarantine import Candidate, Fate, FateChange, FileChange, QuarantineRecord, QuarantineStep
from neve.maintenance.record import Operation
from neve.operations.quarantine import EXPIRED_STAYS
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_record
from tests.builders.run_records import RUN_ID


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; every operation ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: QuarantineRecord) -> list[Any]:
        for name in ("settle", "purge", "restore"):

            def answer(_: Neve, what: str, *, progress: Any = None, name: str = name, **words: Any) -> QuarantineRecord:  # noqa: ARG001
                found.append((name, what, words))
                return record

            monkeypatch.setattr(Neve, name, answer)
        return found

    return arm


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["quarantine", "settle", "db.floats"],
            ("settle", "db.floats", {"run": None, "limit": 100_000, "at_once": False, "delete": False, "dry_run": False}),
        ),
        (
            ["quarantine", "settle", "db.floats", "--run", "3f", "--now", "--delete", "--dry-run", "--limit", "9"],
            ("settle", "db.floats", {"run": "3f", "limit": 9, "at_once": True, "delete": True, "dry_run": True}),
        ),
        (["quarantine", "purge", "db.floats", "--limit", "5"], ("purge", "db.floats", {"limit": 5, "dry_run": False})),
        (["restore", "3f9c"], ("restore", "3f9c", {"table": None, "dry_run": False})),
        (
            ["restore", "3f9c", "--table", "db.floats", "--dry-run"],
            ("restore", "3f9c", {"table": "db.floats", "dry_run": True}),
        ),
    ],
)
def test_each_operation_is_asked_for_with_its_words(neve: Any, warehouse: Path, asked: Any, words: Any, expected: Any) -> None:
    found = asked(make_record())
    assert neve(*words, "--warehouse", str(warehouse)).exit_code == 0
    assert found == [expected]


def test_a_second_look_is_told_with_what_to_type_next(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_record(missing=1, failed=1, failures=("/t/x: 503",), outcome=RunOutcome.PARTLY_DONE, more=True))
    result = neve("quarantine", "settle", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (3, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Moved 2 files (3 MB) to the trash in 2.4 s",
        "",
        "  needed   1, the table needs them: in their place",
        "  missing  1, neither in their place nor in the trash",
        "  failed   1, as they were",
        "           /t/x: 503",
        "  more     is due; the limit of files was reached",
        "  of runs  01234567",
        f"  id       {RUN_ID}",
        "  started  2025-06-15 15:06:40 UTC",
        "",
        "Next",
        f"  neve quarantine list local.db.events --warehouse {warehouse}",
    ]


def test_a_dry_run_lists_files_and_json_lists_them_all(neve: Any, warehouse: Path, asked: Any) -> None:
    changes = tuple(FileChange(path=f"/t/{n:02}", step=QuarantineStep.TRASH, reason="old") for n in range(22))
    asked(make_record(dry_run=True, files=22, changes=changes))
    place = ["--warehouse", str(warehouse)]
    lines = [line.strip() for line in neve("quarantine", "settle", "db.floats", "--dry-run", *place).stdout.splitlines()]
    assert lines[1] == "Would move 22 files (3 MB) to the trash"
    assert [line for line in lines if line.startswith("move")] == [f"move to the trash: /t/{n:02}" for n in range(20)]
    assert "and 2 files more; --json lists all" in lines
    assert lines[-1] == f"neve quarantine settle db.floats --warehouse {warehouse}"
    told = json.loads(neve("quarantine", "settle", "db.floats", "--dry-run", "--json", *place).stdout)
    assert (told["schema_version"], len(told["changes"]), told["changes"][21]["path"]) == (1, 22, "/t/21")


@pytest.mark.parametrize(
    ("changes", "line", "code"),
    [
        ({"operation": Operation.PURGE}, "Purged 2 files (3 MB) for good in 2.4 s", 0),
        ({"operation": Operation.RESTORE}, "Restored 2 files (3 MB) to where they were in 2.4 s", 0),
        ({"operation": Operation.RESTORE, "files": 1}, "Restored 1 file (3 MB) to where it was in 2.4 s", 0),
        (
            {"operation": Operation.RESTORE, "not_moved": 2},
            "Took 2 files (3 MB) out of the quarantine in 2.4 s: they were still in place",
            0,
        ),
        (
            {"operation": Operation.RESTORE, "files": 1, "not_moved": 1, "dry_run": True},
            "Would take 1 file (3 MB) out of the quarantine: it was still in place",
            0,
        ),
        (
            {"operation": Operation.RESTORE, "not_moved": 1},
            "Restored 2 files (3 MB) in 2.4 s: 1 from the trash, 1 still in place",
            0,
        ),
        ({"operation": Operation.PURGE, "dry_run": True}, "Would purge 2 files (3 MB) for good", 0),
        ({"operation": Operation.PURGE, "files_without_size": 1}, "Purged 2 files (≥ 3 MB) for good in 2.4 s", 0),
        (
            {"operation": Operation.PURGE, "size_bytes": 0, "files_without_size": 2},
            "Purged 2 files (size unknown) for good in 2.4 s",
            0,
        ),
        ({"outcome": RunOutcome.NOTHING_TO_DO, "reason": "none waits"}, "Nothing to do: none waits", 0),
        ({"outcome": RunOutcome.FAILED, "reason": "/x: 503"}, "Failed after 2.4 s: /x: 503", 1),
    ],
)
def test_the_second_line_says_how_it_ended(neve: Any, warehouse: Path, asked: Any, changes: Any, line: str, code: int) -> None:
    asked(make_record(**changes))
    result = neve("quarantine", "purge", "db.floats", "--warehouse", str(warehouse))
    assert (result.stdout.splitlines()[1], result.exit_code) == (line, code)


@pytest.fixture
def filled(warehouse: Path, tmp_path: Path) -> list[str]:
    """A store with five files of db.floats in the quarantine; gives the options that lead there."""
    url = f"sqlite:///{tmp_path}/state.db"
    with Neve.open(load_settings(environ={}), warehouse=str(warehouse), environ={}) as opened:
        uuid = opened.table("db.floats").uuid
    with StateStore.open(url) as store:
        store.start_run(Run("aaaa1111bbbb", uuid, "local.db.floats", "orphans", NOW_MS))
        store.record_candidates(
            uuid, "aaaa1111bbbb", [Candidate(path=f"/t/{n}", reason="orphan", size_bytes=1024) for n in "ab"], NOW_MS
        )
        store.record_candidates(uuid, "cccc2222", [Candidate(path="/t/c", reason="expired")], NOW_MS + 60_000)
        lost = [Candidate(path="/t/d", reason="lost", size_bytes=1024), Candidate(path="/t/e", reason="lost")]
        store.record_candidates(uuid, "cccc2222", lost, NOW_MS + 60_000)
        store.settle_candidates(uuid, [FateChange("/t/a", Fate.TRASHED, "/t/.neve-trash/x")], NOW_MS + 1)
    return ["--warehouse", str(warehouse), "--set", f"state.url={url}"]


def test_the_list_has_a_line_for_each_run_reason_and_fate(neve: Any, filled: list[str]) -> None:
    lines = [line.rstrip() for line in neve("quarantine", "list", "db.floats", *filled).stdout.splitlines()]
    assert lines == [
        "run       recorded (UTC)    fate      files    bytes  why",
        "aaaa1111  2025-06-15 15:06  recorded      1     1 KB  orphan",
        "aaaa1111  2025-06-15 15:06  trashed       1     1 KB  orphan",
        "cccc2222  2025-06-15 15:07  recorded      1  unknown  expired",
        "cccc2222  2025-06-15 15:07  recorded      2   ≥ 1 KB  lost",
    ]
    told = json.loads(neve("quarantine", "list", "db.floats", "--json", *filled).stdout)
    keys = ("run_id", "fate", "files", "size_bytes", "files_without_size")
    assert [tuple(row[key] for key in keys) for row in told["runs"]] == [
        ("aaaa1111bbbb", "recorded", 1, 1024, 0),
        ("aaaa1111bbbb", "trashed", 1, 1024, 0),
        ("cccc2222", "recorded", 1, 0, 1),
        ("cccc2222", "recorded", 2, 1024, 1),
    ]
    assert neve("quarantine", "list", "db.v1", *filled).stdout == "Nothing is in the quarantine.\n"


def test_the_list_of_files_is_made_for_pipes(neve: Any, filled: list[str]) -> None:
    lines = neve("quarantine", "list", "db.floats", "--files", *filled).stdout.splitlines()
    assert lines == [
        "recorded  aaaa1111  /t/b",
        "trashed   aaaa1111  /t/a",
        *(f"recorded  cccc2222  /t/{name}" for name in "cde"),
    ]
    one = neve("quarantine", "list", "db.floats", "--run", "cccc", "--json", *filled).stdout.splitlines()
    assert [json.loads(line)["path"] for line in one] == ["/t/c", "/t/d", "/t/e"]
    wrong = neve("quarantine", "list", "db.floats", "--run", "ffff", *filled)
    assert wrong.exit_code == 2
    assert "Cannot choose run 'ffff': no runs with files of db.floats in the quarantine begin so" in wrong.stderr


def test_a_restore_of_an_expiry_says_that_the_snapshots_are_not_restored(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_record(operation=Operation.RESTORE, note=EXPIRED_STAYS))
    text = " ".join(neve("restore", "3f9c", "--warehouse", str(warehouse)).stdout.split())
    assert "note the expired snapshots are not restored, only their files." in text
    told = json.loads(neve("restore", "3f9c", "--json", "--warehouse", str(warehouse)).stdout)
    assert told["note"] == EXPIRED_STAYS
    assert "snapshots that were expired stay expired" in " ".join(neve("restore", "--help").stdout.split())


def test_a_restore_of_an_unknown_run_or_of_another_table_is_refused(neve: Any, filled: list[str]) -> None:
    unknown = neve("restore", "eeee", *filled)
    assert (unknown.exit_code, "Cannot find run 'eeee'" in unknown.stderr) == (2, True)
    with StateStore.open(filled[-1].removeprefix("state.url=")) as store:
        store.start_run(Run("dddd", "another-uuid", "local.db.floats", "orphans", NOW_MS))
    other = neve("restore", "dddd", *filled)
    assert other.exit_code == 2
    assert "Cannot restore run dddd: local.db.floats is another table than it was then" in other.stderr


def test_an_operation_is_among_the_runs(neve: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", "quarantine", NOW_MS))
        record = make_record().model_dump(mode="json")
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="done", record=record)
    place = ["--set", f"state.url={url}"]
    assert neve("runs", "show", "3f9c", *place).stdout.splitlines()[1] == "Moved 2 files (3 MB) to the trash in 2.4 s"
    assert neve("runs", *place).exit_code == 0


def test_python_says_the_same(warehouse: Path, asked: Any, filled: list[str]) -> None:
    found = asked(make_record())
    package.settle("db.floats", at_once=True, limit=5, warehouse=warehouse)
    package.table("db.floats", warehouse=warehouse).purge(dry_run=True)
    package.purge("db.floats", limit=3, warehouse=warehouse)
    package.restore("3f9c", table="db.floats", warehouse=warehouse)
    assert found == [
        ("settle", "db.floats", {"run": None, "limit": 5, "at_once": True, "delete": False, "dry_run": False}),
        ("purge", "db.floats", {"limit": None, "dry_run": True}),
        ("purge", "db.floats", {"limit": 3, "dry_run": False}),
        ("restore", "3f9c", {"table": "db.floats", "dry_run": False}),
    ]
    with package.connect(warehouse=warehouse, settings={"state.url": filled[-1].removeprefix("state.url=")}) as opened:
        assert [row.files for row in opened.quarantine("db.floats")] == [1, 1, 1, 2]
