"""A machine of its own for every test of the command line: no settings, state or cache of the person who runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neve.spark.runtime.jars import default_cache

JARS_CACHE = default_cache()
"""Found while HOME is still the real one: what was downloaded once serves every test."""

Run = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def fresh_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and working directory, and no variable that changes what is shown."""
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    for name in [name for name in os.environ if name.startswith(("NEVE_", "XDG_")) or name in ("NO_COLOR", "FORCE_COLOR")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NEVE_JARS_CACHE", str(JARS_CACHE))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def neve() -> Run:
    """Runs a command in this process; gives its exit code, stdout and stderr."""

    def run(*args: str) -> Any:
        from neve.cli.app import app

        return CliRunner().invoke(app, list(args), prog_name="neve")

    return run


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts the real thing; whatever is still running at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "neve", *args],
            text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with two small sample tables, written once."""
    from neve.api import Neve
    from neve.samples import SAMPLES
    from neve.settings import load_settings

    path = tmp_path_factory.mktemp("warehouse")
    with (
        Neve.open(load_settings(environ={}), warehouse=str(path), create_warehouse=True) as neve,
        neve.demo_target("db") as target,
    ):
        for name in ("v1", "floats"):
            SAMPLES[name].build(target, scale=0.2)
        target.load("floats").transaction().set_properties({"neve.max-files": "77"}).commit_transaction()
    return path
