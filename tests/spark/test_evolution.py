"""Tables evolved in every way, rewritten by every kernel: the same rows under the current schema and in every older snapshot.

Read back by Spark, by DuckDB and by pyiceberg, as far as these can: DuckDB does not read manifests that were written in format
v1, and pyiceberg reads a missing list of structs as an empty one once the struct has changed.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from neve.api import Neve
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from neve.settings import load_settings
from tests.builders.evolved_tables import Evolved, evolved
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import data_files, duckdb_rows, local, plain_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

AGES = [pytest.param((1, 2), id="v1 to v2", marks=pytest.mark.slow), pytest.param((2, 3), id="v2 to v3")]
COPY, ARROW, SPARK = Kernel
QUERIES = (
    "n = -1",
    "n < -100000000000",
    "f > 10 AND NOT isnan(f)",
    "d < 0",
    "title = 'größe 21'",
    "region IS NULL",
    "back = 'back 98'",
    "s.x = 7",
    "s.added IS NULL",
    "must IS NULL",
    "last IS NULL",
    "ts < TIMESTAMP '1970-01-01 00:00:00'",
)
"""Each on columns that were changed: what readers skip by bounds and counts must be as true of our files as of the old ones."""


@pytest.fixture(scope="module", params=AGES)
def table(request: pytest.FixtureRequest, spark: SparkSession, warehouse: Path) -> Evolved:
    """Tests put the table back as it was."""
    return evolved(spark, warehouse, *request.param)


def read(table: Evolved) -> dict[str, Any]:
    """The table as others read it: whole, with the identity of rows, in part, and what is in which partition."""
    bench, loaded = table.bench, table.bench.load()
    columns = [field.name for field in loaded.schema().fields]
    has_default = "fallback" in columns
    conditions = [*QUERIES, "fallback = 'from the start'"] if has_default else QUERIES
    counts = ", ".join(f"(SELECT count(*) FROM {bench.sql_name} WHERE {condition})" for condition in conditions)
    homes = bench.sql("SELECT spec_id, partition, sum(record_count) AS n FROM {}.data_files GROUP BY spec_id, partition")
    found: dict[str, Any] = {
        "spark": bench.rows("*, _row_id, _last_updated_sequence_number" if has_default else "*"),
        "selected": list(bench.spark.sql(f"SELECT {counts}").collect()[0]),
        "homes": sorted(map(str, homes.collect())),
        "pyiceberg": plain_rows(loaded.scan(selected_fields=tuple(c for c in columns if c != "l")).to_arrow().to_pylist()),
    }
    if table.first_version > 1:
        found["duckdb"] = duckdb_rows(loaded)
    return found


def past(table: Evolved) -> list[list[str]]:
    """The rows at the end of every age, each under the schema that the table had then."""
    bench = table.bench
    bench.sql("REFRESH TABLE {}")
    frames = [bench.sql(f"SELECT * FROM {{}} VERSION AS OF {snapshot}") for snapshot in table.snapshots[2::3]]
    return [sorted(map(str, frame.collect())) for frame in frames]


def test_the_table_has_every_age(table: Evolved) -> None:
    state = table.bench.state()
    transforms = {field.transform.partition("[")[0] for spec in state.specs for field in spec.fields}
    time_like = {"year", "month", "day", "hour"}
    assert transforms == {"identity", "bucket", "truncate"} | time_like | ({"void"} if table.first_version == 1 else set())
    assert state.files is not None
    assert len({home.spec_id for home in state.files.partitions}) == 9
    assert sum("=null" in home.path for home in state.files.partitions) >= 6
    assert [len(rows) for rows in past(table)] == [18 * i for i in range(1, 10)]


@pytest.mark.parametrize("kernel", list(Kernel))
def test_rows_are_equal_under_the_current_schema_and_in_every_older_snapshot(kernel: Kernel, table: Evolved) -> None:
    bench = table.bench
    before, history, files = read(table), past(table), bench.paths()
    _, planned = bench.plan(kernel)
    specs = {row.file_path: row.spec_id for row in bench.sql("SELECT file_path, spec_id FROM {}.data_files").collect()}
    assert {group.spec_id for group in planned.groups} == set(specs.values())
    assert all({specs[path] for path in planned.paths(group)} == {group.spec_id} for group in planned.groups)

    record = bench.compact(kernel)

    assert record.outcome is RunOutcome.DONE, record.groups
    # Pinned to copy: the null partitions have files of one schema, the others of two, which only a re-encoding brings together.
    assert dict(record.kernels) == ({COPY: 12, ARROW: 7} if kernel is COPY else {kernel: 19})
    assert not bench.paths() & files
    assert len(bench.paths()) == 19
    assert read(table) == before
    assert past(table) == history
    assert bench.bridge.roll_back(record.snapshots[-1], record.snapshot_before or 0)
    assert bench.paths() == files


@pytest.mark.parametrize("kernel", [ARROW, SPARK])
def test_sorted_by_columns_that_were_renamed_and_widened_they_are_equal_too(kernel: Kernel, table: Evolved) -> None:
    bench = table.bench
    bench.sql("ALTER TABLE {} WRITE ORDERED BY title DESC, n")
    before, history = read(table), past(table)
    record = bench.compact(kernel)
    assert (record.outcome, dict(record.kernels)) == (RunOutcome.DONE, {kernel: 19}), record.groups
    assert (read(table), past(table)) == (before, history)
    loaded = bench.load()
    for file in data_files(loaded):
        assert file.sort_order_id == loaded.sort_order().order_id
        rows = pq.read_table(local(file.file_path), columns=["title", "n"]).to_pylist()
        indexes = pc.sort_indices(pa.table({"title": [row["title"] for row in rows]}), sort_keys=[("title", "descending")])
        assert [rows[i]["title"] for i in indexes.to_pylist()] == [row["title"] for row in rows]
        for _, same in groupby(rows, key=itemgetter("title")):
            numbers = [row["n"] for row in same]
            assert numbers == sorted(numbers, key=lambda n: (n is not None, n))
    assert bench.bridge.roll_back(record.snapshots[-1], record.snapshot_before or 0)
    bench.sql("ALTER TABLE {} WRITE UNORDERED")


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Neve]:
    loaded = load_settings(flags={"state.url": f"sqlite:///{tmp_path}/state.db"}, environ={})
    with Neve.open(loaded, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


def test_on_a_branch_the_same_holds_and_main_is_untouched(neve: Neve, table: Evolved) -> None:
    bench = table.bench
    bench.sql("ALTER TABLE {} CREATE OR REPLACE BRANCH audit")
    head, before, history = bench.load().current_snapshot(), read(table), past(table)
    rows = bench.sql("SELECT * FROM {} VERSION AS OF 'audit'").collect()
    request = Request(tier=Tier.FULL, force=True, branch="audit")

    record = neve.compact(f"ages.{bench.name}", request=request, verify="content")

    assert [group.reason for group in record.groups if group.state is not GroupState.COMMITTED] == []
    assert len(record.groups) == 19
    bench.sql("REFRESH TABLE {}")
    assert sorted(map(str, bench.sql("SELECT * FROM {} VERSION AS OF 'audit'").collect())) == sorted(map(str, rows))
    assert bench.load().current_snapshot() == head
    assert (read(table), past(table)) == (before, history)


@pytest.mark.parametrize("kernel", list(Kernel))
def test_a_partition_column_that_was_widened_keeps_its_values(kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.ages")
    bench = Bench(spark, warehouse, "ages", f"widened_{kernel}")
    bench.sql("CREATE TABLE {} (id BIGINT, n INT, f FLOAT, d DECIMAL(9, 2)) USING iceberg PARTITIONED BY (n, f, d)")
    insert = "INSERT INTO {{}} SELECT id, {}, {}, {} FROM range({}, {}, 1, 1)"
    for start in (0, 4):
        bench.sql(insert.format("CAST(7 AS INT)", "CAST(0.1 AS FLOAT)", "IF(id % 2 = 0, NULL, 1.25BD)", start, start + 4))
    bench.sql("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT")
    bench.sql("ALTER TABLE {} ALTER COLUMN f TYPE DOUBLE")
    bench.sql("ALTER TABLE {} ALTER COLUMN d TYPE DECIMAL(18, 2)")
    bench.sql(insert.format("7L", "CAST(CAST(0.1 AS FLOAT) AS DOUBLE)", "1.25BD", 8, 12))
    before, duckdb = bench.rows(), bench.duckdb()
    record = bench.compact(kernel)
    assert record.outcome is RunOutcome.DONE, record.groups
    assert len(bench.paths()) == 2
    assert bench.rows() == before
    assert bench.duckdb() == duckdb


@pytest.mark.parametrize("kernel", list(Kernel))
def test_files_of_a_spec_whose_column_was_dropped_are_rewritten(kernel: Kernel, spark: SparkSession, warehouse: Path) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.ages")
    bench = Bench(spark, warehouse, "ages", f"dropped_{kernel}")
    bench.sql("CREATE TABLE {} (id BIGINT, region STRING, day DATE) USING iceberg PARTITIONED BY (region, bucket(2, id))")
    for start in (0, 6):
        row = "id, IF(id % 2 = 0, 'eu', NULL), DATE '2024-02-29'"
        bench.sql(f"INSERT INTO {{}} SELECT {row} FROM range({start}, {start + 6}, 1, 1)")
    bench.sql("ALTER TABLE {} REPLACE PARTITION FIELD region WITH day")
    bench.sql("ALTER TABLE {} DROP COLUMN region")
    for start in (12, 18):
        bench.sql(f"INSERT INTO {{}} SELECT id, DATE '2024-02-29' FROM range({start}, {start + 6}, 1, 1)")
    before, duckdb = bench.rows(), bench.duckdb()
    record = bench.compact(kernel)
    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.rows() == before
    assert bench.duckdb() == duckdb
