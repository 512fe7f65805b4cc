"""Types and defaults of format v3: what a kernel writes reads as before, what it cannot write it refuses by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.kernels.orders import OrderFailedError
from neve.rewrite.group import Kernel
from tests.builders.arrow_files import field
from tests.builders.kernel_rewrites import rewrite
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPY, ARROW = Kernel.COPY, Kernel.ARROW
POINT = "X'0101000000000000000000F03F0000000000000040'"
VALUES = {
    "variant": ("""parse_json('{"a": [1, "x"], "b": null}')""", "to_json(x)"),
    "unknown": ("NULL", "x"),
    "geometry": (f"st_setsrid(st_geomfromwkb({POINT}), 4326)", "hex(st_asbinary(x))"),
    "geography": (f"st_geogfromwkb({POINT})", "hex(st_asbinary(x))"),
}
DEFAULTS = {
    "boolean": True,
    "int": -5,
    "long": 9_000_000_000,
    "float": 1.5,
    "double": -2.25,
    "decimal(9, 2)": "12.34",
    "decimal(38, 10)": "-0.0000000001",
    "date": "2024-02-29",
    "timestamp": "1969-12-31T23:59:59.999999",
    "timestamptz": "2024-01-01T01:02:03.123456+00:00",
    "string": "größe 😀",
    "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
    "fixed[3]": "616263",
    "binary": "00FF",
}


def create(spark: SparkSession, warehouse: Path, name: str, *fields: dict[str, Any]) -> tuple[Bench, Any]:
    """A table made over Iceberg's own interface, since Spark's SQL cannot name all of its types."""
    jvm: Any = spark._jvm
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.types")
    iceberg = jvm.org.apache.iceberg
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(spark._jsparkSession, "local")
    schema = iceberg.SchemaParser.fromJson(json.dumps({"type": "struct", "schema-id": 0, "fields": fields}))
    properties = jvm.java.util.HashMap()
    properties.put("format-version", "3")
    identifier = iceberg.catalog.TableIdentifier.parse(f"types.{name}")
    table = catalog.createTable(identifier, schema, iceberg.PartitionSpec.unpartitioned(), properties)
    return Bench(spark, warehouse, "types", name), table


@pytest.fixture
def geospatial(spark: SparkSession) -> Iterator[None]:
    """Spark knows geometries if it is told to."""
    spark.conf.set("spark.sql.geospatial.enabled", "true")
    yield
    spark.conf.unset("spark.sql.geospatial.enabled")


@pytest.mark.usefixtures("geospatial")
@pytest.mark.parametrize("kind", VALUES)
def test_types_that_arrow_refuses_are_copied(kind: str, spark: SparkSession, warehouse: Path) -> None:
    bench, _ = create(spark, warehouse, kind, field(1, "id", "long"), field(2, "x", kind))
    value, shown = VALUES[kind]
    for number in range(2):
        rows = f"SELECT nullif(id, -1), IF(id % 2 = 0, {value}, NULL) FROM range({number * 3}, {number * 3 + 3})"
        spark.sql(f"INSERT INTO {bench.sql_name} {rows}")
    everything = f"id, {shown} AS x, _row_id, _last_updated_sequence_number"
    before = bench.rows(everything)
    with pytest.raises(OrderFailedError, match=rf"column x has type {kind}"):
        rewrite(bench, ARROW)
    rewrite(bench, COPY)
    assert len(bench.paths()) == 1
    assert bench.rows(everything) == before


def test_initial_defaults_of_every_type_are_written_out(spark: SparkSession, warehouse: Path) -> None:
    bench, table = create(spark, warehouse, "defaults", field(1, "id", "long"))
    bench.sql("INSERT INTO {} VALUES (1), (2)")
    jvm: Any = spark._jvm
    change = table.updateSchema()
    for number, (kind, default) in enumerate(DEFAULTS.items()):
        type_ = jvm.org.apache.iceberg.types.Types.fromPrimitiveString(kind)
        value = jvm.org.apache.iceberg.SingleValueParser.fromJson(type_, json.dumps(default))
        change.addColumn(f"c{number}", type_, None, jvm.org.apache.iceberg.expressions.Expressions.lit(value).to(type_))
    change.commit()
    spark.sql(f"REFRESH TABLE {bench.sql_name}")
    bench.sql(f"INSERT INTO {{}} SELECT 3, {', '.join(['NULL'] * len(DEFAULTS))}")
    everything = "*, _row_id, _last_updated_sequence_number"
    before = bench.rows(everything)
    assert sum("größe 😀" in row for row in before) == 2
    rewrite(bench, ARROW)
    assert len(bench.paths()) == 1
    assert bench.rows(everything) == before


FIRST = 10**12
"""Large enough for a Java long."""
LOCAL, ZONED = "2024-01-01T01:02:03.123456789", "1969-12-31T23:59:59.999999999Z"


@pytest.mark.parametrize("kernel", [COPY, ARROW])
def test_nanoseconds_survive_although_spark_cannot_read_them(kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    local, zoned = field(2, "local", "timestamp_ns"), field(3, "zoned", "timestamptz_ns")
    bench, table = create(spark, warehouse, f"nanos_{kernel}", field(1, "id", "long"), local, zoned)
    jvm: Any = spark._jvm
    times = jvm.java.time
    for number in range(2):
        values = {
            "id": FIRST + number,
            "local": times.LocalDateTime.parse(LOCAL).plusNanos(number),
            "zoned": times.OffsetDateTime.parse(ZONED),
        }
        append(jvm, table, number, values)
    append(jvm, table, 2, {"id": FIRST + 2, "local": None, "zoned": None})
    expected = [
        f"Record({FIRST + 0}, 2024-01-01T01:02:03.123456789, 1969-12-31T23:59:59.999999999Z)",
        f"Record({FIRST + 1}, 2024-01-01T01:02:03.123456790, 1969-12-31T23:59:59.999999999Z)",
        f"Record({FIRST + 2}, null, null)",
    ]
    assert rows_of(jvm, table) == expected
    rewrite(bench, kernel)
    table.refresh()
    assert int(table.currentSnapshot().summary()["total-data-files"]) == 1
    assert rows_of(jvm, table) == expected


def append(jvm: Any, table: Any, number: int, values: dict[str, Any]) -> None:
    """A file of one row, written by Iceberg's own Java writer."""
    iceberg = jvm.org.apache.iceberg
    record = iceberg.data.GenericRecord.create(table.schema())
    for name, value in values.items():
        record.setField(name, value)
    output = table.io().newOutputFile(f"{table.location()}/data/{number}.parquet")
    factory = iceberg.data.GenericFileWriterFactory.Builder(table).dataFileFormat(iceberg.FileFormat.PARQUET).build()
    writer = factory.newDataWriter(iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(output), table.spec(), None)
    writer.write(record)
    writer.close()
    table.newAppend().appendFile(writer.toDataFile()).commit()


def rows_of(jvm: Any, table: Any) -> list[str]:
    """As Iceberg's own Java reader has them."""
    scanned = jvm.org.apache.iceberg.data.IcebergGenerics.read(table).build()
    rows, found = scanned.iterator(), []
    while rows.hasNext():
        found.append(str(rows.next()))
    scanned.close()
    return sorted(found)
