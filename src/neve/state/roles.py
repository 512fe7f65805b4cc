"""Who does what only one process should do at a time, and which workers are alive. Ends are judged by `database.clock_ms`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, or_, select, update

from neve.errors import StateError
from neve.state import schema
from neve.state.database import clock_ms, guarded, writing
from neve.state.ends import end_ms, has_ended
from neve.state.statements import storable, upsert
from neve.table.frozen import Frozen

SCHEDULER = "scheduler"
"""The role of the process that observes and decides."""
_FREE = 0
_FORGET_MS = 86_400_000
"""How long a worker that is gone stays listed in the store."""
_role, _worker = schema.roles.c, schema.workers.c


class RoleLostError(StateError):
    """Another process has taken the role of the one that acts."""


class LiveWorker(Frozen):
    """A worker whose heartbeat is valid."""

    worker: str
    started_ms: int
    until_ms: int
    doing: str | None
    """One line: its job."""
    figures: dict[str, Any]
    """Such as jobs done and memory."""


class Roles:
    """Gives roles to processes, and keeps the list of workers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, role: str, holder: str, *, now_ms: int, hold_ms: int) -> bool:
        """Takes a role that is free or whose time has ended, or renews it for its holder; False if another process has it."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            free = upsert(connection, schema.roles).values(role=role, holder="", until_ms=_FREE)
            connection.execute(free.on_conflict_do_nothing())
            # By the clock of after the wait for the row: an earlier one could give the role to two processes.
            connection.execute(select(_role.holder).where(_role.role == role).with_for_update())
            now = clock_ms(connection, now_ms)
            mine = and_(_role.role == role, or_(_role.holder == holder, has_ended(_role.until_ms, now)))
            change = update(schema.roles).where(mine).values(holder=holder, until_ms=end_ms(now, hold_ms))
            return connection.execute(change).rowcount == 1

    def renew(self, role: str, holder: str, *, now_ms: int, hold_ms: int) -> bool:
        """Moves the end of a role; False if another process has taken it or it was released. One that has ended is renewed."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            until_ms = end_ms(clock_ms(connection, now_ms), hold_ms)
            change = update(schema.roles).where(_held(role, holder)).values(until_ms=until_ms)
            return connection.execute(change).rowcount == 1

    def release(self, role: str, holder: str) -> bool:
        """Gives a role back; False if this process did not have it."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            change = update(schema.roles).where(_held(role, holder)).values(until_ms=_FREE)
            return connection.execute(change).rowcount == 1

    def holder(self, role: str, now_ms: int) -> str | None:
        """Returns the process that has a role now."""
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            now = clock_ms(connection, now_ms)
            valid = and_(_role.role == role, ~has_ended(_role.until_ms, now))
            return connection.execute(select(_role.holder).where(valid)).scalar()

    def register(self, worker: str, *, now_ms: int, hold_ms: int, figures: Mapping[str, Any] | None = None) -> None:
        """Adds a worker, or starts it from scratch; forgets workers that have been gone for a day."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            now = clock_ms(connection, now_ms)
            connection.execute(delete(schema.workers).where(_worker.until_ms < now - _FORGET_MS))
            row = {"worker": worker, "started_ms": now, "until_ms": end_ms(now, hold_ms), "figures": dict(figures or {})}
            adding = upsert(connection, schema.workers).values(**row, doing=None)
            connection.execute(adding.on_conflict_do_update(index_elements=[_worker.worker], set_={**row, "doing": None}))

    def beat(
        self, worker: str, *, now_ms: int, hold_ms: int, doing: str | None = None, figures: Mapping[str, Any] | None = None
    ) -> None:
        """Moves the end of a worker's heartbeat and notes what it does; adds the worker if it was forgotten.

        Figures stay as they are unless new ones are given.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            now = clock_ms(connection, now_ms)
            changes: dict[str, Any] = {"until_ms": end_ms(now, hold_ms), "doing": storable(doing)}
            changes |= {} if figures is None else {"figures": dict(figures)}
            row = {"worker": worker, "started_ms": now, "figures": {}, **changes}
            adding = upsert(connection, schema.workers).values(**row)
            connection.execute(adding.on_conflict_do_update(index_elements=[_worker.worker], set_=changes))

    def leave(self, worker: str) -> None:
        """Removes a worker that stops."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            connection.execute(delete(schema.workers).where(_worker.worker == worker))

    def live_workers(self, now_ms: int) -> tuple[LiveWorker, ...]:
        """Returns the workers whose heartbeat is valid, by name."""
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            now = clock_ms(connection, now_ms)
            query = select(schema.workers).where(~has_ended(_worker.until_ms, now)).order_by(_worker.worker)
            return tuple(LiveWorker.model_validate(dict(row._mapping)) for row in connection.execute(query))


def require_scheduler(connection: Connection, holder: str | None) -> None:
    """Makes sure, until the transaction ends, that nobody has taken the scheduler's role since; None requires nothing.

    A role that has ended is good enough while nobody else has it.
    """
    if holder is None:
        return
    found = connection.execute(select(_role.holder).where(_held(SCHEDULER, holder)).with_for_update()).first()
    if found is None:
        raise RoleLostError(
            f"Cannot change the queue: {holder} is no longer the scheduler",
            hint="Another process decides now. Nothing was changed.",
        )


def _held(role: str, holder: str) -> ColumnElement[bool]:
    return and_(_role.role == role, _role.holder == holder, _role.until_ms != _FREE)
