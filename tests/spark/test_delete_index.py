"""The index of deletes against Iceberg's own planning, on tables that Spark and Iceberg wrote."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.table.delete_index import DeleteIndex, unpartitioned
from neve.table.files import DATA
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMESPACE = "delete_index"
Key = tuple[str, int | None]
Attached = dict[str, set[Key]]


@pytest.fixture(autouse=True, scope="module")
def _namespace(spark: SparkSession) -> None:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{NAMESPACE}")


def make(spark: SparkSession, warehouse: Path, name: str, *, version: int = 2, granularity: str = "file") -> Bench:
    bench = Bench(spark, warehouse, NAMESPACE, name)
    bench.sql(
        "CREATE TABLE {} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('write.delete.mode'="
        f"'merge-on-read', 'write.delete.granularity'='{granularity}', 'format-version'='{version}')"
    )
    return bench


def append(bench: Bench) -> None:
    """A file in each of two partitions."""
    bench.sql("INSERT INTO {} SELECT /*+ COALESCE(1) */ id, CAST(id % 2 AS INT) FROM range(100)")


def delete(bench: Bench, condition: str) -> None:
    bench.sql(f"DELETE FROM {{}} WHERE {condition}")


def delete_equal(bench: Bench, ids: list[int], partition: str | None) -> str:
    """An equality delete of the current spec."""
    with closing(bench.catalog()) as catalog:
        target = Target(catalog, spark=bench.spark, namespace=NAMESPACE)
        return add_equality_deletes(target, bench.name, rows=[{"id": i} for i in ids], partition_path=partition)


def loaded(bench: Bench) -> Any:
    jvm: Any = bench.spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(bench.spark._jsparkSession, bench.sql_name)
    table.refresh()
    return table


def scan(bench: Bench) -> Any:
    """Iceberg's tasks for the whole table."""
    jvm: Any = bench.spark._jvm
    lists = jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    return lists.newArrayList(loaded(bench).newScan().ignoreResiduals().planFiles())


def planned(bench: Bench) -> Attached:
    """What Iceberg attaches to each data file."""
    return {task.file().location(): {(d.location(), d.contentOffset()) for d in task.deletes()} for task in scan(bench)}


def indexed(bench: Bench) -> tuple[Attached, set[Key], set[Key]]:
    """What the index attaches to each data file, all deletes, and those that it says dangle."""
    state = bench.state()
    assert state.files is not None
    index = DeleteIndex.of(state.files, unpartitioned_specs=unpartitioned(state.specs))
    offsets = [None if offset < 0 else offset for offset in state.files.column("content_offset").tolist()]
    keys = list(zip(state.files.table.column("path").to_pylist(), offsets, strict=True))
    attached = {}
    for i in np.flatnonzero(state.files.column("content") == DATA).tolist():
        vector = index.vector_of(i)
        rows = [*([] if vector is None else [vector]), *index.positions_for(i), *index.equality_for(i)]
        attached[keys[i][0]] = {keys[j] for j in rows}
        assert bool(index.has_deletes()[i]) == bool(rows)
    deletes = {keys[i] for i in np.flatnonzero(state.files.column("content") != DATA)}
    return attached, deletes, {keys[i] for i in np.flatnonzero(index.dangling())}


def assert_agrees(bench: Bench) -> tuple[Attached, set[Key]]:
    """The index says what Iceberg does, and calls dangling what Iceberg attaches to nothing."""
    attached, deletes, dangling = indexed(bench)
    assert attached == planned(bench)
    assert dangling == deletes - {key for keys in attached.values() for key in keys}
    return attached, dangling


def sizes(attached: Attached) -> list[int]:
    return sorted(len(keys) for keys in attached.values())


@pytest.mark.parametrize(
    ("version", "granularity", "expected"),
    [(2, "file", [0, 0, 1, 1, 1, 1]), (2, "partition", [0, 0, 1, 1, 2, 2]), (3, "file", [0, 0, 1, 1, 1, 1])],
    ids=["by file", "by partition", "vectors"],
)
def test_what_spark_deletes_by_position(
    spark: SparkSession, warehouse: Path, version: int, granularity: str, expected: list[int]
) -> None:
    bench = make(spark, warehouse, f"positions_{version}_{granularity}", version=version, granularity=granularity)
    for condition in ("id < 10", "id < 30"):
        append(bench)
        delete(bench, condition)
    append(bench)
    attached, _ = assert_agrees(bench)
    assert sizes(attached) == expected


def test_position_deletes_of_several_files_reach_every_old_file_of_their_partition(
    spark: SparkSession, warehouse: Path
) -> None:
    bench = make(spark, warehouse, "shared", granularity="partition")
    append(bench)
    append(bench)
    delete(bench, "id < 10")
    append(bench)
    attached, _ = assert_agrees(bench)
    assert sizes(attached) == [0, 0, 1, 1, 1, 1]
    assert len({key for keys in attached.values() for key in keys}) == 2


