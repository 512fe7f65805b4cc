"""From a description to an open catalog, and to the Spark settings that open the same one.

Called by `context.connection`. A catalog is opened at its first use, so that a command which needs none asks none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from neve.catalogs.cache import MetadataCache
from neve.catalogs.documents import Enough, Watched, other_metadata, read_metadata, watching
from neve.catalogs.errors import endpoint_of, reaching
from neve.catalogs.families import family
from neve.catalogs.local_file_io import LocalFileIO
from neve.catalogs.reader import LoadedTable, MetadataReader
from neve.catalogs.references import TableReferences
from neve.catalogs.sqlite import metadata_location
from neve.catalogs.storage import plain, pyiceberg_storage, spark_hadoop, spark_storage, storage_needs
from neve.errors import CorruptMetadataError, NeveError, NotUnderstoodError, SettingsError, StorageError, TableNotFoundError
from neve.ports import TableEntry
from neve.settings.catalog import CatalogSettings
from neve.settings.secrets import Text
from neve.table.document import TableOutline, outline
from neve.table.location import address
from neve.table.state import TableName

if TYPE_CHECKING:
    from neve.catalogs.entries import EntrySource

log = logging.getLogger(__name__)

_IMPLEMENTATIONS = frozenset({"catalog-impl", "io-impl", "py-catalog-impl", "py-io-impl"})
"""Properties by which users name classes of their own: what these do to a table is theirs to know."""


class IcebergCatalog:
    """A described catalog (implements `ports.Catalog`)."""

    def __init__(
        self, name: str, settings: CatalogSettings, *, environ: Mapping[str, str], cache: MetadataCache | None = None
    ) -> None:
        self.name = name
        self._settings = settings
        self._environ = environ
        self._cache = cache

    @cached_property
    def client(self) -> Any:
        """The pyiceberg catalog; opening it may already ask the server."""
        with self.reaching():
            return family(self._settings).load(self.name, pyiceberg_properties(self._settings, self._environ))

    def reaching(self, table: TableName | None = None) -> AbstractContextManager[None]:
        """Around calls to the catalog: its errors name the address of the catalog or of its storage."""
        opened = revealed(self._settings, self._environ, lenient=True)
        endpoint = endpoint_of(pyiceberg_properties(self._settings, self._environ))
        return reaching(self.name, table=str(table) if table else None, address=opened.uri, endpoint=endpoint)

    def open(self, name: TableName) -> MetadataReader:
        """Loads a table: one catalog call."""
        with self.reaching(name), watching() as watched:
            return MetadataReader(name, self._load(name, watched), self._cache)

    def load(self, name: TableName) -> LoadedTable:
        """The table's metadata document as the catalog has it now: one catalog call. Nothing of it is checked."""
        with self.reaching(name), watching() as watched:
            return self._load(name, watched)

    def watched(self, name: TableName) -> Watched:
        """The table's document as the catalog has it now, with what it came from. Raises as `open` does."""
        with self.reaching(name), watching() as watched:
            self._load(name, watched)
            return watched

    def entry(self, name: TableName, storage: Mapping[str, str]) -> TableEntry | None:
        """The table's entry, changed in plain Python; None where only Iceberg's Java may change it. Raises as `open` does.

        `storage` has the properties by which files are written.
        """
        from neve.catalogs.entries import PlainEntry

        if (entries := self._entries(storage)) is None:
            return None
        try:
            return PlainEntry(name, entries)
        except NotUnderstoodError as error:
            log.info("%s is changed by Iceberg's Java: %s", name, error)
            return None

    def _entries(self, storage: Mapping[str, str]) -> EntrySource | None:
        """How entries of this catalog are changed; None if only Java can, or the user has named an implementation."""
        if not _IMPLEMENTATIONS.isdisjoint(self._settings.properties):
            return None
        if self._settings.type == "sql":
            from neve.catalogs.sql_entries import SqlEntries, is_known

            uri = pyiceberg_properties(self._settings, self._environ)["uri"]
            return SqlEntries(self, uri, storage) if is_known(uri) else None
        if self._settings.type == "rest":
            from neve.catalogs.rest_entries import RestEntries

            return RestEntries(self)
        return None

    def _load(self, name: TableName, watched: Watched) -> LoadedTable:
        """The table's document as the catalog has it now; PyIceberg need not understand it."""
        try:
            self._read_plainly(name)
            table = self.client.load_table(name.identifier)
        except Enough:
            document = watched.document or {}
            found = outline(document, watched.location)
            files = self._files_of(watched, found)
            return LoadedTable(document, watched.location, files, is_stored=watched.io is not None)
        # A FileIO that the user has named does not pass by `watching`.
        return LoadedTable(json.loads(table.metadata.model_dump_json()), table.metadata_location, table.io, is_stored=True)

    def _read_plainly(self, name: TableName) -> None:
        """Reads a table's document without PyIceberg, if its catalog and its metadata file are on this machine."""
        if self._settings.type != "sql" or "py-io-impl" in self._settings.properties:
            return
        properties = pyiceberg_properties(self._settings, self._environ)
        location = metadata_location(properties.get("uri"), self.name, name.identifier)
        if location is not None and address(location).kind == "file":
            files = LocalFileIO(properties)
            read_metadata(files.new_input(location), files)

    def _files_of(self, watched: Watched, found: TableOutline) -> Any:
        """What opens a table's files: by the catalog's properties and the table's own, as PyIceberg does it."""
        if watched.io is None:
            return self.client.files_of(watched.answer, found.properties, found.metadata_location)
        properties = {**watched.io.properties, **found.properties}
        if isinstance(watched.io, LocalFileIO):
            return LocalFileIO(properties)
        from pyiceberg.io import load_file_io

        return load_file_io(properties, found.metadata_location)

    def outline(self, name: TableName) -> TableOutline | None:
        """Where a table's files are, by its metadata file alone; PyIceberg need not understand it.

        None where there is nothing: no such table, or an entry without metadata, whose directory has no other metadata file
        either, so that nobody can read a file through it. Whatever else cannot be read is an error: somebody may.
        """
        try:
            found = self.references(name)
        except TableNotFoundError:
            return None
        return found.outline if found is not None else None

    def references(self, name: TableName) -> TableReferences | None:
        """All that a table's metadata names, by the metadata file alone. None for an entry without metadata, as in `outline`.

        Raises TableNotFoundError where there is no such table.
        """
        with self.reaching(name), watching() as watched:
            try:
                table = self._load(name, watched)
            except (FileNotFoundError, CorruptMetadataError) as error:
                if not watched.is_absent:
                    raise
                _refuse_remains(name, watched, error)
                return None
            return TableReferences(outline(table.document, table.metadata_location), table.io)

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterator[TableName]:
        """Every table, namespace by namespace, in order."""
        client = self.client
        with self.reaching():
            if namespace is not None:
                yield from self._tables_of(client, namespace)
            for child in sorted(client.list_namespaces(namespace or ())):
                if namespace is None or len(child) > len(namespace):
                    yield from self.tables(tuple(child))

    def tables_in(self, namespace: tuple[str, ...]) -> list[TableName]:
        """The tables of one namespace, without those of namespaces in it."""
        with self.reaching():
            return list(self._tables_of(self.client, namespace))

    def survey(self) -> Iterator[TableName | tuple[str, NeveError]]:
        """Every table, and every namespace that cannot be listed, by its full name with the reason."""
        try:
            match self._settings.type:
                case "hadoop":
                    yield from self._survey_directory(self.client, ())
                case "sql":
                    yield from self._survey_rows(self.client)
                case _:
                    yield from self._survey(self.client, ())
        except NeveError as error:
            yield self.name, error

    def _survey(self, client: Any, namespace: tuple[str, ...]) -> Iterator[TableName | tuple[str, NeveError]]:
        children = list[tuple[str, ...]]()
        try:
            with self.reaching():
                tables = list(self._tables_of(client, namespace)) if namespace else []
                children += [tuple(child) for child in client.list_namespaces(namespace) if len(child) > len(namespace)]
            yield from tables
        except NeveError as error:
            yield ".".join((self.name, *namespace)), error
        for child in sorted(children):
            yield from self._survey(client, child)

    def _survey_directory(
        self, client: Any, directory: tuple[str, ...], *, in_table: bool = False
    ) -> Iterator[TableName | tuple[str, NeveError]]:
        """A directory of a hadoop catalog and those in it. It may be a table and a namespace at once, also at the root.

        A table has its files in `data` and in partitions. They are many, and are not searched for tables.
        """
        try:
            with self.reaching():
                if client.leads_back(directory):
                    return
                if client.leads_out(directory):
                    raise StorageError("Cannot list it: it is a link that leads out of the warehouse, to a directory above it")
                is_table, children = bool(directory) and client.is_table(directory), client.directories(directory)
                if in_table := in_table or is_table:
                    children = [child for child in children if not _has_files(child[-1]) or client.is_table(child)]
        except NeveError as error:
            yield ".".join((self.name, *directory)), error
            return
        if is_table:
            yield TableName(catalog=self.name, namespace=directory[:-1], name=directory[-1])
        for child in children:
            yield from self._survey_directory(client, child, in_table=in_table)

    def _survey_rows(self, client: Any) -> Iterator[TableName | tuple[str, NeveError]]:
        """The rows of a SQL catalog."""
        if not hasattr(client, "engine"):  # an implementation of the user's own
            yield from self._survey(client, ())
            return
        from neve.catalogs.sql_entries import listed_tables, row_name

        with self.reaching():
            found = listed_tables(client.engine, self.name)
        yield from (row_name(self.name, namespace, name) for namespace, name in found)

    def _tables_of(self, client: Any, namespace: tuple[str, ...]) -> Iterator[TableName]:
        for identifier in sorted(client.list_tables(namespace)):
            yield TableName(catalog=self.name, namespace=tuple(identifier[:-1]), name=identifier[-1])


