"""Leases: one row per table, taken, renewed and given back by one statement each, so that two processes never both win.

Called by `StateStore`. A row stays when its lease is given back: its token must go on growing.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from neve.core.lease import Lease
from neve.state import schema
from neve.state.database import guarded, writing

FREE = 0
"""The end of a lease that was given back: every clock is past it."""


def take(engine: Engine, table_uuid: str, *, run_id: str, owner: str, now_ms: int, until_ms: int) -> Lease:
    """The lease on a table after trying to take it: another run's if that holds it and it has not ended."""
    table = schema.leases
    wanted = {"run_id": run_id, "owner": owner, "until_ms": until_ms}
    with guarded(engine, "write to"), writing(engine) as connection:
        insert: Any = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        statement = insert(table).values(table_uuid=table_uuid, token=1, **wanted)
        # PostgreSQL locks the row even where the condition is false, so that what is read next is what was decided on.
        statement = statement.on_conflict_do_update(
            index_elements=[table.c.table_uuid],
            set_={**wanted, "token": table.c.token + 1},
            where=or_(table.c.run_id == run_id, table.c.until_ms <= now_ms),
        )
        connection.execute(statement)
        return _lease(connection.execute(_row(table_uuid)).one())


def renew(engine: Engine, table_uuid: str, run_id: str, token: int, *, until_ms: int) -> bool:
    """Moves the end of a lease; False if it is no longer this run's. One that ended may be renewed if nobody took it."""
    with guarded(engine, "write to"), writing(engine) as connection:
        return _end(connection, table_uuid, run_id, token, until_ms=until_ms)


def release(engine: Engine, table_uuid: str, run_id: str, token: int) -> None:
    """Gives a lease back; does nothing if it is no longer this run's."""
    with guarded(engine, "write to"), writing(engine) as connection:
        _end(connection, table_uuid, run_id, token, until_ms=FREE)


def current(engine: Engine, table_uuid: str) -> Lease | None:
    """The lease on a table, ended or not; None if it was never taken or was given back."""
    with guarded(engine, "read"), engine.connect() as connection:
        row = connection.execute(_row(table_uuid)).first()
        return _lease(row) if row is not None and row.until_ms != FREE else None


def _end(connection: Connection, table_uuid: str, run_id: str, token: int, *, until_ms: int) -> bool:
    lease = schema.leases.c
    ours = (lease.table_uuid == table_uuid, lease.run_id == run_id, lease.token == token, lease.until_ms != FREE)
    return connection.execute(update(schema.leases).where(*ours).values(until_ms=until_ms)).rowcount == 1


def _row(table_uuid: str) -> Any:
    return select(schema.leases).where(schema.leases.c.table_uuid == table_uuid)


def _lease(row: Any) -> Lease:
    return Lease(run_id=row.run_id, owner=row.owner, token=row.token, until_ms=row.until_ms)