def test_vectors_make_position_deletes_void_after_an_upgrade(spark: SparkSession, warehouse: Path) -> None:
    bench = make(spark, warehouse, "upgraded", granularity="partition")
    append(bench)
    append(bench)
    delete(bench, "id < 10")
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version'='3')")
    append(bench)
    delete(bench, "id = 20")
    attached, dangling = assert_agrees(bench)
    assert sizes(attached) == [0, 1, 1, 1, 1, 1]
    assert len(dangling) == 1


def test_equality_deletes_reach_older_files_of_their_partition(spark: SparkSession, warehouse: Path) -> None:
    bench = make(spark, warehouse, "equality")
    append(bench)
    delete_equal(bench, [2, 4], "part=0")
    append(bench)
    delete_equal(bench, [6], "part=0")
    delete_equal(bench, [7], "part=1")
    append(bench)
    delete(bench, "id = 8")
    attached, _ = assert_agrees(bench)
    assert sizes(attached) == [0, 1, 1, 1, 2, 3]


@pytest.mark.parametrize("version", [2, 3])
def test_global_equality_deletes_and_other_specs(spark: SparkSession, warehouse: Path, version: int) -> None:
    bench = make(spark, warehouse, f"global_{version}", version=version)
    append(bench)
    delete_equal(bench, [2], "part=0")
    delete(bench, "id = 4")
    bench.sql("ALTER TABLE {} DROP PARTITION FIELD part")
    append(bench)
    delete_equal(bench, [2, 3], None)
    delete(bench, "id = 6")
    bench.sql("ALTER TABLE {} ADD PARTITION FIELD bucket(2, id) AS shard")
    append(bench)
    delete_equal(bench, [8], "shard=0")
    append(bench)
    attached, dangling = assert_agrees(bench)
    assert sizes(attached) == [0, 0, 0, 1, 1, 2, 3]
    assert dangling == set()


def test_a_dropped_field_of_a_v1_spec_leaves_the_table_unpartitioned(spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, NAMESPACE, "void")
    bench.sql("CREATE TABLE {} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version'='1')")
    append(bench)
    bench.sql("ALTER TABLE {} DROP PARTITION FIELD part")
    append(bench)
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version'='2')")
    delete_equal(bench, [2], None)
    attached, _ = assert_agrees(bench)
    assert sizes(attached) == [1, 1, 1]
    assert [[field.transform for field in spec.fields] for spec in bench.state().specs] == [["identity"], ["void"]]


def test_what_a_compaction_leaves_behind_dangles(spark: SparkSession, warehouse: Path) -> None:
    bench = make(spark, warehouse, "compacted")
    append(bench)
    delete(bench, "id < 10")
    delete_equal(bench, [20], "part=0")
    append(bench)
    spark.sql(
        f"CALL local.system.rewrite_data_files(table => '{NAMESPACE}.compacted', where => 'part = 0',"
        " options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'false'))"
    )
    attached, dangling = assert_agrees(bench)
    assert (sizes(attached), len(dangling)) == ([0, 0, 1], 2)


@pytest.mark.parametrize(("ids", "spared"), [([10**6], True), ([2, 10**6], False)], ids=["beyond the file", "within the file"])
def test_iceberg_spares_files_whose_bounds_a_delete_misses_and_nothing_else(
    spark: SparkSession, warehouse: Path, ids: list[int], spared: bool
) -> None:
    bench = make(spark, warehouse, f"bounds_{len(ids)}")
    append(bench)
    with_bounds(bench, delete_equal(bench, ids, "part=0"))
    attached, _, dangling = indexed(bench)
    theirs = planned(bench)
    assert all(theirs[path] <= keys for path, keys in attached.items())
    assert (sizes(attached), sizes(theirs), dangling) == ([0, 1], [0, 0] if spared else [0, 1], set())


def with_bounds(bench: Bench, path: str) -> None:
    """Replaces an equality delete by itself with statistics, as Flink would have written it."""
    jvm: Any = bench.spark._jvm
    table = loaded(bench)
    (old,) = [d for task in scan(bench) for d in task.deletes() if d.location() == path]
    metrics = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(
        table.io().newInputFile(path), jvm.org.apache.iceberg.MetricsConfig.getDefault()
    )
    ids = bench.spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = 1
    new = (
        jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
        .ofEqualityDeletes(ids)
        .withFormat("parquet")
        .withPath(path)
        .withPartition(old.partition())
        .withFileSizeInBytes(old.fileSizeInBytes())
        .withMetrics(metrics)
        .build()
    )
    table.newRowDelta().removeDeletes(old).commit()
    table.newRowDelta().addDeletes(new).commit()
