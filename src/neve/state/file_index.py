"""The file index's side of the store (`neve.index_ports`). Called by `StateStore`.

A table's entry is one row: it is replaced as a whole, so that two processes that refresh the index never mix two versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Engine, bindparam, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from neve.maintenance.file_index import TableIndex
from neve.state import schema
from neve.state.database import guarded, writing

_BATCH = 500
_c = schema.file_index.c


def fingerprints(engine: Engine, tables: Collection[str]) -> dict[str, str]:
    """By table, for those that have an entry."""
    return {name: str(digest) for name, digest in _rows(engine, tables, _c.fingerprint)}


def entries(engine: Engine, tables: Collection[str]) -> dict[str, TableIndex]:
    """By table; one in a format that this release does not know counts as none."""
    decoded = ((name, TableIndex.from_bytes(content)) for name, content in _rows(engine, tables, _c.content))
    return {name: index for name, index in decoded if index is not None}


def _rows(engine: Engine, tables: Collection[str], column: ColumnElement[Any]) -> Iterator[tuple[str, Any]]:
    names = sorted(tables)
    for start in range(0, len(names), _BATCH):
        query = select(_c.table_name, column).where(_c.table_name.in_(names[start : start + _BATCH]))
        with guarded(engine, "read"), engine.connect() as connection:
            rows = connection.execute(query).all()
        yield from ((row[0], row[1]) for row in rows)


def keep(engine: Engine, found: Mapping[str, TableIndex], now_ms: int) -> None:
    """Replaces the entries of these tables, all or none."""
    rows = [
        {
            "table_name": name,
            "catalog": name.partition(".")[0],
            "table_uuid": index.uuid,
            "fingerprint": index.fingerprint,
            "entries": index.entries,
            "updated_ms": now_ms,
            "content": index.to_bytes(),
        }
        for name, index in sorted(found.items())
    ]
    if not rows:
        return
    upsert = (postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert)(schema.file_index)
    changes = {column.name: upsert.excluded[column.name] for column in _c if not column.primary_key}
    # In the order of names, so that two processes never wait for each other in a circle.
    with guarded(engine, "write to"), writing(engine) as connection:
        connection.execute(upsert.on_conflict_do_update(index_elements=[_c.table_name], set_=changes), rows)


def forget(engine: Engine, catalog: str, keep: Collection[str]) -> None:
    """Removes the entries of a catalog's other tables."""
    with guarded(engine, "read"), engine.connect() as connection:
        known = connection.execute(select(_c.table_name).where(_c.catalog == catalog)).scalars().all()
    gone = sorted(set(known).difference(keep))
    if gone:
        with guarded(engine, "write to"), writing(engine) as connection:
            connection.execute(delete(schema.file_index).where(_c.table_name == bindparam("old")), [{"old": n} for n in gone])
