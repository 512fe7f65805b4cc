"""Opens engines so that several processes can share one database, and turns the database's errors into ours.

SQLite: write-ahead log, a busy timeout, and explicit transactions; a writer takes the lock when it begins, since one that
upgrades from reading would fail at once instead of waiting.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from neve.errors import MissingExtraError, StateError
from neve.outage import denial, outage
from neve.settings.databases import CONNECT_TIMEOUT, default_wait, driver_url, longer_wait
from neve.state.location import MEMORY, sqlite_file

BUSY_SECONDS = 30
"""How long to wait for what another process has locked."""
STALLED_SECONDS = 20
"""How long a transaction on PostgreSQL may hold its locks without a statement: then its process is paused or cut off, and the
server ends it. Less than BUSY_SECONDS, so that whoever waits for the locks gets them."""
_PRIMARY_CODE = 0xFF
"""The part of SQLite's error codes that names the kind of error."""


def connect(url: str, *, create: bool) -> Engine:
    """An engine for the URL; with `create` false a missing SQLite file stays missing. Opens no connection yet."""
    try:
        parsed = make_url(driver_url(url))
        if parsed.get_backend_name() != "sqlite":
            seconds = default_wait(driver_url(url))
            arguments = {} if seconds is None else {CONNECT_TIMEOUT: seconds}
            return create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
        engine = _sqlite_engine(url, create=create)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Cannot open state store {shown(url)}: the driver {error.name} is not installed",
            hint="Install it with: pip install 'neve[postgres]'",
        ) from error
    except (SQLAlchemyError, ValueError) as error:
        reason = "no such kind of database" if isinstance(error, NoSuchModuleError) else "not a database URL"
        raise StateError(
            f"Cannot open state store {shown(url)}: {reason}", hint="Write sqlite:///FILE or postgresql://USER@HOST/NAME."
        ) from error
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _sqlite_engine(url: str, *, create: bool) -> Engine:
    file = sqlite_file(url)
    if file is None:
        return create_engine(MEMORY[0], poolclass=StaticPool, connect_args={"check_same_thread": False})
    # A URI, for its mode; the path is quoted in it, so that spaces and question marks stay what they are.
    target = f"{file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"

    def open_file() -> sqlite3.Connection:
        return sqlite3.connect(target, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)

    return create_engine(URL.create("sqlite", database=str(file)), creator=open_file, poolclass=QueuePool)


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    connection.execute("PRAGMA foreign_keys = ON")
    # Every commit reaches the disk, also if the machine loses power: a resumed run removes the files of groups that the journal
    # does not call written, so a written group must be on record before its commit makes those files a part of the table.
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("neve_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that will write; commits at the end, rolls back on an error."""
    with engine.execution_options(neve_writes=True).begin() as connection:
        bound_waits(connection)
        yield connection


def bound_waits(connection: Connection) -> None:
    """Makes sure that this transaction neither waits for others for ever, nor lets others wait for ever.

    Without this, a process that is paused in the middle of a heartbeat would hold up everyone who wants its run or its table.
    On SQLite the busy timeout does it.
    """
    if connection.dialect.name == "postgresql":
        limits = {"lock_timeout": BUSY_SECONDS, "idle_in_transaction_session_timeout": STALLED_SECONDS}
        connection.execute(select(*(func.set_config(name, f"{seconds}s", True) for name, seconds in limits.items())))


def clock_ms(connection: Connection, now_ms: int) -> int:
    """Now, by the clock that everyone who shares this database goes by.

    On PostgreSQL the server's own, since hosts share it and their clocks may differ. A SQLite file is used from one machine,
    so there the caller's clock counts.
    """
    if connection.dialect.name != "postgresql":
        return now_ms
    return int(connection.execute(select(func.extract("epoch", func.clock_timestamp()) * 1000)).scalar_one())


@contextmanager
def guarded(engine: Engine, action: str) -> Iterator[None]:
    """Wraps the database's errors: "Cannot <action> state store <url>: <first line of the reason>"."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        # SQLite's own where a connection is prepared, before SQLAlchemy watches over it.
        raise failure(error, action, shown(str(engine.url.render_as_string(hide_password=False)))) from error


def failure(error: Exception, action: str, where: str) -> StateError:
    """The error to raise for one of the database's."""
    cause = getattr(error, "orig", None) or error
    reason = (str(cause).strip().splitlines() or [type(error).__name__])[0]
    hint = "`neve doctor` checks it; state.url says where it is."
    if getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_READONLY:
        # SQLite keeps a log beside the file, and needs to write even where we only read.
        reason, hint = "its file or its directory is read-only", "Make both writable, or set state.url."
    elif not isinstance(cause, sqlite3.Error) and (found := outage(error)) is not None:
        reason = f"the database did not answer ({found.cause})"
        hint = "Check state.url, and that the database server is up; `neve doctor` tests it."
        hint += longer_wait(found.cause, where, "state.url")
    elif not isinstance(cause, sqlite3.Error) and (words := denial(error)) is not None:
        reason, hint = f"access denied ({words})", "Check the user and the password in state.url."
    return StateError(f"Cannot {action} state store {where}: {reason}", hint=hint)


def shown(url: str) -> str:
    """The URL without its password and its driver, as far as it can be read."""
    try:
        parsed = make_url(url)
        return parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        return "with this URL"
