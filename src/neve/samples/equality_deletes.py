"""Adds equality deletes to a table, as Flink would: Spark and pyiceberg can read them, but neither writes them.

Called by the `cdc` sample, by tests and by benchmarks. The file is written with pyarrow and committed over the session's JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from neve.samples.target import Target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema


def add_equality_deletes(
    target: Target, name: str, *, rows: Sequence[Mapping[str, Any]], partition_path: str | None = None
) -> str:
    """One commit that deletes the rows equal to `rows` in the columns that these name; gives the file's path.

    `partition_path` is Iceberg's spelling (`region=eu`); without it the table's spec must be unpartitioned.
    """
    spark = target.session(f"add equality deletes to {name!r}")
    table = target.load(name)
    deletes = _with_field_ids(rows, table.schema())
    path = f"{table.location()}/data/{uuid4()}-equality-deletes.parquet"
    size = _write(deletes, table.io, path)
    ids = [table.schema().find_field(column).field_id for column in deletes.column_names]
    target.refresh(name)
    _commit(spark, target.spark_name(name), path=path, size=size, records=len(rows), ids=ids, partition=partition_path)
    return path


def _with_field_ids(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """The rows as Arrow, each column with the field id by which Iceberg knows it."""
    import pyarrow as pa

    columns = list(rows[0])
    arrow = schema.select(*columns).as_arrow()
    fields = [
        arrow.field(column).with_metadata({"PARQUET:field_id": str(schema.find_field(column).field_id)}) for column in columns
    ]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


def _write(deletes: pa.Table, io: Any, path: str) -> int:
    import pyarrow.parquet as pq

    output = io.new_output(path)
    with output.create() as stream:
        pq.write_table(deletes, stream)
    return len(output)


def _commit(spark: Any, name: str, *, path: str, size: int, records: int, ids: Sequence[int], partition: str | None) -> None:
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    java_ids = gateway.new_array(jvm.int, len(ids))
    for position, field_id in enumerate(ids):
        java_ids[position] = field_id
    builder = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofEqualityDeletes(java_ids)
        .withFormat("parquet")
        .withPath(path)
        .withFileSizeInBytes(size)
        .withRecordCount(records)
    )
    if partition is not None:
        builder = builder.withPartitionPath(partition)
    table.newRowDelta().addDeletes(builder.build()).commit()
