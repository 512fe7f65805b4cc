"""The samples that need Spark: deterministic, readable by DuckDB, and with the deletes and files they claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from neve.errors import BadRequestError
from neve.samples import SAMPLES, Target
from neve.samples.equality_deletes import add_equality_deletes
from tests.builders.table_contents import data_files, duckdb_rows, local, plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [name for name, sample in SAMPLES.items() if sample.needs_spark]

Place = Callable[[str], Target]


@pytest.fixture(scope="module")
def place(spark: SparkSession, warehouse: Path) -> Iterator[Place]:
    """A target in a namespace of that name."""
    uri = f"sqlite:///{warehouse}/catalog.db"
    with closing(SqlCatalog("local", uri=uri, warehouse=str(warehouse))) as catalog:
        yield lambda namespace: Target(catalog, spark=spark, namespace=namespace)


@pytest.fixture(scope="module")
def build(place: Place) -> Callable[..., Table]:
    """Builds a sample in a namespace, once."""
    built: dict[tuple[str, str], Table] = {}

    def build(name: str, namespace: str = "first") -> Table:
        if (name, namespace) not in built:
            built[name, namespace] = SAMPLES[name].build(place(namespace), seed=7, scale=0.2)
        return built[name, namespace]

    return build


Build = Callable[..., Table]


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_gives_equal_rows_and_equally_many_files(name: str, build: Build, spark: SparkSession) -> None:
    build(name)
    build(name, "second")

    assert _spark_rows(spark, f"first.{name}") == _spark_rows(spark, f"second.{name}")
    assert _files(spark, f"first.{name}") == _files(spark, f"second.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_another_engine_reads_the_same_rows(name: str, build: Build, spark: SparkSession) -> None:
    table = build(name)

    assert duckdb_rows(table) == _spark_rows(spark, f"first.{name}")


def test_cdc_has_position_and_equality_deletes_and_one_version_of_each_key(build: Build, spark: SparkSession) -> None:
    build("cdc")
    ids = [row.id for row in spark.table("local.first.cdc").select("id").collect()]
    kinds = Counter(content for content, _, _ in _files(spark, "first.cdc").elements())

    assert kinds[1] > 0
    assert kinds[2] == 4  # two rounds in two regions
    assert len(ids) == len(set(ids))
    assert 160 < len(ids) < 200
    versions = spark.sql("SELECT DISTINCT version FROM local.first.cdc ORDER BY version").collect()
    assert [row.version for row in versions] == [0, 1, 2]


def test_v3_has_one_vector_per_touched_file_and_keeps_row_ids_through_updates(build: Build, spark: SparkSession) -> None:
    build("v3")
    files = _files(spark, "first.v3")
    rows = spark.sql("SELECT _row_id, _last_updated_sequence_number AS updated, id, version FROM local.first.v3").collect()

    assert {fmt for content, fmt, _ in files if content == 1} == {"PUFFIN"}
    assert len({row._row_id for row in rows}) == len(rows) == 160  # of 200, a fifth was deleted
    assert {row.version for row in rows if row.id % 10 == 7} == {1}
    assert {row.updated for row in rows if row.version == 1} == {7}  # five loads, one delete, then the update
    assert max(row._row_id for row in rows) < 200


def test_mixed_writers_left_required_and_nullable_columns_in_files_of_one_table(build: Build) -> None:
    table = build("mixed_writers")
    kinds = Counter(_physical(str(local(file.file_path))) for file in data_files(table))

    assert not any(field.required for field in table.schema().fields)
    assert kinds == {
        ("parquet-mr", "id? kind? ts? amount?"): 4,
        ("parquet-mr", "id! kind! ts! amount?"): 4,
        ("parquet-cpp-arrow", "id? kind? ts? amount?"): 4,
    }


def test_can_be_replaced_although_spark_remembers_the_old_table(place: Place, spark: SparkSession, warehouse: Path) -> None:
    target = place("replaced")
    SAMPLES["v3"].build(target, seed=7, scale=0.1)
    old = set((warehouse / "replaced").rglob("*.*"))
    again = SAMPLES["v3"].build(target, seed=7, scale=0.1, replace=True)

    assert duckdb_rows(again) == _spark_rows(spark, "replaced.v3")
    assert not [path for path in old if path.suffix in (".parquet", ".puffin") and path.exists()]


def test_equality_deletes_can_be_added_to_any_table(place: Place, spark: SparkSession) -> None:
    spark.sql("CREATE TABLE local.added.plain (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    spark.sql("INSERT INTO local.added.plain VALUES (1, 'a'), (2, 'b'), (2, 'c'), (3, NULL)")
    target = place("added")

    path = add_equality_deletes(target, "plain", rows=[{"id": 2, "name": "b"}, {"id": 3, "name": None}])

    assert [tuple(row) for row in spark.table("local.added.plain").orderBy("id", "name").collect()] == [(1, "a"), (2, "c")]
    assert duckdb_rows(target.load("plain")) == plain_rows([{"id": 1, "name": "a"}, {"id": 2, "name": "c"}])
    (deletes,) = spark.sql("SELECT file_path, equality_ids, record_count FROM local.added.plain.delete_files").collect()
    assert (deletes.file_path, deletes.equality_ids, deletes.record_count) == (path, [1, 2], 2)


def test_equality_deletes_need_a_session(place: Place) -> None:
    target = place("added")
    with pytest.raises(BadRequestError, match="Cannot add equality deletes to 'plain': it needs a Spark session"):
        add_equality_deletes(Target(target.catalog, namespace="added"), "plain", rows=[{"id": 1}])


def _spark_rows(spark: SparkSession, name: str) -> list[str]:
    frame = spark.table(f"local.{name}")
    arrow = frame.toArrow() if hasattr(frame, "toArrow") else pa.Table.from_batches(frame._collect_as_arrow())  # Spark 3.5
    rows: list[dict[str, Any]] = arrow.to_pylist()
    return plain_rows(rows)


def _files(spark: SparkSession, name: str) -> Counter[tuple[int, str, int]]:
    """Live files by content, format and rows."""
    files = spark.sql(f"SELECT content, file_format, record_count FROM local.{name}.files").collect()
    return Counter((file.content, file.file_format, file.record_count) for file in files)


def _physical(path: str) -> tuple[str, str]:
    metadata = pq.read_metadata(path)
    columns = (metadata.schema.column(n) for n in range(metadata.num_columns))
    text = " ".join(f"{column.name}{'?' if column.max_definition_level else '!'}" for column in columns)
    return str(metadata.created_by).split(" ")[0], text
