"""`neve resume` through its entry: nothing to resume, an unknown run, a run that is still under way."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neve.cli.app import app
from neve.state import StateStore
from tests.builders.stored_runs import RUN


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


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that began on another host just now."""
    url = f"sqlite:///{tmp_path / 'state.db'}"
    monkeypatch.setenv("NEVE_STATE__URL", url)
    with StateStore.open(url) as store:
        store.begin(RUN.model_copy(update={"owner": "otherhost:7;id=x", "started_ms": int(time.time() * 1000)}))
    return url


REFUSAL = r"Cannot resume run r1 over c\.db\.t: otherhost:7 is at work on it, and its heartbeat is valid until \d{4}-.* UTC"


def test_a_run_that_is_at_work_on_another_host_is_left_alone(runner: CliRunner, begun: str) -> None:
    result = runner.invoke(app, ["resume"])
    assert result.exit_code == 0
    assert re.fullmatch(rf"{REFUSAL}\.\n", result.stderr)
    with StateStore.open(begun) as store:
        assert store.unfinished()[0].token == 1


def test_a_run_that_is_at_work_on_another_host_is_refused_if_it_is_named(runner: CliRunner, begun: str) -> None:
    result = runner.invoke(app, ["resume", "r1"])
    assert result.exit_code == 1
    assert re.search(REFUSAL, result.stderr)
    assert "`neve resume r1` works once the heartbeat has ended" in result.stderr
    with StateStore.open(begun) as store:
        assert store.unfinished()[0].token == 1


def test_python_leaves_it_alone_and_refuses_it_by_name_too(begun: str) -> None:
    from neve.errors import LeaseHeldError
    from neve.python_api import resume

    settings = {"state.url": begun}
    assert resume(settings=settings) == ()
    with pytest.raises(LeaseHeldError, match=REFUSAL):
        resume("r1", settings=settings)


def test_a_run_that_nobody_can_finish_is_given_up_by_name_once_its_heartbeat_has_ended(runner: CliRunner, begun: str) -> None:
    assert runner.invoke(app, ["resume", "--abandon"]).exit_code == 2
    assert runner.invoke(app, ["resume", "r1", "--abandon"]).exit_code == 1
    with StateStore.open(begun) as store, store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET until_ms = 1")
    result = runner.invoke(app, ["resume", "r1", "--abandon"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "given up by request; its files were not removed" in result.stdout
    with StateStore.open(begun) as store:
        assert store.unfinished() == ()
