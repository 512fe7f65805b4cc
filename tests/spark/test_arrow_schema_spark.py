"""Files of the arrow kernel beside those of Iceberg's Java writer: the same Parquet schema, and Spark reads the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from neve.kernels.arrow import ArrowInput, Rewritten, WriteOptions, rewrite
from neve.kernels.streams import LocalSink, LocalSource
from neve.table.metrics import for_manifest, metrics_modes
from tests.builders.arrow_files import field, list_of, map_of, schema, struct

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = schema(
    field(1, "id", "long", required=True),
    field(2, "flag", "boolean"),
    field(3, "small", "int"),
    field(4, "ratio", "float"),
    field(5, "score", "double"),
    field(6, "d9", "decimal(9, 2)"),
    field(7, "d18", "decimal(18, 4)"),
    field(8, "d38", "decimal(38, 10)"),
    field(9, "day", "date"),
    field(10, "local", "timestamp"),
    field(11, "instant", "timestamptz"),
    field(12, "text", "string", required=True),
    field(13, "ident", "uuid"),
    field(14, "bytes", "binary"),
    field(15, "digest", "fixed[4]"),
    field(16, "odd name.1", "int"),
    field(17, "point", struct(field(18, "x", "double", required=True), field(19, "y", "double"))),
    field(20, "tags", list_of(21, "string")),
    field(22, "sure", list_of(23, struct(field(24, "k", "string")), required=True)),
    field(25, "attrs", map_of(26, "string", 27, "int")),
    field(28, "deep", map_of(29, "int", 30, list_of(31, map_of(32, "string", 33, "decimal(20, 2)")), required=True)),
)
ROW = """
    CAST({id} AS BIGINT), true, {id}, CAST('NaN' AS FLOAT), 1.5D, 12.34BD, -1.2345BD, 99.5BD, DATE'2024-02-29',
    TIMESTAMP_NTZ'2024-01-01 01:02:03.123456', TIMESTAMP'2024-01-01 01:02:03.123456', 'text {id}',
    'f79c3e09-677c-4bbd-a479-3f349cb785e7', X'00FF', X'01020304', 7, named_struct('x', 1.0D, 'y', CAST(NULL AS DOUBLE)),
    array('a', NULL), array(named_struct('k', 'v')), map('one', 1, 'none', NULL),
    map(1, array(map('p', CAST(1.25 AS DECIMAL(20, 2))), NULL))
"""
NULLS = "CAST(9 AS BIGINT)" + ", NULL" * 10 + ", 'last'" + ", NULL" * 9


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Any:
    """A table with a column of every type that Spark can write, and two data files."""
    jvm = spark._jvm
    assert jvm is not None
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.arrow")
    catalog = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "local")
    name = jvm.org.apache.iceberg.catalog.TableIdentifier.parse("arrow.everything")
    created = catalog.createTable(name, jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(EVERYTHING)))
    spark.sql(f"INSERT INTO local.arrow.everything SELECT {ROW.format(id=1)} UNION ALL SELECT {ROW.format(id=2)}")
    spark.sql(f"INSERT INTO local.arrow.everything SELECT {NULLS}")
    created.refresh()
    return created


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, table: Any) -> list[Path]:
    """Where Spark wrote them; last the one whose every optional column could be null, and so is optional in the file."""
    del table
    rows = spark.sql("SELECT DISTINCT input_file_name(), id FROM local.arrow.everything ORDER BY id").collect()
    return [Path(row[0].removeprefix("file:")) for row in rows]


@pytest.fixture(scope="module")
def rewritten(spark: SparkSession, table: Any, inputs: list[Path]) -> tuple[Rewritten, Path]:
    """All of them as one file of ours."""
    jvm = spark._jvm
    assert jvm is not None
    current = current_schema(jvm, table)
    given = [ArrowInput(LocalSource(path), pq.read_metadata(path).num_rows) for path in inputs]
    target = Path(table.location().removeprefix("file:")) / "data" / "ours.parquet"
    return rewrite(given, current, WriteOptions(), lambda _: LocalSink(target)), target


def current_schema(jvm: Any, table: Any) -> dict[str, Any]:
    """As Iceberg spells it; creating a table numbers its fields anew."""
    return dict(json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())))


def columns(path: Path) -> list[str]:
    """The Parquet schema without the root's name."""
    return str(pq.ParquetFile(path).schema).splitlines()[2:]


def test_the_parquet_schema_is_that_of_icebergs_java_writer(inputs: list[Path], rewritten: tuple[Rewritten, Path]) -> None:
    theirs = columns(inputs[-1])
    assert columns(rewritten[1]) == theirs
    assert "  optional int32 field_id=16 odd_x20name_x2E1;" in theirs


