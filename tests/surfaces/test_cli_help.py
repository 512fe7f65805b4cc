"""What the command line says of itself, and how little it loads to say it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neve.policy.model import knobs
from tests.builders.cli_commands import leaf_commands
from tests.builders.parsed_commands import CLI

COMMANDS = list(leaf_commands())


@pytest.mark.parametrize("command", [(), *COMMANDS])
def test_every_help_has_examples_that_begin_with_neve(neve: Any, command: tuple[str, ...]) -> None:
    result = neve(*command, "--help")
    assert result.exit_code == 0
    examples = result.stdout.split("Examples")[1]
    assert "$ neve " + " ".join(command) in examples


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_the_shared_options(neve: Any, command: tuple[str, ...]) -> None:
    text = neve(*command, "--help").stdout
    for option in ("config", "profile", "warehouse", "catalog", "set", "json", "log-level", "log-format", "debug"):
        assert f" --{option} " in text


@pytest.mark.parametrize("command", ["inspect", "plan", "compact", "cluster"])
def test_every_knob_of_the_policy_is_a_flag_with_its_reason(neve: Any, command: str) -> None:
    words = "".join(neve(command, "--help").stdout.replace("│", " ").split())
    for key, knob in knobs().items():
        assert f"--{key}" in words
        assert "".join(knob.why.split()) in words


def test_a_bare_call_shows_help_and_is_no_success(neve: Any) -> None:
    result = neve()
    assert result.exit_code == 2
    assert "Usage: neve [OPTIONS] COMMAND" in result.stdout + result.stderr


def test_the_version_is_the_package_s(neve: Any) -> None:
    result = neve("--version")
    assert (result.exit_code, result.stdout) == (0, f"neve {version('neve')}\n")


def test_the_short_help_flag_works(neve: Any) -> None:
    assert neve("-h").stdout == neve("--help").stdout


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument: str) -> None:
    program = f"""
import json, sys
sys.argv = ["neve", {argument!r}]
from neve.cli import main
try:
    main()
finally:
    heavy = ("pyarrow", "pyiceberg", "pyspark", "numpy", "pydantic", "jinja2", "sqlalchemy", "yaml")
    sys.stderr.write(json.dumps([name for name in heavy if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stderr) == []


def test_completion_offers_the_commands(spawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_NEVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "neve ")
    monkeypatch.setenv("COMP_CWORD", "1")
    stdout, _ = spawn().communicate(timeout=60)
    assert set(stdout.split()) == {words[0] for words in COMMANDS}


def test_completion_is_installed_for_the_shell_that_asks(fresh_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["bash", "-c", "neve --install-completion; exit $?"], check=True, capture_output=True, timeout=60)
    home = fresh_machine.parent / "home"
    assert "_NEVE_COMPLETE=complete_bash" in (home / ".bash_completions" / "neve.sh").read_text(encoding="utf-8")
    assert "neve.sh" in (home / ".bashrc").read_text(encoding="utf-8")


@pytest.mark.parametrize("group", [name for name, one in CLI.commands.items() if getattr(one, "commands", None)])
def test_a_group_without_a_command_shows_its_help(neve: Any, group: str) -> None:
    """Unless it says what it does without one, as `neve runs` does."""
    bare = neve(group)
    if not CLI.commands[group].no_args_is_help:
        assert bare.exit_code == 0
        return
    assert bare.exit_code == 2
    assert neve(group, "--help").stdout.strip() in bare.stdout + bare.stderr


REPLACES_FILES = "Appends are never blocked; a concurrent UPDATE, DELETE or MERGE on the same files may have to be retried."


@pytest.mark.parametrize("command", ["compact", "cluster", "deletes", "maintain"])
def test_the_help_of_a_command_that_replaces_files_says_which_writers_may_have_to_retry(neve: Any, command: str) -> None:
    assert REPLACES_FILES in said(neve(command, "--help").stdout)


def test_the_help_of_the_programs_for_schedulers_says_it_as_well() -> None:
    from neve import job
    from neve.cli import iceberg_compact

    for program in (job, iceberg_compact):
        assert REPLACES_FILES in said(CliRunner().invoke(program.app, ["--help"]).stdout)


def said(text: str) -> str:
    """A help text without frames and line breaks."""
    return " ".join(text.replace("│", " ").split())
