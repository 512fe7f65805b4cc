"""Scan tasks as a DataFrame, under a name as Iceberg's own rewrites hand theirs to Spark. Used by kernel and content check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from neve.engines.spark.bridge import TableBridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def staged(spark: SparkSession, bridge: TableBridge, tasks: Any) -> Iterator[str]:
    """Makes scan tasks readable as a DataFrame, under the name that is handed out."""
    jvm: Any = spark._jvm
    set_id, manager, cache = str(uuid4()), jvm.org.apache.iceberg.spark.ScanTaskSetManager.get(), _table_cache(jvm)
    cache.add(set_id, bridge.table)
    manager.stageTasks(bridge.table, set_id, tasks)
    try:
        yield set_id
    finally:
        manager.removeTasks(bridge.table, set_id)
        cache.remove(set_id)


def _table_cache(jvm: Any) -> Any:
    """Iceberg keeps this registry to its own package; reflection is the way in from outside."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    method = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getDeclaredMethod("get", None)
    method.setAccessible(True)
    return method.invoke(None, None)
