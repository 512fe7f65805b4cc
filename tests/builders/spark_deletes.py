"""Deletes as other writers make them: equality deletes of any columns, spec and partition, and upserts as Flink commits them.

Files are written with pyarrow and committed over the session's JVM; nothing of the code under test is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from tests.builders.spark_tables import Bench
from tests.builders.table_contents import local

Row = Mapping[str, Any]
MERGE_ON_READ = (
    "'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read', "
    "'write.distribution-mode' = 'none', 'write.delete.distribution-mode' = 'none', "
    "'write.update.distribution-mode' = 'none', 'write.merge.distribution-mode' = 'none'"
)


def java_table(bench: Bench) -> Any:
    """The table in the JVM, at its newest metadata."""
    jvm: Any = bench.spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(bench.spark._jsparkSession, bench.sql_name)
    table.refresh()
    return table


def delete_equal(bench: Bench, rows: Sequence[Row], *, spec_id: int | None = None, partition: str | None = None) -> str:
    """Deletes older rows that are equal to these in their columns; gives the file's path.

    Without `partition` the spec must be unpartitioned: then the delete is for the whole table.
    """
    table = java_table(bench)
    path, delete = _equality(bench, table, rows, spec_id=spec_id, partition=partition)
    table.newRowDelta().addDeletes(delete).commit()
    return path


def upsert(bench: Bench, rows: Sequence[Row], *, key: Sequence[str], partition: str | None = None) -> None:
    """New rows in place of those with the same key, in one commit."""
    table = java_table(bench)
    keys = [{name: row[name] for name in key} for row in rows]
    _, delete = _equality(bench, table, keys, partition=partition)
    path, size = _written(bench, table, rows, "data")
    builder = bench.spark._jvm.org.apache.iceberg.DataFiles.builder(table.spec())
    builder = builder.withPath(path).withFormat("parquet").withFileSizeInBytes(size).withRecordCount(len(rows))
    data = (builder.withPartitionPath(partition) if partition is not None else builder).build()
    table.newRowDelta().addRows(data).addDeletes(delete).commit()


def _equality(
    bench: Bench, table: Any, rows: Sequence[Row], *, spec_id: int | None = None, partition: str | None = None
) -> tuple[str, Any]:
    jvm: Any = bench.spark._jvm
    spec = table.spec() if spec_id is None else table.specs()[spec_id]
    path, size = _written(bench, table, rows, "equality-deletes")
    schema = bench.load().schema()
    ids = bench.spark.sparkContext._gateway.new_array(jvm.int, len(rows[0]))
    for place, name in enumerate(rows[0]):
        ids[place] = schema.find_field(name).field_id
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(spec).ofEqualityDeletes(ids).withFormat("parquet")
    builder = builder.withPath(path).withFileSizeInBytes(size).withRecordCount(len(rows))
    return path, (builder.withPartitionPath(partition) if partition is not None else builder).build()


def _written(bench: Bench, table: Any, rows: Sequence[Row], kind: str) -> tuple[str, int]:
    """A Parquet file with field ids, as the table spells its location."""
    path = f"{table.location()}/data/{uuid4()}-{kind}.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([dict(row) for row in rows], schema=_arrow(bench.load().schema(), list(rows[0]))), local(path)
    )
    return path, local(path).stat().st_size


def _arrow(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    kinds = schema.select(*columns).as_arrow()
    metadata = {name: {"PARQUET:field_id": str(schema.find_field(name).field_id)} for name in columns}
    return pa.schema([kinds.field(name).with_metadata(metadata[name]) for name in columns])
