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
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    name, *flags = command.split()
    result = neve(name, "db.floats", *flags, *UNRECORDED[command], "--warehouse", str(warehouse), "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert "run_id" in document
    assert document["run_id"] is None
    assert json.loads(neve("runs", "--json").stdout)["runs"] == []
