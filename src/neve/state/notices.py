"""Notices that wait to be sent. They are written with what happened, and sent later by whichever process gets them.

`due` keeps what it returns from other processes for a while, so that a notice is sent once. If the process dies, the notice is
due again: it is sent at least once, or given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, false, null, or_, select, update

from neve.state import schema
from neve.state.database import clock_ms, guarded, writing
from neve.state.ends import LONGEST_MS
from neve.state.statements import batches, storable, storable_document, upsert
from neve.table.frozen import Frozen

HOLD_MS = 120_000
"""How long a process has for sending what it got."""
_c = schema.notices.c


class NewNotice(Frozen):
    """Something that people should know."""

    kind: str
    owner: str = ""
    """The team whose channels get it; empty is the operators of the service."""
    content: dict[str, Any] = {}
    notice_id: str = ""
    """A name of its own for what is announced once, such as the digest of a day; a second one with the same name is dropped."""


class StoredNotice(Frozen):
    """A notice in the store. One that is not sent and has no `next_ms` was given up."""

    notice_id: str
    kind: str
    created_ms: int
    owner: str
    content: dict[str, Any]
    sent: bool
    attempts: int
    """How often it could not be sent."""
    next_ms: int | None
    trouble: str | None


def add_notices(connection: Connection, notices: Iterable[NewNotice], now: int) -> int:
    """Adds notices as a part of a larger transaction; how many are new."""
    adding = upsert(connection, schema.notices).on_conflict_do_nothing().returning(_c.notice_id)
    rows = [
        {
            "notice_id": notice.notice_id or str(uuid4()),
            "kind": notice.kind,
            "created_ms": now,
            "owner": notice.owner,
            "content": storable_document(notice.content),
            "next_ms": 0,
        }
        for notice in notices
    ]
    return sum(len(connection.execute(adding.values(row)).all()) for row in rows)


class NoticeStore:
    """Reads and changes notices."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, notice_id: str, *, kind: str, owner: str, content: Mapping[str, object], now_ms: int) -> bool:
        """Adds a notice that is due immediately; False if there is one with this id."""
        notice = NewNotice(notice_id=notice_id, kind=kind, owner=owner, content=dict(content))
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            return add_notices(connection, [notice], clock_ms(connection, now_ms)) == 1

    def due(self, now_ms: int, limit: int = 100) -> tuple[StoredNotice, ...]:
        """Returns notices that are due, the oldest first; no process gets them again for HOLD_MS, or until they failed."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            now = clock_ms(connection, now_ms)
            found = select(_c.notice_id).where(_is_due(now)).order_by(_c.created_ms, _c.notice_id).limit(limit)
            taken = connection.execute(found.with_for_update(skip_locked=True)).scalars().all()
            rows: list[Any] = []
            for some in batches(taken):
                hold = update(schema.notices).where(_c.notice_id.in_(some)).values(next_ms=now + HOLD_MS)
                rows += connection.execute(hold.returning(schema.notices)).all()
        notices = (_notice(row) for row in rows)
        return tuple(sorted(notices, key=lambda notice: (notice.created_ms, notice.notice_id)))

    def sent(self, notice: StoredNotice) -> None:
        """Marks a notice as sent, whoever else has it now."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            change = update(schema.notices).where(_c.notice_id == notice.notice_id)
            connection.execute(change.values(sent=True, next_ms=null(), trouble=null()))

    def failed(self, notice: StoredNotice, reason: str, next_ms: int | None) -> None:
        """Counts an attempt. `next_ms` is when to try again; None gives the notice up.

        Changes nothing if another process has sent the notice since, or has failed as well.
        """
        same = and_(_c.notice_id == notice.notice_id, _c.attempts == notice.attempts, _c.sent == false())
        values = {"attempts": notice.attempts + 1, "trouble": storable(reason)}
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            change = update(schema.notices).where(same)
            connection.execute(change.values(**values, next_ms=null() if next_ms is None else next_ms))

    def notices(self, *, unsent: bool = False, limit: int = 100) -> tuple[StoredNotice, ...]:
        """Returns notices, the newest first; only those that were not sent if `unsent`."""
        query = select(schema.notices).order_by(_c.created_ms.desc(), _c.notice_id).limit(limit)
        query = query.where(_c.sent == false()) if unsent else query
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            return tuple(_notice(row) for row in connection.execute(query))

    def prune(self, before_ms: int) -> int:
        """Forgets notices from before a moment, sent or not; returns how many."""
        with guarded(self._engine, "prune"), writing(self._engine) as connection:
            return connection.execute(delete(schema.notices).where(_c.created_ms < before_ms)).rowcount


def _is_due(now: int) -> ColumnElement[bool]:
    """A time further away than the longest wait was written by a wrong clock. One that is null never comes."""
    return or_(_c.next_ms <= now, _c.next_ms > now + 2 * LONGEST_MS)


def _notice(row: Any) -> StoredNotice:
    return StoredNotice.model_validate(dict(row._mapping))
