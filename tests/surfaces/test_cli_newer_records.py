"""Records of a newer release: they are listed and shown as far as they can be read; changes that rest on them are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from neve.render.records import KINDS
from neve.state import StateStore
from neve.state.rows import Run

STORED = Path(__file__).parents[1] / "state" / "records"
BY_NAME = ("elsewhere", "files", "kept", "kernels", "verdicts")
"""Fields whose objects have names as keys, and no fields."""
NEWER = "written by a newer version of Neve"
Command = Callable[..., Any]


@pytest.fixture
def keep(fresh_machine: Path) -> Callable[..., str]:
    """Stores a finished run; returns its id."""
    url = f"sqlite:///{fresh_machine}/state.db"
    (fresh_machine / "neve.yaml").write_text(f"state:\n  url: {url}\n")

    def stored(record: Mapping[str, Any], kind: str, outcome: str = "done") -> str:
        run_id = str(record.get("run_id") or f"{kind:0<32}")
        with StateStore.open(url) as store:
            store.start_run(Run(run_id, "u", "local.db.t", kind, 1_750_000_000_000))
            store.finish_run(run_id, finished_ms=1_750_000_002_000, outcome=outcome, record=record)
        return run_id

    return stored


def record_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def with_news(value: Any) -> Any:
    """The same with a new field in every object, also where objects are nested."""
    if isinstance(value, list):
        return [with_news(each) for each in value]
    if not isinstance(value, dict):
        return value
    by_name = {key for key, each in value.items() if key in BY_NAME and isinstance(each, dict)}
    return {key: each if key in by_name else with_news(each) for key, each in value.items()} | {"from_2030": {"x": 1}}


def kind_of(file: Path) -> str:
    record = record_of(file)
    return next(kind for kind in (file.stem, record.get("kind", ""), "quarantine") if kind in KINDS)


@pytest.mark.parametrize("file", sorted(STORED.iterdir()), ids=lambda file: file.stem)
def test_fields_of_a_newer_release_are_left_out_of_a_shown_run(neve: Command, keep: Callable[..., str], file: Path) -> None:
    record = {**record_of(file), "run_id": "a" * 32}
    keep(record, kind_of(file))
    before = neve("runs", "show", "aaaa")
    newer = {**with_news(record), "run_id": "b" * 32}
    keep(newer, kind_of(file))
    after = neve("runs", "show", "bbbb")
    assert (before.exit_code, after.exit_code) == (0, 0), after.exception
    assert after.stdout.replace("b" * 8, "a" * 8).replace("b" * 32, "a" * 32) == before.stdout
    assert json.loads(neve("runs", "show", "bbbb", "--json").stdout)["run"] == newer
    assert neve("runs").exit_code == 0


def test_a_run_of_an_unknown_operation_is_listed_and_shown_as_such(
    neve: Command, keep: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    known = keep(record_of(STORED / "tags.json"), "tags")
    keep({"run_id": "f" * 32, "rows_vacuumed": 3}, "vacuum")
    listed = " ".join(neve("runs").stdout.split())
    assert f"vacuum local.db.t done, {NEWER}" in listed
    assert known[:8] in listed
    shown = neve("runs", "show", "ffff")
    assert shown.exit_code == 0
    assert f"Operation vacuum, {NEWER}" in " ".join(shown.stdout.split())


def test_a_run_with_an_unknown_value_is_listed_and_shown_as_of_a_newer_release(neve: Command, keep: Callable[..., str]) -> None:
    known = keep(record_of(STORED / "tags.json"), "tags")
    compact = {**record_of(STORED / "compact.json"), "run_id": "e" * 32, "outcome": "postponed", "kernels": {"gpu": 1}}
    keep(compact, "compact", outcome="postponed")
    listed = neve("runs")
    assert listed.exit_code == 0, listed.exception
    assert {"postponed", NEWER.split()[0]} <= set(" ".join(listed.stdout.split()).replace(",", " ").split())
    assert known[:8] in listed.stdout
    shown = neve("runs", "show", "eeee")
    assert shown.exit_code == 0, shown.exception
    text = " ".join(shown.stdout.split())
    assert f"Operation compact, {NEWER}" in text
    assert "ended as postponed" in text


def test_a_rollback_of_a_newer_release_is_shown(neve: Command, keep: Callable[..., str]) -> None:
    done = {"run_id": "d" * 32, "table": "local.db.t", "branch": "main", "from_snapshot": 2, "to_snapshot": 1}
    keep({**done, "from_2030": 1}, "rollback")
    shown = neve("runs", "show", "dddd")
    assert shown.exit_code == 0, shown.exception
    assert "Rolled back run dddddddd" in shown.stdout


def test_a_run_of_a_newer_release_is_not_rolled_back(neve: Command, keep: Callable[..., str]) -> None:
    keep({**record_of(STORED / "compact.json"), "run_id": "c" * 32, "from_2030": 1}, "compact")
    result = neve("rollback", "cccc")
    assert result.exit_code == 1
    assert " ".join(result.stderr.split()) == (
        f"Error: Cannot roll back run cccccccc: its record was {NEWER} (unknown: from_2030) "
        "Hint: Upgrade Neve on this machine, or use the version that wrote it."
    )
