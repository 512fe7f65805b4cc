"""Row lineage of format v3 through both kernels: Spark reads the same ids and numbers for every row before and after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from neve.rewrite.group import Kernel
from neve.rewrite.work_order import WorkResult
from tests.builders.kernel_rewrites import rewrite
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPY, ARROW = Kernel.COPY, Kernel.ARROW
EVERYTHING = "_row_id, _last_updated_sequence_number, *"
CREATE = "CREATE TABLE {} (id BIGINT, v STRING, p INT) USING iceberg"
# Of columns that cannot be null Spark makes required ones, and files of two schemas cannot be copied.
INSERT = """INSERT INTO {} SELECT /*+ COALESCE(1) */
    nullif(id, -1), nullif(concat('v', id %% 7), ''), nullif(CAST(id %% 2 AS INT), -1)
    FROM range(%d, %d)"""
MERGE = """MERGE INTO {} t USING (SELECT * FROM VALUES (7, 'merged'), (105, 'merged'), (900, 'new') AS s(id, v)) s
    ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, 1)"""
PROPERTIES = """TBLPROPERTIES (
    'format-version' = '3', 'read.parquet.vectorization.enabled' = '%s', 'write.distribution-mode' = 'none',
    'write.update.mode' = 'copy-on-write', 'write.merge.mode' = 'copy-on-write', 'write.delete.mode' = 'copy-on-write')"""


@dataclass(frozen=True)
class Table:
    """How a table came to be, and which kernel is then to rewrite it."""

    statements: tuple[str, ...]
    kernels: tuple[Kernel, ...] = (COPY, ARROW)
    create: str = CREATE


APPENDS = (INSERT % (0, 100), INSERT % (100, 250), INSERT % (250, 251))
TABLES = {
    "appended": Table(APPENDS),
    # Files that store lineage, with nulls where rows are new or changed, beside files that store none.
    "merged": Table((*APPENDS, MERGE, "UPDATE {} SET v = 'updated' WHERE id = 3", INSERT % (300, 310))),
    "deleted": Table((*APPENDS, "DELETE FROM {} WHERE id IN (5, 6, 100)")),
    "evolved": Table(
        (*APPENDS, "ALTER TABLE {} ADD COLUMN more INT", MERGE, "ALTER TABLE {} RENAME COLUMN v TO w", INSERT % (300, 310)),
        kernels=(ARROW,),
    ),
    "partitioned": Table((*APPENDS, MERGE, INSERT % (300, 310)), create=f"{CREATE} PARTITIONED BY (p)"),
    # Rows of a table that was not in format v3 when they were written get their ids with the first commit after that.
    "upgraded": Table(
        (*APPENDS, "ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')", INSERT % (300, 310), MERGE),
        create=CREATE,
    ),
}
INSERT_WITH_MORE = "INSERT INTO {} SELECT /*+ COALESCE(1) */ id, 'x', 1, 5 FROM range(300, 310)"


def make(spark: SparkSession, warehouse: Path, name: str, *, vectorized: bool = True) -> Bench:
    """The table."""
    table = TABLES[name]
    bench = Bench(spark, warehouse, "lineage", f"{name}_{'v' if vectorized else 's'}")
    spark.sql(f"DROP TABLE IF EXISTS {bench.sql_name} PURGE")
    properties = PROPERTIES % str(vectorized).lower()
    bench.sql(f"{table.create} {properties.replace('3', '2', 1) if name == 'upgraded' else properties}")
    for statement in table.statements:
        is_wide = name == "evolved" and statement == INSERT % (300, 310)
        bench.sql(INSERT_WITH_MORE if is_wide else statement)
    return bench


def rewritten(bench: Bench, kernel: Kernel, *, forgotten: frozenset[str] = frozenset()) -> list[WorkResult]:
    """What the kernel did; Spark has noticed."""
    results = rewrite(bench, kernel, forgotten=forgotten)
    bench.spark.sql(f"REFRESH TABLE {bench.sql_name}")
    return results


def columns_of(path: str) -> list[str]:
    return [str(name) for name in pq.read_schema(path.removeprefix("file:")).names]


@pytest.mark.parametrize(
    ("name", "kernel"), [(name, kernel) for name, table in TABLES.items() for kernel in table.kernels], ids=str
)
def test_every_row_keeps_its_id_and_its_number(name: str, kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    bench = make(spark, warehouse, name)
    before, duckdb_before, files = bench.rows(EVERYTHING), bench.duckdb(), bench.paths()
    ids = [row._row_id for row in bench.sql("SELECT _row_id FROM {}").collect()]
    assert len(set(ids)) == len(before)
    assert None not in ids

    results = rewritten(bench, kernel)

    assert {result.kernel for result in results} == {kernel}
    assert not bench.paths() & files
    assert all(columns_of(path)[-2:] == ["_row_id", "_last_updated_sequence_number"] for path in bench.paths())
    assert bench.rows(EVERYTHING) == before
    assert bench.duckdb() == duckdb_before


@pytest.mark.parametrize("kernel", [COPY, ARROW])
@pytest.mark.parametrize("vectorized", [True, False])
def test_lineage_survives_changes_between_rewrites(
    kernel: Kernel, vectorized: bool, spark: SparkSession, warehouse: Path
) -> None:
    bench = make(spark, warehouse, "merged", vectorized=vectorized)
    for number in range(2):
        rewritten(bench, kernel)
        bench.sql(f"UPDATE {{}} SET v = 'again {number}' WHERE id % 10 = {number}")
        bench.sql(INSERT % (1000 + 10 * number, 1010 + 10 * number))
        before, duckdb_before = bench.rows(EVERYTHING), bench.duckdb()
        rewritten(bench, COPY if kernel is ARROW else ARROW)
        assert bench.rows(EVERYTHING) == before
        assert bench.duckdb() == duckdb_before
    changed = bench.sql("SELECT count(DISTINCT _last_updated_sequence_number) AS n FROM {}").collect()
    assert changed[0].n > 4


@pytest.mark.parametrize("kernel", [COPY, ARROW])
def test_spark_finds_rows_of_large_spliced_groups_by_their_keys(kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "lineage", f"large_{kernel}")
    bench.sql(f"{CREATE} {PROPERTIES % 'true'}")
    for start in (0, 100_000):
        bench.sql(INSERT % (start, start + 70_000))
    expected = {row.id: row._row_id for row in bench.sql("SELECT id, _row_id FROM {}").collect()}
    rewritten(bench, kernel)
    assert {row.id: row._row_id for row in bench.sql("SELECT id, _row_id FROM {}").collect()} == expected
    for id_ in (0, 45_678, 100_000, 169_999):
        (row,) = bench.sql(f"SELECT _row_id, _last_updated_sequence_number AS n FROM {{}} WHERE id = {id_}").collect()
        assert (row._row_id, row.n) == (expected[id_], 1 if id_ < 100_000 else 2)


@pytest.mark.parametrize("kernel", [COPY, ARROW])
def test_rows_without_an_id_get_one_and_the_others_keep_theirs(kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    bench = make(spark, warehouse, "appended")
    rows = bench.sql("SELECT id, _row_id, input_file_name() AS path FROM {}").collect()
    known = {row.id: row._row_id for row in rows if row.id < 100 or row.id == 250}
    forgotten = frozenset(row.path for row in rows if row.id not in known)
    assert (len(known), len(forgotten)) == (101, 1)
    rewritten(bench, kernel, forgotten=forgotten)
    after = {row.id: row._row_id for row in bench.sql("SELECT id, _row_id FROM {}").collect()}
    assert {id_: after[id_] for id_ in known} == known
    assert len(set(after.values())) == 251
    assert min(after[id_] for id_ in range(100, 250)) >= 251
