"""What is asked of the store. Each function is one query in a transaction that only reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from sqlalchemy import Engine, and_, func, or_, select

from neve.rewrite.compactions import CompactionCommit
from neve.state import schema
from neve.state.database import clock_ms, guarded
from neve.state.rows import Run
from neve.table.files import Partition

_RUN = [schema.runs.c[field.name] for field in fields(Run)]
"""Without the plan, which may be long and is nobody's business but that of whoever resumes the run."""


def row_groups(engine: Engine, table_uuid: str) -> dict[str, int]:
    """Row groups by path, of the files written for a table."""
    query = select(schema.outputs.c.path, schema.outputs.c.row_groups).where(schema.outputs.c.table_uuid == table_uuid)
    with guarded(engine, "read"), engine.connect() as connection:
        return {row.path: row.row_groups for row in connection.execute(query)}


def compaction_commits(engine: Engine, table_uuid: str) -> tuple[CompactionCommit, ...]:
    """Every commit that compacted partitions of a table."""
    table = schema.partitions_compacted.c
    commit = (table.run_id, table.branch, table.snapshot_id)
    query = select(*commit, func.max(table.committed_ms)).where(table.table_uuid == table_uuid).group_by(*commit)
    with guarded(engine, "read"), engine.connect() as connection:
        return tuple(CompactionCommit(*row) for row in connection.execute(query))


def last_compactions(engine: Engine, table_uuid: str, without: Collection[CompactionCommit]) -> dict[Partition, int]:
    """Milliseconds of the last commit, by partition, apart from some commits."""
    table = schema.partitions_compacted.c
    snapshots = [commit.snapshot_id for commit in without if commit.snapshot_id is not None]
    runs = [commit.run_id for commit in without if commit.snapshot_id is None]
    counts = or_(
        and_(table.snapshot_id.is_(None), table.run_id.not_in(runs)),
        and_(table.snapshot_id.is_not(None), table.snapshot_id.not_in(snapshots)),
    )
    query = (
        select(table.spec_id, table.partition, func.max(table.committed_ms))
        .where(table.table_uuid == table_uuid, counts)
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


def holders(engine: Engine, now_ms: int) -> dict[str, str]:
    """The owner of each unfinished run whose heartbeat is valid, and of each valid lease, by run."""
    run, lease = schema.runs.c, schema.leases.c
    with guarded(engine, "read"), engine.connect() as connection:
        now = clock_ms(connection, now_ms)
        beating = select(run.run_id, run.owner).where(run.finished_ms.is_(None), run.until_ms > now)
        held = select(lease.run_id, lease.owner).where(lease.until_ms > now)
        return {row.run_id: row.owner or "" for query in (held, beating) for row in connection.execute(query)}
