"""Brings a database to the newest schema, once, however many processes ask for it at the same time.

Called by `StateStore.open` and `neve state upgrade`. An existing SQLite file is copied aside before it is upgraded; the
upgrade is one transaction, so that it happens wholly or not at all.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from neve.errors import StateError
from neve.state.copying import copy_database, free_name
from neve.state.database import guarded, writing
from neve.state.rows import Upgraded
from neve.state.schema import HEAD
from neve.state.version import read_version

log = logging.getLogger(__name__)

_POSTGRES_LOCK = 0x6E657665  # "neve"


def upgrade(engine: Engine, file: Path | None) -> Upgraded:
    """Creates or upgrades the tables; `file` is the SQLite file, None for another database."""
    with guarded(engine, "upgrade"), _one_process(file):
        if file is not None:
            _use_write_ahead_log(engine)
        with writing(engine) as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _POSTGRES_LOCK})
            version = read_version(connection)
            if version == HEAD:
                return Upgraded(before=version, after=HEAD, copy=None)
            copy = _copy_aside(file, version) if version is not None and file is not None else None
            _run_migrations(connection)
            return Upgraded(before=version, after=HEAD, copy=copy)


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


def _copy_aside(file: Path, version: str) -> Path:
    copy = free_name(file.with_name(f"{file.name}.{version}"), ".bak")
    try:
        copy_database(file, copy)
    except OSError as error:
        raise StateError(
            f"Cannot upgrade state store {file}: no copy could be made beside it ({error})",
            hint="Free some space, or make the directory writable.",
        ) from error
    log.info("state store %s was copied to %s before its upgrade to %s", file, copy, HEAD)
    return copy


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
