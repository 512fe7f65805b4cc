"""Entries of a `sql` catalog: a metadata file is written beside the others, and the table's row is pointed at it in one step.

Used by `entries`, for SQLite and PostgreSQL. The step is that of Iceberg's JdbcCatalog and of PyIceberg: a row changes only if
it still names the metadata file that the new one was made from.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from neve.catalogs.entries import Version
from neve.catalogs.sqlite import plain_database
from neve.errors import CommitUnknownError, NeveError, NotUnderstoodError, StorageError
from neve.kernels.request_counts import count
from neve.kernels.streams import Sink
from neve.storage.files import Storage, refusal
from neve.table.document import outline
from neve.table.location import refuse_cut
from neve.table.property_change import MetadataFile, with_properties
from neve.table.state import TableName

if TYPE_CHECKING:
    from neve.catalogs.opening import IcebergCatalog

log = logging.getLogger(__name__)

_WAIT_SECONDS = 30
"""How long a database that another writer has locked is waited for."""
_ROWS = "SELECT * FROM iceberg_tables WHERE catalog_name = :catalog"
_UPDATE = (
    "UPDATE iceberg_tables SET metadata_location = :new, previous_metadata_location = :old WHERE catalog_name = :catalog "
    "AND table_namespace = :namespace AND table_name = :name AND metadata_location = :old"
)


def is_known(uri: str) -> bool:
    """Whether the database is of a kind that Iceberg's Java opens, too."""
    return uri.partition(":")[0].partition("+")[0] in ("sqlite", "postgresql")


def listed_tables(engine: Any, catalog: str) -> list[tuple[str, str]]:
    """The namespace and the name of every table of a catalog. Rows without a type are tables: older writers leave it out."""
    from sqlalchemy import text

    with engine.connect() as connection:
        rows = connection.execute(text(_ROWS), {"catalog": catalog}).mappings().all()
    tables = [row for row in rows if row.get("iceberg_type") in (None, "TABLE")]
    return sorted((row["table_namespace"], row["table_name"]) for row in tables)


def row_name(catalog: str, namespace: str, name: str) -> TableName:
    """The table of a row. PyIceberg cannot address a namespace such as `.dot` by its parts, so that it stays one text."""
    parts = tuple(namespace.split("."))
    whole = all(part.strip() == part != "" for part in parts)
    return TableName(catalog=catalog, namespace=parts if whole else (namespace,), name=name)


class SqlEntries:
    """Of one catalog; `storage` has the properties by which metadata files are written."""

    def __init__(self, catalog: IcebergCatalog, uri: str, storage: Mapping[str, str]) -> None:
        self._catalog, self._uri, self._storage = catalog, uri, dict(storage)

    def load(self, name: TableName) -> Version:
        """The table's row and the metadata file that it names."""
        watched = self._catalog.watched(name)
        return Version(outline(watched.document or {}, watched.location), watched.data)

    def check(self, name: TableName, version: Version) -> None:
        """Raises NotUnderstoodError unless the next metadata file can be made and written here."""
        place = _next_file(version, {}).location
        if reason := refusal(self._storage, [place]):
            raise NotUnderstoodError(f"Cannot write metadata of {name} to {place}: {reason}")

    def send(self, name: TableName, base: Version, values: Mapping[str, str | None]) -> Version | None:
        """Writes the next metadata file, then points the row at it."""
        file = _next_file(base, values)
        refuse_cut(str(name), file.location)
        sink = self._written(file)
        if self._is_swapped(name, base.outline.metadata_location, file.location):
            return Version(outline(file.document, file.location), file.data)
        _take_back(sink, file.location)
        return None

    def tables_in(self, namespace: tuple[str, ...]) -> list[TableName]:
        """The tables of a namespace."""
        return self._catalog.tables_in(namespace)

    def _written(self, file: MetadataFile) -> Sink:
        try:
            sink = Storage(self._storage).sink(file.location)
            try:
                sink.write(file.data)
                sink.close()
            except BaseException:
                sink.abort()
                raise
        except StorageError as error:
            raise CommitUnknownError(str(error)) from error  # nothing landed, and it is worth another try
        return sink

    def _is_swapped(self, name: TableName, old: str, new: str) -> bool:
        """Whether the row named the old file and names the new one. An answer that is lost leaves the new file for orphans."""
        row = {"catalog": name.catalog, "namespace": ".".join(name.namespace), "name": name.name, "old": old, "new": new}
        try:
            return self._updated(row) == 1
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise CommitUnknownError(f"Cannot tell whether the commit landed: {reason}") from error

    def _updated(self, row: Mapping[str, str]) -> int:
        """How many rows were changed."""
        if (database := plain_database(self._uri)) is None:
            from sqlalchemy import text

            with self._catalog.client.engine.begin() as connection:
                return int(connection.execute(text(_UPDATE), dict(row)).rowcount)
        import sqlite3

        count("catalog")
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, timeout=_WAIT_SECONDS)) as opened, opened:
            return opened.execute(_UPDATE, row).rowcount


def _next_file(base: Version, values: Mapping[str, str | None]) -> MetadataFile:
    now_ms, location = time.time_ns() // 1_000_000, base.outline.metadata_location
    return with_properties(base.source, location, values, now_ms=now_ms, file_id=str(uuid4()))


def _take_back(sink: Sink, location: str) -> None:
    """Removes a metadata file that the row certainly never named."""
    try:
        sink.take_back()
    except NeveError as error:
        log.info("%s is left to orphan removal: %s", location, error)
