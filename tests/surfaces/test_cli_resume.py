"""`neve resume` through its entry: nothing to resume, an unknown run, a run that is still under way."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neve.cli.app import app
from neve.flow.lease import is_alive
from neve.state import StateStore
from tests.state.test_journal import RUN


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner()


def test_without_an_interrupted_run_there_is_nothing_to_do(runner: CliRunner) -> None:
    result = runner.invoke(app, ["resume"])
    assert (result.exit_code, result.stderr) == (0, "No run was interrupted.\n")


def test_a_run_that_is_not_there_is_a_bad_request(runner: CliRunner) -> None:
    result = runner.invoke(app, ["resume", "beef"])
    assert result.exit_code == 2
    assert "Cannot resume beef: no interrupted run begins so" in result.stderr


def test_a_run_whose_process_lives_is_left_alone(runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEVE_STATE__URL", f"sqlite:///{tmp_path / 'state.db'}")
    owner = f"{socket.gethostname()}:{os.getppid()}"
    with StateStore.open(os.environ["NEVE_STATE__URL"]) as store:
        store.begin(RUN.model_copy(update={"owner": owner}))
    result = runner.invoke(app, ["resume"])
    assert result.exit_code == 0
    assert result.stderr == f"Run r1 over c.db.t is still under way ({owner}).\n"


@pytest.mark.parametrize(
    ("owner", "alive"),
    [
        (f"{socket.gethostname()}:{os.getppid()}", True),
        (f"{socket.gethostname()}:{os.getpid()}", False),  # a run of our own that we are asked to take up
        (f"{socket.gethostname()}:999999999", False),
        (f"elsewhere:{os.getppid()}", False),
        ("", False),
    ],
)
def test_tells_whether_the_owner_is_alive(owner: str, alive: bool) -> None:
    assert is_alive(owner) is alive