def _has_files(directory: str) -> bool:
    """Whether a directory in that of a table is named as those for data files are."""
    return directory == "data" or "=" in directory


def _refuse_remains(name: TableName, watched: Watched, error: Exception) -> None:
    what = "has no content" if isinstance(error, CorruptMetadataError) else "is missing"
    if others := other_metadata(watched):
        raise CorruptMetadataError(
            f"Cannot load table {name}: its metadata file {watched.location} {what}, and others are there",
            hint=f"Restore it, or register the newest metadata file that is whole; {others[-1]} is beside it. If the table "
            "is not wanted any more, remove its files and its entry.",
        ) from error
    log.info("%s has no metadata: %s %s, and no other is there", name, watched.location, what)


def pyiceberg_properties(settings: CatalogSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """Everything pyiceberg needs; the user's own properties win."""
    opened = revealed(settings, environ)
    described = plain(family(opened).python(opened), environ)
    return {**pyiceberg_storage(opened, environ), **described, **plain(opened.properties, environ)}


def spark_conf(name: str, settings: CatalogSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The Spark configuration under which the same catalog has the same name."""
    opened = revealed(settings, environ)
    properties = {
        **spark_storage(opened, environ),
        **plain({"warehouse": opened.warehouse, **family(opened).spark(opened)}, environ),
        **plain(opened.properties, environ),
    }
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in properties.items()},
        **spark_hadoop(opened),
    }


def spark_needs(settings: CatalogSettings, environ: Mapping[str, str]) -> set[str]:
    """Jar bundles that Spark needs to open this catalog."""
    opened = revealed(settings, environ, lenient=True)
    return storage_needs(opened) | family(opened).needs(opened)


def revealed(settings: CatalogSettings, environ: Mapping[str, str], *, lenient: bool = False) -> CatalogSettings:
    """The description with its addresses spelled out, a missing database of a `sql` catalog put into the warehouse.

    If `lenient`, a reference that leads nowhere stays as it is written: the scheme of an address can still be read.
    """
    uri, warehouse = (_spelled_out(text, environ, lenient=lenient) for text in (settings.uri, settings.warehouse))
    if settings.type == "sql" and uri is None and warehouse is not None:
        from neve.catalogs.embedded import database_in

        uri = f"sqlite:///{quote(str(database_in(warehouse)), safe=' +/')}"  # as SQLAlchemy spells it, without its import
    return settings.model_copy(update={"uri": uri, "warehouse": warehouse})


def _spelled_out(text: Text | None, environ: Mapping[str, str], *, lenient: bool) -> str | None:
    try:
        return text.reveal(environ) if text is not None else None
    except SettingsError:
        if not lenient:
            raise
        return str(text)
