"""The journal's side of the store. Each function is one transaction, so that a crash leaves a state that was true.

A run has one owner. Every write names the owner's claim and is refused if another process has taken the run over since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, and_, bindparam, insert, null, select, update

from neve.commit.lease_terms import LEASE_MS, shown_time
from neve.commit.owner import shown
from neve.errors import LeaseHeldError, RunTakenOverError, StateError
from neve.rewrite.journal import JournaledRun
from neve.rewrite.plan import FORMAT_VERSION as PLAN_FORMAT
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.versions import NEWER, UPGRADE, unknown_parts
from neve.rewrite.work_order import FORMAT_VERSION as RESULT_FORMAT
from neve.rewrite.work_order import WorkResult
from neve.state import schema
from neve.state.database import bound_waits, clock_ms, guarded, writing
from neve.state.rows import Claim

_OPEN = (schema.runs.c.finished_ms.is_(None), schema.runs.c.plan.is_not(None))
_BATCH = 500
"""Prefixes in one query: databases bound how many parameters one may have."""

_change = update(schema.run_groups).where(
    schema.run_groups.c.run_id == bindparam("run"), schema.run_groups.c.group_id == bindparam("group")
)


def begin(engine: Engine, run: JournaledRun) -> Claim:
    """Writes the plan and its groups down, before any work. The claim belongs to the run's owner."""
    row: dict[str, Any] = {
        "run_id": run.run_id,
        "table_uuid": run.plan.table_uuid,
        "table_name": str(run.plan.table),
        "kind": run.plan.kind.value,
        "started_ms": run.started_ms,
        "record": {},
        "owner": run.owner,
        "token": run.token,
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
        row["until_ms"] = clock_ms(connection, run.started_ms) + LEASE_MS
        connection.execute(insert(schema.runs).values(**row))
        if groups:
            connection.execute(insert(schema.run_groups), groups)
    return Claim(run.owner, run.token)


def take_over(
    engine: Engine, run_id: str, *, owner: str, gone: str | None, now_ms: int, lease_ms: int
) -> tuple[JournaledRun, Claim]:
    """Makes a process the owner of an unfinished run, and returns the run as the owner before left it.

    Raises LeaseHeldError while the heartbeat of the owner before is valid, unless that owner is `gone`, which has certainly
    ended; and RunTakenOverError if the run has ended.
    """
    with guarded(engine, "write to"), writing(engine) as connection:
        row, now = _resumable(connection, run_id, owner=owner, gone=gone, now_ms=now_ms)
        claim = Claim(owner, row.token + 1)
        values = {"owner": owner, "token": claim.token, "until_ms": now + lease_ms}
        connection.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(**values))
        found = _read(row, connection.execute(_groups(run_id)).all())
    return found.model_copy(update={"token": claim.token}), claim


def require_resumable(engine: Engine, run_id: str, *, owner: str, gone: str | None, now_ms: int) -> None:
    """Raises as `take_over` would, and changes nothing."""
    with guarded(engine, "read"), engine.connect() as connection:
        bound_waits(connection)
        _resumable(connection, run_id, owner=owner, gone=gone, now_ms=now_ms)


def _resumable(connection: Connection, run_id: str, *, owner: str, gone: str | None, now_ms: int) -> tuple[Any, int]:
    """The row of a run that a process may take over, locked, and the time."""
    row = connection.execute(_run_row(run_id).with_for_update()).first()
    if row is None or row.finished_ms is not None or not row.plan:
        raise RunTakenOverError(f"Cannot resume run {run_id[:8]}: it has ended", hint=f"See `neve runs show {run_id[:8]}`.")
    now = clock_ms(connection, now_ms)
    if (row.until_ms or 0) > now and row.owner not in (owner, gone):
        raise LeaseHeldError(
            f"Cannot resume run {run_id[:8]} over {row.table_name}: {shown(row.owner or '')} is at work on it, and its "
            f"heartbeat is valid until {shown_time(row.until_ms)}",
            hint=f"Let it finish. If it hangs, stop that process; `neve resume {run_id[:8]}` works once the heartbeat has "
            "ended, or immediately on the machine of a process that has ended.",
        )
    return row, now


