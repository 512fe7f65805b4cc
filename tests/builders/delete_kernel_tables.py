"""Tables on Spark with deletes of every kind, rewritten by a kernel of choice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.catalog.sql import SqlCatalog

from tests.builders.table_contents import duckdb_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SPACE = "delete_kernels"


class Written:
    """A table on real Iceberg, and what can be asked of it."""

    def __init__(self, spark: SparkSession, warehouse: Path, columns: str, version: int, **properties: str) -> None:
        self.spark, self.name = spark, f"t{uuid4().hex[:8]}"
        self.sql_name = f"local.{SPACE}.{self.name}"
        self.data = warehouse / SPACE / self.name / "data"
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{SPACE}")
        settings = {"format-version": str(version), "write.delete.mode": "merge-on-read"} | properties
        listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
        spark.sql(f"CREATE TABLE {self.sql_name} ({columns}) USING iceberg TBLPROPERTIES ({listed})")

    @property
    def jvm(self) -> Any:
        return self.spark._jvm

    @property
    def java(self) -> Any:
        return self.jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.sql_name)

    def append(self, start: int, stop: int) -> str:
        """One data file of ids; gives its path."""
        before = self.paths()
        self.spark.range(start, stop, 1, 1).writeTo(self.sql_name).append()
        (path,) = self.paths() - before
        return str(path)

    def paths(self) -> set[str]:
        return {row.file_path for row in self.spark.sql(f"SELECT file_path FROM {self.sql_name}.data_files").collect()}

    def delete_files(self) -> list[Any]:
        columns = "file_path, record_count, content_offset, content_size_in_bytes, referenced_data_file"
        return list(self.spark.sql(f"SELECT {columns} FROM {self.sql_name}.delete_files").collect())

    def commit(self, *deletes: Any) -> None:
        change = self.java.newRowDelta()
        for delete in deletes:
            change.addDeletes(delete)
        change.commit()
        self.spark.sql(f"REFRESH TABLE {self.sql_name}")

    def builder(self, path: Path, format_: str, records: int) -> Any:
        made = self.jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(self.java.spec()).withFormat(format_)
        return made.withPath(str(path)).withFileSizeInBytes(path.stat().st_size).withRecordCount(records)

    def ids(self) -> list[int]:
        return sorted(row.id for row in self.spark.sql(f"SELECT id FROM {self.sql_name}").collect())

    def duckdb_ids(self, warehouse: Path) -> list[int]:
        catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
        try:
            location = catalog.load_table((SPACE, self.name)).metadata_location
        finally:
            catalog.close()
        return sorted(row["id"] for row in duckdb_query(f"SELECT id FROM iceberg_scan('{location}')"))
