"""A catalog as the service observes it: its tables with as few requests as possible, and their metadata documents.

Called by `service.observer`. A SQL catalog lists all tables with their metadata files in one query; others list namespace by
namespace and are asked for each table by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple

from neve.catalogs.documents import Enough, read_metadata, watching
from neve.catalogs.local_file_io import LocalFileIO
from neve.catalogs.opening import IcebergCatalog, pyiceberg_properties
from neve.catalogs.sql_entries import row_name
from neve.catalogs.sqlite import plain_database
from neve.errors import CorruptMetadataError, MissingFileError, NeveError
from neve.kernels import request_counts
from neve.settings.catalog import CatalogSettings
from neve.table.document import Document
from neve.table.location import address
from neve.table.state import TableName

_WAIT_SECONDS = 30
"""How long a SQLite database that a writer has locked is waited for."""
_ROWS = "SELECT * FROM iceberg_tables WHERE catalog_name = :catalog"
_FETCHED = 1000


class ListedTable(NamedTuple):
    """A table that a catalog lists. `location` is its metadata file; None where the catalog must be asked for it."""

    catalog: str
    namespace: str | tuple[str, ...]
    """One text in a row of a SQL catalog."""
    name: str
    location: str | None = None

    @property
    def full_name(self) -> str:
        """The name by which the fleet has it."""
        return ".".join((self.catalog, *self.parts))

    @property
    def parts(self) -> tuple[str, ...]:
        """The name in its catalog."""
        namespace = tuple(self.namespace.split(".")) if isinstance(self.namespace, str) else self.namespace
        return (*namespace, self.name)

    @property
    def is_addressable(self) -> bool:
        """Whether its full name leads back to it, as commands and jobs need it.

        PyIceberg strips the parts of a namespace in a row.
        """
        parts, in_row = self.parts, isinstance(self.namespace, str)
        return len(parts) > 1 and all(_is_plain(part) and not (in_row and part != part.strip()) for part in parts)

    @property
    def table_name(self) -> TableName:
        """The same with its parts."""
        if isinstance(self.namespace, str):
            return row_name(self.catalog, self.namespace, self.name)
        return TableName(catalog=self.catalog, namespace=self.namespace, name=self.name)


class FleetCatalog:
    """One described catalog. Every method raises NeveError; tables may be loaded by several threads."""

    def __init__(self, catalog: IcebergCatalog, settings: CatalogSettings, environ: Mapping[str, str]) -> None:
        self.name, self.kind = catalog.name, settings.type
        self._catalog = catalog
        self._properties: Callable[[], dict[str, str]] = lambda: pyiceberg_properties(settings, environ)
        self._custom_io = "py-io-impl" in settings.properties
        self._calls = self._failed_openings = 0
        self._counting = Lock()

    @property
    def requests_sent(self) -> int:
        """Requests to the catalog so far, each repetition included; calls of a client that does not count them."""
        client = vars(self._catalog).get("client")
        return self._failed_openings + int(getattr(client, "requests_sent", self._calls))

    def open(self) -> None:
        """Opens the client where one is needed, which may send requests. Raises NeveError."""
        if self.kind == "sql" and self._database is not None:
            return
        before = request_counts.counts()
        try:
            self._catalog.client  # noqa: B018 - opened at its first use
        except NeveError:
            self._failed_openings += max(1, request_counts.since(before).get("catalog", 0))
            raise

    @cached_property
    def lists_locations(self) -> bool:
        """Whether one query returns the metadata file of every table."""
        if self.kind != "sql":
            return False
        return self._database is not None or hasattr(self._catalog.client, "engine")

    def rows(self) -> Iterator[ListedTable]:
        """Every table of a SQL catalog. Views are left out; rows without a type are tables, as older writers leave it out."""
        self._call()
        with self._catalog.reaching():
            for row in self._sqlite_rows() if self._database is not None else self._engine_rows():
                if row.get("iceberg_type") in (None, "TABLE"):
                    namespace, name = (_text(row[key]) for key in ("table_namespace", "table_name"))
                    yield ListedTable(self.name, namespace, name, row["metadata_location"])

    def survey(self) -> Iterator[ListedTable | tuple[str, NeveError]]:
        """Every table of a catalog without a server, and each namespace that cannot be listed, with the reason."""
        self._call()
        for found in self._catalog.survey():
            if isinstance(found, TableName):
                yield ListedTable(self.name, found.namespace, found.name)
            else:
                yield found

    def namespaces_in(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """The namespaces in a namespace, or at the root: one request, or one per page."""
        self._call()
        with self._catalog.reaching():
            children = self._catalog.client.list_namespaces(namespace)
            return sorted(tuple(child) for child in children if len(child) > len(namespace))

    def tables_in(self, namespace: tuple[str, ...]) -> list[ListedTable]:
        """The tables of a namespace: one request, or one per page."""
        self._call()
        tables = self._catalog.tables_in(namespace)
        return [ListedTable(self.name, table.namespace, table.name) for table in tables]

    def document(self, table: ListedTable) -> tuple[Document, str]:
        """The table's metadata document and where that is. Asks the catalog only where the listing names no location.

        A listed file that is gone is asked for once more: a writer may have committed since, and removed it.
        """
        if table.location is None or self._custom_io:
            return self._loaded(table)
        try:
            return self._read(table, table.location)
        except (CorruptMetadataError, MissingFileError):
            return self._loaded(table)

    def _loaded(self, table: ListedTable) -> tuple[Document, str]:
        self._call()
        loaded = self._catalog.load(table.table_name)
        return loaded.document, loaded.metadata_location

    def _call(self) -> None:
        with self._counting:
            self._calls += 1

    def _read(self, table: ListedTable, location: str) -> tuple[Document, str]:
        files = self._local_files if address(location).kind == "file" else self._files
        with self._catalog.reaching(table.table_name), watching() as watched:
            try:
                return read_metadata(files.new_input(location), files), location
            except Enough:
                return watched.document or {}, location

    @cached_property
    def _database(self) -> Any:
        return plain_database(self._properties().get("uri"))

    def _sqlite_rows(self) -> Iterator[dict[str, Any]]:
        import sqlite3

        request_counts.count("catalog")
        uri = f"{self._database.as_uri()}?mode=ro"  # a missing database is an error, not an empty catalog
        with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS)) as connection:
            connection.text_factory = _text
            cursor = connection.execute(_ROWS, {"catalog": self.name})
            columns = [column[0] for column in cursor.description]
            for row in cursor:
                yield dict(zip(columns, row, strict=True))

    def _engine_rows(self) -> Iterator[dict[str, Any]]:
        from sqlalchemy import text

        with self._catalog.client.engine.connect() as connection:
            found = connection.execution_options(yield_per=_FETCHED).execute(text(_ROWS), {"catalog": self.name})
            for row in found.mappings():
                yield dict(row)

    @cached_property
    def _local_files(self) -> LocalFileIO:
        return LocalFileIO(self._properties())

    @cached_property
    def _files(self) -> Any:
        """Opens metadata files elsewhere; one for all tables, so that connections are used again."""
        from neve.catalogs.file_io import LiteralFileIO

        return LiteralFileIO(self._properties())


def _text(data: str | bytes) -> str:
    """A text of SQLite, which may be any bytes; what is not UTF-8 stays visible as halves of characters."""
    return data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")


def _is_plain(part: str) -> bool:
    """Whether a part of a name is text without dots that every database takes."""
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return part != "" and "." not in part and "\0" not in part
