"""Hints and next commands can be copied as they are: they repeat the options by which the user reached the tables."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import neve as package
from neve.api import Neve
from neve.cli.call import Call
from neve.cli.command import command
from neve.cli.options import Shared
from neve.errors import NeveError
from neve.maintenance.ttl import TtlCounts
from neve.render.commands import completed, repeating
from neve.rewrite.record import RunOutcome
from tests.builders.maintenance_records import make_expiry, make_orphans, make_prevention, make_record, make_ttl, make_upkeep
from tests.builders.run_records import make_empty_record, make_whole_record
from tests.builders.run_records import make_record as make_run

SETTINGS = """
default-catalog: lake
catalogs:
  lake: {type: sql, warehouse: lake}
profiles:
  prod:
    default-catalog: local
    catalogs:
      local: {type: sql, warehouse: WAREHOUSE}
"""


def hinted(text: str) -> list[str]:
    """The arguments of the only command of a hint."""
    [found] = re.findall(r"`neve ([^`]+)`", text)
    return shlex.split(found)


@pytest.fixture
def settings(fresh_machine: Path, warehouse: Path) -> Path:
    """A file whose profile describes the warehouse; its own catalog is empty."""
    (fresh_machine / "lake").mkdir()
    file = fresh_machine / "my neve.yaml"
    file.write_text(SETTINGS.replace("WAREHOUSE", str(warehouse)), encoding="utf-8")
    return file


def test_the_hint_for_a_missing_table_lists_the_tables_of_that_warehouse(neve: Any, warehouse: Path) -> None:
    refused = neve("inspect", "db.nothing", "--warehouse", str(warehouse))
    listed = neve(*hinted(refused.stderr))
    assert (listed.exit_code, listed.stdout) == (0, "local.db.floats\nlocal.db.v1\n")


def test_the_hint_for_a_missing_table_lists_the_tables_that_settings_and_a_profile_describe(
    neve: Any, settings: Path, warehouse: Path
) -> None:
    for options in (
        ["--config", str(settings), "--profile", "prod"],
        ["--config", str(settings), "--profile", "prod", "--catalog", "local"],
        ["--set", "catalogs.local.type=sql", "--set", f"catalogs.local.warehouse={warehouse}"],
    ):
        words = hinted(neve("inspect", "db.nothing", *options).stderr)
        assert [word for word in options if word not in words] == []
        listed = neve(*words)
        assert (listed.exit_code, listed.stdout) == (0, "local.db.floats\nlocal.db.v1\n"), listed.stderr


def test_a_warehouse_wins_over_the_settings_in_the_hint_as_in_the_command(neve: Any, settings: Path, warehouse: Path) -> None:
    settings.rename("neve.yaml")
    refused = neve("inspect", "db.nothing", "--warehouse", str(warehouse))
    assert neve(*hinted(refused.stderr)).stdout == "local.db.floats\nlocal.db.v1\n"


def test_every_command_of_a_text_is_completed_once() -> None:
    text = "Try `neve runs` or `neve demo --warehouse DIR`, not `make`; neve runs is no command without backquotes."
    with repeating(lambda: ["--warehouse", "/my lake", "--profile", "p"]):
        assert completed(text) == (
            "Try `neve runs --warehouse '/my lake' --profile p` or `neve demo --warehouse DIR --profile p`, not `make`; "
            "neve runs is no command without backquotes."
        )
    assert completed(text) == text


def test_options_that_say_where_tables_are_are_repeated_and_secrets_are_not() -> None:
    shared = Shared(
        config=Path("a.yaml"),
        profile="p",
        warehouse="w",
        catalog="c",
        set=[
            "spark.master=local[1]",
            "catalogs.lake.token=abc",
            "state.url=postgresql://u:abc@h/d",
            "catalogs.lake.uri=${env:X}",
        ],
        json=True,
        debug=True,
    )
    assert shared.connection == [
        *("--config", "a.yaml", "--profile", "p", "--warehouse", "w", "--catalog", "c"),
        *("--set", "spark.master=local[1]", "--set", "catalogs.lake.uri=${env:X}"),
    ]


def test_messages_hints_and_lines_about_progress_are_completed() -> None:
    @command
    def fail(call: Call) -> None:
        """Raises."""
        call.tell("See `neve runs`.")
        raise NeveError("Cannot go on: `neve doctor` failed", hint="Try `neve tables`.")

    app = typer.Typer()
    app.command()(fail)
    result = CliRunner().invoke(app, ["--warehouse", "w"])
    assert result.stderr == (
        "See `neve runs --warehouse w`.\nError: Cannot go on: `neve doctor --warehouse w` failed\n"
        "Hint: Try `neve tables --warehouse w`.\n"
    )
    assert '"hint": "Try `neve tables --warehouse w`."' in CliRunner().invoke(app, ["--warehouse", "w", "--json"]).stdout


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("mantain", "maintain"),
        ("maintian", "maintain"),
        ("prevnt", "prevent"),
        ("preview_tl", "preview_ttl"),
        ("stat", "stats"),
    ],
)
def test_a_misspelt_word_of_the_builder_suggests_the_word_that_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no word '{wrong}'; did you mean {right}\?$"):
        getattr(package.table("db.events"), wrong)


NEXT = [
    (
        "expire",
        make_expiry(dry_run=True),
        "expire db.floats --older-than '3 days' --keep 2 --dry-run",
        "--older-than '3 days' --keep 2",
    ),
    ("deletes", make_upkeep(dry_run=True), "deletes rewrite db.floats --branch audit --dry-run", "--branch audit"),
    ("orphans", make_orphans(dry_run=True), "orphans db.floats --dry-run --dropped-table U", "--dropped-table U"),
    ("settle", make_record(dry_run=True), "quarantine settle db.floats --run 3f --now --dry-run", "--run 3f --now"),
    ("restore", make_record(dry_run=True), "restore 3f --table db.floats --dry-run", "--table db.floats"),
    ("ttl", make_ttl(), "ttl db.floats --branch audit --keep '1 w'", "--branch audit --keep '1 w' --enforce"),
    ("ttl", make_ttl(), "ttl db.floats --branch audit --dry-run", "--branch audit"),
    ("prevent", make_prevention(), "prevent db.floats --target-file-size '1 GB'", "--target-file-size '1 GB' --apply"),
    ("prevent", make_prevention(), "prevent db.floats --row-group-rows 9 --apply", "--row-group-rows 9 --undo"),
]


@pytest.mark.parametrize(("method", "record", "typed", "kept"), NEXT)
def test_the_next_command_keeps_every_option_that_was_typed(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, method: str, record: Any, typed: str, kept: str
) -> None:
    """Without its branch a next command would remove rows of another one."""
    monkeypatch.setattr(Neve, method, lambda *_, **__: record)
    place = ["--warehouse", str(warehouse)]
    result = neve(*place, *shlex.split(typed))
    [step] = [line.strip() for line in result.stdout.partition("\nNext\n")[2].splitlines()]
    command = typed.partition(" --")[0]
    assert step == f"neve --warehouse {warehouse} {command} {kept}"


NOTHING = [
    ("expire", make_expiry(dry_run=True, outcome=RunOutcome.NOTHING_TO_DO, reason="none is old"), "expire db.floats --dry-run"),
    ("deletes", make_upkeep(dry_run=True, outcome=RunOutcome.NOTHING_TO_DO, reason="all is well"), "deletes prune db.floats"),
    (
        "orphans",
        make_orphans(dry_run=True, outcome=RunOutcome.NOTHING_TO_DO, reason="no orphan"),
        "orphans db.floats --dry-run",
    ),
    ("settle", make_record(dry_run=True, outcome=RunOutcome.NOTHING_TO_DO, reason="none waits"), "quarantine settle db.floats"),
    ("purge", make_record(dry_run=True, outcome=RunOutcome.NOTHING_TO_DO, reason="none waits"), "quarantine purge db.floats"),
    ("ttl", make_ttl(outcome=RunOutcome.NOTHING_TO_DO, counts=TtlCounts()), "ttl db.floats"),
]


@pytest.mark.parametrize(("method", "record", "typed"), NOTHING)
def test_where_nothing_was_to_do_there_is_no_next_command(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch, method: str, record: Any, typed: str
) -> None:
    monkeypatch.setattr(Neve, method, lambda *_, **__: record)
    result = neve("--warehouse", str(warehouse), *shlex.split(typed))
    assert result.exit_code == 0
    assert "Nothing to do" in result.stdout
    assert "Next" not in result.stdout


@pytest.mark.parametrize("typed", ["tags db.floats --dry-run --auto-tags 'daily 7'", "manifests db.floats --dry-run"])
def test_a_dry_run_that_has_nothing_to_do_suggests_nothing(neve: Any, warehouse: Path, typed: str) -> None:
    result = neve("--warehouse", str(warehouse), *shlex.split(typed))
    assert ("Nothing to do" in result.stdout) is ("Next" not in result.stdout), result.stdout


def test_the_next_look_is_at_the_branch_that_was_worked_on(neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ["--warehouse", str(warehouse)]
    done, upkeep = make_whole_record(make_run(branch="audit")), make_upkeep(branch="audit")
    for method, record, typed in (
        ("compact", done, "compact"),
        ("cluster", done, "cluster"),
        ("deletes", upkeep, "deletes prune"),
    ):
        monkeypatch.setattr(Neve, method, lambda *_, found=record, **__: found)
        lines = neve(*typed.split(), "db.floats", "--branch", "audit", *place).stdout.splitlines()
        assert lines[0] == f"{record.table}, branch audit"
        assert f"  neve inspect {record.table} --branch audit --warehouse {warehouse}" in lines


def test_who_has_forced_a_compaction_is_not_told_to_force_a_plan(
    neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Neve, "compact", lambda *_, **__: make_whole_record(make_empty_record()))
    typed = ["compact", "db.floats", "--warehouse", str(warehouse)]
    assert "neve plan " in neve(*typed).stdout
    assert "neve plan " not in neve(*typed, "--force").stdout
