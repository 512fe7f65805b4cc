from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from neve.errors import MissingExtraError, StateError
from neve.settings.databases import driver_url
from neve.state import Run, StateStore, migrate, schema, version
from neve.state.location import sqlite_file
from neve.state.schema import HEAD

RUN = Run(run_id="r1", table_uuid="t1", table_name="db.t", kind="compact", started_ms=1)


def test_creates_the_directories_and_the_database(tmp_path: Path) -> None:
    file = tmp_path / "a b" / "c%20d" / "state.db"
    with StateStore.open(f"sqlite:///{file}") as store:
        store.start_run(RUN)
    with StateStore.open(f"sqlite:///{file}") as store:
        assert store.run("r1") == RUN
    assert sorted(path.name for path in file.parent.iterdir()) == ["state.db", "state.db.lock"]


def test_a_first_look_writes_nothing(tmp_path: Path) -> None:
    assert StateStore.open_existing(f"sqlite:///{tmp_path / 'x' / 'state.db'}") is None
    assert list(tmp_path.iterdir()) == []


def test_looking_reads_what_a_run_wrote(file_url: str) -> None:
    with StateStore.open(file_url) as store:
        store.start_run(RUN)
        looking = StateStore.open_existing(file_url)
        assert looking is not None
        with looking:
            assert looking.run("r1") == RUN


def test_looking_at_an_empty_database_finds_nothing_and_leaves_it_empty(tmp_path: Path, file_url: str) -> None:
    (tmp_path / "state.db").touch()
    assert StateStore.open_existing(file_url) is None
    assert (tmp_path / "state.db").stat().st_size == 0


def test_looking_loads_neither_alembic_nor_without_need_sqlalchemy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    code = (
        "import sys; from neve.state import StateStore; found = StateStore.open_existing(sys.argv[1]);"
        "print(found is not None, [m for m in ('alembic', 'sqlalchemy') if m in sys.modules])"
    )

    def look() -> str:
        return subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True).stdout.strip()

    assert look() == "False []"
    StateStore.open(url).close()
    assert look() == "True ['sqlalchemy']"


def test_works_with_the_write_ahead_log_and_waits_for_locks(file_url: str) -> None:
    with StateStore.open(file_url) as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_the_migrations_build_exactly_the_tables_that_queries_are_written_for(url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with StateStore.open(url) as store, store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


def test_the_known_versions_are_those_of_the_migrations() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(revisions)) == schema.VERSIONS


def _set_version(url: str, number: str) -> None:
    file = sqlite_file(url)
    assert file is not None
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE neve_version SET version_num = ?", (number,))


def test_refuses_a_database_that_is_newer(file_url: str) -> None:
    StateStore.open(file_url).close()
    _set_version(file_url, "9999")
    for opening in (StateStore.open, StateStore.open_existing):
        with pytest.raises(
            StateError, match=rf"its schema version 9999 is newer than {HEAD}, the newest known here$"
        ) as caught:
            opening(file_url)
        assert caught.value.hint == "Upgrade neve, or point state.url to another database."


