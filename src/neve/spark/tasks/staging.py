"""Scan tasks as a DataFrame, under a name as Iceberg's own rewrites hand theirs to Spark. Used by kernel and content check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from neve.spark.table.bridge import TableBridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DELETE_CACHE = "spark.sql.iceberg.executor-cache.delete-files.enabled"
_VECTORIZED = "spark.sql.iceberg.vectorization.enabled"

_switching = Lock()
_before: dict[str, list[str | None]] = {DELETE_CACHE: [], _VECTORIZED: []}
"""What each setting was, once for each user of it at this moment."""


def fresh_deletes(conf: Any) -> AbstractContextManager[None]:
    """Keeps Iceberg's cache of deletes out, which a caller's session may have: it holds keys in the type that they once had.
    After that was widened they equal nothing, and rows that are deleted would be written back."""
    return _switched_off(conf, DELETE_CACHE)


def exact_times(conf: Any) -> AbstractContextManager[None]:
    """Keeps Iceberg's vectorized reader out, which takes timestamps in milliseconds for microseconds, so for times in 1970."""
    return _switched_off(conf, _VECTORIZED)


@contextmanager
def _switched_off(conf: Any, key: str) -> Iterator[None]:
    """Groups run side by side, so the last to leave puts the setting back."""
    with _switching:
        users = _before[key]
        users.append(users[0] if users else conf.get(key, None))
        conf.set(key, "false")
    try:
        yield
    finally:
        with _switching:
            before = users.pop()
            if not users:
                conf.unset(key) if before is None else conf.set(key, before)


@contextmanager
def staged(spark: SparkSession, bridge: TableBridge, tasks: Any) -> Iterator[str]:
    """Makes scan tasks readable as a DataFrame, under the name that is handed out."""
    jvm: Any = spark._jvm
    if not jvm.SparkSession.getActiveSession().isDefined():  # in a thread that the caller began
        jvm.SparkSession.setActiveSession(spark._jsparkSession)  # where Spark 3.5 looks for Iceberg's own catalogs
    set_id, manager, cache = str(uuid4()), jvm.org.apache.iceberg.spark.ScanTaskSetManager.get(), _table_cache(jvm)
    cache.add(set_id, bridge.table)
    manager.stageTasks(bridge.table, set_id, tasks)
    try:
        with fresh_deletes(spark.conf):
            yield set_id
    finally:
        manager.removeTasks(bridge.table, set_id)
        cache.remove(set_id)


def without_deletes(spark: SparkSession, tasks: Any) -> Any | None:
    """The same files as scan tasks without deletes, None if no delete applies to any of them."""
    jvm: Any = spark._jvm
    iceberg, gateway = jvm.org.apache.iceberg, cast("Any", spark.sparkContext._gateway)
    nothing = gateway.new_array(iceberg.DeleteFile, 0)
    every = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
    found, has_deletes = jvm.java.util.ArrayList(), False
    for task in tasks:
        if task.deletes().isEmpty():
            found.add(task)
            continue
        has_deletes = True
        schema, spec = iceberg.SchemaParser.toJson(task.schema()), iceberg.PartitionSpecParser.toJson(task.spec())
        found.add(iceberg.BaseFileScanTask(task.file(), nothing, schema, spec, every))
    return found if has_deletes else None


def _table_cache(jvm: Any) -> Any:
    """Iceberg keeps this registry to its own package; reflection is the way in from outside."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    method = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getDeclaredMethod("get", None)
    method.setAccessible(True)
    return method.invoke(None, None)
