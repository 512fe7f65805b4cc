"""A catalog that Spark cannot open is told as such, with the reason, and not as a table that is not there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from neve.core.model import TableName
from neve.engines.spark.bridge import TableBridge
from neve.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("name", "properties", "reason", "lacks_jars"),
    [
        ("broken_a", {"type": "nonsense"}, "nonsense", False),
        ("broken_b", {"catalog-impl": "no.such.Class"}, "no.such.Class", True),
        ("broken_c", {"type": "hadoop", "warehouse": "/nowhere", "io-impl": "no.such.FileIO"}, "no.such.FileIO", True),
    ],
)
def test_a_catalog_that_cannot_be_opened_says_why(
    spark: SparkSession, name: str, properties: dict[str, str], reason: str, lacks_jars: bool
) -> None:
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    for key, value in properties.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{key}", value)
    with pytest.raises(SettingsError, match=rf"^Cannot open catalog {name} in Spark: .*{re.escape(reason)}") as caught:
        TableBridge(spark, TableName(catalog=name, namespace=("db",), name="t"))
    hint = f"Describe its storage in catalogs.{name}.storage, or name jars in spark.jars."
    assert caught.value.hint == (hint if lacks_jars else None)
