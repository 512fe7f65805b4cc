"""How the command line fails: one line, a hint, the right exit code, and the same again as JSON where that was asked for."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from neve.cli.call import Call
from neve.cli.command import command
from neve.errors import AccessDeniedError, CatalogUnreachableError, NeveError, RunInterrupted


def failing(error: BaseException) -> typer.Typer:
    """An application of one command, which raises."""

    @command
    def fail(call: Call) -> None:  # noqa: ARG001
        """Raises."""
        raise error

    app = typer.Typer()
    app.command()(fail)
    return app


def run(error: BaseException, *args: str, **env: str) -> Any:
    return CliRunner(env=env).invoke(failing(error), list(args))


UNREACHABLE = CatalogUnreachableError("Cannot reach catalog prod: connection refused", hint="Is it up?")
DENIED = AccessDeniedError("Cannot open table db.events: access denied")


def test_an_outage_is_one_line_and_a_hint_with_exit_code_1() -> None:
    result = run(UNREACHABLE)
    assert result.exit_code == 1
    assert result.stderr == "Error: Cannot reach catalog prod: connection refused\nHint: Is it up?\n"
    assert result.stdout == ""


def test_refused_credentials_are_a_bad_request_without_a_hint_if_there_is_none() -> None:
    result = run(DENIED)
    assert result.exit_code == 2
    assert result.stderr == "Error: Cannot open table db.events: access denied\n"


def test_a_message_of_several_lines_becomes_one() -> None:
    assert run(NeveError("Cannot load settings:\n  a is wrong\n  b too")).stderr == (
        "Error: Cannot load settings: a is wrong b too\n"
    )


def test_with_json_the_failure_is_also_an_object_on_stdout() -> None:
    result = run(UNREACHABLE, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "error": {
            "code": "catalog-unreachable",
            "message": "Cannot reach catalog prod: connection refused",
            "hint": "Is it up?",
            "retryable": True,
        }
    }
    assert result.stderr.startswith("Error: Cannot reach catalog prod")


@pytest.mark.parametrize(("args", "env"), [(("--debug",), {}), ((), {"NEVE_DEBUG": "1"})])
def test_debugging_shows_the_traceback_before_the_line(args: tuple[str, ...], env: dict[str, str]) -> None:
    stderr = run(UNREACHABLE, *args, **env).stderr
    assert stderr.startswith("Traceback (most recent call last):\n")
    assert stderr.endswith("Error: Cannot reach catalog prod: connection refused\nHint: Is it up?\n")


def test_a_fault_of_ours_names_its_type_and_how_to_see_more() -> None:
    result = run(ZeroDivisionError("division by zero"))
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: Cannot go on: ZeroDivisionError: division by zero\n"
        "Hint: This is a fault of Neve's. Run it again with --debug to see where it happened.\n"
    )


def test_a_fault_of_ours_shows_where_it_happened_when_debugging() -> None:
    stderr = run(ZeroDivisionError("division by zero"), "--debug").stderr
    assert "in fail\n    raise error\nZeroDivisionError: division by zero\nError: Cannot go on: Zero" in stderr


def test_an_interrupt_is_one_word_and_exit_code_130() -> None:
    result = run(KeyboardInterrupt())
    assert result.exit_code == 130
    assert result.stderr == "Interrupted\n"


def test_an_interrupt_of_a_run_names_the_command_that_finishes_it() -> None:
    result = run(RunInterrupted("3f9c0a1b2c3d4e5f60718293a4b5c6d7"), "--warehouse", "a b")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted\nFinish the run with: neve resume 3f9c0a1b --warehouse 'a b'\n"


def test_a_command_can_leave_partly_done() -> None:
    result = run(typer.Exit(3))
    assert (result.exit_code, result.stderr) == (3, "")


def test_a_usage_error_is_a_bad_request_and_speaks_json_too(neve: Any) -> None:
    result = neve("inspect", "--json", "--bogus")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"] == {
        "code": "bad-request",
        "message": "Cannot read the command line: No such option: --bogus",
        "hint": None,
        "retryable": False,
    }
    assert "No such option: --bogus" in result.stderr


def test_a_misspelt_command_suggests_the_right_one(neve: Any) -> None:
    result = neve("isnpect", "db.events")
    assert result.exit_code == 2
    assert "Did you mean 'inspect'?" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("inspect",), "Missing argument 'TABLE'"),
        (("inspect", "db.t", "--depth", "deep"), "Invalid value for '--depth'"),
        (("inspect", "db.t", "--sample", "-3"), "Invalid value for '--sample'"),
        (("tables", "--log-level", "loud"), "Invalid value for '--log-level'"),
    ],
)
def test_a_bad_flag_is_named(neve: Any, args: tuple[str, ...], message: str) -> None:
    result = neve(*args)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["policy.max-files", "=3"])
def test_an_assignment_without_key_or_value_is_refused(neve: Any, text: str) -> None:
    result = neve("config", "show", "--set", text)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: Cannot read --set '{text}': no KEY=VALUE\nHint: ")


def test_a_reader_that_goes_away_ends_the_command_quietly(spawn: Any) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = spawn("config", "show", stdout=write_end)
    os.close(write_end)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (141, "")


def test_a_reader_of_json_that_goes_away_ends_the_command_quietly(spawn: Any) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = spawn("config", "show", "--json", stdout=write_end)
    os.close(write_end)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (141, "")


def test_ctrl_c_in_the_middle_of_a_request_ends_the_process_with_130(spawn: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        settings = tmp_path / "neve.yaml"
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        settings.write_text(f"catalogs: {{slow: {{type: rest, uri: '{uri}'}}}}\n")
        process = spawn("tables", "--config", str(settings))
        connection, _ = silent.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "Interrupted\n")
