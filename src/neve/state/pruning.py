"""What the store forgets, and what it never does.

Forgotten: finished runs past a limit, with their journal. Kept whatever their age: runs that have not ended, runs with a group
in doubt (nobody else knows the paths of its files), runs with files in the quarantine that are not settled, and these files;
the last compaction of each partition on each branch, and the row groups of files.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Engine,
    String,
    Table,
    Text,
    and_,
    cast,
    delete,
    exists,
    false,
    func,
    not_,
    or_,
    select,
    update,
)

from neve.rewrite.record import GroupState
from neve.state import schema
from neve.state.database import guarded, writing
from neve.state.quarantine import SETTLED
from neve.state.rows import Pruned

DAY_MS = 86_400_000
_CHORE = "prune"
"""The row of `chores`, made with the table, that says when this was last done."""


def prune(engine: Engine, before_ms: int, *, outputs: bool = False, dry_run: bool = False) -> Pruned:
    """Forgets runs that ended before a moment; with `outputs` also the row groups of files whose run is forgotten.

    A dry run does the same and takes it back, so that its numbers are the true ones.
    """
    with guarded(engine, "prune"), writing(engine) as connection:
        pruned = _prune(connection, before_ms, outputs=outputs)
        if dry_run:
            connection.rollback()
        return pruned


def tidy(engine: Engine, *, now_ms: int, keep_seconds: float) -> None:
    """Prunes if nobody has for a day."""
    done_ms = _done_ms(engine)
    # A moment in the future was written by a wrong clock, and must not keep us from it for years.
    if 0 <= now_ms - done_ms < DAY_MS:
        return
    chore = schema.chores.c
    claim = update(schema.chores).where(chore.name == _CHORE, chore.done_ms == done_ms).values(done_ms=now_ms)
    with guarded(engine, "prune"), writing(engine) as connection:
        if connection.execute(claim).rowcount:  # none if another process was quicker
            _prune(connection, now_ms - int(keep_seconds * 1000), outputs=False)


def _done_ms(engine: Engine) -> int:
    with guarded(engine, "read"), engine.connect() as connection:
        return int(connection.execute(select(schema.chores.c.done_ms).where(schema.chores.c.name == _CHORE)).scalar_one())


def _prune(connection: Connection, before_ms: int, *, outputs: bool) -> Pruned:
    freed, rows = 0, []
    for table, condition in _removals(before_ms, outputs=outputs):
        freed += sum(connection.execute(select(*_sizes(table)).where(condition)).one())
        rows.append(connection.execute(delete(table).where(condition)).rowcount)
    groups, quarantined, runs, partitions, files = rows
    counts = {"runs": runs, "groups": groups, "partitions": partitions, "outputs": files, "quarantined": quarantined}
    return Pruned(**counts, bytes=int(freed))


def _sizes(table: Table) -> list[ColumnElement[int]]:
    """Of every column of texts or documents, how long all of its values are together."""
    texts = [cast(column, Text) for column in table.c if isinstance(column.type, String | JSON)]
    return [func.coalesce(func.sum(func.length(text)), 0) for text in texts]


def _removals(before_ms: int, *, outputs: bool) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """What to remove from each table, in this order: the later conditions see what the earlier ones removed."""
    run, group = schema.runs.c, schema.run_groups.c
    in_doubt = select(group.run_id).where(group.state == GroupState.IN_DOUBT.value)
    file = schema.quarantine.c
    settled = file.fate.in_([fate.value for fate in SETTLED])
    unsettled = select(file.run_id).where(not_(settled))
    old = and_(run.finished_ms < before_ms, run.run_id.not_in(in_doubt), run.run_id.not_in(unsettled))
    known = select(run.run_id)
    yield schema.run_groups, group.run_id.in_(known.where(old))
    yield schema.quarantine, and_(settled, file.changed_ms < before_ms)
    yield schema.runs, old
    yield schema.partitions_compacted, and_(schema.partitions_compacted.c.run_id.not_in(known), _compacted_since())
    yield schema.outputs, schema.outputs.c.run_id.not_in(known) if outputs else false()


def _compacted_since() -> ColumnElement[bool]:
    """Whether there is a later compaction of the same partition on the same branch; of two at one moment, the one whose id is
    greater."""
    this, later = schema.partitions_compacted.c, schema.partitions_compacted.alias().c
    columns = ("table_uuid", "branch", "spec_id", "partition")
    same = and_(*(this[name] == later[name] for name in columns))
    # `>=` is there for the index: the database seeks by it, and could not by the other.
    after = and_(
        later.committed_ms >= this.committed_ms, or_(later.committed_ms > this.committed_ms, later.run_id > this.run_id)
    )
    return exists(select(later.run_id).where(same, after).correlate(schema.partitions_compacted))
