"""Inspections and the quarantine of a small table start no Java, even where there is one to start."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.api import Neve
from neve.maintenance.quarantine import TRASH, Candidate
from neve.samples import SAMPLES
from neve.settings import load_settings
from neve.state import StateStore
from neve.table.location import address
from neve.table.properties import LEASE
from tests.builders.table_contents import duckdb_rows


@dataclass
class Machine:
    """A warehouse with a small table, and a Java that leaves a trace."""

    warehouse: str
    started: Path
    spawn: Any
    environ: dict[str, str]

    def run(self, *command: str) -> str:
        """What the command prints. It ends well, and Java was not started."""
        process = self.spawn(*command, "--warehouse", self.warehouse, env=self.environ)
        stdout, stderr = process.communicate(timeout=120)
        assert (process.returncode, stderr) == (0, "")
        assert not self.started.exists()
        return str(stdout)


@pytest.fixture
def machine(spawn: Any, tmp_path: Path) -> Machine:
    place = str(tmp_path / "warehouse")
    with Neve.open(load_settings(), warehouse=place, create_warehouse=True) as opened, opened.demo_target("db") as target:
        SAMPLES["v1"].build(target, scale=0.1)
    started, home = tmp_path / "java-was-started", tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho started > {started}\nexit 1\n")
    java.chmod(0o755)
    environ = {**os.environ, "JAVA_HOME": str(home), "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    return Machine(place, started, spawn, {**environ, "NEVE_STATE__URL": f"sqlite:///{tmp_path / 'state.db'}"})


@pytest.mark.parametrize("command", [("inspect", "db.v1", "--json"), ("plan", "db.v1", "--json"), ("tables",)])
def test_looking_starts_no_java(command: tuple[str, ...], machine: Machine) -> None:
    machine.run(*command)


def test_the_quarantine_starts_no_java(machine: Machine) -> None:
    with closing(SqlCatalog("local", uri=f"sqlite:///{machine.warehouse}/catalog.db")) as catalog:
        table = catalog.load_table("db.v1")
        rows, files = table.scan().to_arrow().num_rows, table.inspect.files()["file_path"].to_pylist()
        home, uuid = Path(address(table.location()).local_path), str(table.metadata.table_uuid)
    needed, strays = files[0], {run: home / "data" / f"{run}.parquet" for run in ("kept", "gone")}
    with StateStore.open(machine.environ["NEVE_STATE__URL"]) as store:
        for run, stray in strays.items():
            stray.write_bytes(run.encode())
            found = {path: Path(address(path).local_path).stat().st_mtime_ns // 1_000_000 for path in (str(stray), needed)}
            candidates = [
                Candidate(path=path, reason="no snapshot needs it", modified_ms=modified) for path, modified in found.items()
            ]
            store.record_candidates(uuid, run, candidates, now_ms=1)

    trash = {run: home / TRASH / run / "data" / stray.name for run, stray in strays.items()}
    settled = json.loads(machine.run("quarantine", "settle", "db.v1", "--json"))
    assert (settled["outcome"], settled["files"], settled["needed"]) == ("done", 2, 1)
    assert [run for run, stray in strays.items() if stray.exists() or not trash[run].exists()] == []
    listed = map(json.loads, machine.run("quarantine", "list", "db.v1", "--files", "--json").splitlines())
    assert {file["path"]: file["fate"] for file in listed} == {
        needed: "needed",
        **{str(stray): "trashed" for stray in strays.values()},
    }
    restored = json.loads(machine.run("restore", "kept", "--table", "db.v1", "--json"))
    assert (restored["outcome"], restored["files"]) == ("done", 1)
    purged = json.loads(machine.run("quarantine", "purge", "db.v1", "--set", "policy.trash-keep=1s", "--json"))
    assert (purged["outcome"], purged["files"]) == ("done", 1)

    assert strays["kept"].read_bytes() == b"kept"
    assert [path for path in (strays["gone"], *trash.values()) if path.exists()] == []
    with closing(SqlCatalog("local", uri=f"sqlite:///{machine.warehouse}/catalog.db")) as catalog:
        table = catalog.load_table("db.v1")
        assert LEASE not in table.properties
        assert len(duckdb_rows(table)) == rows
