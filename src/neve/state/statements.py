"""Parts of statements that differ between the databases: upserts and globs. Called by the stores of the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

BATCH = 500
"""Values in one IN list: databases bound how many parameters a statement may have."""

_T = TypeVar("_T")


def upsert(connection: Connection | Engine, table: Table) -> Any:
    """An INSERT that takes `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert)(table)


def matches_glob(connection: Connection | Engine, column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    """Whether a text matches a glob: `*` is any text, `?` any character. Upper and lower case differ."""
    if connection.dialect.name == "postgresql":
        escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return column.like(escaped.replace("*", "%").replace("?", "_"), escape="\\")
    return column.bool_op("GLOB")(pattern.replace("[", "[[]"))  # SQLite's LIKE ignores case


def batches(items: Iterable[_T], size: int = BATCH) -> Iterator[list[_T]]:
    """Lists of at most so many items."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def storable(text: str | None) -> str | None:
    """A text that every database takes: without zero characters, and without halves of characters from odd file names."""
    return None if text is None else text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def storable_document(value: Any) -> Any:
    """A JSON document whose texts every database takes and can search."""
    if isinstance(value, dict):
        return {storable(key): storable_document(one) for key, one in value.items()}
    if isinstance(value, list):
        return [storable_document(one) for one in value]
    return storable(value) if isinstance(value, str) else value
