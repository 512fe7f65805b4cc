"""Questions to the queue: jobs by filter, counts, last runs, and what was spent. Nothing here writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Engine, case, func, or_, select, true, tuple_

from neve.scheduling.job import Job, JobState, Spent
from neve.scheduling.observation import LastRun
from neve.state import schema
from neve.state.database import clock_ms, guarded
from neve.state.job_rows import CLAIMED, WAITING, job, last_run, scopes_of
from neve.state.statements import batches, matches_glob
from neve.table.frozen import Frozen

_c = schema.jobs.c
_AMOUNTS = ("bytes", "core_seconds", "money")
_LONGEST_DAY_MS = 2 * 86_400_000
"""More than the longest day. What ended later than that after a day's beginning was written by a wrong clock."""


class JobFilter(Frozen):
    """Which jobs to list. A field that is not set does not restrict the list."""

    states: frozenset[JobState] = frozenset()
    tables: str | None = None
    """A glob over full names."""
    table_uuid: str | None = None
    operation: str | None = None
    policy: str | None = None
    owner: str | None = None
    worker: str | None = None
    run_id: str | None = None
    finished_since_ms: int | None = None


class ScopeSpent(Frozen):
    """What the jobs of a policy or a team use: measured for ended jobs, predicted for the others."""

    ended: Spent = Spent()
    claimed: Spent = Spent()
    waiting: Spent = Spent()

    @property
    def reserved(self) -> Spent:
        """What ended and claimed jobs use: the part of a day's budget that can no longer be given to others."""
        return _sum((self.ended, self.claimed))


class JobReading:
    """Reads jobs and last runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def job(self, job_id: str) -> Job | None:
        """Returns one job, None if there is no such."""
        found = self._jobs(_c.job_id == job_id)
        return found[0] if found else None

    def jobs(
        self, wanted: JobFilter | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> tuple[Job, ...]:
        """Returns jobs, the newest first. `after` is the `created_ms` and `job_id` of the last job of the page before."""
        conditions = self._conditions(wanted or JobFilter())
        if after is not None:
            conditions.append(tuple_(_c.created_ms, _c.job_id) < tuple_(*after))
        return self._jobs(*conditions, limit=limit)

    def waiting(self) -> tuple[Job, ...]:
        """Returns all waiting jobs, the highest rank first."""
        return self._jobs(_c.state == WAITING, order=(_c.rank.desc(), _c.created_ms, _c.job_id))

    def claimed(self) -> tuple[Job, ...]:
        """Returns all claimed jobs, also those whose claim has ended."""
        return self._jobs(_c.state == CLAIMED)

    def counts(self) -> dict[JobState, int]:
        """Returns the number of jobs in each state."""
        query = select(_c.state, func.count()).group_by(_c.state)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            found: dict[str, int] = dict(connection.execute(query).all())
        return {state: found.get(state.value, 0) for state in JobState}

    def longest_wait_ms(self, now_ms: int) -> int | None:
        """Returns the age of the oldest job that waits and may begin; None if there is none."""
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            now = clock_ms(connection, now_ms)
            query = select(func.min(_c.created_ms)).where(_c.state == WAITING, _c.not_before_ms <= now)
            created_ms = connection.execute(query).scalar()
        return None if created_ms is None else max(0, now - int(created_ms))

    def last_runs(self, table_uuids: Collection[str] | None = None) -> dict[str, dict[str, LastRun]]:
        """Returns the last run of each operation, by table uuid and operation; of all tables unless some are given."""
        table = schema.table_operations
        wanted = [true()] if table_uuids is None else map(table.c.table_uuid.in_, batches(sorted(set(table_uuids))))
        found: dict[str, dict[str, LastRun]] = defaultdict(dict)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            for condition in wanted:
                for row in connection.execute(select(table).where(condition)):
                    found[row.table_uuid][row.operation] = last_run(row)
        return dict(found)

    def spent_since(self, starts: Mapping[str, int]) -> dict[str, ScopeSpent]:
        """Returns what each scope uses since its day began: jobs that ended in that day, and all that have not ended.

        Scopes are those of `DayLimit`. An amount that was not measured counts as predicted; a job that never started and was
        not measured counts nothing once it has ended.
        """
        found: dict[str, ScopeSpent] = {}
        for since_ms in set(starts.values()):
            by_scope = self._spent(since_ms)
            found |= {scope: by_scope.get(scope, ScopeSpent()) for scope, start in starts.items() if start == since_ms}
        return found

    def _spent(self, since_ms: int) -> dict[str, ScopeSpent]:
        phase = case((_c.state.in_([WAITING, CLAIMED]), _c.state), else_="ended").label("phase")
        counts = or_(_c.state.in_([WAITING, CLAIMED]), _c.finished_ms.between(since_ms, since_ms + _LONGEST_DAY_MS))
        query = select(_c.scopes, phase, *(_total(name) for name in _AMOUNTS)).where(counts).group_by(_c.scopes, phase)
        parts: dict[str, dict[str, list[Spent]]] = defaultdict(lambda: defaultdict(list))
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            for scopes, of, size, core_seconds, money in connection.execute(query):
                spent = Spent(bytes=int(size or 0), core_seconds=core_seconds or 0.0, money=money or 0.0)
                for scope in scopes_of(scopes):
                    parts[scope][of].append(spent)
        return {scope: ScopeSpent(**{of: _sum(many) for of, many in by.items()}) for scope, by in parts.items()}

    def _jobs(
        self, *conditions: ColumnElement[bool], order: tuple[Any, ...] | None = None, limit: int | None = None
    ) -> tuple[Job, ...]:
        newest = (_c.created_ms.desc(), _c.job_id.desc())
        query = select(schema.jobs).where(*conditions).order_by(*(order or newest)).limit(limit)
        with guarded(self._engine, "read"), self._engine.connect() as connection:
            return tuple(job(row) for row in connection.execute(query))

    def _conditions(self, wanted: JobFilter) -> list[ColumnElement[bool]]:
        exact = {"table_uuid": wanted.table_uuid, "operation": wanted.operation, "policy": wanted.policy}
        exact |= {"owner": wanted.owner, "claimed_by": wanted.worker, "run_id": wanted.run_id}
        conditions = [_c[name] == value for name, value in exact.items() if value is not None]
        conditions += [_c.state.in_([state.value for state in wanted.states])] if wanted.states else []
        conditions += [matches_glob(self._engine, _c.table_name, wanted.tables)] if wanted.tables is not None else []
        conditions += [_c.finished_ms >= wanted.finished_since_ms] if wanted.finished_since_ms is not None else []
        return conditions


def _total(amount: str) -> ColumnElement[Any]:
    """The sum of an amount. As a float, since JSON integers of PostgreSQL would be read with 32 bits."""
    ran = or_(_c.state.in_([WAITING, CLAIMED]), _c.started_ms.is_not(None))
    predicted = case((ran, _c.decision[("predicted", amount)].as_float()))
    return func.sum(func.coalesce(_c.actual[amount].as_float(), predicted, 0.0))


def _sum(many: Iterable[Spent]) -> Spent:
    amounts = [(one.bytes or 0, one.core_seconds or 0.0, one.money or 0.0) for one in many]
    size, core_seconds, money = (sum(column) for column in zip((0, 0.0, 0.0), *amounts, strict=True))
    return Spent(bytes=int(size), core_seconds=core_seconds, money=money)
