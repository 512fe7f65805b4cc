"""What is told to the store. Each function is one transaction; a file or partition that is told twice is kept once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, Engine, Table, bindparam, delete, func, insert, null, select, update
from sqlalchemy.exc import IntegrityError

from neve.core.files import Partition
from neve.core.record import RunRecord
from neve.errors import StateError
from neve.state import journal, schema
from neve.state.database import guarded, writing
from neve.state.rows import Output, Run


def start_run(engine: Engine, run: Run) -> None:
    """Adds the row of a run; its id must be new."""
    try:
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(insert(schema.runs).values(**asdict(run)))
    except StateError as error:
        if isinstance(error.__cause__, IntegrityError):
            raise StateError(f"Cannot start run {run.run_id}: there is one with this id", hint="Use a new id.") from error
        raise


def finish_run(engine: Engine, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any]) -> None:
    """Fills in the end of a run, and drops what only served to resume it."""
    with guarded(engine, "write to"), writing(engine) as connection:
        _finish(connection, run_id, finished_ms=finished_ms, outcome=outcome, record=record)


def add_commit(
    engine: Engine, run_id: str, *, partitions: Iterable[Partition], outputs: Iterable[Output], committed_ms: int
) -> None:
    """Adds the partitions and the files of one commit."""
    with guarded(engine, "write to"), writing(engine) as connection:
        _add_commit(connection, run_id, partitions, outputs, committed_ms)


def keep_run(engine: Engine, record: RunRecord, partitions: Iterable[Partition]) -> None:
    """Stores a run that ended: its commits, what became of its groups, and its record."""
    run = Run(record.run_id, record.table_uuid, record.table, "compact", record.started_ms)
    outputs = [
        Output(path=output.path, row_groups=output.row_groups, bytes=output.size_bytes, rows=output.records)
        for group in record.groups
        if group.snapshot_id is not None
        for output in group.outputs
    ]
    states = {group.group_id: group.state for group in record.groups}
    document = record.model_dump(mode="json")
    with guarded(engine, "write to"), writing(engine) as connection:
        if connection.execute(select(schema.runs.c.run_id).where(schema.runs.c.run_id == run.run_id)).first() is None:
            connection.execute(insert(schema.runs).values(**asdict(run)))
        _add_commit(connection, run.run_id, partitions, outputs, record.finished_ms)
        journal.settle(connection, run.run_id, states)
        _finish(connection, run.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)


def _finish(connection: Connection, run_id: str, *, finished_ms: int, outcome: str, record: Mapping[str, Any]) -> None:
    end = {"finished_ms": finished_ms, "outcome": outcome, "record": dict(record), "plan": null()}
    if connection.execute(update(schema.runs).where(schema.runs.c.run_id == run_id).values(**end)).rowcount == 0:
        raise _unknown_run("finish", run_id)
    journal.drop_results(connection, run_id)


def _add_commit(
    connection: Connection, run_id: str, partitions: Iterable[Partition], outputs: Iterable[Output], committed_ms: int
) -> None:
    table_uuid = connection.execute(select(schema.runs.c.table_uuid).where(schema.runs.c.run_id == run_id)).scalar()
    if table_uuid is None:
        raise _unknown_run("add a commit to", run_id)
    common = {"run_id": run_id, "table_uuid": table_uuid}
    compacted = [{**common, "spec_id": p.spec_id, "partition": p.path, "committed_ms": committed_ms} for p in partitions]
    _put(connection, schema.partitions_compacted, compacted)
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
