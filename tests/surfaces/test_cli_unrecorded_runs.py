"""JSON has the id of a run only if the state store has the run: `neve runs show` must know every id that was printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neve.context.connection import Connection

UNRECORDED = {
    "compact": ("--min-input-files", "6"),
    "manifests": ("--dry-run",),
    "stats": ("--dry-run",),
    "tags": ("--dry-run", "--auto-tags", "daily 3"),
    "prevent": (),
    "maintain": ("--only", "manifests"),
    "maintain --dry-run": (),
}
"""Commands that record nothing, here because nothing is due or because they only show what would be done; none needs Spark."""


@pytest.mark.parametrize("command", UNRECORDED)
def test_a_run_that_is_not_recorded_has_no_id(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    no_spark(monkeypatch)
    name, *flags = command.split()
    result = neve(name, "db.floats", *flags, *UNRECORDED[command], "--warehouse", str(warehouse), "--json")
    assert result.exit_code == 0, result.stderr
    assert ids(result.stdout) == [None]
    assert json.loads(neve("runs", "--json").stdout)["runs"] == []


def test_a_forced_compaction_with_nothing_to_do_names_no_run(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_spark(monkeypatch)
    forced = ("compact", "db.v1", "--force", "--partition", "country=nowhere", "--warehouse", str(warehouse))
    told, document = neve(*forced), neve(*forced, "--json")
    assert (told.exit_code, document.exit_code) == (0, 0)
    assert "Nothing to do" in told.stdout
    assert "runs show" not in told.stdout
    assert ids(document.stdout) == [None]
    assert json.loads(neve("runs", "--json").stdout)["runs"] == []


def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))


def ids(document: str) -> list[str | None]:
    """The id that a run has in JSON; empty if nothing is said of it."""
    return [value for key, value in json.loads(document).items() if key == "run_id"]
