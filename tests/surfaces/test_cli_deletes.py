"""`neve deletes`: what each operation is asked for, how it is told, and that its warning stands in the help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.inspections import NOW_MS
from tests.builders.maintenance_records import make_upkeep
from tests.builders.run_records import RUN_ID


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; every upkeep ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: UpkeepRecord) -> list[Any]:
        def deletes(_: Neve, *args: str, progress: Any = None, **words: Any) -> UpkeepRecord:  # noqa: ARG001
            found.append((*args, words))
            return record

        monkeypatch.setattr(Neve, "deletes", deletes)
        return found

    return arm


@pytest.mark.parametrize("operation", list(Upkeep))
def test_each_operation_is_asked_for_by_its_name(neve: Any, warehouse: Path, asked: Any, operation: Upkeep) -> None:
    found = asked(make_upkeep(operation=operation))
    words = ["--branch", "audit", "--dry-run"]
    assert neve("deletes", operation.value, "db.floats", *words, "--warehouse", str(warehouse)).exit_code == 0
    assert found == [("db.floats", {"operation": operation.value, "branch": "audit", "dry_run": True})]


def test_a_conversion_is_told_with_what_to_type_next(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_upkeep())
    result = neve("deletes", "convert", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Converted 2 equality deletes into 3 deletes by position in 2.4 s",
        "",
        "  deletes      10 → 9",
        "  by equality  3 → 1",
        "  rows         1,200 deleted by the new ones",
        f"  id           {RUN_ID}",
        "  started      2025-06-15 15:06:40 UTC",
        "  snapshot     11 → 12",
        "",
        "Next",
        f"  neve inspect local.db.events --warehouse {warehouse}",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"dry_run": True}, "Would convert 2 equality deletes into at most 3 deletes by position"),
        ({"operation": Upkeep.REWRITE}, "Rewrote 4 deletes into 3 deletes by position in 2.4 s"),
        ({"operation": Upkeep.PRUNE, "data_files": 0}, "Pruned 4 deletes in 2.4 s"),
        ({"operation": Upkeep.PRUNE, "data_files": 0, "dry_run": True}, "Would prune 4 deletes"),
        ({"outcome": RunOutcome.NOTHING_TO_DO, "reason": "none is there"}, "Nothing to do: none is there"),
        ({"outcome": RunOutcome.FAILED, "reason": "the table changed"}, "Failed after 2.4 s: the table changed"),
    ],
)
def test_the_second_line_says_how_it_ended(neve: Any, warehouse: Path, asked: Any, changes: Any, line: str) -> None:
    asked(make_upkeep(**changes))
    result = neve("deletes", "convert", "db.floats", "--warehouse", str(warehouse))
    assert result.stdout.splitlines()[1] == line
    assert result.exit_code == (1 if changes.get("outcome") is RunOutcome.FAILED else 0)


def test_json_has_the_record_and_what_is_left(neve: Any, warehouse: Path, asked: Any) -> None:
    asked(make_upkeep(outcome=RunOutcome.FAILED))
    result = neve("deletes", "convert", "db.floats", "--json", "--warehouse", str(warehouse))
    told = json.loads(result.stdout)
    assert (result.exit_code, told["schema_version"], told["outcome"], told["deletes_after"]) == (1, 1, "failed", 9)


def test_an_upkeep_is_among_the_runs(neve: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    with StateStore.open(url) as store:
        store.start_run(Run(RUN_ID, "u", "local.db.events", "deletes", NOW_MS))
        record = make_upkeep().model_dump(mode="json")
        store.finish_run(RUN_ID, finished_ms=NOW_MS + 2400, outcome="done", record=record)
    place = ["--set", f"state.url={url}"]
    assert "10 → 9 deletes" in neve("runs", *place).stdout
    shown = neve("runs", "show", "3f9c", *place).stdout.splitlines()
    assert shown[1] == "Converted 2 equality deletes into 3 deletes by position in 2.4 s"
    assert json.loads(neve("runs", "show", "3f9c", "--json", *place).stdout)["run"]["equality_removed"] == 2


@pytest.mark.parametrize("operation", ["convert", "rewrite"])
def test_the_help_warns_of_streaming_readers(neve: Any, operation: str) -> None:
    words = " ".join(neve("deletes", operation, "--help").stdout.split())
    assert "whose operation is `delete`, though no row changed" in words
    assert "streaming-skip-delete-snapshots" in words


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked(make_upkeep())
    assert package.deletes("db.floats", "prune", dry_run=True, branch="audit", warehouse=warehouse).rows == 1200
    package.table("db.floats", warehouse=warehouse).deletes("convert")
    assert found == [
        ("db.floats", {"operation": "prune", "dry_run": True, "branch": "audit"}),
        ("db.floats", {"operation": "convert", "dry_run": False, "branch": "main"}),
    ]
