"""What is asked of the store. Each function is one query in a transaction that only reads."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import Engine, func, select

from neve.core.files import Partition
from neve.state import schema
from neve.state.database import guarded
from neve.state.rows import Run

_RUN = [schema.runs.c[field.name] for field in fields(Run)]
"""Without the plan, which may be long and is nobody's business but that of whoever resumes the run."""


def row_groups(engine: Engine, table_uuid: str) -> dict[str, int]:
    """Row groups by path, of the files written for a table."""
    query = select(schema.outputs.c.path, schema.outputs.c.row_groups).where(schema.outputs.c.table_uuid == table_uuid)
    with guarded(engine, "read"), engine.connect() as connection:
        return {row.path: row.row_groups for row in connection.execute(query)}


def last_compactions(engine: Engine, table_uuid: str) -> dict[Partition, int]:
    """Milliseconds of the last commit, by partition."""
    table = schema.partitions_compacted.c
    query = (
        select(table.spec_id, table.partition, func.max(table.committed_ms))
        .where(table.table_uuid == table_uuid)
        .group_by(table.spec_id, table.partition)
    )
    with guarded(engine, "read"), engine.connect() as connection:
        return {Partition(spec_id, path): committed for spec_id, path, committed in connection.execute(query)}


def run(engine: Engine, run_id: str) -> Run | None:
    """One run."""
    with guarded(engine, "read"), engine.connect() as connection:
        row = connection.execute(select(*_RUN).where(schema.runs.c.run_id == run_id)).first()
        return Run(**row._mapping) if row else None


def runs(engine: Engine, table_uuid: str | None, *, limit: int, kind: str | None = None) -> tuple[Run, ...]:
    """Runs, newest first."""
    query = select(*_RUN).order_by(schema.runs.c.started_ms.desc(), schema.runs.c.run_id).limit(limit)
    if table_uuid is not None:
        query = query.where(schema.runs.c.table_uuid == table_uuid)
    if kind is not None:
        query = query.where(schema.runs.c.kind == kind)
    with guarded(engine, "read"), engine.connect() as connection:
        return tuple(Run(**row._mapping) for row in connection.execute(query))
