"""`neve prevent`: a proposal without Spark, how it is told, and what is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.maintenance.prevention import PreventionRecord, PropertyProposal
from neve.rewrite.record import RunOutcome
from tests.builders.maintenance_records import CHANGES, make_prevention


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was asked for; ends as the test says, without Spark."""
    found: list[Any] = []

    def arm(record: PreventionRecord) -> list[Any]:
        def prevent(_: Neve, table: str, *, progress: Any = None, **words: Any) -> PreventionRecord:  # noqa: ARG001
            found.append((table, words))
            return record

        monkeypatch.setattr(Neve, "prevent", prevent)
        return found

    return arm


def test_a_proposal_is_told_with_reasons_and_what_to_type_next(neve: Any, warehouse: Path, asked: Any) -> None:
    found = asked(make_prevention(dry_run=True))
    result = neve("prevent", "db.floats", "--warehouse", str(warehouse))
    assert (result.exit_code, found) == (0, [("db.floats", {"apply": False, "undo": False})])
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "local.db.events",
        "Would set 2 properties",
        "",
        "  write.target-file-size-bytes  not set → 134217728  one size",
        "  write.distribution-mode       none → hash          40 files",
        "",
        "The writer",
        "  Commit less often",
        "",
        "Warning",
        "  8,192 are few",
        "",
        "Next",
        f"  neve prevent db.floats --warehouse {warehouse} --apply",
    ]


@pytest.mark.parametrize(
    ("words", "changes", "line"),
    [
        (["--apply"], {}, "Set 2 properties"),
        (["--undo"], {"proposal": PropertyProposal(), "undone": CHANGES[:1], "left": ("x",)}, "Took back 1 property"),
        (
            [],
            {"proposal": PropertyProposal(), "outcome": RunOutcome.NOTHING_TO_DO, "reason": "all is well"},
            "Nothing to do: all is well",
        ),
    ],
)
def test_the_second_line_says_how_it_ended(neve: Any, warehouse: Path, asked: Any, words: Any, changes: Any, line: str) -> None:
    asked(make_prevention(**changes))
    result = neve("prevent", "db.floats", *words, "--warehouse", str(warehouse))
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, line)
    assert ("x was changed by others since, and is left" in result.stdout) is ("left" in changes)


def test_a_real_table_is_proposed_for_without_spark(neve: Any, warehouse: Path) -> None:
    result = neve("prevent", "db.floats", "--row-group-rows", "8192", "--json", "--warehouse", str(warehouse))
    told = json.loads(result.stdout)
    assert (result.exit_code, told["dry_run"], told["operation"]) == (0, True, "prevent")
    values = {change["key"]: change["value"] for change in told["proposal"]["changes"]}
    assert (values["write.target-file-size-bytes"], values["write.parquet.row-group-limit"]) == ("134217728", "8192")
    assert told["proposal"]["warnings"][0].startswith("row-group-rows is 8,192, which means rows")


def test_setting_and_taking_back_exclude_each_other(neve: Any, warehouse: Path) -> None:
    result = neve("prevent", "db.floats", "--apply", "--undo", "--warehouse", str(warehouse))
    assert result.exit_code == 2
    assert "leave one of them out" in result.stderr


def test_python_says_the_same(warehouse: Path, asked: Any) -> None:
    found = asked(make_prevention())
    package.prevent("db.floats", apply=True, warehouse=warehouse)
    package.table("db.floats", warehouse=warehouse).prevent(undo=True)
    assert found == [("db.floats", {"apply": True, "undo": False}), ("db.floats", {"apply": False, "undo": True})]
