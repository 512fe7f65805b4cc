"""Brings a database to the newest schema, once, however many processes ask for it at the same time.

Called by `StateStore.open` only. An existing SQLite file is copied aside before it is upgraded; the upgrade is one
transaction, so that it happens wholly or not at all.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from neve.errors import StateError
from neve.state.database import guarded, writing
from neve.state.schema import HEAD
from neve.state.version import read_version

log = logging.getLogger(__name__)

_POSTGRES_LOCK = 0x6E657665  # "neve"


def upgrade(engine: Engine, file: Path | None) -> None:
    """Creates or upgrades the tables; `file` is the SQLite file, None for another database."""
    with guarded(engine, "upgrade"), _one_process(file):
        if file is not None:
            _use_write_ahead_log(engine)
        with writing(engine) as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
            version = read_version(connection)
            if version == HEAD:
                return
            if version is not None and file is not None:
                _copy_aside(file, version)
            _run_migrations(connection)


def _run_migrations(connection: Connection) -> None:
    from alembic import command  # here, since most stores that are opened need no migration
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("neve.state").joinpath("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _use_write_ahead_log(engine: Engine) -> None:
    # Outside of any transaction, where alone it can be changed; once set, it stays with the file.
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA journal_mode = WAL").close()


def _copy_aside(file: Path, version: str) -> None:
    copy = _free_name(file, version)
    try:
        # The backup API, not a file copy: what stands in the write-ahead log belongs to it.
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
    except (sqlite3.Error, OSError) as error:
        raise StateError(
            f"Cannot upgrade state store {file}: no copy could be made beside it ({error})",
            hint="Free some space, or make the directory writable.",
        ) from error
    log.info("state store %s was copied to %s before its upgrade to %s", file, copy, HEAD)


def _free_name(file: Path, version: str) -> Path:
    names = (file.with_name(f"{file.name}.{version}{f'.{n}' if n else ''}.bak") for n in range(1000))
    return next(name for name in names if not name.exists())


@contextmanager
def _one_process(file: Path | None) -> Iterator[None]:
    """Holds a lock beside the file: switching to the write-ahead log does not wait for others by itself."""
    if file is None:
        yield
        return
    try:
        lock = file.with_name(f"{file.name}.lock").open("a")
    except OSError as error:
        raise StateError(
            f"Cannot open state store {file}: {error.strerror}", hint="Make its directory writable, or set state.url."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
