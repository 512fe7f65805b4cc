"""From a description to an open catalog, and to the Spark settings that open the same one.

Called by `context.connection`. A catalog is opened at its first use, so that a command which needs none asks none.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neve.catalogs.cache import MetadataCache
from neve.catalogs.errors import reaching
from neve.catalogs.families import family
from neve.catalogs.hadoop import HadoopCatalog
from neve.catalogs.reader import MetadataReader
from neve.catalogs.references import TableReferences
from neve.catalogs.storage import plain, pyiceberg_storage, spark_hadoop, spark_storage, storage_needs
from neve.errors import CorruptMetadataError, NeveError, TableNotFoundError
from neve.settings.catalog import CatalogSettings
from neve.table.document import TableOutline, not_understood, outline, require_valid
from neve.table.state import TableName

if TYPE_CHECKING:
    from neve.catalogs.documents import Watched

log = logging.getLogger(__name__)


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
        with reaching(self.name):
            return family(self._settings).load(self.name, pyiceberg_properties(self._settings, self._environ))

    def open(self, name: TableName) -> MetadataReader:
        """Loads a table: one catalog call."""
        from neve.catalogs.documents import watching

        client = self.client
        with reaching(self.name, table=str(name)), watching() as watched, understanding(name, watched):
            return MetadataReader(name, client.load_table(name.identifier), self._cache)

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
        from neve.catalogs.documents import Enough, watching

        client = self.client
        with reaching(self.name, table=str(name)), watching(enough=True) as watched:
            try:
                table = client.load_table(name.identifier)
            except Enough:
                found = outline(watched.document or {}, watched.location)
                return TableReferences(found, _files_of(client, watched, found))
            except (FileNotFoundError, CorruptMetadataError) as error:
                if not watched.is_absent:
                    raise
                _refuse_remains(name, watched, error)
                return None
            found = outline(json.loads(table.metadata.model_dump_json()), table.metadata_location)
            return TableReferences(found, table.io)

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterator[TableName]:
        """Every table, namespace by namespace, in order."""
        client = self.client
        with reaching(self.name):
            if namespace is not None:
                yield from self._tables_of(client, namespace)
            for child in sorted(client.list_namespaces(namespace or ())):
                if namespace is None or len(child) > len(namespace):
                    yield from self.tables(tuple(child))

    def survey(self) -> Iterator[TableName | tuple[str, NeveError]]:
        """Every table, and every namespace that cannot be listed, by its full name with the reason."""
        try:
            yield from self._survey(self.client, ())
        except NeveError as error:
            yield self.name, error

    def _survey(self, client: Any, namespace: tuple[str, ...]) -> Iterator[TableName | tuple[str, NeveError]]:
        children = list[tuple[str, ...]]()
        try:
            with reaching(self.name):
                tables = self._surveyed(client, namespace)
                children += [tuple(child) for child in client.list_namespaces(namespace) if len(child) > len(namespace)]
            yield from tables
        except NeveError as error:
            yield ".".join((self.name, *namespace)), error
        for child in sorted(children):
            yield from self._survey(client, child)

    def _surveyed(self, client: Any, namespace: tuple[str, ...]) -> list[TableName]:
        if isinstance(client, HadoopCatalog):  # it has tables at its root, too
            found = client.list_loadable(namespace)
            return [TableName(catalog=self.name, namespace=identifier[:-1], name=identifier[-1]) for identifier in found]
        return list(self._tables_of(client, namespace)) if namespace else []

    def _tables_of(self, client: Any, namespace: tuple[str, ...]) -> Iterator[TableName]:
        for identifier in sorted(client.list_tables(namespace)):
            yield TableName(catalog=self.name, namespace=tuple(identifier[:-1]), name=identifier[-1])


@contextmanager
def understanding(name: TableName, watched: Watched) -> Iterator[None]:
    """Around the parsing of a table: tells what we do not know from what is corrupt, which PyIceberg may make up for."""
    from pyiceberg.exceptions import ValidationError

    try:
        yield
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        if watched.document is None:
            raise
        require_valid(watched.document, watched.location)
        raise not_understood(str(name), watched.document, error) from error
    if watched.document is not None:
        require_valid(watched.document, watched.location)


def _files_of(client: Any, watched: Watched, found: TableOutline) -> Any:
    """What opens a table's files: by the catalog's properties and the table's own, as PyIceberg does it."""
    from pyiceberg.io import load_file_io

    if watched.io is None:
        return client.files_of(watched.answer, found.properties, found.metadata_location)
    return load_file_io({**watched.io.properties, **found.properties}, found.metadata_location)


def _refuse_remains(name: TableName, watched: Watched, error: Exception) -> None:
    from neve.catalogs.documents import other_metadata

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
    opened = revealed(settings, environ)
    return storage_needs(opened) | family(opened).needs(opened)


def revealed(settings: CatalogSettings, environ: Mapping[str, str]) -> CatalogSettings:
    """The description with its addresses spelled out, a missing database of a `sql` catalog put into the warehouse."""
    uri = settings.uri.reveal(environ) if settings.uri is not None else None
    warehouse = settings.warehouse.reveal(environ) if settings.warehouse is not None else None
    if settings.type == "sql" and uri is None and warehouse is not None:
        from sqlalchemy.engine import URL

        from neve.catalogs.embedded import database_in

        uri = URL.create("sqlite", database=str(database_in(warehouse))).render_as_string()
    return settings.model_copy(update={"uri": uri, "warehouse": warehouse})
