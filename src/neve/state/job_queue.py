"""The queue of jobs: decisions go in, workers claim them, and a job ends once. Each method is one transaction.

A claim has a token and an end. Whoever comes with an older token is refused and changes nothing. All moments in the queue are
by `database.clock_ms`. One that a caller gives counts from its `now_ms`, so that the wrong clock of a host does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, and_, case, delete, null, select, text, tuple_, update

from neve.scheduling.job import ENDED_STATES, Decision, Job, JobState, Spent
from neve.scheduling.observation import Counters
from neve.state import schema
from neve.state.database import clock_ms, guarded, writing
from neve.state.ends import end_ms
from neve.state.job_claims import ClaimTerms, abandoned, choose, has_valid_claim, lock_queue, settle_claims
from neve.state.job_reading import JobReading
from neve.state.job_rows import CLAIMED, DECISION_COLUMNS, WAITING, decision_row, end_values, ended_before, job, spent_document
from neve.state.last_runs import note_end
from neve.state.notices import NewNotice, add_notices
from neve.state.roles import require_scheduler
from neve.state.statements import batches, storable, upsert

_c = schema.jobs.c
_LONGEST_WAIT_MS = 86_400_000
"""The longest time that a job which was given back keeps others' decisions from beginning it earlier."""


class JobQueue(JobReading):
    """Reads and changes the queue."""

    def enqueue(self, decisions: Iterable[Decision], now_ms: int, *, scheduler: str | None = None) -> list[Job]:
        """Adds decisions, or updates the job that already waits for the same table and operation; returns these jobs.

        A job that was given back still waits until its time; otherwise the newest decision counts. If `scheduler` is given and
        another process has taken that role, raises RoleLostError and adds nothing.
        """
        wanted = {(one.table_uuid, one.operation): one for one in decisions}
        if not wanted:
            return []
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            lock_queue(connection)
            require_scheduler(connection, scheduler)
            now = clock_ms(connection, now_ms)
            rows = [_new_row(wanted[key], now_ms=now_ms, now=now) for key in sorted(wanted)]
            connection.execute(_merge(connection, now), rows)
            return _waiting_for(connection, sorted(wanted))

    def claim(
        self,
        worker: str,
        *,
        now_ms: int,
        claim_ms: int,
        targets: Collection[str] | None = None,
        per_owner: Mapping[str, int] | None = None,
        per_target: Mapping[str, int] | None = None,
    ) -> Job | None:
        """Claims the next job for a worker; None if there is none that may begin now.

        At most one job of a table is claimed at a time. `per_owner` and `per_target` bound how many have a valid claim.
        """
        terms = ClaimTerms(targets, per_owner or {}, per_target or {})
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            lock_queue(connection)
            now = clock_ms(connection, now_ms)
            settle_claims(connection, now, claim_ms)
            row = choose(connection, terms, now)
            if row is None:
                return None
            values = {"state": CLAIMED, "claimed_by": worker, "token": row.token + 1, "attempts": row.attempts + 1}
            values |= {"deaths": _deaths(row), "until_ms": end_ms(now, claim_ms)}
            change = update(schema.jobs).where(_c.job_id == row.job_id).values(**values)
            return job(connection.execute(change.returning(schema.jobs)).one())

    def beat(self, claimed: Job, *, now_ms: int, claim_ms: int) -> Job | None:
        """Moves the end of a claim; returns the job as it is now, None if the claim was lost.

        A claim that has ended is renewed if nobody took it. The job shows whether its cancellation was requested.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            until_ms = end_ms(clock_ms(connection, now_ms), claim_ms)
            row = connection.execute(_change(claimed, until_ms=until_ms).returning(schema.jobs)).first()
            return None if row is None else job(row)

    def start(self, claimed: Job, run_id: str | None = None, *, now_ms: int, counters: Counters | None = None) -> bool:
        """Notes, before any work, that a run begins, and the table's counters at that time; False if the claim was lost."""
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            row = connection.execute(select(_c.decision).where(_ours(claimed)).with_for_update()).first()
            if row is None:
                return False
            values: dict[str, Any] = {"started_ms": clock_ms(connection, now_ms)}
            values |= {} if run_id is None else {"run_id": run_id}
            if counters is not None:
                values["decision"] = row.decision | {"counters": counters.model_dump(mode="json")}
            return connection.execute(_change(claimed, **values)).rowcount == 1

    def finish(
        self,
        claimed: Job,
        *,
        state: JobState,
        outcome: str,
        message: str,
        now_ms: int,
        actual: Spent | None = None,
        run_id: str | None = None,
        paused_until_ms: int | None = None,
        idle_until_ms: int | None = None,
        notices: Iterable[NewNotice] = (),
    ) -> bool:
        """Ends a job, and with it updates the operation's last run and adds notices; False, and nothing, if the claim was lost.

        A success ends the row of failures; a failure adds to it and pauses the operation on this table until a moment. After
        one that found nothing to do, the state of the table is no reason for another one until `idle_until_ms`.
        """
        if state not in ENDED_STATES:
            raise ValueError(f"{state} is not the end of a job")
        used = spent_document(actual)
        values = {"actual": null() if used is None else used, **({} if run_id is None else {"run_id": run_id})}
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            now = clock_ms(connection, now_ms)
            ended = _change(claimed, **end_values(state, outcome=outcome, message=message, now=now), **values)
            row = connection.execute(ended.returning(schema.jobs)).first()
            if row is None:
                return False
            pause, idle = (None if until is None else now + until - now_ms for until in (paused_until_ms, idle_until_ms))
            note_end(connection, job(row), paused_until_ms=pause, idle_until_ms=idle)
            add_notices(connection, notices, now)
            return True

    def release(self, claimed: Job, *, now_ms: int, wait_ms: int = 0, message: str | None = None) -> bool:
        """Gives a job back, to be claimed again after a wait; False if the claim was lost.

        A job whose cancellation was requested ends. One that was enqueued meanwhile for the same table and operation is merged
        into the job that is given back.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            lock_queue(connection)
            row = connection.execute(select(schema.jobs).where(_ours(claimed)).with_for_update()).first()
            if row is None:
                return False
            now = clock_ms(connection, now_ms)
            if row.cancel_requested_ms is not None:
                values = end_values(JobState.CANCELLED, outcome="cancelled", message=message or "cancelled", now=now)
            else:
                values = _given_back(connection, row, now, now + wait_ms, message)
            return connection.execute(_change(claimed, **values)).rowcount == 1

    def give_back_abandoned(self, *, since_ms: int, now_ms: int, scheduler: str | None = None) -> int:
        """Puts jobs back whose claim ended before a moment and that nobody took over since; returns how many.

        Their target may be gone, their window closed, their workers dead: as waiting jobs they can be decided upon again, and
        do not keep other jobs from their table. `scheduler` is as in `enqueue`.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            lock_queue(connection)
            require_scheduler(connection, scheduler)
            now = clock_ms(connection, now_ms)
            lost = select(schema.jobs).where(abandoned(now - max(0, now_ms - since_ms)), _c.cancel_requested_ms.is_(None))
            rows = connection.execute(lost.with_for_update()).all()
            for row in rows:
                values = _given_back(connection, row, now, 0, "its worker died, and nobody took it over")
                change = update(schema.jobs).where(_c.job_id == row.job_id)
                connection.execute(change.values(**values, deaths=_deaths(row)))
            return len(rows)

    def cancel(self, job_id: str, *, now_ms: int, message: str = "cancelled") -> Job | None:
        """Cancels a job that waits or whose claim has ended, or asks the worker of a claimed one to stop.

        Returns the job, None if there is no such. A job that has ended stays as it is.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            row = connection.execute(select(schema.jobs).where(_c.job_id == job_id).with_for_update()).first()
            if row is None:
                return None
            now = clock_ms(connection, now_ms)
            change = update(schema.jobs).where(_c.job_id == job_id).returning(schema.jobs)
            if has_valid_claim(row, now):
                if row.cancel_requested_ms is None:
                    row = connection.execute(change.values(cancel_requested_ms=now)).one()
            elif row.state in (WAITING, CLAIMED):
                end = end_values(JobState.CANCELLED, outcome="cancelled", message=message, now=now)
                row = connection.execute(change.values(**end)).one()
            return job(row)

    def withdraw(self, job_ids: Collection[str], *, message: str, now_ms: int, scheduler: str | None = None) -> int:
        """Cancels those of these jobs that wait, since they are no longer wanted; returns how many.

        `scheduler` is as in `enqueue`.
        """
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            lock_queue(connection)
            require_scheduler(connection, scheduler)
            values = end_values(JobState.CANCELLED, outcome="withdrawn", message=message, now=clock_ms(connection, now_ms))
            wanted = (and_(_c.job_id.in_(some), _c.state == WAITING) for some in batches(sorted(set(job_ids))))
            return sum(connection.execute(update(schema.jobs).where(one).values(**values)).rowcount for one in wanted)

    def prune(self, before_ms: int) -> int:
        """Forgets jobs that ended before a moment; returns how many."""
        with guarded(self._engine, "prune"), writing(self._engine) as connection:
            return connection.execute(delete(schema.jobs).where(ended_before(before_ms))).rowcount


def _new_row(decision: Decision, *, now_ms: int, now: int) -> dict[str, Any]:
    wait_ms = decision.not_before_ms - now_ms
    row = {**decision_row(decision), "not_before_ms": now + wait_ms if wait_ms > 0 else 0}
    if decision.not_after_ms is not None:
        row["not_after_ms"] = now + decision.not_after_ms - now_ms
    return row | {"job_id": str(uuid4()), "state": WAITING, "created_ms": now}


def _merge(connection: Connection, now: int) -> Any:
    """The statement that adds a row, or updates the one that waits for the same table and operation."""
    adding = upsert(connection, schema.jobs)
    new = adding.excluded
    changes: dict[str, Any] = {name: new[name] for name in sorted(DECISION_COLUMNS - {"table_uuid", "operation"})}
    backed_off = and_(_c.attempts > 0, _c.not_before_ms > new.not_before_ms, _c.not_before_ms <= now + _LONGEST_WAIT_MS)
    changes["not_before_ms"] = case((backed_off, _c.not_before_ms), else_=new.not_before_ms)
    return adding.on_conflict_do_update(
        index_elements=[_c.table_uuid, _c.operation], index_where=text(f"state = '{WAITING}'"), set_=changes
    )


def _waiting_for(connection: Connection, keys: list[tuple[str, str]]) -> list[Job]:
    key = tuple_(_c.table_uuid, _c.operation)
    queries = (select(schema.jobs).where(_c.state == WAITING, key.in_(some)) for some in batches(keys))
    return [job(row) for query in queries for row in connection.execute(query.order_by(_c.table_uuid, _c.operation))]


def _deaths(row: Any) -> int:
    """How often a worker died with the job, if the one that has the claim of this row has."""
    return int(row.deaths) + int(row.state == CLAIMED)


def _given_back(connection: Connection, row: Any, now: int, not_before_ms: int, message: str | None) -> dict[str, Any]:
    """The columns that change when a claimed job waits again, merged with one that waits for the same."""
    values = {"state": WAITING, "claimed_by": None, "until_ms": None, "message": storable(message)}
    return {**values, "not_before_ms": not_before_ms, **_merged(connection, row, now)}


def _merged(connection: Connection, row: Any, now: int) -> dict[str, Any]:
    """Ends the job that waits for the same table and operation, and returns its newer decision."""
    same = (_c.table_uuid == row.table_uuid, _c.operation == row.operation, _c.state == WAITING)
    other = connection.execute(select(schema.jobs).where(*same).with_for_update()).first()
    if other is None:
        return {}
    end = end_values(JobState.CANCELLED, outcome="merged", message=f"merged into job {row.job_id}", now=now)
    connection.execute(update(schema.jobs).where(_c.job_id == other.job_id).values(**end))
    return {name: getattr(other, name) for name in DECISION_COLUMNS - {"not_before_ms"}}


def _ours(claimed: Job) -> ColumnElement[bool]:
    return and_(_c.job_id == claimed.job_id, _c.state == CLAIMED, _c.token == claimed.token)


def _change(claimed: Job, **values: Any) -> Any:
    """An update of a claimed job that changes nothing if the token is old."""
    return update(schema.jobs).where(_ours(claimed)).values(**values)
