"""The proof by content on real Spark and real Iceberg: equal rows pass with every kernel, one changed value does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema

from neve.errors import VerificationError
from neve.operations.execute import work_orders
from neve.operations.verify import described_outputs
from neve.rewrite.content import ContentProof
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import DataFile, LiveFile
from neve.rewrite.work_order import WorkResult
from neve.samples import SAMPLES, Target
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.content import ContentCheck
from neve.spark.tasks.rewrite import SparkEngine
from neve.spark.tasks.spark_kernel import SparkKernel
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark 3.5 compares versions with it.
pytestmark = pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning")
COPY, ARROW, SPARK = Kernel.COPY, Kernel.ARROW, Kernel.SPARK


@dataclass
class Written:
    """One group that was rewritten and is not committed."""

    check: ContentCheck
    result: WorkResult
    inputs: Sequence[LiveFile]
    outputs: list[DataFile]

    def compare(self) -> ContentProof:
        return self.check.compare(self.result, self.inputs, self.outputs)


def write(bench: Bench, kernel: Kernel) -> Written:
    """Rewrites the table's only group; tiny files may be copied."""
    state, plan = bench.plan(kernel)
    assert plan.snapshot_id is not None
    bridge = TableBridge(bench.spark, plan.table)
    live = {file.path: file for file in bridge.scan(plan.snapshot_id)}
    (order,) = work_orders(plan, plan.groups, live, bridge, state.specs)
    order = order.model_copy(update={"write": order.write.model_copy(update={"min_chunk_bytes": 0})})
    engine = SparkEngine(bench.spark, SparkKernel(bench.spark, bridge, plan.snapshot_id), {}, max_parallelism=1)
    (result,) = engine.run([order])
    assert isinstance(result, WorkResult), result
    assert result.kernel is kernel, result.refusals
    inputs = [live[file.path] for file in order.inputs]
    outputs = described_outputs(result, inputs, bridge.schema_json(), bridge.properties())
    return Written(ContentCheck(bench.spark, bridge, plan.snapshot_id, dict), result, inputs, outputs)


@pytest.fixture(scope="module")
def typed(spark: SparkSession, warehouse: Path) -> Bench:
    """Every type that Spark can write, nulls and odd values included, and a column that came later."""
    bench = Bench(spark, warehouse, "content", "typed")
    bench.sql(
        "CREATE TABLE {} (id INT, big BIGINT, ok BOOLEAN, f FLOAT, d DOUBLE, price DECIMAL(9, 2), name STRING, raw BINARY, "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, `odd.name, with a space` STRING, "
        "s STRUCT<x: INT, `y z`: STRING>) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    row = (
        "CAST(id AS INT), id * 1000000007, id % 2 = 0, "
        "IF(id % 3 = 0, CAST('NaN' AS FLOAT), CAST(id AS FLOAT)), IF(id % 4 = 0, -0.0D, id * 0.1D), "
        "CAST(id AS DECIMAL(9, 2)), IF(id % 5 = 0, NULL, repeat('é', CAST(id AS INT))), CAST(concat('raw', id) AS BINARY), "
        "date_add(DATE'1969-12-01', CAST(id AS INT)), timestamp_micros(id * 1000001 - 5), "
        "CAST(timestamp_micros(id * 77) AS TIMESTAMP_NTZ), IF(id % 2 = 0, '', NULL), "
        "IF(id % 6 = 0, NULL, named_struct('x', CAST(id AS INT), 'y z', concat('y', id)))"
    )
    bench.sql(f"INSERT INTO {{}} SELECT {row} FROM range(0, 40, 1, 1)")
    bench.sql("ALTER TABLE {} ADD COLUMN later STRING AFTER id")
    bench.sql("ALTER TABLE {} ALTER COLUMN id TYPE BIGINT")
    later = row.replace("CAST(id AS INT), id", "id, concat('later ', id), id", 1)
    bench.sql(f"INSERT INTO {{}} SELECT {later} FROM range(40, 80, 1, 1)")
    return bench


READERS = {ARROW: "spark", SPARK: "spark before and pyarrow after"}


@pytest.mark.parametrize("kernel", READERS)
def test_equal_rows_pass_and_are_read_by_an_engine_that_did_not_write_them(typed: Bench, kernel: Kernel) -> None:
    proof = write(typed, kernel).compare()

    assert (proof.holds, proof.before.rows, proof.engine, proof.note) == (True, 80, READERS[kernel], None)
    assert proof.check.holds
    assert proof.check.detail == f"{proof.after}, read by {READERS[kernel]}"


def test_the_engines_agree_on_the_same_rows(typed: Bench) -> None:
    assert write(typed, ARROW).compare().after == write(typed, SPARK).compare().after


@pytest.mark.parametrize(("kernel", "column"), [(ARROW, "name"), (ARROW, "s"), (SPARK, "f"), (SPARK, "later")])
def test_two_values_that_changed_places_are_found(typed: Bench, kernel: Kernel, column: str) -> None:
    written = write(typed, kernel)
    written.outputs[0] = exchange_values(written.outputs[0], column)

    proof = written.compare()
    assert not proof.holds
    assert (proof.before.rows, proof.after.rows) == (80, 80)
    assert proof.check.detail.startswith(f"{proof.after}, expected {proof.before}, read by ")


