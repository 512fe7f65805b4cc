"""A look at a table starts no Java, even where there is one to start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from neve.api import Neve
from neve.samples import SAMPLES
from neve.settings import load_settings


@pytest.mark.parametrize("command", [("inspect", "db.v1", "--json"), ("plan", "db.v1", "--json"), ("tables",)])
def test_looking_starts_no_java(command: tuple[str, ...], spawn: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "warehouse")
    with Neve.open(load_settings(), warehouse=place, create_warehouse=True) as opened, opened.demo_target("db") as target:
        SAMPLES["v1"].build(target, scale=0.1)
    started, home = tmp_path / "java-was-started", tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho started > {started}\nexit 1\n")
    java.chmod(0o755)
    environ = {**os.environ, "JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    process = spawn(*command, "--warehouse", place, env=environ)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert not started.exists()
