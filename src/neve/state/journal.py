"""The journal's side of the store. Each function is one transaction, so that a crash leaves a state that was true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, and_, bindparam, insert, null, select, update

from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.plan import Plan
from neve.core.record import GroupState
from neve.core.work import WorkResult
from neve.errors import StateError
from neve.state import schema
from neve.state.database import guarded, writing

_change = update(schema.run_groups).where(
    schema.run_groups.c.run_id == bindparam("run"), schema.run_groups.c.group_id == bindparam("group")
)


def begin(engine: Engine, run: JournaledRun) -> None:
    """Writes the plan and its groups down, before any work."""
    row = {
        "run_id": run.run_id,
        "table_uuid": run.plan.table_uuid,
        "table_name": str(run.plan.table),
        "kind": "compact",
        "started_ms": run.started_ms,
        "record": {},
        "owner": run.owner,
        "plan": run.plan.model_dump(mode="json", by_alias=True),
    }
    groups = [
        {
            "run_id": run.run_id,
            "group_id": g.group_id,
            "state": g.state.value,
            "output_prefix": g.output_prefix,
            "result": g.result.model_dump(mode="json") if g.result else None,
        }
        for g in run.groups
    ]
    with guarded(engine, "write to"), writing(engine) as connection:
        connection.execute(insert(schema.runs).values(**row))
        if groups:
            connection.execute(insert(schema.run_groups), groups)


def written(engine: Engine, run_id: str, results: Iterable[WorkResult]) -> None:
    """Notes that these groups' files exist."""
    rows = [
        {"run": run_id, "group": r.group_id, "state": GroupState.WRITTEN.value, "result": r.model_dump(mode="json")}
        for r in results
    ]
    if rows:
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(_change.values(state=bindparam("state"), result=bindparam("result")), rows)


def settled(engine: Engine, run_id: str, states: Mapping[int, GroupState]) -> None:
    """Notes what became of these groups."""
    if states:
        with guarded(engine, "write to"), writing(engine) as connection:
            settle(connection, run_id, states)


def settle(connection: Connection, run_id: str, states: Mapping[int, GroupState]) -> None:
    """The same, as a part of a larger transaction."""
    rows = [{"run": run_id, "group": group_id, "state": state.value} for group_id, state in states.items()]
    if rows:
        connection.execute(_change.values(state=bindparam("state")), rows)


def drop_results(connection: Connection, run_id: str) -> None:
    """Forgets the results of a run that ended: its record has them. Those in doubt stay, and so does every prefix."""
    ended = and_(schema.run_groups.c.run_id == run_id, schema.run_groups.c.state != GroupState.IN_DOUBT.value)
    connection.execute(update(schema.run_groups).where(ended).values(result=null()))


def unfinished(engine: Engine) -> tuple[JournaledRun, ...]:
    """Runs that were begun and never ended, oldest first."""
    query = select(schema.runs).where(schema.runs.c.finished_ms.is_(None), schema.runs.c.plan.is_not(None))
    with guarded(engine, "read"), engine.connect() as connection:
        rows = connection.execute(query.order_by(schema.runs.c.started_ms)).all()
        return tuple(_read(row, connection.execute(_groups(row.run_id)).all()) for row in rows if row.plan)


def _groups(run_id: str) -> Any:
    return select(schema.run_groups).where(schema.run_groups.c.run_id == run_id).order_by(schema.run_groups.c.group_id)


def _read(row: Any, groups: Iterable[Any]) -> JournaledRun:
    try:
        return _run(row, groups)
    except ValidationError as error:
        raise StateError(
            f"Cannot read the journal of run {row.run_id}: it was written by another version of neve",
            hint="Resume the run with the version that began it.",
        ) from error


def _run(row: Any, groups: Iterable[Any]) -> JournaledRun:
    return JournaledRun(
        run_id=row.run_id,
        owner=row.owner or "",
        started_ms=row.started_ms,
        plan=Plan.model_validate(row.plan),
        groups=tuple(
            JournaledGroup(
                group_id=group.group_id,
                output_prefix=group.output_prefix,
                state=GroupState(group.state),
                result=WorkResult.model_validate(group.result) if group.result else None,
            )
            for group in groups
        ),
    )
