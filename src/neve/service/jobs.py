"""What people ask of the queue: jobs, pauses and hints, by names and ids as people write them.

Called by `neve jobs`, `neve hint` and the Python API. Goes to the state store alone: no catalog or Spark is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from neve.errors import BadRequestError
from neve.scheduling.job import Job, JobState
from neve.table.units import parse_seconds

if TYPE_CHECKING:
    from neve.ports import Clock
    from neve.state import StateStore

CANCELLED_MS = 3_600_000
"""How long the service leaves an operation alone on a table after one of its jobs was cancelled."""
_SEARCHED = 10_000
_STATES = {"running": JobState.CLAIMED} | {state.value: state for state in JobState if state is not JobState.CLAIMED}


class Pause(NamedTuple):
    """An operation that the service leaves alone on a table for a time."""

    table: str
    operation: str
    until_ms: int


class Jobs:
    """The jobs of one state store."""

    def __init__(self, state_url: str, clock: Clock, default_catalog: str | None = None) -> None:
        self._url, self._clock, self._default = state_url, clock, default_catalog

    def list(self, pattern: str | None = None, *, states: Collection[str] = (), limit: int = 20) -> tuple[Job, ...]:
        """The newest jobs of tables whose full name matches a glob. States: waiting, running, done, failed, cancelled."""
        from neve.state.job_reading import JobFilter

        wanted = JobFilter(states=frozenset(map(_state, states)))
        with self._existing() as store:
            if store is None:
                return ()
            found = (store.jobs.jobs(wanted.model_copy(update={"tables": one}), limit=limit) for one in self._names(pattern))
            return next(filter(None, found), ())

    def _names(self, name: str | None) -> tuple[str | None, ...]:
        """A name or a pattern as it is, then as one of the default catalog."""
        return (name,) if name is None or self._default is None else (name, f"{self._default}.{name}")

    def show(self, job_id: str) -> Job:
        """One job, by its id or by how that begins."""
        with self._store() as store:
            return _found(store, job_id)

    def cancel(self, job_id: str) -> Job:
        """Cancels a job that waits, or interrupts one that runs; what it has committed stays.

        The operation is paused on the table for an hour: otherwise the service would begin again at once.
        """
        from neve.service.policies import person

        with self._store() as store:
            wanted, now_ms = _found(store, job_id), self._clock.now_ms()
            found = store.jobs.cancel(wanted.job_id, now_ms=now_ms) or wanted
            if found != wanted:
                until_ms = now_ms + CANCELLED_MS
                store.pauses.pause(found.table_uuid, found.operation, until_ms=until_ms, table=found.table, by=person())
            return found

    def pause(self, table: str, operation: str, lasting: str = "1d") -> Pause:
        """Keeps the service from an operation on a table for a time such as `12h`. Commands typed by hand still work."""
        from neve.operations.registry import OPERATIONS
        from neve.service.policies import person

        if operation not in OPERATIONS:
            raise BadRequestError(f"Cannot pause {operation!r}: there are {', '.join(OPERATIONS)}")
        try:
            until_ms = self._clock.now_ms() + round(parse_seconds(lasting) * 1000)
        except ValueError as error:
            raise BadRequestError(f"Cannot pause for {lasting!r}: {error}", hint="Write it like 12h or '2 days'.") from error
        with self._store() as store:
            name, uuid = self._table(store, table)
            store.pauses.pause(uuid, operation, until_ms=until_ms, table=name, by=person())
        return Pause(name, operation, until_ms)

    def unpause(self, table: str, operation: str | None = None) -> tuple[str, int]:
        """Ends pauses on a table, and forgets the failures; returns the table's full name, and how many pauses ended."""
        with self._store() as store:
            name, uuid = self._table(store, table)
            return name, store.pauses.end(uuid, operation)

    def hint(self, table: str) -> str:
        """Tells the service that a table was just written and wants to be looked at soon; returns the table's full name."""
        with self._store() as store:
            name, _ = self._table(store, table)
            store.fleet.hint(name, self._clock.now_ms())
        return name

    def _table(self, store: StateStore, table: str) -> tuple[str, str]:
        """The full name and the uuid of a table of the fleet."""
        for name in self._names(table):
            entry = store.fleet.entry(name or "")
            if entry is not None and entry.table_uuid is not None:
                return entry.table, entry.table_uuid
        hint = "Write its name with its catalog. `neve serve --once` lets the service see all tables."
        raise BadRequestError(f"Cannot find table {table}: the service has not seen it", hint=hint)

    @contextmanager
    def _existing(self) -> Iterator[StateStore | None]:
        from neve.state import StateStore

        with StateStore.open_existing(self._url) or nullcontext() as opened:
            yield opened

    @contextmanager
    def _store(self) -> Iterator[StateStore]:
        with self._existing() as store:
            if store is None:
                raise BadRequestError(
                    "Cannot find the service's state store: there is none yet", hint="Start it with `neve serve`."
                )
            yield store


def _found(store: StateStore, job_id: str) -> Job:
    from neve.state.job_reading import JobFilter

    exact = store.jobs.job(job_id)
    known = [exact] if exact else store.jobs.jobs(JobFilter(), limit=_SEARCHED)
    found = [job for job in known if job.job_id.startswith(job_id)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadRequestError(f"Cannot find job {job_id!r}: no job's id begins so", hint="`neve jobs` lists them.")
    raise BadRequestError(f"Cannot choose job {job_id!r}: {len(found)} jobs begin so", hint="Write more of the id.")


def _state(word: str) -> JobState:
    if word not in _STATES:
        raise BadRequestError(f"Cannot list jobs in state {word!r}: there are {', '.join(sorted(_STATES))}")
    return _STATES[word]
