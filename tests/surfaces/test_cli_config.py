"""`neve config`: values with origins, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def rows(neve: Any, *args: str) -> dict[str, tuple[str, str]]:
    document = json.loads(neve("config", "show", "--json", *args).stdout)
    assert document["schema_version"] == 1
    return {row["key"]: (row["value"], row["origin"]) for row in document["settings"]}


def test_every_value_has_its_origin(neve: Any, fresh_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh_machine / "neve.yaml").write_text("policy: {max-files: 70, min-input-files: 8}\n")
    monkeypatch.setenv("NEVE_POLICY__MIN_INPUT_FILES", "9")
    shown = rows(neve, "--target-file-size", "256MB")
    assert shown["policy.target-file-size"] == ("256 MB", "flag --target-file-size")
    assert shown["policy.min-input-files"] == ("9", "variable NEVE_POLICY__MIN_INPUT_FILES")
    assert shown["policy.max-files"] == ("70", "file neve.yaml")
    assert shown["policy.fragment-ratio"] == ("8", "default")


def test_the_text_is_a_table_of_key_value_and_origin(neve: Any) -> None:
    result = neve("config", "show", "--set", "cache.ttl=3 h")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["key", "value", "from"]
    assert ["cache.ttl", "3", "h", "flag", "--set", "cache.ttl"] in lines


def test_properties_of_a_table_are_counted_in(neve: Any, warehouse: Path) -> None:
    shown = rows(neve, "--table", "db.floats", "--warehouse", str(warehouse))
    assert shown["policy.max-files"] == ("77", "table property neve.max-files")


def test_a_profile_is_chosen_by_name(neve: Any) -> None:
    assert rows(neve, "--profile", "dev")["policy.check-interval"] == ("5", "profile dev")


def test_valid_settings_are_called_valid(neve: Any, fresh_machine: Path) -> None:
    (fresh_machine / "neve.yaml").write_text("policy: {max-files: 7}\n")
    result = neve("config", "validate")
    assert (result.exit_code, result.stdout) == (0, "Settings in neve.yaml are valid.\n")
    assert json.loads(neve("config", "validate", "--json").stdout)["valid"] is True


@pytest.mark.parametrize("command", ["show", "validate"])
def test_a_wrong_key_is_refused_with_its_file_and_the_nearest_key(neve: Any, fresh_machine: Path, command: str) -> None:
    (fresh_machine / "wrong.yaml").write_text("policy: {max-filse: 7}\n")
    result = neve("config", command, "--config", "wrong.yaml")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "wrong.yaml" in result.stderr
    assert "max-filse" in result.stderr
    assert "max-files" in result.stderr
    assert result.stderr.count("\n") == 2