def beat(connection: Connection, run_id: str, claim: Claim, *, until_ms: int) -> bool:
    """Moves the end of a run's heartbeat; False if the run has another owner."""
    run = schema.runs.c
    ours = (run.run_id == run_id, run.token == claim.token, run.owner == claim.owner)
    return connection.execute(update(schema.runs).where(*ours).values(until_ms=until_ms)).rowcount == 1


def pause(engine: Engine, run_id: str, claim: Claim) -> None:
    """Ends the heartbeat of a run that stopped before its end, so that any process may resume it."""
    with guarded(engine, "write to"), writing(engine) as connection:
        beat(connection, run_id, claim, until_ms=0)


def pause_all(engine: Engine, claims: Mapping[str, Claim]) -> tuple[str, ...]:
    """Pauses the runs of these claims that have not ended; their ids, oldest first."""
    run = schema.runs.c
    query = select(run.run_id).where(run.run_id.in_(claims), run.finished_ms.is_(None)).order_by(run.started_ms)
    with guarded(engine, "write to"), writing(engine) as connection:
        open_runs = tuple(connection.execute(query).scalars())
        return tuple(run_id for run_id in open_runs if beat(connection, run_id, claims[run_id], until_ms=0))


def require_owner(connection: Connection, run_id: str, claim: Claim | None) -> None:
    """Raises RunTakenOverError unless the run is still this claim's; nobody else changes that until the transaction ends."""
    row = connection.execute(_run_row(run_id).with_for_update()).first()
    if row is None or claim is None or (row.owner, row.token) != (claim.owner, claim.token):
        other = f"{shown(row.owner or '')} has taken it over" if row is not None else "the state store does not know it"
        raise RunTakenOverError(
            f"Cannot go on with run {run_id[:8]}: {other}",
            hint=f"This process stopped, and changes nothing more. See `neve runs show {run_id[:8]}`.",
        )


def redone(engine: Engine, run_id: str, claim: Claim | None, prefixes: Mapping[int, str]) -> None:
    """Notes under which new names groups are written once more."""
    rows = [{"run": run_id, "group": group_id, "prefix": prefix} for group_id, prefix in prefixes.items()]
    if rows:
        with guarded(engine, "write to"), writing(engine) as connection:
            require_owner(connection, run_id, claim)
            connection.execute(_change.values(output_prefix=bindparam("prefix")), rows)


def written(engine: Engine, run_id: str, claim: Claim | None, results: Iterable[WorkResult]) -> None:
    """Notes that these groups' files exist."""
    rows = [
        {"run": run_id, "group": r.group_id, "state": GroupState.WRITTEN.value, "result": r.model_dump(mode="json")}
        for r in results
    ]
    if rows:
        with guarded(engine, "write to"), writing(engine) as connection:
            require_owner(connection, run_id, claim)
            connection.execute(_change.values(state=bindparam("state"), result=bindparam("result")), rows)


def settled(engine: Engine, run_id: str, claim: Claim | None, states: Mapping[int, GroupState]) -> None:
    """Notes what became of these groups."""
    if states:
        with guarded(engine, "write to"), writing(engine) as connection:
            require_owner(connection, run_id, claim)
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


def unfinished(engine: Engine, begins: str = "") -> tuple[JournaledRun, ...]:
    """Runs that were begun and never ended, oldest first; those whose id begins so. Raises StateError if one cannot be read."""
    query = select(schema.runs).where(*_OPEN, schema.runs.c.run_id.startswith(begins, autoescape=True))
    with guarded(engine, "read"), engine.connect() as connection:
        rows = connection.execute(query.order_by(schema.runs.c.started_ms)).all()
        return tuple(_read(row, connection.execute(_groups(row.run_id)).all()) for row in rows if row.plan)