@pytest.fixture
def older_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this release knew one version more than the database has; its migration only moves the version."""

    def run_migrations(connection: object) -> None:
        connection.exec_driver_sql("UPDATE neve_version SET version_num = '9001'")  # type: ignore[attr-defined]

    versions = (*schema.VERSIONS, "9001")
    for module in (schema, version, migrate):
        monkeypatch.setattr(module, "HEAD", "9001")
        if hasattr(module, "VERSIONS"):
            monkeypatch.setattr(module, "VERSIONS", versions)
    monkeypatch.setattr(migrate, "_run_migrations", run_migrations)


def test_copies_a_sqlite_file_aside_before_an_upgrade(tmp_path: Path, file_url: str, request: pytest.FixtureRequest) -> None:
    with StateStore.open(file_url) as store:
        store.start_run(RUN)
        request.getfixturevalue("older_release")
        # The first store still has the file open, and the run stands in its write-ahead log only.
        StateStore.open(file_url).close()
    StateStore.open(file_url).close()
    assert sorted(path.name for path in tmp_path.glob("*.bak")) == [f"state.db.{HEAD}.bak"]
    with closing(sqlite3.connect(tmp_path / f"state.db.{HEAD}.bak")) as copy:
        assert copy.execute("SELECT version_num FROM neve_version").fetchone() == (HEAD,)
        assert copy.execute("SELECT run_id FROM runs").fetchone() == ("r1",)
    with closing(sqlite3.connect(tmp_path / "state.db")) as upgraded:
        assert upgraded.execute("SELECT version_num FROM neve_version").fetchone() == ("9001",)
    _set_version(file_url, HEAD)
    StateStore.open(file_url).close()
    assert sorted(path.name for path in tmp_path.glob("*.bak")) == [f"state.db.{HEAD}.1.bak", f"state.db.{HEAD}.bak"]


def test_looking_leaves_an_old_database_alone(
    file_url: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    StateStore.open(file_url).close()
    request.getfixturevalue("older_release")
    assert StateStore.open_existing(file_url) is None
    assert caplog.messages == [f"state store has schema {HEAD} and is left out until `neve state upgrade` brings it to 9001"]


def test_an_upgrade_that_fails_leaves_everything_as_it_was(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = migrate._run_migrations

    def half_way(connection: object) -> None:
        real(connection)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(migrate, "_run_migrations", half_way)
    with pytest.raises(KeyboardInterrupt):
        StateStore.open(file_url)
    engine = create_engine(file_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    monkeypatch.undo()
    with StateStore.open(file_url) as store:
        store.start_run(RUN)


def test_refuses_a_database_whose_tables_are_not_ours(tmp_path: Path, file_url: str) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        connection.execute("CREATE TABLE runs (x)")
    with pytest.raises(StateError, match=r"it has a table runs that is not ours$"):
        StateStore.open(file_url)


def test_says_that_a_file_is_no_database(tmp_path: Path, file_url: str) -> None:
    (tmp_path / "state.db").write_text("these are words, not pages of a database\n" * 100)
    for opening, action in ((StateStore.open, "upgrade"), (StateStore.open_existing, "read")):
        with pytest.raises(StateError, match=f"^Cannot {action} state store sqlite:////.*: file is not a database$"):
            opening(file_url)


def test_says_that_a_directory_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"^Cannot create state store directory .*: (Not a directory|File exists)$"):
        StateStore.open(f"sqlite:///{tmp_path / 'file' / 'state.db'}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "^Cannot open state store with this URL: not a database URL$"),
        ("frobase://u:hunter2@h/x", r"^Cannot open state store frobase://u:\*\*\*@h/x: no such kind of database$"),
    ],
)
def test_says_that_a_url_is_wrong(url: str, message: str) -> None:
    with pytest.raises(StateError, match=message):
        StateStore.open(url)


def test_names_the_extra_that_brings_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(MissingExtraError, match=r"postgresql://u:\*\*\*@h/x: the driver psycopg2 is not installed") as caught:
        StateStore.open("postgresql://u:hunter2@h/x")
    assert caught.value.hint == "Install it with: pip install 'neve[postgres]'"


def test_says_that_a_server_does_not_answer() -> None:
    with pytest.raises(
        StateError, match=r"^Cannot upgrade state store postgresql://u:\*\*\*@127\.0\.0\.1:1/x: the database did not"
    ) as caught:
        StateStore.open("postgresql://u:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(caught.value)


def test_knows_the_file_behind_a_url() -> None:
    assert sqlite_file("sqlite:////abs/x.db") == Path("/abs/x.db")
    assert sqlite_file("sqlite:///rel/x.db?timeout=5") == Path("rel/x.db")
    assert sqlite_file("sqlite+pysqlite:///x.db") == Path("x.db")
    assert sqlite_file("sqlite://") is None
    assert sqlite_file("postgresql://h/x") is None
    assert driver_url("postgres://h/x") == "postgresql+psycopg2://h/x"
    assert driver_url("postgresql+psycopg://h/x") == "postgresql+psycopg://h/x"


def test_migrations_are_found_from_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with StateStore.open("sqlite:///here.db") as store:
        assert store.runs() == ()
    assert {path.name for path in tmp_path.iterdir()} == {"here.db", "here.db.lock"}
