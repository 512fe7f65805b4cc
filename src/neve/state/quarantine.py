"""The quarantine's side of the store (`neve.ports.Quarantine`). Called by `StateStore`.

Files come and go in batches: a million of them are never in memory. A recording is there wholly or not at all; of changes, a
crash leaves some written down and the others not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    bindparam,
    case,
    func,
    insert,
    literal,
    null,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined, QuarantinedRun
from neve.state import schema
from neve.state.database import guarded, writing

BATCH = 5_000
_PAGE = 1_000
SETTLED = (Fate.NEEDED, Fate.RESTORED, Fate.PURGED)
"""Nothing is left to do for such a file; if it is recorded again, it begins anew."""

_T = TypeVar("_T")
_temporary = Table(
    "doomed",
    MetaData(),
    Column("path", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("size_bytes", BigInteger),
    Column("modified_ms", BigInteger),
    prefixes=["TEMPORARY"],
)
_c = schema.quarantine.c
_settle = (
    update(schema.quarantine)
    .where(_c.table_uuid == bindparam("uuid"), _c.path == bindparam("of"))
    # A file keeps its moment as long as it keeps its fate: one that is only marked for a move stays due.
    .values(
        fate=bindparam("new"),
        trash_path=bindparam("trash"),
        size_bytes=func.coalesce(bindparam("size", type_=BigInteger), _c.size_bytes),
        changed_ms=case((_c.fate == bindparam("new"), _c.changed_ms), else_=bindparam("now")),
    )
)


def record(engine: Engine, table_uuid: str, run_id: str, files: Iterable[Candidate], now_ms: int) -> int:
    """Writes files down as RECORDED; how many were not there, or began anew.

    They are gathered in a temporary table, for which others need not wait, and put in by one statement in the order of their
    paths: one by one, each would change another page of the indexes, which for a million is gigabytes.
    """
    values = {
        "table_uuid": table_uuid,
        "run_id": run_id,
        "fate": Fate.RECORDED.value,
        "recorded_ms": now_ms,
        "changed_ms": now_ms,
    }
    with guarded(engine, "write to"), engine.connect() as connection, _gathered(connection, files):
        merging = connection.execution_options(neve_writes=True, preserve_rowcount=True)
        with merging.begin():
            return int(merging.execute(_merge(engine, values)).rowcount)


@contextmanager
def _gathered(connection: Connection, files: Iterable[Candidate]) -> Iterator[None]:
    with connection.begin():
        _temporary.create(connection, checkfirst=False)
    try:
        for batch in _batches(files):
            rows = [file.model_dump(include=set(_temporary.c.keys())) for file in batch]
            with connection.begin():
                connection.execute(insert(_temporary), rows)
        yield
    finally:
        with connection.begin():
            _temporary.drop(connection, checkfirst=False)


def _merge(engine: Engine, values: dict[str, Any]) -> Any:
    upsert: Any = (postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert)(schema.quarantine)
    gathered = _temporary.c
    # Grouped, since PostgreSQL changes no row twice in one statement; `true`, since SQLite could not read it without.
    once = select(
        *(literal(value) for value in values.values()),
        *(gathered.path, func.min(gathered.reason), func.max(gathered.size_bytes), func.max(gathered.modified_ms)),
    )
    once = once.where(true()).group_by(gathered.path).order_by(gathered.path)
    gathered_names = ("reason", "size_bytes", "modified_ms")
    upsert = upsert.from_select([*values, "path", *gathered_names], once)
    anew = {name: upsert.excluded[name] for name in ("run_id", "fate", "recorded_ms", "changed_ms", *gathered_names)}
    return upsert.on_conflict_do_update(
        index_elements=[_c.table_uuid, _c.path],
        set_={**anew, "trash_path": null()},
        where=_c.fate.in_([fate.value for fate in SETTLED]),
    )


def settle(engine: Engine, table_uuid: str, changes: Iterable[FateChange], now_ms: int) -> None:
    """Records what became of files."""
    for batch in _batches(changes):
        rows = [
            {"uuid": table_uuid, "of": path, "new": fate.value, "trash": trash, "now": now_ms, "size": size}
            for path, fate, trash, size in batch
        ]
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(_settle, rows)


def adopt_trash(engine: Engine, dropped_uuid: str, table_uuid: str) -> int:
    """Hands files in the trash of a dropped table to another one; how many. Only that one's purge and restore see them then."""
    taken = select(_c.path).where(_c.table_uuid == table_uuid)
    trashed = (_c.table_uuid == dropped_uuid, _c.fate == Fate.TRASHED.value, _c.path.not_in(taken))
    with guarded(engine, "write to"), writing(engine) as connection:
        return int(connection.execute(update(schema.quarantine).where(*trashed).values(table_uuid=table_uuid)).rowcount)


def quarantined(
    engine: Engine, table_uuid: str, *, fates: Collection[Fate] | None, run_id: str | None, changed_before_ms: int | None
) -> Iterator[Quarantined]:
    """Files of a table, those first whose fate is the oldest; changes made meanwhile may be seen or not."""
    asked = [_c.table_uuid == table_uuid]
    asked += [_c.run_id == run_id] if run_id is not None else []
    asked += [_c.changed_ms < changed_before_ms] if changed_before_ms is not None else []
    # One stream for each fate, since the index has them apart.
    streams = [_stream(engine, [*asked, _c.fate == fate.value]) for fate in sorted(set(fates if fates is not None else Fate))]
    return merge(*streams, key=lambda file: (file.changed_ms, file.path))


def runs(engine: Engine, table_uuid: str) -> tuple[QuarantinedRun, ...]:
    """How many files each run put there and how far they have come, oldest run first."""
    columns = (_c.run_id, _c.reason, _c.fate)
    files, sized, size = func.count(), func.count(_c.size_bytes), func.coalesce(func.sum(_c.size_bytes), 0)
    numbers = (files, size, files - sized, func.min(_c.recorded_ms), func.max(_c.changed_ms))
    query = select(*columns, *numbers).where(_c.table_uuid == table_uuid).group_by(*columns)
    with guarded(engine, "read"), engine.connect() as connection:
        rows = connection.execute(query.order_by(numbers[3], *columns)).all()
    names = ("run_id", "reason", "fate", "files", "size_bytes", "files_without_size", "recorded_ms", "changed_ms")
    return tuple(QuarantinedRun.model_validate(dict(zip(names, row, strict=True))) for row in rows)


def _stream(engine: Engine, asked: list[Any]) -> Iterator[Quarantined]:
    """By pages, each found by where the one before ended: no transaction stays open while the files are dealt with."""
    query = select(*(_c[name] for name in Quarantined.model_fields)).order_by(_c.changed_ms, _c.path).limit(_PAGE)
    page: list[Any] = []
    while True:
        # Compared as a pair, by which the index is entered where the last page ended, however many have the same moment.
        after = [tuple_(_c.changed_ms, _c.path) > tuple_(page[-1].changed_ms, page[-1].path)] if page else []
        with guarded(engine, "read"), engine.connect() as connection:
            page = list(connection.execute(query.where(*asked, *after)))
        yield from (Quarantined.model_validate(dict(row._mapping)) for row in page)
        if len(page) < _PAGE:
            return


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch
