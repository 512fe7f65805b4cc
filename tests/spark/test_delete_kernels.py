"""Deletes that the kernels write and apply, beside Iceberg's own: each reads the other's, and both delete the same rows."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pytest

from neve.kernels.deletes.position_files import PATH_ID, POS_ID, read_positions, write_positions
from neve.kernels.deletes.puffin import read_vector, write_vectors
from neve.kernels.orders import run_order
from neve.kernels.streams import LocalSink, LocalSource
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import DeleteFile, DeleteKind, InputFile, WorkOrder
from neve.storage.files import Storage
from tests.builders.arrow_files import field, parquet, read, schema, struct
from tests.builders.delete_kernel_tables import SPACE, Written
from tests.builders.table_contents import local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DENSE, SPARSE, LONG_RUN = list(range(0, 9000, 2)), [3, 70_000, 99_999], list(range(20_000, 90_000))


@pytest.mark.parametrize("together", [True, False])
def test_iceberg_reads_the_vectors_that_we_write(spark: SparkSession, warehouse: Path, together: bool) -> None:
    table = Written(spark, warehouse, "id BIGINT", 3)
    deleted = {table.append(0, 100_000): DENSE + LONG_RUN, table.append(100_000, 200_000): SPARSE}
    made = []
    for number, part in enumerate([deleted] if together else [{path: rows} for path, rows in deleted.items()]):
        path = table.data / f"ours-{number}.puffin"
        vectors, size = write_vectors(LocalSink(path), [(p, np.array(rows, np.int64)) for p, rows in part.items()])
        assert size == path.stat().st_size
        for vector in vectors:
            builder = table.builder(path, "puffin", vector.cardinality).ofPositionDeletes()
            builder = builder.withReferencedDataFile(vector.data_file).withContentOffset(vector.offset)
            made.append(builder.withContentSizeInBytes(vector.length).build())
    table.commit(*made)
    gone = {*DENSE, *LONG_RUN, *(100_000 + i for i in SPARSE)}
    left = [i for i in range(200_000) if i not in gone]
    assert table.ids() == left
    # DuckDB 1.5.5 reads a bitmap of more than 4,096 values once more in place of the next one of the same file, Spark's too.
    assert together or table.duckdb_ids(warehouse) == left


def test_icebergs_puffin_reader_finds_our_blobs(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "ours.puffin"
    vectors, size = write_vectors(LocalSink(path), [("file:/a", np.array(SPARSE, np.int64)), ("b", np.array([1], np.int64))])
    jvm: Any = spark._jvm
    given = jvm.org.apache.iceberg.Files.localInput(str(path))
    reader = jvm.org.apache.iceberg.puffin.Puffin.read(given).withFileSize(size).build()
    metadata = reader.fileMetadata()
    reader.close()
    found = [
        (blob.type(), list(blob.inputFields()), blob.snapshotId(), blob.sequenceNumber(), blob.offset(), blob.length())
        for blob in metadata.blobs()
    ]
    assert found == [("deletion-vector-v1", [2147483645], -1, -1, v.offset, v.length) for v in vectors]
    assert [dict(blob.properties()) for blob in metadata.blobs()] == [
        {"referenced-data-file": "file:/a", "cardinality": "3"},
        {"referenced-data-file": "b", "cardinality": "1"},
    ]


def metrics(table: Written, output: Any) -> Any:
    """Counts and bounds of an output as Java has them."""
    jvm = table.jvm
    lower, upper = jvm.java.util.HashMap(), jvm.java.util.HashMap()
    for number in (PATH_ID, POS_ID):
        lower.put(number, jvm.java.nio.ByteBuffer.wrap(output.metrics[number].lower))
        upper.put(number, jvm.java.nio.ByteBuffer.wrap(output.metrics[number].upper))
    return jvm.org.apache.iceberg.Metrics(output.rows, None, None, None, None, lower, upper)


@pytest.mark.parametrize("together", [True, False])
def test_iceberg_reads_the_position_deletes_that_we_write(spark: SparkSession, warehouse: Path, together: bool) -> None:
    table = Written(spark, warehouse, "id BIGINT", 2)
    deleted = {table.append(0, 100_000): DENSE, table.append(100_000, 200_000): SPARSE}
    made = []
    for number, part in enumerate([deleted] if together else [{path: rows} for path, rows in deleted.items()]):
        path = table.data / f"ours-{number}.parquet"
        output = write_positions(LocalSink(path), {p: np.array(rows, np.int64) for p, rows in part.items()})
        builder = table.builder(path, "parquet", output.rows).ofPositionDeletes()
        made.append(builder.withMetrics(metrics(table, output)).build())
    named = table.jvm.org.apache.iceberg.util.ContentFileUtil
    assert [named.isFileScoped(delete) for delete in made] == ([False] if together else [True, True])
    table.commit(*made)
    gone = {*DENSE, *(100_000 + i for i in SPARSE)}
    assert table.ids() == table.duckdb_ids(warehouse) == [i for i in range(200_000) if i not in gone]


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_we_read_the_position_deletes_that_spark_writes(spark: SparkSession, warehouse: Path, granularity: str) -> None:
    table = Written(spark, warehouse, "id BIGINT", 2, **{"write.delete.granularity": granularity})
    first, second = table.append(0, 1000), table.append(1000, 2000)
    spark.sql(f"DELETE FROM {table.sql_name} WHERE id % 7 = 0 AND id > 500")
    found: dict[str, list[int]] = {}
    for delete in table.delete_files():
        (positions,) = read_positions([(LocalSource(local(delete.file_path)), delete.record_count)])
        found |= {path: rows.tolist() for path, rows in positions.items()}
    assert found == {
        first: [i for i in range(501, 1000) if i % 7 == 0],
        second: [i - 1000 for i in range(1000, 2000) if i % 7 == 0],
    }


def test_we_read_the_vectors_that_spark_writes(spark: SparkSession, warehouse: Path) -> None:
    table = Written(spark, warehouse, "id BIGINT", 3)
    first, second = table.append(0, 100_000), table.append(100_000, 200_000)
    spark.sql(f"DELETE FROM {table.sql_name} WHERE id BETWEEN 20000 AND 89999 OR id % 3 = 0 OR id IN (1, 199999)")
    found = {}
    for delete in table.delete_files():
        source = LocalSource(local(delete.file_path))
        blob = source.read_at(delete.content_offset, delete.content_size_in_bytes)
        found[delete.referenced_data_file] = read_vector(blob, source.path, cardinality=delete.record_count).tolist()
    gone = [i for i in range(200_000) if 20_000 <= i < 90_000 or i % 3 == 0 or i in (1, 199_999)]
    assert found == {first: [i for i in gone if i < 100_000], second: [i - 100_000 for i in gone if i >= 100_000]}


ODD_NANS = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64).tolist()
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    # What rows have, and what is deleted.
    "boolean": ([None, True, False], [None, True]),
    "int": ([None, 0, -1, 2**31 - 1], [None, -1]),
    "long": ([None, 0, -1, 2**63 - 1], [2**63 - 1, 5]),
    "float": ([None, 0.0, -0.0, math.nan, 1.5, math.inf], [-0.0, math.nan, math.inf]),
    "double": ([None, 0.0, -0.0, *ODD_NANS, math.nan, -math.inf], [0.0, ODD_NANS[1], None]),
    "decimal(9, 2)": ([None, Decimal("0.00"), Decimal("-1.25")], [Decimal("-1.25")]),
    "decimal(18, 4)": ([None, Decimal("0.0001"), Decimal("-1.2500")], [Decimal("0.0001"), None]),
    "decimal(38, 10)": ([None, Decimal("1E-10"), Decimal("-1234567890123456789012345678.5")], [Decimal("1E-10")]),
    "date": ([None, -1, 0, 19_000], [-1, None]),
    "timestamp": ([None, -1, 0, 2**50], [0, 2**50]),
    "timestamptz": ([None, -1, 0, 2**50], [-1, None]),
    "string": ([None, "", "a", "a\0", "é" * 50], ["", "a\0", "é" * 50]),
    "uuid": ([None, bytes(16), b"\xff" * 16], [b"\xff" * 16]),
    "binary": ([None, b"", b"\0", b"\0\0"], [None, b"\0"]),
    "fixed[4]": ([None, bytes(4), b"abcd"], [bytes(4)]),
}
KINDS = list(VALUES)
FIELDS = [field(i + 2, f"c{i}", kind) for i, kind in enumerate(KINDS)]
NESTED = field(50, "s", struct(field(51, "x", "double")))
KEYED = schema(field(1, "id", "long"), *FIELDS, NESTED)


def keyed_rows() -> list[dict[str, Any]]:
    """A row for each value, in which every other column has what no delete names."""
    plain = {
        f"c{i}": next(v for v in have if v is not None and v not in gone) for i, (have, gone) in enumerate(VALUES.values())
    }
    plain |= {"s": {"x": 1.0}}
    rows = [plain | {f"c{i}": value} for i, (have, _) in enumerate(VALUES.values()) for value in have]
    rows += [plain | {"s": value} for value in (None, {"x": None}, {"x": -0.0}, {"x": 0.0}, {"x": math.nan})]
    return [{"id": i} | row for i, row in enumerate(rows)]


def test_keys_of_every_type_delete_the_rows_that_they_delete_in_spark(spark: SparkSession, warehouse: Path) -> None:
    """One delete for each column, one over two columns, and one that is too old to apply to the second of two equal files."""
    table = Written(spark, warehouse, "id BIGINT", 2)
    jvm = table.jvm
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "local")
    name = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{SPACE}.{table.name}")
    catalog.dropTable(name)
    created = catalog.createTable(name, jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(KEYED)))
    current = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(created.schema()))
    rows = keyed_rows()
    inputs = [data_file(table, 0, rows, current)]
    top = {one["name"]: one for one in current["fields"]}
    nested = top["s"]["type"]["fields"][0]
    deletes = []
    for i, (_, gone) in enumerate(VALUES.values()):
        deletes.append(equality_file(table, [{f"c{i}": value} for value in gone], [top[f"c{i}"]], [top[f"c{i}"]["id"]]))
    deletes.append(equality_file(table, [{"s": {"x": v}} for v in (None, -0.0, math.nan)], [top["s"]], [nested["id"]]))
    pair = [{"id": row["id"], "c3": row["c3"]} for row in rows if row["c3"] is None or math.copysign(1, row["c3"]) > 0]
    deletes.append(equality_file(table, pair, [top["id"], top["c3"]], [top["id"]["id"], top["c3"]["id"]]))
    inputs.append(data_file(table, 1, [row | {"id": row["id"] + 1000} for row in rows], current))
    spark.sql(f"REFRESH TABLE {table.sql_name}")
    theirs = sorted(row.id for row in spark.sql(f"SELECT id FROM {table.sql_name}").collect())

    numbered = [delete.model_copy(update={"sequence_number": 2 + i}) for i, delete in enumerate(deletes)]
    numbers = [1, 2 + len(deletes)]
    order = WorkOrder(
        order_id="o",
        group_id=1,
        kernels=(Kernel.ARROW,),
        inputs=tuple(f.model_copy(update={"sequence_number": n}) for f, n in zip(inputs, numbers, strict=True)),
        table_schema=current,
        output_prefix=str(table.data / "out"),
        deletes=tuple(numbered),
        key_fields=(*(f for f in current["fields"] if f["name"] != "s"), nested),
    )
    result = run_order(order, Storage({}))
    ours = sorted(row["id"] for output in result.outputs for row in read(Path(output.path).read_bytes()))
    assert ours == theirs
    assert result.rows_dropped == 2 * len(rows) - len(theirs) > 40


def data_file(table: Written, number: int, rows: list[dict[str, Any]], of: dict[str, Any]) -> InputFile:
    path = table.data / f"data-{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(parquet(rows, of))
    builder = table.jvm.org.apache.iceberg.DataFiles.builder(table.java.spec()).withPath(str(path)).withFormat("parquet")
    made = builder.withFileSizeInBytes(path.stat().st_size).withRecordCount(len(rows)).build()
    table.java.newAppend().appendFile(made).commit()
    return InputFile(path=str(path), size_bytes=path.stat().st_size, records=len(rows))


def equality_file(table: Written, rows: list[dict[str, Any]], fields: list[dict[str, Any]], ids: list[int]) -> DeleteFile:
    path = table.data / f"{uuid4()}.parquet"
    path.write_bytes(parquet(rows, schema(*fields)))
    java_ids = table.spark.sparkContext._gateway.new_array(table.jvm.int, len(ids))
    for i, number in enumerate(ids):
        java_ids[i] = number
    table.commit(table.builder(path, "parquet", len(rows)).ofEqualityDeletes(java_ids).build())
    return DeleteFile(
        kind=DeleteKind.EQUALITY,
        path=str(path),
        size_bytes=path.stat().st_size,
        records=len(rows),
        sequence_number=0,
        equality_ids=tuple(ids),
    )