def test_the_stored_iceberg_schema_is_the_same(inputs: list[Path], rewritten: tuple[Rewritten, Path]) -> None:
    ours, theirs = (pq.read_metadata(path).metadata[b"iceberg.schema"] for path in (rewritten[1], inputs[-1]))
    assert ours == theirs


def tasks_of(table: Any) -> list[Any]:
    """The planned tasks."""
    planned = table.newScan().planFiles()
    each, found = planned.iterator(), []
    while each.hasNext():
        found.append(each.next())
    planned.close()
    return found


def replace_files(spark: SparkSession, table: Any, result: Rewritten, path: Path) -> None:
    """Commits our file in place of all others."""
    jvm = spark._jvm
    assert jvm is not None
    builder = jvm.org.apache.iceberg.DataFiles.builder(table.spec()).withPath(str(path)).withFormat("parquet")
    ours = builder.withFileSizeInBytes(path.stat().st_size).withRecordCount(result.outputs[0].rows).build()
    change = table.newRewrite()
    for task in tasks_of(table):
        change.deleteFile(task.file())
    change.addFile(ours)
    change.commit()


def test_spark_reads_the_same_rows(spark: SparkSession, table: Any, rewritten: tuple[Rewritten, Path]) -> None:
    before = spark.sql("SELECT * FROM local.arrow.everything ORDER BY id").collect()
    replace_files(spark, table, *rewritten)
    spark.sql("REFRESH TABLE local.arrow.everything")
    files = spark.sql("SELECT file_path FROM local.arrow.everything.files").collect()
    assert [row[0] for row in files] == [str(rewritten[1])]
    assert str(spark.sql("SELECT * FROM local.arrow.everything ORDER BY id").collect()) == str(before)


FLAT = """
    SELECT id, CAST(id % 7 AS INT) AS few, concat('k', id % 50) AS kind, concat('text ', id * 7919) AS many, id / 3.0D AS ratio,
    timestamp_micros(1700000000000000 + id * 1000) AS at, CAST(id AS DECIMAL(18, 2)) AS price,
    IF(id % 5 = 0, NULL, id * 31) AS gap
    FROM range(50000)
"""


@pytest.mark.parametrize("delta", [False, True])
def test_sparks_vectorized_reader_reads_every_encoding(spark: SparkSession, delta: bool) -> None:
    jvm = spark._jvm
    assert jvm is not None
    name = f"local.arrow.flat_{delta}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.arrow")
    spark.sql(f"CREATE TABLE {name} USING iceberg TBLPROPERTIES ('read.parquet.vectorization.enabled'='true') AS {FLAT}")
    paths = [Path(row[0].removeprefix("file:")) for row in spark.sql(f"SELECT file_path FROM {name}.files").collect()]
    checksum = f"SELECT count(*), sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) FROM {name}"
    before = spark.sql(checksum).collect()

    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    given = [ArrowInput(LocalSource(path), pq.read_metadata(path).num_rows) for path in paths]
    target = paths[0].with_name("ours.parquet")
    options = WriteOptions(delta_integers=delta, row_group_rows=20_000)
    result = rewrite(given, current_schema(jvm, loaded), options, lambda _: LocalSink(target))
    replace_files(spark, loaded, result, target)
    spark.sql(f"REFRESH TABLE {name}")
    group = pq.read_metadata(target).row_group(0)
    encodings = {group.column(i).path_in_schema: set(group.column(i).encodings) for i in range(group.num_columns)}
    assert ("DELTA_BINARY_PACKED" in encodings["id"]) is delta
    assert "RLE_DICTIONARY" in encodings["kind"]
    assert spark.sql(f"SELECT DISTINCT input_file_name() FROM {name}").collect()[0][0].endswith("/ours.parquet")
    assert spark.sql(checksum).collect() == before


def test_value_and_null_counts_are_those_of_icebergs_own_metrics(
    spark: SparkSession, table: Any, rewritten: tuple[Rewritten, Path]
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    result, path = rewritten
    config = jvm.org.apache.iceberg.MetricsConfig.forTable(table)
    file = jvm.org.apache.iceberg.Files.localInput(str(path))
    theirs = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(file, config)
    current = current_schema(jvm, table)
    ours = for_manifest(result.outputs[0].metrics, current, metrics_modes(current, {}))
    for name, counts in {
        "values": theirs.valueCounts(),
        "nulls": theirs.nullValueCounts(),
        "size_bytes": theirs.columnSizes(),
    }.items():
        assert dict(counts) == {i: n for i, column in ours.items() if (n := getattr(column, name)) is not None}, name
    for name, bounds in {"lower": theirs.lowerBounds(), "upper": theirs.upperBounds()}.items():
        found = {i: bytes(jvm.org.apache.iceberg.util.ByteBuffers.toByteArray(bound)) for i, bound in dict(bounds).items()}
        assert found == {i: data for i, column in ours.items() if (data := getattr(column, name)) is not None}, name
