"""`neve state` through its entry: show, upgrade, backup and prune, as text and as JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neve.cli import state
from neve.state import StateStore, admin
from neve.state.schema import HEAD
from tests.builders.old_stores import make_old_store
from tests.builders.stored_runs import RUN

Neve = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the settings say that the store is; nothing is there yet."""
    monkeypatch.setenv("NEVE_STATE__URL", f"sqlite:///{tmp_path / 'state.db'}")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "state.db"


@pytest.fixture
def run() -> Neve:
    return lambda *args: CliRunner().invoke(state.app, list(args), prog_name="neve state")


def document(result: Any) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert found.pop("schema_version") == 1
    return found


def test_a_store_that_is_not_there_is_shown_as_such_and_not_made(run: Neve, file: Path) -> None:
    result = run("show")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"state store  sqlite:///{file}\n             there is none yet; the first run makes it\n"
    assert not file.exists()


def test_the_store_of_the_user_is_shown_where_no_other_is_set(run: Neve, tmp_path: Path) -> None:
    assert document(run("show", "--json"))["url"] == f"sqlite:///{tmp_path}/home/.local/share/neve/state.db"


def test_shows_where_the_store_is_and_what_it_holds(run: Neve, file: Path) -> None:
    make_old_store(f"sqlite:///{file}", "0002")
    with StateStore.open(f"sqlite:///{file}") as store:
        store.begin(RUN)
        store.take_lease("t", run_id="r1", owner="h:1", now_ms=1, lease_ms=1)
    lines = run("show").stdout.splitlines()
    assert [line for line in lines if not line.startswith("size")] == [
        f"state store  sqlite:///{file}",
        f"schema       {HEAD}",
        "runs         2, 1 not ended, the oldest of 1970-01-01 00:00:00 UTC",
        "groups       2, 0 in doubt",
        "files        1",
        "quarantine   0",
        "leases       1",
    ]
    told = document(run("show", "--json"))
    assert told.pop("size_bytes") > 32_768
    assert told == {
        "url": f"sqlite:///{file}",
        "version": HEAD,
        "newest_version": HEAD,
        "counts": {"runs": 2, "unfinished": 1, "groups": 2, "in_doubt": 0, "outputs": 1, "quarantined": 0, "leases": 1},
        "oldest_run_ms": 1,
    }


def test_an_older_store_is_shown_and_upgraded_with_a_copy(run: Neve, file: Path) -> None:
    make_old_store(f"sqlite:///{file}", "0001")
    assert f"schema       0001, to be upgraded to {HEAD}" in run("show").stdout.splitlines()
    result = run("upgrade")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"The state store was upgraded from schema 0001 to {HEAD}.",
        f"As it was, it is in {file}.0001.bak.",
    ]
    assert run("upgrade").stdout == f"The state store has schema {HEAD}, the newest: nothing to do.\n"


def test_an_upgrade_as_json_names_both_versions_and_the_copy(run: Neve, file: Path) -> None:
    make_old_store(f"sqlite:///{file}", "0002")
    assert document(run("upgrade", "--json")) == {"from": "0002", "to": HEAD, "copy": f"{file}.0002.bak"}
    assert document(run("upgrade", "--json")) == {"from": HEAD, "to": HEAD, "copy": None}


def test_an_upgrade_makes_a_store_that_is_not_there(run: Neve, file: Path) -> None:
    assert run("upgrade").stdout == f"The state store was made with schema {HEAD}.\n"
    assert file.is_file()


def test_a_newer_store_is_refused(run: Neve, file: Path) -> None:
    admin.upgrade(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE neve_version SET version_num = '0042'")
    for args in (["show"], ["upgrade"], ["backup"], ["prune", "--older-than", "1d"]):
        result = run(*args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"its schema version 0042 is newer than {HEAD}, the newest known here" in result.stderr
        assert "Upgrade neve, or point state.url to another database." in result.stderr


def test_a_backup_says_where_it_is(run: Neve, file: Path, tmp_path: Path) -> None:
    admin.upgrade(f"sqlite:///{file}")
    copy = tmp_path / "copy.db"
    result = run("backup", str(copy))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"The state store was copied to {copy} (")
    told = document(run("backup", "--json"))
    assert Path(told["file"]).parent == tmp_path
    assert told["size_bytes"] == Path(told["file"]).stat().st_size
    again = run("backup", str(copy))
    assert (again.exit_code, again.stdout) == (2, "")
    assert f"Cannot back up to {copy}: there is such a file" in again.stderr


def test_pruning_says_what_went(run: Neve, file: Path) -> None:
    make_old_store(f"sqlite:///{file}", "0002")
    admin.upgrade(f"sqlite:///{file}")
    size = "about 60 B"
    rehearsed = run("prune", "--older-than", "90d", "--dry-run")
    assert rehearsed.stdout == f"Would remove 1 run, 1 group, 0 outdated partitions, 0 files, 0 quarantine notes: {size}.\n"
    result = run("prune", "--older-than", "90d")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"Removed 1 run, 1 group, 0 outdated partitions, 0 files, 0 quarantine notes: {size}.\n"
    told = document(run("prune", "--older-than", "90d", "--outputs", "--json"))
    assert told == {"dry_run": False, "runs": 0, "groups": 0, "partitions": 0, "outputs": 1, "quarantined": 0, "bytes": 5}


def test_runs_within_the_limit_stay(run: Neve, file: Path) -> None:
    make_old_store(f"sqlite:///{file}", "0002")
    admin.upgrade(f"sqlite:///{file}")
    assert document(run("prune", "--older-than", "5000 weeks", "--json"))["runs"] == 0
    assert document(run("prune", "--older-than", f"{10**20} weeks", "--json"))["runs"] == 0
    assert document(run("prune", "--older-than", "1000 weeks", "--json"))["runs"] == 1


def test_a_limit_that_is_no_duration_is_a_bad_request(run: Neve, file: Path) -> None:
    admin.upgrade(f"sqlite:///{file}")
    result = run("prune", "--older-than", "soon")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Cannot read --older-than: 'soon' is not a duration" in result.stderr


def test_help_shows_how_each_command_is_typed(run: Neve) -> None:
    for name in ("show", "upgrade", "backup", "prune"):
        result = run(name, "--help")
        assert result.exit_code == 0
        assert f"$ neve state {name}" in result.stdout
