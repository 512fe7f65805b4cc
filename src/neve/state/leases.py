"""Leases: one row per table, taken, renewed and given back in one transaction each, so that two processes never both win.

Called by `StateStore`. A row stays when its lease is given back: its token must go on growing. Ends are judged by
`database.clock_ms`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, select, update
from sqlalchemy.dialects import postgresql, sqlite

from neve.commit.lease_terms import Lease, Taken
from neve.state import journal, schema
from neve.state.database import clock_ms, guarded, writing
from neve.state.rows import Claim

FREE = 0
"""The end of a lease that was given back: every clock is past it."""


def take(
    engine: Engine, table_uuid: str, *, run_id: str, owner: str, now_ms: int, lease_ms: int, gone: int | None = None
) -> Taken:
    """The lease on a table after trying to take it: another process's if that holds it and it has not ended.

    `gone` is the token of a lease whose process has certainly ended: it holds nothing, whenever it ends.
    """
    with guarded(engine, "write to"), writing(engine) as connection:
        before = _locked_row(connection, table_uuid)
        now = clock_ms(connection, now_ms)
        is_ours = (before.run_id, before.owner) == (run_id, owner)
        if not is_ours and before.until_ms > now and before.token != gone:
            return Taken(before)
        lease = Lease(run_id, owner, before.token + 1, now + lease_ms)
        values = {"run_id": run_id, "owner": owner, "token": lease.token, "until_ms": lease.until_ms}
        connection.execute(update(schema.leases).where(schema.leases.c.table_uuid == table_uuid).values(**values))
        return Taken(lease, before if before.until_ms != FREE else None)


def renew(
    engine: Engine, table_uuid: str, run_id: str, token: int, *, now_ms: int, lease_ms: int, claim: Claim | None = None
) -> bool:
    """Moves the end of a lease and of the run's heartbeat; False if either is no longer this process's.

    One that has ended is renewed if nobody took it. `claim` is that of the run's journal, if it has one.
    """
    with guarded(engine, "write to"), writing(engine) as connection:
        until_ms = clock_ms(connection, now_ms) + lease_ms
        is_ours = _end(connection, table_uuid, run_id, token, until_ms=until_ms)
        if is_ours and claim is not None:
            is_ours = journal.beat(connection, run_id, claim, until_ms=until_ms)
        if not is_ours:
            connection.rollback()
        return is_ours


def release(engine: Engine, table_uuid: str, run_id: str, token: int) -> None:
    """Gives a lease back; does nothing if it is no longer this run's."""
    with guarded(engine, "write to"), writing(engine) as connection:
        _end(connection, table_uuid, run_id, token, until_ms=FREE)


def current(engine: Engine, table_uuid: str) -> Lease | None:
    """The lease on a table, ended or not; None if it was never taken or was given back."""
    with guarded(engine, "read"), engine.connect() as connection:
        row = connection.execute(_row(table_uuid)).first()
        return _lease(row) if row is not None and row.until_ms != FREE else None


def now(engine: Engine, now_ms: int) -> int:
    """The time by `database.clock_ms`."""
    with guarded(engine, "read"), engine.connect() as connection:
        return clock_ms(connection, now_ms)


def _locked_row(connection: Connection, table_uuid: str) -> Lease:
    """The row, made if there is none, which nobody else changes until the transaction ends."""
    insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    new = {"table_uuid": table_uuid, "run_id": "", "owner": "", "token": 0, "until_ms": FREE}
    connection.execute(insert(schema.leases).values(**new).on_conflict_do_nothing())
    return _lease(connection.execute(_row(table_uuid).with_for_update()).one())


def _end(connection: Connection, table_uuid: str, run_id: str, token: int, *, until_ms: int) -> bool:
    lease = schema.leases.c
    ours = (lease.table_uuid == table_uuid, lease.run_id == run_id, lease.token == token, lease.until_ms != FREE)
    return connection.execute(update(schema.leases).where(*ours).values(until_ms=until_ms)).rowcount == 1


def _row(table_uuid: str) -> Any:
    return select(schema.leases).where(schema.leases.c.table_uuid == table_uuid)


def _lease(row: Any) -> Lease:
    return Lease(run_id=row.run_id, owner=row.owner, token=row.token, until_ms=row.until_ms)
