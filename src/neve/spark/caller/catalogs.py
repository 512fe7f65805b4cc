"""The catalogs of a caller's own Spark session, opened as they are: nothing is started, stopped or configured.

Called by `context.caller` where a surface was given a session. Metadata, files and credentials come through the session.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from neve.errors import BadRequestError, TableNotFoundError
from neve.ports import TableReader
from neve.spark.caller.session import active, lines_to_add, refuse_unusable
from neve.spark.caller.storage import task_storage
from neve.spark.caller.table import CallerTable
from neve.spark.quoting import parts_of, quoted
from neve.spark.runtime.gateway import headline
from neve.spark.table.outcome import reading
from neve.table.hadoop_commits import refuse_unlocked
from neve.table.location import refuse_cut
from neve.table.state import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ReaderOf = Callable[[TableName, CallerTable], TableReader]

_CATALOG = "spark.sql.catalog."
_ICEBERGS_OWN = frozenset({"default_iceberg", "default_cache_iceberg", "default_rewrite_catalog"})
_NO_NAMESPACE = frozenset(
    f"org.apache.iceberg.exceptions.{name}" for name in ("NoSuchNamespaceException", "ValidationException")
)
_DATA_LOCATIONS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
_OTHER_PROVIDERS = frozenset(
    {"avro", "binaryfile", "csv", "delta", "hive", "hudi", "jdbc", "json", "kafka", "orc", "parquet", "text", "xml"}
)
"""Providers that are certainly not Iceberg."""
_DETAILS = "# Detailed Table Information"
_NAMES = frozenset({"Catalog", "Comment", "Database", "Location", "Name", "Namespace", "Owner", "Table"})
"""What a table says in its own words."""


@contextmanager
def open_caller(spark: Any, read: ReaderOf) -> Iterator[CallerCatalog]:
    """The session's catalogs; `read` makes a reader of a table. Raises BadRequestError for a session that cannot serve.

    Iceberg writes catalogs of its own into the configuration when files are rewritten; at the end they are taken out again.
    """
    refuse_unusable(spark)
    with active(spark):
        catalog = CallerCatalog(spark, read)
        before = catalog.keys()
        try:
            yield catalog
        finally:
            for key in catalog.keys() - before:
                if key.removeprefix(_CATALOG).partition(".")[0] in _ICEBERGS_OWN:
                    spark.conf.unset(key)


class CallerCatalog:
    """Every catalog of the session, `spark_catalog` included (implements `ports.Catalog`)."""

    def __init__(self, spark: SparkSession, read: ReaderOf) -> None:
        self.spark = spark
        self._read = read
        self._jvm: Any = spark._jvm

    def keys(self) -> set[str]:
        """Every key that is set in the session."""
        session: Any = self.spark._jsparkSession
        return set(str(session.sessionState().conf().getAllConfs().keysIterator().mkString("\n")).split("\n"))

    @property
    def names(self) -> frozenset[str]:
        """The catalogs that the session's configuration names."""
        found = {key.removeprefix(_CATALOG) for key in self.keys() if key.startswith(_CATALOG)}
        return frozenset({name for name in found if "." not in name} - _ICEBERGS_OWN | {"spark_catalog"})

    @property
    def iceberg_names(self) -> frozenset[str]:
        """Those of them that Iceberg provides."""
        classes = ((name, str(self.spark.conf.get(f"{_CATALOG}{name}", ""))) for name in self.names)
        return frozenset(name for name, kind in classes if "iceberg" in kind.lower())

    def uri(self, catalog: str) -> str:
        """The address of a catalog, empty where the session gives none."""
        return str(self.spark.conf.get(f"{_CATALOG}{catalog}.uri", ""))

    def name(self, text: str) -> TableName:
        """A table's name as Spark would read it: without a catalog, or even a namespace, the session's current ones."""
        whole = text if "." in text else f"{self.spark.catalog.currentDatabase()}.{text}"
        return TableName.parse(whole, catalogs=self.names, default_catalog=self._current)

    def open(self, name: TableName) -> TableReader:
        """Loads a table as it is now."""
        return self._read(name, self.table(name))

    def table(self, name: TableName) -> CallerTable:
        """The table's metadata and its files. Raises TableNotFoundError where there is none."""
        table = self._load(name)
        with reading(f"load table {name}"):
            return CallerTable(self._jvm, table)

    def other_format(self, name: TableName) -> tuple[str, ...] | None:
        """The location of a table that is certainly not Iceberg, none for a view; None if that is not certain."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            rows = self.spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(name.catalog, *name.identifier)}").collect()
        except (PySparkException, Py4JJavaError):
            return None
        names = [row.col_name for row in rows]
        start = names.index(_DETAILS) if _DETAILS in names else len(rows)  # columns come first, and may have any name
        facts = {row.col_name: str(row.data_type) for row in rows[start:]}
        if facts.get("Type") == "VIEW":
            return ()
        # A Hive table says by its properties, its storage handler or its serde that it is Iceberg's.
        is_iceberg = any("iceberg" in text.lower() for key, text in facts.items() if key not in _NAMES)
        if is_iceberg or facts.get("Provider", "").lower() not in _OTHER_PROVIDERS:
            return None
        return (facts["Location"],) if "Location" in facts else ()

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterator[TableName]:
        """The tables of a catalog or a namespace, of whatever kind; without a word, those of the current catalog."""
        parts = namespace or ()
        catalog, *levels = parts if parts and parts[0] in self.names else (self._current, *parts)
        yield from self._tables_below(catalog, tuple(levels))

    def survey(self, catalog: str) -> Iterator[TableName]:
        """Every table that may have files. Those at the root and in the directories of others are not among `tables`."""
        at_root = quoted(catalog, ".") if self._is_hadoop(catalog) else quoted(catalog)
        tables = [TableName(catalog=catalog, namespace=(), name=name) for name in self._names_in(at_root)]
        tables += self.tables((catalog,))
        while tables:
            yield (found := tables.pop())
            if self._is_hadoop(catalog):
                inside = self._names_in(quoted(catalog, *found.identifier))
                tables += [TableName(catalog=catalog, namespace=found.identifier, name=name) for name in inside]

    def storage(self, name: TableName) -> dict[str, str]:
        """What tasks need to read and write the table's files, secrets included, or under `REFUSAL` why they cannot."""
        table = self._load(name)
        with reading(f"find the storage of {name}"):
            location, own = str(table.location()), self._to_dict(table.properties())
            places = [location, *(own[key] for key in _DATA_LOCATIONS if key in own)]
            kind, properties = self._io(table.io(), location)
            return task_storage(kind, properties, locations=places, default_filesystem=self._default_filesystem)

    def refuse_commits(self, name: TableName) -> None:
        """Raises where two writers could both believe that they had committed."""
        table = self._load(name)
        location, lock = str(table.location()), self.spark.conf.get(f"{_CATALOG}{name.catalog}.lock-impl", None)
        if not str(table.io().getClass().getName()).endswith(".HadoopFileIO"):
            refuse_cut(str(name), location)
        of_catalog = f"{_CATALOG}{name.catalog}.hadoop.fs.defaultFS"
        if "HadoopTableOperations" in str(table.operations().getClass().getName()):
            refuse_unlocked(
                str(name),
                location,
                lock=lock,
                default_filesystem=str(self.spark.conf.get(of_catalog, self._default_filesystem)),
                hint=f"Use another type of catalog, or set {_CATALOG}{name.catalog}.lock-impl for every writer.",
            )

    @property
    def _default_filesystem(self) -> str:
        """Where Hadoop opens locations without a scheme."""
        return str(self.spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS"))

    @property
    def _current(self) -> str:
        return str(self.spark.catalog.currentCatalog())

    def _tables_below(self, catalog: str, levels: tuple[str, ...]) -> Iterator[TableName]:
        place = quoted(catalog, *levels)
        with reading(f"list {place}"):
            found = self.spark.sql(f"SHOW TABLES IN {place}").collect() if levels else []
            below = [row.namespace for row in self.spark.sql(f"SHOW NAMESPACES IN {place}").collect()]
        for row in sorted(found, key=lambda row: row.tableName):
            if not row.isTemporary:
                yield TableName(catalog=catalog, namespace=levels, name=row.tableName)
        for child in sorted(below):
            yield from self._tables_below(catalog, (*levels, parts_of(child)[-1]))

    def _names_in(self, place: str) -> list[str]:
        """The tables of what may be no namespace; there are none in what certainly is none."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import AnalysisException, IllegalArgumentException

        with reading(f"list {place}"):
            try:
                return [row.tableName for row in self.spark.sql(f"SHOW TABLES IN {place}").collect() if not row.isTemporary]
            except (AnalysisException, IllegalArgumentException):
                return []
            except Py4JJavaError as error:
                if str(error.java_exception.getClass().getName()) in _NO_NAMESPACE:
                    return []
                raise

    def _is_hadoop(self, catalog: str) -> bool:
        """Whether the catalog's tables are the directories of its warehouse."""
        kinds = (self.spark.conf.get(f"{_CATALOG}{catalog}.{key}", "") for key in ("type", "catalog-impl"))
        return any(str(kind).lower().endswith(("hadoop", "hadoopcatalog")) for kind in kinds)

    def _load(self, name: TableName) -> Any:
        with _loading(name, self), active(self.spark):  # also from threads of an engine
            table = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
                self.spark._jsparkSession, quoted(name.catalog, *name.identifier)
            )
            table.refresh()
        if not self._is(table, "BaseTable"):
            raise BadRequestError(f"Cannot use {name}: it is no table with files of its own", hint="Name the table itself.")
        return table

    def _io(self, file_io: Any, location: str) -> tuple[str, dict[str, str]]:
        """The class that reads this location, and its properties, those that the catalog handed out for it included."""
        kind, properties = str(file_io.getClass().getName()), self._to_dict(file_io.properties())
        if kind.endswith(".ResolvingFileIO"):
            kind = str(file_io.ioClass(location).getName())
        handed_out = file_io.credentials() if self._is(file_io, "io.SupportsStorageCredentials") else ()
        for credential in sorted(handed_out, key=lambda given: len(given.prefix())):
            if location.startswith(str(credential.prefix())):
                properties |= self._to_dict(credential.config())
        return kind, properties

    def _is(self, thing: Any, name: str) -> bool:
        from py4j.java_gateway import is_instance_of

        return bool(is_instance_of(self.spark.sparkContext._gateway, thing, f"org.apache.iceberg.{name}"))

    def _to_dict(self, mapping: Any) -> dict[str, str]:
        parsed: dict[str, str] = json.loads(self._jvm.org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(mapping))
        return parsed


@contextmanager
def _loading(name: TableName, catalog: CallerCatalog) -> Iterator[None]:
    from pyspark.errors import AnalysisException, PySparkException

    try:
        with reading(f"load table {name}"):
            yield
    except AnalysisException as error:
        known = ", ".join(sorted(catalog.names))
        raise TableNotFoundError(
            f"Cannot load table {name}: {headline(str(error))}", hint=f"The session's catalogs are {known}."
        ) from error
    except PySparkException as error:
        hint = lines_to_add(catalog.spark)
        raise BadRequestError(f"Cannot load table {name}: {headline(str(error))}", hint=hint) from error
