"""Choosing files by a predicate, working on a branch, and taking a run back, on real Iceberg."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyarrow.orc import ORCFile

from neve.api import Neve
from neve.commit.marker import Marker
from neve.errors import BadRequestError, LeaseHeldError
from neve.operations import inspect
from neve.operations.examine import examine
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = Request(tier=Tier.FULL, force=True)
NUMBERS = count()


@pytest.fixture
def neve(shelf: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path) -> Any:  # noqa: ARG001 - makes the warehouse
    """Neve at the tests' own warehouse and in their own session."""
    loaded = load_settings(flags={"state.url": f"sqlite:///{tmp_path}/state.db"}, environ={})
    with Neve.open(loaded, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


@pytest.fixture(scope="module")
def shelf(spark: SparkSession, warehouse: Path) -> Bench:
    """A table that no test changes."""
    return six_files(spark, warehouse)


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    """A table of the test's own."""
    return six_files(spark, warehouse)


def six_files(spark: SparkSession, warehouse: Path) -> Bench:
    """Two days, three appends each; ids from 0 to 59."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.chosen")
    made = Bench(spark, warehouse, "chosen", f"t{next(NUMBERS)}")
    made.sql("CREATE TABLE {} (id BIGINT, day DATE, word STRING) USING iceberg PARTITIONED BY (day)")
    for i in range(6):
        day = "current_date()" if i % 2 else "DATE '2024-02-29'"
        made.sql(f"INSERT INTO {{}} SELECT id, {day}, 'w' || id FROM range({10 * i}, {10 * i + 10}, 1, 1)")
    return made


def chosen(neve: Neve, bench: Bench, where: str) -> set[str]:
    planned = neve.plan(f"{bench.namespace}.{bench.name}", request=replace(ALL, where=where))
    return {path for group in planned.groups for path in planned.paths(group)}


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("day = DATE '2024-02-29'", 3),
        ("day >= current_date() - INTERVAL 7 DAYS", 3),
        ("day < date_sub(now(), 30)", 3),
        ("id BETWEEN 12 AND 25", 2),
        ("id >= 40 AND day = DATE '2024-02-29'", 1),
        ("word IN ('w5', 'w55')", 2),
        ("id > 1000", 0),
        ("1 = 1", 6),
    ],
)
def test_a_predicate_chooses_the_files_that_may_hold_such_rows(neve: Neve, shelf: Bench, where: str, files: int) -> None:
    assert len(chosen(neve, shelf, where)) == files


def test_only_chosen_files_are_rewritten_and_deletes_on_them_are_applied_whatever_the_predicate_says(
    neve: Neve, bench: Bench
) -> None:
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    bench.sql(
        "DELETE FROM {} WHERE id IN (3, 41)"
    )  # rows that the predicate leaves out, in a file that it chooses and in another
    before, files = bench.ids(), bench.paths()
    record = neve.compact(f"chosen.{bench.name}", request=replace(ALL, where="id BETWEEN 0 AND 2 OR id BETWEEN 20 AND 22"))
    assert (record.outcome, record.files_compacted) == (RunOutcome.DONE, 2)
    assert len(files - bench.paths()) == 2
    assert bench.ids() == before == [i for i in range(60) if i not in (3, 41)]
    assert len(bench.duckdb()) == 58


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nope = 1", "Cannot choose files by 'nope = 1': .*nope"),
        ("id >", "Cannot choose files by 'id >': "),
        ("length(word) = 3", r"Cannot choose files by 'length\(word\) = 3': "),
    ],
)
def test_a_predicate_that_chooses_no_files_is_refused_in_words(neve: Neve, shelf: Bench, where: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        chosen(neve, shelf, where)


def test_a_predicate_on_a_branch_goes_by_the_names_of_columns_now(neve: Neve, spark: SparkSession, warehouse: Path) -> None:
    bench = Bench(spark, warehouse, "chosen", f"t{next(NUMBERS)}")
    bench.sql("CREATE TABLE {} (low BIGINT, high BIGINT) USING iceberg")
    for start in (0, 10, 20):
        bench.sql(f"INSERT INTO {{}} SELECT id, id + 100 FROM range({start}, {start + 10}, 1, 1)")
    bench.sql("ALTER TABLE {} CREATE BRANCH audit")
    bench.sql("INSERT INTO {} VALUES (50, 150)")
    for change in ("RENAME COLUMN low TO other", "RENAME COLUMN high TO low", "ADD COLUMN new STRING"):
        bench.sql(f"ALTER TABLE {{}} {change}")

    def files(where: str) -> int:
        planned = neve.plan(f"chosen.{bench.name}", request=replace(ALL, branch="audit", where=where))
        return sum(len(planned.paths(group)) for group in planned.groups)

    # Not asked by a filter: Spark's own scan of a branch takes it by the old names, and finds none of 20 rows.
    assert [row.low for row in spark.table(f"{bench.sql_name}.branch_audit").sort("low").collect()] == list(range(100, 130))
    assert [files("low >= 110"), files("low < 100"), files("other < 5"), files("new IS NULL")] == [2, 0, 1, 3]


def test_a_branch_is_compacted_and_main_stays_untouched(neve: Neve, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.sql("ALTER TABLE {} CREATE BRANCH audit")
    bench.sql(f"INSERT INTO {bench.sql_name}.branch_audit SELECT id, DATE '2024-02-29', 'x' FROM range(100, 103, 1, 1)")
    head, files = bench.load().current_snapshot(), bench.paths()
    assert head is not None
    examined: list[str] = []

    def note_branch(*args: Any, **options: Any) -> Any:
        examined.append(options["branch"])
        return examine(*args, **options)

    monkeypatch.setattr(inspect, "examine_state", note_branch)
    record = neve.compact(f"chosen.{bench.name}", request=replace(ALL, branch="audit"))
    assert (record.outcome, record.files_compacted, record.branch) == (RunOutcome.DONE, 7, "audit")
    assert set(examined) == {"audit"}  # before and after: main has findings of its own, such as its manifests
    assert bench.paths() == files
    table = bench.load()
    assert table.current_snapshot() == head
    assert table.metadata.refs["audit"].snapshot_id == record.snapshots[-1]
    on_branch = table.scan(snapshot_id=record.snapshots[-1])
    assert sorted(on_branch.to_arrow().column("id").to_pylist()) == [*range(60), 100, 101, 102]
    assert len(list(on_branch.plan_files())) == 2
    assert record.after is not None
    assert record.after.data_files == 2


def test_a_branch_that_is_not_there_is_named_with_those_that_are(neve: Neve, shelf: Bench) -> None:
    with pytest.raises(BadRequestError, match="Cannot find branch audti: the table has main"):
        neve.plan(f"chosen.{shelf.name}", request=replace(ALL, branch="audti"))


def test_a_run_is_taken_back_unless_somebody_wrote_since(neve: Neve, bench: Bench) -> None:
    table, files, before = f"chosen.{bench.name}", bench.paths(), bench.ids()
    record = neve.compact(table, request=ALL)
    assert bench.paths() != files
    done = neve.roll_back(record.recorded_id[:8])
    assert (done.from_snapshot, done.to_snapshot) == (record.snapshots[-1], record.snapshot_before)
    assert (bench.paths(), bench.ids()) == (files, before)
    assert len(bench.duckdb()) == 60

    again = neve.compact(table, request=ALL)
    bench.sql("INSERT INTO {} VALUES (1000, current_date(), 'late')")
    with pytest.raises(BadRequestError, match="1 later commit would be lost"):
        neve.roll_back(again.run_id)
    assert bench.ids() == [*before, 1000]
    assert [(run.kind, run.outcome) for run in neve.runs(table)] == [
        ("compact", "done"),
        ("rollback", "done"),
        ("compact", "done"),
    ]


def test_the_mark_of_another_host_keeps_a_run_off_and_is_gone_after_our_own(neve: Neve, bench: Bench) -> None:
    table = f"chosen.{bench.name}"
    mark = Marker(run_id="theirs", owner="otherhost:7", until_ms=99999999999999).text
    bench.spark.sql(f"ALTER TABLE {bench.sql_name} SET TBLPROPERTIES ('neve.lease' = '{mark}')")
    with pytest.raises(LeaseHeldError, match=r"run theirs \(otherhost:7\) is at work on it"):
        neve.compact(table, request=ALL)
    assert len(bench.paths()) == 6
    bench.sql("ALTER TABLE {} UNSET TBLPROPERTIES ('neve.lease')")
    assert neve.compact(table, request=ALL).outcome is RunOutcome.DONE
    assert "neve.lease" not in bench.load().properties


def test_the_record_tells_the_table_before_and_after_in_ten_numbers(neve: Neve, bench: Bench) -> None:
    record = neve.compact(f"chosen.{bench.name}", request=ALL)
    assert record.stats is not None
    assert (record.stats.files_before, record.stats.files_after, record.stats.files_compacted) == (6, 2, 6)
    assert record.before is not None
    assert record.after is not None
    assert record.after.health >= record.before.health
    kept = neve.run(record.recorded_id).record
    assert kept["stats"] == record.stats.model_dump()


def test_the_codec_of_the_policy_is_parquets_and_files_of_another_format_keep_their_own(neve: Neve, bench: Bench) -> None:
    by_spark = replace(ALL, kernel=Kernel.SPARK)
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('neve.compression-codec' = 'snappy')")
    neve.compact(f"chosen.{bench.name}", request=by_spark)
    codecs = {pq.ParquetFile(path).metadata.row_group(0).column(0).compression for path in map(local, bench.paths())}
    assert codecs == {"SNAPPY"}

    orc = Bench(bench.spark, bench.warehouse, "chosen", f"t{next(NUMBERS)}")
    orc.sql("CREATE TABLE {} (id BIGINT) USING iceberg TBLPROPERTIES ('write.format.default' = 'orc')")
    for i in range(2):
        orc.sql(f"INSERT INTO {{}} SELECT id FROM range({100 * i}, {100 * i + 100}, 1, 1)")
    before = {ORCFile(path).compression for path in map(local, orc.paths())}
    neve.compact(f"chosen.{orc.name}", request=by_spark)
    assert len(orc.paths()) == 1
    assert {ORCFile(path).compression for path in map(local, orc.paths())} == before == {"ZLIB"}


def local(path: str) -> str:
    return path.removeprefix("file:")


def test_a_compaction_counts_only_for_branches_whose_history_has_its_snapshot(neve: Neve, bench: Bench) -> None:
    table = f"chosen.{bench.name}"
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('neve.min-input-files' = '2')")
    bench.sql("ALTER TABLE {} CREATE BRANCH audit")

    def due(branch: str = "main") -> int:
        return len(neve.plan(table, request=Request(branch=branch)).groups)

    def compacted() -> list[bool]:
        partitions = neve.inspect(table).partitions
        assert partitions is not None
        return [partition.last_compaction_ms is not None for partition in partitions]

    assert (due(), due("audit")) == (2, 2)
    assert neve.compact(table, request=Request(branch="audit")).files_written == 2
    assert (due(), due("audit"), compacted()) == (2, 0, [False, False])

    ours = neve.compact(table)
    assert (due(), compacted()) == (0, [True, True])
    neve.roll_back(ours.run_id)
    assert (due(), due("audit"), compacted()) == (2, 0, [False, False])

    again = neve.compact(table)
    bench.sql(f"CALL local.system.rollback_to_snapshot('{table}', {again.snapshot_before})")
    assert (due(), compacted()) == (2, [False, False])

    bench.sql(f"CALL local.system.fast_forward('{table}', 'main', 'audit')")
    assert (due(), compacted(), len(bench.paths())) == (0, [True, True], 2)
