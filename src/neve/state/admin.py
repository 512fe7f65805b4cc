"""Administration of a store as a whole, by its URL: what `neve state` does.

Nothing here but `upgrade` changes a store's schema; `describe` works on every version that this release knows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Engine, Table, cast, func, inspect, select, true
from sqlalchemy.dialects.postgresql import REGCLASS

from neve.errors import BadRequestError, StateError
from neve.maintenance.quarantine import Fate
from neve.rewrite.record import GroupState
from neve.state import schema
from neve.state.copying import copy_database, free_name
from neve.state.database import connect, guarded, shown
from neve.state.leases import FREE
from neve.state.location import make_directory, sqlite_file
from neve.state.migrate import upgrade as migrate
from neve.state.pruning import prune as prune_rows
from neve.state.rows import Backup, Description, Pruned, Upgraded
from neve.state.version import read_version

log = logging.getLogger(__name__)


def upgrade(url: str) -> Upgraded:
    """Brings a store to the newest schema, or makes it; a SQLite file is copied aside first."""
    file = sqlite_file(url)
    if file is not None:
        make_directory(file.parent)
    with _opened(url, create=True) as engine:
        return migrate(engine, file)


def backup(url: str, target: Path | None = None) -> Backup:
    """Copies a SQLite store while others may be using it; beside it, under the time's name, unless told where."""
    file = _existing(url, "back up")
    if file is None:
        tables = " ".join(f"--table={name}" for name in (schema.VERSION_TABLE, *schema.metadata.tables, *schema.VIEWS))
        raise BadRequestError(
            f"Cannot back up state store {shown(url)}: only a SQLite file can be copied from here",
            hint=f"Use the database's own tool, for PostgreSQL: pg_dump --format=custom --file=neve-state.dump {tables}",
        )
    with _opened(url) as engine, guarded(engine, "read"), engine.connect() as connection:
        read_version(connection)  # a file that is no store of ours is not worth a copy
    copy = target or file.parent
    if copy.is_dir():
        copy = free_name(copy / f"{file.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}", file.suffix)
    if copy.exists():
        raise BadRequestError(f"Cannot back up to {copy}: there is such a file", hint="Name another, or remove it.")
    try:
        copy_database(file, copy)
        return Backup(file=copy.absolute(), size_bytes=copy.stat().st_size)
    except OSError as error:
        raise StateError(f"Cannot back up to {copy}: {error.strerror or error}", hint="Name a file elsewhere.") from error


def prune(url: str, before_ms: int, *, outputs: bool = False, dry_run: bool = False) -> Pruned:
    """Forgets runs that ended before a moment (`neve.state.pruning`), and gives a SQLite file's free pages back."""
    file = _existing(url, "prune")
    with _opened(url) as engine:
        with guarded(engine, "read"), engine.connect() as connection:
            version = read_version(connection)
        if version != schema.HEAD:
            raise StateError(
                f"Cannot prune state store {shown(url)}: its schema is {version}, not {schema.HEAD}",
                hint="Upgrade it first: `neve state upgrade`.",
            )
        pruned = prune_rows(engine, before_ms, outputs=outputs, dry_run=dry_run)
        if file is not None and not dry_run:
            _shrink(engine)
        return pruned


def describe(url: str) -> Description:
    """Where a store is, how large, and what it holds. Makes nothing."""
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        return Description(shown(url), None, schema.HEAD, 0, dict.fromkeys(_COUNTED, 0), None)
    with _opened(url) as engine, guarded(engine, "read"), engine.connect() as connection:
        version = read_version(connection)
        # An older store lacks some tables; one without a version has none of ours.
        present = set(inspect(connection).get_table_names()) & schema.metadata.tables.keys() if version else set()
        counts = {name: _count(connection, *what) if what[0].name in present else 0 for name, what in _COUNTED.items()}
        oldest = connection.execute(select(func.min(schema.runs.c.started_ms))).scalar() if version else None
        size = _file_size(file) if file is not None else _tables_size(connection, present)
        return Description(shown(url), version, schema.HEAD, size, counts, oldest)


_COUNTED: dict[str, tuple[Table, ColumnElement[bool]]] = {
    "runs": (schema.runs, true()),
    "unfinished": (schema.runs, schema.runs.c.finished_ms.is_(None)),
    "groups": (schema.run_groups, true()),
    "in_doubt": (schema.run_groups, schema.run_groups.c.state == GroupState.IN_DOUBT.value),
    "outputs": (schema.outputs, true()),
    "quarantined": (schema.quarantine, schema.quarantine.c.fate.in_([Fate.RECORDED.value, Fate.TRASHED.value])),
    "leases": (schema.leases, schema.leases.c.until_ms != FREE),
}


def _count(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one())


def _file_size(file: Path) -> int:
    parts = (file, file.with_name(f"{file.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.is_file())


def _tables_size(connection: Connection, names: set[str]) -> int:
    if connection.dialect.name != "postgresql":
        return 0  # a database in memory
    return sum(connection.execute(select(func.pg_total_relation_size(cast(name, REGCLASS)))).scalar_one() for name in names)


def _shrink(engine: Engine) -> None:
    """SQLite keeps free pages for later use; this rewrites the file without them, if it can."""
    try:
        with guarded(engine, "shrink"), closing(engine.raw_connection()) as connection:
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.cursor().execute(statement).close()
    except StateError as error:
        log.warning("the rows are gone, but the file is as large as before: %s", error)


def _existing(url: str, action: str) -> Path | None:
    """The SQLite file, which must be there; None for another database."""
    file = sqlite_file(url)
    if file is not None and not file.is_file():
        raise BadRequestError(f"Cannot {action} state store {shown(url)}: there is none yet", hint="The first run makes it.")
    return file


@contextmanager
def _opened(url: str, *, create: bool = False) -> Iterator[Engine]:
    engine = connect(url, create=create)
    try:
        yield engine
    finally:
        engine.dispose()
