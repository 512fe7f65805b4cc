"""Looking after a store: what it says of itself, upgrades, copies, and files that shrink."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from neve.errors import BadRequestError, StateError
from neve.rewrite.record import GroupState
from neve.state import Run, StateStore, StoredOutput, admin, database, pruning
from neve.state.copying import copy_database
from neve.state.rows import Description, Upgraded
from neve.state.schema import HEAD
from neve.table.files import Partition
from tests.builders.old_stores import make_old_store
from tests.builders.state_databases import POSTGRES
from tests.builders.stored_runs import RESULT, RUN

NO_COUNTS = {"runs": 0, "unfinished": 0, "groups": 0, "in_doubt": 0, "outputs": 0, "quarantined": 0, "leases": 0}
on_disk = pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)


def test_describes_a_store_that_is_not_there_and_does_not_make_it(tmp_path: Path, file_url: str) -> None:
    assert admin.describe(file_url) == Description(file_url, None, HEAD, 0, NO_COUNTS, None)
    assert list(tmp_path.iterdir()) == []


@on_disk
def test_describes_what_a_store_holds(url: str) -> None:
    with StateStore.open(url) as store:
        store.begin(RUN)
        store.written("r1", [RESULT])
        store.settled("r1", {0: GroupState.IN_DOUBT})
        store.start_run(Run("r0", "t", "db.t", "compact", 3))
        store.add_commit("r0", partitions=[Partition(0, "")], outputs=[StoredOutput("f", 1, 1, 1)], committed_ms=1)
        store.finish_run("r0", finished_ms=4, outcome="done", record={})
        for table in ("t", "u"):
            store.take_lease(table, run_id="r1", owner="h:1", now_ms=1, lease_ms=1)
        store.release_lease("u", "r1", 1)
    told = admin.describe(url)
    assert (told.version, told.newest_version, told.oldest_run_ms) == (HEAD, HEAD, 3)
    assert told.counts == {"runs": 2, "unfinished": 1, "groups": 1, "in_doubt": 1, "outputs": 1, "quarantined": 0, "leases": 1}
    assert told.size_bytes >= 32_768


@on_disk
def test_describes_an_older_store_without_upgrading_it(url: str) -> None:
    make_old_store(url, "0001")
    told = admin.describe(url)
    assert (told.version, told.newest_version, told.oldest_run_ms) == ("0001", HEAD, 1)
    assert told.counts == {**NO_COUNTS, "runs": 1, "outputs": 1}
    assert admin.describe(url) == told


@on_disk
def test_an_upgrade_tells_from_where_to_where(url: str) -> None:
    make_old_store(url, "0002")
    told = admin.upgrade(url)
    assert (told.before, told.after) == ("0002", HEAD)
    if url.startswith("sqlite"):
        assert told.copy is not None
        assert told.copy.name == "state.db.0002.bak"
        assert admin.describe(f"sqlite:///{told.copy}").version == "0002"
    else:
        assert told.copy is None
    assert admin.upgrade(url) == Upgraded(HEAD, HEAD, None)


@on_disk
def test_an_upgrade_makes_a_store_that_is_not_there(url: str) -> None:
    assert admin.upgrade(url) == Upgraded(None, HEAD, None)
    assert admin.describe(url).version == HEAD


def test_a_newer_store_is_refused_by_every_command(tmp_path: Path, file_url: str) -> None:
    admin.upgrade(file_url)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("UPDATE neve_version SET version_num = '0042'")
    for act in (admin.describe, admin.upgrade, admin.backup, lambda url: admin.prune(url, 1)):
        with pytest.raises(StateError, match=rf"its schema version 0042 is newer than {HEAD}, the newest known here$"):
            act(file_url)
    assert [path.name for path in tmp_path.iterdir() if path.suffix in (".bak", ".part")] == []


def test_a_backup_holds_what_is_committed_while_the_store_is_in_use(tmp_path: Path, file_url: str) -> None:
    with StateStore.open(file_url) as store:
        store.start_run(Run("r1", "t", "db.t", "compact", 1))
        with store._engine.execution_options(neve_writes=True).connect() as connection:
            connection.exec_driver_sql("DELETE FROM runs")  # under way, and taken back below
            told = admin.backup(file_url, tmp_path / "copy.db")
            connection.rollback()
    assert told.file == tmp_path / "copy.db"
    assert told.size_bytes == told.file.stat().st_size
    with StateStore.open(f"sqlite:///{told.file}") as copy:
        assert [run.run_id for run in copy.runs()] == ["r1"]


def test_a_backup_goes_beside_the_store_under_the_time_unless_told_where(tmp_path: Path, file_url: str) -> None:
    admin.upgrade(file_url)
    first, second = admin.backup(file_url).file, admin.backup(file_url).file
    (tmp_path / "there").mkdir()
    third = admin.backup(file_url, tmp_path / "there").file
    assert [file.parent for file in (first, second, third)] == [tmp_path, tmp_path, tmp_path / "there"]
    for file in (first, second, third):
        assert re.fullmatch(r"state-\d{8}-\d{6}(\.1)?\.db", file.name)
    assert first != second


def test_an_older_store_is_copied_as_it_is(tmp_path: Path, file_url: str) -> None:
    make_old_store(file_url, "0001")
    copy = admin.backup(file_url, tmp_path / "copy.db").file
    assert admin.describe(f"sqlite:///{copy}").version == "0001"


def test_a_backup_overwrites_nothing(tmp_path: Path, file_url: str) -> None:
    admin.upgrade(file_url)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(BadRequestError, match=r"^Cannot back up to .*/mine: there is such a file$"):
        admin.backup(file_url, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_backup_that_cannot_be_written_leaves_nothing(tmp_path: Path, file_url: str) -> None:
    admin.upgrade(file_url)
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StateError, match=r"^Cannot back up to .*/file/copy\.db: "):
        admin.backup(file_url, tmp_path / "file" / "copy.db")
    with pytest.raises(StateError, match=r"^Cannot back up to .*/none/copy\.db: unable to open database file$"):
        admin.backup(file_url, tmp_path / "none" / "copy.db")
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_no_store_is_not_copied(tmp_path: Path, file_url: str) -> None:
    (tmp_path / "state.db").write_text("these are words, not pages of a database\n" * 100)
    with pytest.raises(StateError, match=r"^Cannot read state store sqlite:////.*: file is not a database$"):
        admin.backup(file_url)


def test_a_copy_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("these are words, not pages of a database\n" * 100)
    with pytest.raises(OSError, match=r"^file is not a database$"):
        copy_database(tmp_path / "words", tmp_path / "copy.db")
    assert [path.name for path in tmp_path.iterdir()] == ["words"]


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_for_postgresql_the_tool_for_backups_is_named(url: str) -> None:
    admin.upgrade(url)
    with pytest.raises(BadRequestError, match=r"^Cannot back up state store .*: only a SQLite file can be copied") as caught:
        admin.backup(url)
    assert caught.value.hint == (
        "Use the database's own tool, for PostgreSQL: pg_dump --format=custom --file=neve-state.dump --table=neve_version "
        "--table=runs --table=partitions_compacted --table=outputs --table=run_groups --table=leases --table=chores "
        "--table=quarantine --table=file_index --table=policies --table=policy_versions --table=fleet --table=table_operations "
        "--table=jobs --table=workers --table=roles --table=notices --table=health_history "
        "--table=v_runs --table=v_jobs --table=v_table_health --table=v_costs_by_day"
    )


@pytest.mark.parametrize(
    ("act", "verb"), [(admin.backup, "back up"), (lambda url: admin.prune(url, 1), "prune")], ids=["backup", "prune"]
)
def test_a_store_that_is_not_there_is_not_made_for_it(act: object, verb: str, tmp_path: Path, file_url: str) -> None:
    with pytest.raises(BadRequestError, match=rf"^Cannot {verb} state store sqlite:////.*: there is none yet$"):
        act(file_url)  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []


def test_an_older_store_is_upgraded_before_it_is_pruned(file_url: str) -> None:
    make_old_store(file_url, "0002")
    with pytest.raises(StateError, match=rf"^Cannot prune state store .*: its schema is 0002, not {HEAD}$") as caught:
        admin.prune(file_url, 100)
    assert caught.value.hint == "Upgrade it first: `neve state upgrade`."


@on_disk
def test_pruning_by_url_removes_the_rows(url: str) -> None:
    make_old_store(url, "0002")
    admin.upgrade(url)
    told = admin.prune(url, 3)
    assert (told.runs, told.groups, told.partitions, told.outputs) == (1, 1, 0, 0)
    assert admin.describe(url).counts == {**NO_COUNTS, "outputs": 1}


def test_a_pruned_sqlite_file_is_smaller(tmp_path: Path, file_url: str) -> None:
    with StateStore.open(file_url) as store:
        for n in range(50):
            store.start_run(Run(f"r{n}", "t", "db.t", "compact", n))
            store.finish_run(f"r{n}", finished_ms=n, outcome="done", record={"text": "x" * 20_000})
        before = admin.describe(file_url).size_bytes
        assert admin.prune(file_url, 100, dry_run=True).bytes > 1_000_000
        assert admin.describe(file_url).size_bytes == before
        assert admin.prune(file_url, 100).runs == 50
        assert store.runs() == ()  # another connection goes on
    assert before > 1_000_000
    assert admin.describe(file_url).size_bytes < 300_000
    assert (tmp_path / "state.db").stat().st_size < 300_000


def test_a_file_that_cannot_be_made_smaller_is_pruned_all_the_same(
    file_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with StateStore.open(file_url) as store:
        store.start_run(Run("r1", "t", "db.t", "compact", 1))
        store.finish_run("r1", finished_ms=2, outcome="done", record={})

        def then_hold_it(*args: Any, **options: Any) -> Any:
            told = pruning.prune(*args, **options)
            held.exec_driver_sql("INSERT INTO chores VALUES ('x', 1)")
            return told

        monkeypatch.setattr(admin, "prune_rows", then_hold_it)
        monkeypatch.setattr(database, "BUSY_SECONDS", 0)
        with store._engine.execution_options(neve_writes=False).connect() as held:
            assert admin.prune(file_url, 3).runs == 1
        assert store.runs() == ()
    (message,) = caplog.messages
    assert message.startswith("the rows are gone, but the file is as large as before: Cannot shrink state store sqlite:////")
    assert message.endswith("database is locked")
