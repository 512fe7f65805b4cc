"""Rows of the store's views that will not change any more, in the order in which they came. Read for the history tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnClause, Engine, column, select, table, tuple_

from neve.state.database import guarded


def view_rows(
    engine: Engine, view: str, columns: Sequence[str], *, moment: str, key: Sequence[str], since_ms: int, batch: int
) -> Iterator[list[dict[str, Any]]]:
    """Yields batches of rows whose `moment` is not before `since_ms`, the oldest first; rows without a moment are left out.

    Each batch is a transaction of its own, so that a long history does not hold the store.
    """
    order: list[ColumnClause[Any]] = [column(name) for name in dict.fromkeys((moment, *key))]
    query: Any = select(*(column(name) for name in columns)).select_from(table(view)).order_by(*order).limit(batch)
    after: tuple[Any, ...] | None = None
    while True:
        wanted = column(moment) >= since_ms if after is None else tuple_(*order) > after
        with guarded(engine, "read"), engine.connect() as connection:
            found = [dict(row._mapping) for row in connection.execute(query.where(wanted))]
        if not found:
            return
        yield found
        after = tuple(found[-1][one.name] for one in order)
