"""Which schema version a database has, read without Alembic, and whether this release can work with it."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, inspect, text

from neve.errors import StateError
from neve.state.schema import HEAD, VERSION_TABLE, VERSIONS, metadata


def read_version(connection: Connection) -> str | None:
    """The version, None for a database without our tables; one that is not ours or newer than this release is refused."""
    tables = set(inspect(connection).get_table_names())
    if VERSION_TABLE in tables:
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 (a constant)
        _refuse_newer(connection.engine, version)
        return str(version) if version else None
    strangers = sorted(tables & metadata.tables.keys())
    if strangers:
        raise StateError(
            f"Cannot use state store {_name(connection.engine)}: it has a table {strangers[0]} that is not ours",
            hint="Give the state store a database of its own.",
        )
    return None


def _refuse_newer(engine: Engine, version: str | None) -> None:
    if version and version not in VERSIONS:
        raise StateError(
            f"Cannot use state store {_name(engine)}: its schema version {version} is newer than {HEAD}, the newest known here",
            hint="Upgrade neve, or point state.url to another database.",
        )


def _name(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=True)
