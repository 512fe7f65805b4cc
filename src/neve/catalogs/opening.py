"""From a description to an open catalog, and to the Spark settings that open the same one.

Called by `compose`. A catalog is opened at its first use, so that a command which needs none asks none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from neve.catalogs.cache import MetadataCache
from neve.catalogs.errors import reaching
from neve.catalogs.families import family
from neve.catalogs.reader import MetadataReader
from neve.catalogs.storage import plain, pyiceberg_storage, spark_hadoop, spark_storage, storage_needs
from neve.core.model import TableName
from neve.settings.catalog import CatalogSettings


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
        client = self.client
        with reaching(self.name, table=str(name)):
            return MetadataReader(name, client.load_table(name.identifier), self._cache)

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterator[TableName]:
        """Every table, namespace by namespace, in order."""
        client = self.client
        with reaching(self.name):
            if namespace is not None:
                yield from self._tables_of(client, namespace)
            for child in sorted(client.list_namespaces(namespace or ())):
                if namespace is None or len(child) > len(namespace):
                    yield from self.tables(tuple(child))

    def _tables_of(self, client: Any, namespace: tuple[str, ...]) -> Iterator[TableName]:
        for identifier in sorted(client.list_tables(namespace)):
            yield TableName(catalog=self.name, namespace=tuple(identifier[:-1]), name=identifier[-1])


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
        from neve.catalogs.embedded import database_in

        uri = f"sqlite:///{database_in(warehouse)}"
    return settings.model_copy(update={"uri": uri, "warehouse": warehouse})
