"""Which table has a name by now, and where a table is that was renamed while a run was at work on it. Called by `bridge`.

A renamed table is looked for to take the run's marker off it. Only the namespace of the old name is searched, and only so many
tables of it: a catalog may have tens of thousands, and each has to be loaded to read its uuid. A marker that stays on a table
elsewhere ends by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from neve.errors import NeveError
from neve.spark.table.descriptions import java_class
from neve.spark.table.outcome import reading
from neve.table.state import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MOST = 200
"""Tables of the namespace that are looked at."""


@dataclass(frozen=True)
class Renamed:
    """The table as it is loaded under its new name."""

    name: str
    table: Any


def renamed(spark: SparkSession, name: TableName, uuid: str) -> Renamed | None:
    """The table of the same namespace that has this uuid; None if there is none, or the catalog does not tell."""
    try:
        with reading(f"look for {name} under another name"):
            return _searched(spark, name, uuid)
    except NeveError as error:
        log.warning("%s", error)
        return None


def uuid_under(spark: SparkSession, name: TableName) -> str | None:
    """The uuid of the table that has this name now, past the cache of tables; None if that cannot be told."""
    try:
        with reading(f"load {name}"):
            catalog, identifier = _forgotten(spark, name)
            return str(catalog.loadTable(identifier).operations().current().uuid())
    except NeveError as error:
        log.warning("%s", error)
        return None


def forget(spark: SparkSession, name: TableName) -> None:
    """Takes a table out of the cache of tables: one that is cached refuses to become another table of its name."""
    with suppress(NeveError), reading(f"forget {name}"):
        _forgotten(spark, name)


def _forgotten(spark: SparkSession, name: TableName) -> tuple[Any, Any]:
    catalog = _catalog(spark, name)
    identifier = java_class(spark._jvm, "catalog.TableIdentifier").of(_texts(spark, name.identifier))
    catalog.invalidateTable(identifier)
    return catalog, identifier


def _catalog(spark: SparkSession, name: TableName) -> Any:
    return java_class(spark._jvm, "spark.Spark3Util").loadIcebergCatalog(spark._jsparkSession, name.catalog)


def _texts(spark: SparkSession, values: Sequence[str]) -> Any:
    jvm: Any = spark._jvm
    array = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(values))
    for place, value in enumerate(values):
        array[place] = value
    return array


def _searched(spark: SparkSession, name: TableName, uuid: str) -> Renamed | None:
    catalog = _catalog(spark, name)
    there = catalog.listTables(java_class(spark._jvm, "catalog.Namespace").of(_texts(spark, name.namespace)))
    for identifier in islice(there, _MOST):
        if (table := _loaded(catalog, identifier)) is not None and str(table.operations().current().uuid()) == uuid:
            return Renamed(f"{name.catalog}.{identifier}", table)
    return None


def _loaded(catalog: Any, identifier: Any) -> Any:
    """The table as it is now; None if it cannot be loaded, for whatever reason: then it is not looked at."""
    try:
        with reading(f"load {identifier}"):
            table = catalog.loadTable(identifier)
            table.refresh()
            return table
    except NeveError:
        return None
