"""Where a SQLite catalog has a table's metadata: one query, without SQLAlchemy and PyIceberg, which are slow to import.

Called by `opening` before anything else is tried, and by `sql_entries`. Only a plain answer counts: whatever is odd is left to
PyIceberg's catalog, which has the better errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

from neve.kernels.request_counts import count

_PREFIX = "sqlite:///"
_QUERY = "SELECT * FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"


def plain_database(uri: str | None) -> Path | None:
    """The file of a SQLite catalog; None for any other, and for one with options."""
    if not uri or not uri.startswith(_PREFIX) or "?" in uri:
        return None
    return Path(unquote(uri.removeprefix(_PREFIX))).absolute()


def metadata_location(uri: str | None, catalog: str, identifier: Sequence[str]) -> str | None:
    """The metadata file of a table; None if there is no such database or table, or it is not plain to see."""
    if (database := plain_database(uri)) is None:
        return None
    *namespace, table = identifier
    count("catalog")
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(_QUERY, (catalog, ".".join(namespace), table)).fetchall()
    except sqlite3.Error:
        return None
    tables = [row for row in map(dict, rows) if row.get("iceberg_type") in (None, "TABLE")]
    return tables[0]["metadata_location"] if len(tables) == 1 else None
