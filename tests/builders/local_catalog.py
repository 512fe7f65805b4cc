"""Spark's configuration of a SQLite catalog in a directory."""

from __future__ import annotations

from pathlib import Path


def local_catalog(directory: Path) -> dict[str, str]:
    """Returns the properties of a catalog named `local` whose tables are in this directory."""
    return {
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "jdbc",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:file:{directory}/catalog.db",
        "spark.sql.catalog.local.jdbc.schema-version": "V1",
        "spark.sql.catalog.local.warehouse": str(directory),
    }
