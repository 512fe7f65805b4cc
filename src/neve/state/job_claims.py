"""Which job a worker gets: the statement that chooses it, and the lock that lets one process choose at a time.

Called by `JobQueue.claim`, within its transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, or_, select, update

from neve.scheduling.job import JobState
from neve.state import schema
from neve.state.ends import LONGEST_MS, end_ms
from neve.state.job_rows import CLAIMED, WAITING, end_values

_QUEUE_LOCK = 0x6E657666
"""Of PostgreSQL, beside that of `migrate`."""
_c = schema.jobs.c


@dataclass(frozen=True)
class ClaimTerms:
    """What a worker takes: its targets, None for all, and the most valid claims that each owner and target may have."""

    targets: Collection[str] | None = None
    per_owner: Mapping[str, int] = field(default_factory=dict)
    per_target: Mapping[str, int] = field(default_factory=dict)


def lock_queue(connection: Connection) -> None:
    """Lets nobody else choose or add jobs until the transaction ends. On SQLite every transaction that writes does.

    Without it, two workers could both see a free place for the same owner or table. The lock is held for milliseconds.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_QUEUE_LOCK)))


def choose(connection: Connection, terms: ClaimTerms, now: int) -> Any:
    """The row to claim, locked; None if no job may be claimed.

    Jobs whose worker died go first, since their table waits for them, then the highest rank, then the oldest. None begins after
    its window has closed.
    """
    open_ = or_(_c.not_after_ms.is_(None), _c.not_after_ms > now)
    query = select(schema.jobs).where(or_(abandoned(now), _free(now)), open_, *_within(connection, terms, now))
    first = case((or_(_c.state == CLAIMED, _c.deaths > 0), 0), else_=1)
    ordered = query.order_by(first, _c.rank.desc(), _c.created_ms, _c.job_id).limit(1)
    return connection.execute(ordered.with_for_update(skip_locked=True)).first()


def has_valid_claim(row: Any, now: int) -> bool:
    """Whether a worker has the job of this row, as far as its claim tells."""
    return bool(row.state == CLAIMED and now < row.until_ms <= now + LONGEST_MS)


def settle_claims(connection: Connection, now: int, claim_ms: int) -> None:
    """Gives claims that a clock far ahead wrote an end that comes, which a live worker moves at its next heartbeat.

    Cancels jobs whose worker died before it saw the request.
    """
    too_far = and_(_c.state == CLAIMED, _c.until_ms > now + LONGEST_MS)
    connection.execute(update(schema.jobs).where(too_far).values(until_ms=end_ms(now, claim_ms)))
    unwanted = and_(abandoned(now), _c.cancel_requested_ms.is_not(None))
    end = end_values(JobState.CANCELLED, outcome="cancelled", message="cancelled after its worker had died", now=now)
    connection.execute(update(schema.jobs).where(unwanted).values(**end))


def abandoned(now: int) -> ColumnElement[bool]:
    """Jobs whose claim has ended: their worker died, or was paused for too long."""
    return and_(_c.state == CLAIMED, _c.until_ms <= now)


def _free(now: int) -> ColumnElement[bool]:
    other = schema.jobs.alias().c
    busy = exists(select(other.job_id).where(other.table_uuid == _c.table_uuid, other.state == CLAIMED))
    return and_(_c.state == WAITING, _c.not_before_ms <= now, ~busy)


def _within(connection: Connection, terms: ClaimTerms, now: int) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [] if terms.targets is None else [_c.target.in_(terms.targets)]
    for column, bounds in ((_c.owner, terms.per_owner), (_c.target, terms.per_target)):
        if bounds:
            running = _running(connection, column, now)
            conditions.append(column.not_in([name for name, most in bounds.items() if running.get(name, 0) >= most]))
    return conditions


def _running(connection: Connection, column: ColumnElement[str], now: int) -> dict[str, int]:
    query = select(column, func.count()).where(_c.state == CLAIMED, _c.until_ms > now).group_by(column)
    return dict(connection.execute(query).all())
