"""The last run of each operation on a table, failures in a row, and pauses: rows of `table_operations`.

`JobQueue.finish` updates them in its own transaction. `Pauses` is for people, whose pauses outlast runs that end meanwhile.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, and_, case, null, update

from neve.scheduling.job import Job, JobState
from neve.scheduling.observation import Counters
from neve.state import schema
from neve.state.database import guarded, writing
from neve.state.statements import upsert

_c = schema.table_operations.c
_NO_COUNTERS = Counters().model_dump(mode="json")


def note_end(connection: Connection, job: Job, *, paused_until_ms: int | None, idle_until_ms: int | None = None) -> None:
    """Updates the last run of a job's operation. A job that was cancelled before it started leaves no trace."""
    if job.state is JobState.CANCELLED and job.started_ms is None:
        return
    begun = job.finished_ms if job.started_ms is None else job.started_ms
    values: dict[str, Any] = {"table_name": job.table, "started_ms": begun, "finished_ms": job.finished_ms}
    values |= {"outcome": job.outcome, "idle_until_ms": null() if idle_until_ms is None else idle_until_ms}
    changes: dict[str, Any] = dict(values)
    new: dict[str, Any] = {"counters": _NO_COUNTERS, "failures": 0, "paused_until_ms": null(), "paused_by": null()}
    if job.state is JobState.DONE:
        new["counters"] = job.counters.model_dump(mode="json")
        changes |= new | _after_pause_by_hand(job, None)
    elif job.state is JobState.FAILED:
        new |= {"failures": 1, "paused_until_ms": null() if paused_until_ms is None else paused_until_ms}
        changes |= {"failures": _c.failures + 1, **_after_pause_by_hand(job, paused_until_ms)}
    _put(connection, {"table_uuid": job.table_uuid, "operation": job.operation, **values, **new}, changes)


def _after_pause_by_hand(job: Job, until_ms: int | None) -> dict[str, Any]:
    """The pause after a run: one that somebody has set and that is not over stays."""
    stays = and_(_c.paused_by.is_not(None), _c.paused_until_ms > job.finished_ms)
    new = null() if until_ms is None else until_ms
    return {
        "paused_until_ms": case((stays, _c.paused_until_ms), else_=new),
        "paused_by": case((stays, _c.paused_by), else_=null()),
    }


def _put(connection: Connection, row: dict[str, Any], changes: dict[str, Any]) -> None:
    adding = upsert(connection, schema.table_operations).values(**row)
    connection.execute(adding.on_conflict_do_update(index_elements=[_c.table_uuid, _c.operation], set_=changes))


class Pauses:
    """Pauses operations on tables, and ends pauses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def pause(self, table_uuid: str, operation: str, *, until_ms: int, table: str, by: str) -> None:
        """Pauses an operation on a table until a moment, also if it never ran there."""
        paused = {"paused_until_ms": until_ms, "paused_by": by}
        row = {"table_uuid": table_uuid, "operation": operation, "table_name": table, "started_ms": 0, "counters": _NO_COUNTERS}
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            _put(connection, row | paused, paused)

    def end(self, table_uuid: str, operation: str | None = None) -> int:
        """Ends the pause of an operation, or of all, and forgets their failures; returns how many were paused."""
        paused = [_c.table_uuid == table_uuid, _c.paused_until_ms.is_not(None)]
        paused += [_c.operation == operation] if operation is not None else []
        with guarded(self._engine, "write to"), writing(self._engine) as connection:
            change = update(schema.table_operations).where(*paused)
            return connection.execute(change.values(paused_until_ms=null(), paused_by=null(), failures=0)).rowcount
