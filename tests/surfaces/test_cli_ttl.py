"""`neve ttl`: what is asked for, how a preview and an enforcement are told, and what to type next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.maintenance.ttl import TtlCounts, TtlRecord
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_ttl
from tests.builders.run_records import RUN_ID


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for, with the policy in effect; ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: TtlRecord) -> list[Any]:
        def ttl(self: Neve, table: str, *, progress: Any = None, **words: Any) -> TtlRecord:  # noqa: ARG001
            policy = self.connection.loaded.policy()[0]
            found.append((table, words, (policy.ttl_seconds, policy.ttl_column, policy.ttl_format)))
            return record

        monkeypatch.setattr(Neve, "ttl", ttl)
        return found

    return arm


def test_the_short_options_are_the_knobs(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_ttl())
    place = ["--warehouse", str(warehouse)]
    short = ["--keep", "30 days", "--column", "ts", "--format", "yyyyMMdd", "--branch", "audit", "--enforce"]
    assert neve("ttl", "db.floats", *short, *place).exit_code == 0
    assert neve("ttl", "db.floats", "--ttl", "1 w", "--ttl-column", "d", "--dry-run", *place).exit_code == 0
    assert found == [
        ("db.floats", {"enforce": True, "dry_run": False, "branch": "audit"}, (30 * 86_400, "ts", "yyyyMMdd")),
        ("db.floats", {"enforce": False, "dry_run": True, "branch": "main"}, (7 * 86_400, "d", None)),
    ]


def test_a_preview_is_told_with_the_enforcement_to_type_next(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_ttl(dry_run=True, snapshots=(), previewed_by=None))
    result = neve("ttl", "db.floats", "--keep", "30 days", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Would remove 1,200 rows with 2 whole files and 20 rows out of 3 other files",
        "",
        "  column       ts (timestamptz)",
        "  kept         30 days: from 2025-05-16 15:06:40 UTC on",
        "  whole files  2 with 2 KB",
        f"  id           {RUN_ID}",
        "  snapshot     11",
        "",
        "Next",
        f"  neve ttl db.floats --keep '30 days' --warehouse {warehouse} --enforce",
    ]


def test_a_preview_that_is_not_remembered_has_no_id(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_ttl(dry_run=True, snapshots=(), previewed_by=None, recorded=False))
    result = neve("ttl", "db.floats", "--keep", "30 days", "--dry-run", "--warehouse", str(warehouse))
    assert RUN_ID not in result.stdout
    assert "  snapshot     11" in [line.rstrip() for line in result.stdout.splitlines()]


LEFT = {"counts": TtlCounts(files_left=7), "reason": "one run opens 1 file at most (max-files)"}


@pytest.mark.parametrize(
    ("changes", "line", "code"),
    [
        ({}, "Removed 1,200 rows with 2 whole files and 20 rows out of 3 other files in 2.4 s", 0),
        (
            {"outcome": RunOutcome.NOTHING_TO_DO, "reason": "no row is past its time"},
            "Nothing to do: no row is past its time",
            0,
        ),
        (
            {"outcome": RunOutcome.NOTHING_TO_DO, "reason": "every row is kept: it is unknown", "cutoff_ms": None},
            "Nothing to do: every row is kept: it is unknown column ts (timestamptz) kept 30 days: every row",
            0,
        ),
        ({"outcome": RunOutcome.NOTHING_TO_DO, **LEFT}, "Nothing to do: one run opens 1 file at most (max-files)", 0),
        ({"outcome": RunOutcome.FAILED, "reason": "the table changed"}, "Failed after 2.4 s: the table changed", 1),
        (
            {"outcome": RunOutcome.PARTLY_DONE, "reason": "502"},
            "Removed 1,200 rows with 2 whole files and 20 rows out of 3 other files in 2.4 s; then it failed: 502",
            3,
        ),
    ],
)
def test_the_second_line_says_how_it_ended(neve: Any, warehouse: Path, asked: Any, changes: Any, line: str, code: int) -> None:
    asked(make_ttl(**changes))
    result = neve("ttl", "db.floats", "--enforce", "--warehouse", str(warehouse))
    assert " ".join(result.stdout.split()).startswith(f"local.db.events {line}")
    assert result.exit_code == code


def test_json_has_the_record(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_ttl())
    told = json.loads(neve("ttl", "db.floats", "--json", "--warehouse", str(warehouse)).stdout)
    assert (told["schema_version"], told["operation"], told["files"]) == (1, "ttl", ["/a", "/b"])
    assert told["counts"] == make_ttl().counts.model_dump()


def test_previews_and_enforcements_are_among_the_runs(neve: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        for run_id, dry_run in ((RUN_ID, False), ("other", True)):
            store.start_run(Run(run_id, "u", "local.db.events", "ttl", NOW_MS))
            record = make_ttl(run_id=run_id, dry_run=dry_run).model_dump(mode="json")
            store.finish_run(run_id, finished_ms=NOW_MS + 2400, outcome="done", record=record)
        assert [run.run_id for run in store.runs("u", kind="ttl")] == [RUN_ID, "other"]
        assert store.runs("u", kind="deletes") == ()
    place = ["--set", f"state.url={url}"]
    listed = neve("runs", *place).stdout
    assert "lost 1,220 rows" in listed
    assert "would lose 1,220 rows" in listed
    assert neve("runs", "show", "3f9c", *place).stdout.splitlines()[1].startswith("Removed 1,200 rows")


def test_enforcing_and_only_telling_exclude_each_other(neve: Any, warehouse: Path) -> None:
    result = neve("ttl", "db.floats", "--keep", "30 days", "--enforce", "--dry-run", "--json", "--warehouse", str(warehouse))
    assert result.exit_code == 2
    message = "Cannot enforce the limit of db.floats and only tell of it: leave one of them out"
    assert json.loads(result.stdout)["error"]["message"] == message


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked(make_ttl())
    assert package.ttl("db.floats", "30 days", column="ts", enforce=True, warehouse=warehouse).counts.rows_deleted == 20
    audit = package.table("db.floats", warehouse=warehouse).branch("audit").ttl("1 w").ttl_column("d")
    audit.preview_ttl(dry_run=True)
    audit.enforce_ttl()
    assert found == [
        ("db.floats", {"enforce": True, "dry_run": False}, (30 * 86_400, "ts", None)),
        ("db.floats", {"enforce": False, "dry_run": True, "branch": "audit"}, (7 * 86_400, "d", None)),
        ("db.floats", {"enforce": True, "dry_run": False, "branch": "audit"}, (7 * 86_400, "d", None)),
    ]