def planned_snapshots(engine: Engine, table_uuid: str) -> dict[str, int]:
    """The snapshot that each unfinished run of a table was planned from, by run; also if a newer release wrote its journal."""
    query = select(schema.runs.c.run_id, schema.runs.c.plan).where(*_OPEN, schema.runs.c.table_uuid == table_uuid)
    with guarded(engine, "read"), engine.connect() as connection:
        rows = connection.execute(query.order_by(schema.runs.c.started_ms)).all()
        snapshots = {row.run_id: row.plan.get("snapshot_id") for row in rows if row.plan}
        return {run_id: snapshot for run_id, snapshot in snapshots.items() if snapshot is not None}


def landed_before(engine: Engine, table_uuid: str, prefixes: Iterable[str]) -> dict[str, RunRecord]:
    """By prefix, the first ended run of a table that has a committed or superseded group with this prefix."""
    wanted, group, run = sorted(set(prefixes)), schema.run_groups.c, schema.runs.c
    final = [GroupState.COMMITTED.value, GroupState.SUPERSEDED.value]
    ended = (run.table_uuid == table_uuid, run.finished_ms.is_not(None), group.state.in_(final))
    query = select(group.output_prefix, run.run_id).join_from(schema.run_groups, schema.runs).where(*ended)
    with guarded(engine, "read"), engine.connect() as connection:
        runs: dict[str, str] = {}
        for start in range(0, len(wanted), _BATCH):
            some = query.where(group.output_prefix.in_(wanted[start : start + _BATCH])).order_by(run.started_ms.desc())
            runs |= {row.output_prefix: row.run_id for row in connection.execute(some)}
        stored = select(run.run_id, run.record).where(run.run_id.in_(set(runs.values())))
        records = {row.run_id: _record(row.record) for row in connection.execute(stored)}
    return {prefix: record for prefix, run_id in runs.items() if (record := records[run_id]) is not None}


def _record(document: Any) -> RunRecord | None:
    try:
        return RunRecord.model_validate(document, extra="ignore")
    except ValidationError:
        return None  # a record that could not be stored whole, or one of another version


def _run_row(run_id: str) -> Any:
    return select(schema.runs).where(schema.runs.c.run_id == run_id)


def _groups(run_id: str) -> Any:
    return select(schema.run_groups).where(schema.run_groups.c.run_id == run_id).order_by(schema.run_groups.c.group_id)


def _read(row: Any, groups: Iterable[Any]) -> JournaledRun:
    """The run as it was written down. Strict: whoever takes it over must honor all that the journal says."""
    try:
        found = JournaledRun.model_validate(_document(row, groups))
    except ValidationError as error:
        raise _unreadable(row.run_id, unknown_parts(error)) from error
    if newer := _newer_formats(found):
        raise _unreadable(row.run_id, newer)
    return found


def _document(row: Any, groups: Iterable[Any]) -> dict[str, Any]:
    names = ("group_id", "output_prefix", "state")
    return {
        "run_id": row.run_id,
        "owner": row.owner or "",
        "token": row.token,
        "started_ms": row.started_ms,
        "plan": row.plan,
        "groups": [{name: getattr(group, name) for name in names} | {"result": group.result or None} for group in groups],
    }


def _newer_formats(run: JournaledRun) -> tuple[str, ...]:
    """The format versions that this release does not know."""
    plan = [f"plan.format_version {run.plan.format_version}"] if run.plan.format_version > PLAN_FORMAT else []
    results = {group.result.format_version for group in run.groups if group.result is not None}
    return (*plan, *(f"result.format_version {version}" for version in sorted(results) if version > RESULT_FORMAT))


def _unreadable(run_id: str, unknown: tuple[str, ...]) -> StateError:
    reason = f"{NEWER} (unknown: {', '.join(unknown)})" if unknown else "written by another version of Neve"
    hint = "the version that began it."
    return StateError(
        f"Cannot read the journal of run {run_id}: it was {reason}",
        hint=f"{UPGRADE} resume the run with {hint}" if unknown else f"Resume the run with {hint}",
    )