def exchange_values(file: DataFile, column: str) -> DataFile:
    """Two values of one column change places: the file's counts and bounds stay as they were."""
    path = file["file-path"].removeprefix("file:")
    table = pq.read_table(path, partitioning=None)
    values = table[column].to_pylist()
    other = next(i for i, value in enumerate(values) if repr(value) != repr(values[0]))
    values[0], values[other] = values[other], values[0]
    at = table.schema.get_field_index(column)
    field = table.schema.field(at)
    pq.write_table(table.set_column(at, field, pa.array(values, field.type)), path)
    return {**file, "file-size-in-bytes": Path(path).stat().st_size, "split-offsets": [4]}


@pytest.fixture(scope="module")
def nested(spark: SparkSession, warehouse: Path, catalog: SqlCatalog) -> Bench:
    """Every type there is, time included."""
    SAMPLES["nested"].build(Target(catalog, namespace="content"), seed=7, scale=0.2)
    return Bench(spark, warehouse, "content", "nested")


def test_every_type_that_spark_reads_passes_nested_ones_included(nested: Bench, catalog: SqlCatalog) -> None:
    source = nested.load()
    known = [field for field in source.schema().fields if str(field.field_type) != "time"]
    table = catalog.create_table("content.timeless", Schema(*known))
    rows = source.scan().to_arrow().select([field.name for field in known])
    for start in (0, 30):
        table.append(rows.slice(start, 30))

    proofs = {kernel: write(replace(nested, name="timeless"), kernel).compare() for kernel in (COPY, SPARK)}
    assert {kernel: (proof.holds, proof.engine, proof.note) for kernel, proof in proofs.items()} == {
        COPY: (True, "spark", None),
        SPARK: (True, "spark before and pyarrow after", None),
    }
    assert proofs[COPY].before == proofs[SPARK].after
    assert (proofs[COPY].before.rows, len(known)) == (60, len(source.schema().fields) - 1)


def test_pyarrow_reads_both_sides_where_spark_cannot_and_the_proof_says_so(nested: Bench) -> None:
    proof = write(nested, COPY).compare()
    assert (proof.holds, proof.before.rows, proof.engine) == (True, 60, "pyarrow")
    assert proof.note == "Spark cannot read the table: Spark does not support time fields"


@pytest.mark.parametrize(("version", "tampered"), [(2, "v"), (3, "_row_id")])
def test_deleted_rows_are_expected_to_be_gone_and_every_other_to_stay(
    spark: SparkSession, warehouse: Path, version: int, tampered: str
) -> None:
    """Position deletes or vectors, and equality deletes; in format v3 the identity of a row counts too."""
    bench = Bench(spark, warehouse, "content", f"v{version}")
    bench.sql(
        "CREATE TABLE {} (id BIGINT, v STRING) USING iceberg "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    for start in (0, 10):
        bench.sql(f"INSERT INTO {{}} SELECT id, concat('v', id) FROM range({start}, {start + 10}, 1, 1)")
    bench.sql("DELETE FROM {} WHERE id IN (2, 13)")
    bench.delete_equal(5)
    written = write(bench, SPARK)

    proof = written.compare()
    assert (proof.holds, proof.before.rows, written.result.rows_read) == (True, 17, 20)

    written.outputs[0] = exchange_values(written.outputs[0], tampered)
    proof = written.compare()
    assert (proof.holds, proof.before.rows, proof.after.rows) == (False, 17, 17)


def test_spark_reads_what_it_wrote_where_pyarrow_cannot_and_the_proof_says_so(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "content", "orc")
    bench.sql("CREATE TABLE {} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('write.format.default' = 'orc')")
    for start in (0, 5):
        bench.sql(f"INSERT INTO {{}} SELECT id, concat('v', id) FROM range({start}, {start + 5}, 1, 1)")

    proof = write(bench, SPARK).compare()
    assert (proof.holds, proof.before.rows) == (True, 10)
    assert (proof.engine, proof.note) == ("spark", "pyarrow cannot read what Spark wrote: files are orc")
    assert proof.check.detail.endswith("read by spark (pyarrow cannot read what Spark wrote: files are orc)")


@pytest.mark.parametrize(("old", "new"), [("parquet", "orc"), ("orc", "parquet"), ("orc", "avro")])
def test_a_table_that_has_changed_its_format_is_rewritten_to_the_new_one(
    spark: SparkSession, warehouse: Path, old: str, new: str
) -> None:
    bench = Bench(spark, warehouse, "content", f"{old}_to_{new}")
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('write.format.default' = '{old}')")
    for start in (0, 5):
        bench.sql(f"INSERT INTO {{}} SELECT id, concat('v', id) FROM range({start}, {start + 5}, 1, 1)")
    bench.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('write.format.default' = '{new}')")

    written = write(bench, SPARK)
    assert {file["file-format"] for file in written.outputs} == {new}
    assert written.compare().holds


def test_what_cannot_be_read_is_not_proved(typed: Bench) -> None:
    written = write(typed, ARROW)
    Path(written.outputs[0]["file-path"]).unlink()
    with pytest.raises(VerificationError, match=r"^Cannot prove group 0 by content: .*neve-.*\.parquet"):
        written.compare()


def test_deletes_on_a_table_that_spark_cannot_read_are_not_proved(nested: Bench) -> None:
    written = write(nested, COPY)
    attached = ({"content": "position-deletes", "file-path": "deletes.parquet"},)
    written.inputs = [replace(file, own=attached) for file in written.inputs]
    with pytest.raises(VerificationError, match=r"Spark does not support time fields.*pyarrow does not apply deletes$"):
        written.compare()
