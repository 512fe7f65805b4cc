"""What is told to the store. Each function is one transaction; a file or partition that is told twice is kept once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from sqlalchemy import BigInteger, Connection, Engine, Table, bindparam, delete, func, insert, null, select, update
from sqlalchemy.exc import IntegrityError

from neve.errors import StateError
from neve.rewrite.compactions import Compacted, CompactionCommit
from neve.rewrite.record import RunRecord
from neve.state import journal, schema
from neve.state.database import guarded, writing
from neve.state.rows import Claim, Run, StoredOutput


def start_run(engine: Engine, run: Run) -> None:
    """Adds the row of a run; its id must be new."""
    try:
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(insert(schema.runs).values(**asdict(run)))
    except StateError as error:
        if isinstance(error.__cause__, IntegrityError):
            raise StateError(f"Cannot start run {run.run_id}: there is one with this id", hint="Use a new id.") from error
        raise


def finish_run(
    engine: Engine, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any], claim: Claim | None = None
) -> None:
    """Fills in the end of a run, and drops what only served to resume it. A run that was claimed only for its owner."""
    with guarded(engine, "write to"), writing(engine) as connection:
        if claim is not None:
            journal.require_owner(connection, run_id, claim)
        _finish(connection, run_id, finished_ms=finished_ms, outcome=outcome, record=record)


def add_commit(
    engine: Engine, run_id: str, *, compacted: Iterable[Compacted], outputs: Iterable[StoredOutput], branch: str
) -> None:
    """Adds the partitions and the files of one commit."""
    with guarded(engine, "write to"), writing(engine) as connection:
        _add_commit(connection, run_id, compacted, outputs, branch)


def withdraw_compactions(engine: Engine, commits: Iterable[CompactionCommit]) -> None:
    """Removes what these commits compacted: the table does not have them in the history of any branch."""
    rows = [{"run": commit.run_id, "snapshot": commit.snapshot_id} for commit in commits]
    if rows:
        table = schema.partitions_compacted.c
        snapshot = bindparam("snapshot", type_=BigInteger)
        matching = (table.run_id == bindparam("run"), table.snapshot_id.is_not_distinct_from(snapshot))
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(delete(schema.partitions_compacted).where(*matching), rows)


def keep_run(engine: Engine, record: RunRecord, compacted: Iterable[Compacted], claim: Claim | None) -> None:
    """Stores a run that ended: its commits, what became of its groups, and its record. A journaled run only for its owner."""
    run = Run(record.recorded_id, record.table_uuid, record.table, record.kind.value, record.started_ms)
    outputs = [
        StoredOutput(path=output.path, row_groups=output.row_groups, bytes=output.size_bytes, rows=output.records)
        for group in record.groups
        if group.snapshot_id is not None
        for output in group.outputs
    ]
    states = {group.group_id: group.state for group in record.groups}
    document = record.model_dump(mode="json")
    with guarded(engine, "write to"), writing(engine) as connection:
        if connection.execute(select(schema.runs.c.run_id).where(schema.runs.c.run_id == run.run_id)).first() is None:
            connection.execute(insert(schema.runs).values(**asdict(run)))
        else:
            journal.require_owner(connection, run.run_id, claim)
        _add_commit(connection, run.run_id, compacted, outputs, record.branch)
        journal.settle(connection, run.run_id, states)
        _finish(connection, run.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)


def _finish(connection: Connection, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any]) -> None:
    end = {"finished_ms": finished_ms, "outcome": outcome, "record": dict(record), "plan": null()}
    # A run is noted some time after it began; its record knows the moment.
    if isinstance(started_ms := record.get("started_ms"), int):
        end["started_ms"] = started_ms
    if connection.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(**end)).rowcount == 0:
        raise _unknown_run("finish", run_id)
    journal.drop_results(connection, run_id)


def _add_commit(
    connection: Connection, run_id: str, compacted: Iterable[Compacted], outputs: Iterable[StoredOutput], branch: str
) -> None:
    table_uuid = connection.execute(select(schema.runs.c.table_uuid).where(schema.runs.c.run_id == run_id)).scalar()
    if table_uuid is None:
        raise _unknown_run("add a commit to", run_id)
    common = {"run_id": run_id, "table_uuid": table_uuid}
    partitions = [
        {
            **common,
            "spec_id": one.partition.spec_id,
            "partition": one.partition.path,
            "committed_ms": one.committed_ms,
            "branch": branch,
            "snapshot_id": one.snapshot_id,
        }
        for one in compacted
    ]
    _put(connection, schema.partitions_compacted, partitions)
    _put(connection, schema.outputs, [{**common, **asdict(output)} for output in outputs])


def check(engine: Engine) -> str:
    """Tries to write and to read, and leaves nothing behind."""
    run = Run(run_id=f"check-{uuid4()}", table_uuid="", table_name="", kind="check", started_ms=0)
    with guarded(engine, "use"), engine.execution_options(neve_writes=True).connect() as connection:
        connection.execute(insert(schema.runs).values(**asdict(run)))
        others = connection.execute(select(func.count()).select_from(schema.runs)).scalar_one() - 1
        connection.rollback()
    where = engine.url.render_as_string(hide_password=True)
    return f"{where}, schema {schema.HEAD}, {others} {'run' if others == 1 else 'runs'}"


def _put(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Replaces rows by primary key. Deleting first says the same to every database; an upsert has a dialect each."""
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    matching = [table.c[key] == bindparam(f"old_{key}") for key in keys]
    connection.execute(delete(table).where(*matching), [{f"old_{key}": row[key] for key in keys} for row in rows])
    connection.execute(insert(table), rows)


def _unknown_run(action: str, run_id: str) -> StateError:
    return StateError(f"Cannot {action} run {run_id}: there is no such run", hint="Start it first.")
