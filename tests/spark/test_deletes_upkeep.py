"""Deletes are converted, rewritten and pruned on real Iceberg: Spark and DuckDB read the same rows before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.errors import BadRequestError, NeveError
from neve.maintenance.delete_files import UpkeepRecord
from neve.rewrite.record import RunOutcome
from neve.samples import Target
from neve.samples.equality_deletes import add_equality_deletes
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
MODES = "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none', 'write.delete.distribution-mode' = 'none'"
LINEAGE = "id, _row_id, _last_updated_sequence_number"
POSITION, EQUALITY = 1, 2


@dataclass
class Keeping:
    """A table and the composition root that keeps its deletes up."""

    bench: Bench
    neve: Neve
    version: int

    def sql(self, statement: str) -> Any:
        return self.bench.sql(statement)

    def append(self, start: int, stop: int, region: str = "eu") -> None:
        """One file of ids, whose key is the id's text."""
        self.sql(f"INSERT INTO {{}} SELECT id, '{region}', CAST(id AS STRING) FROM range({start}, {stop}, 1, 1)")

    def delete_equal(self, *ids: int, partition: str | None = None, column: str = "id") -> None:
        rows = [{column: i if column == "id" else str(i)} for i in ids]
        target = Target(self.bench.catalog(), spark=self.bench.spark, namespace=self.bench.namespace)
        add_equality_deletes(target, self.bench.name, rows=rows, partition_path=partition)
        target.catalog.close()

    def run(self, operation: str, **words: Any) -> UpkeepRecord:
        return self.neve.deletes(f"{self.bench.namespace}.{self.bench.name}", operation, **words)

    def ids(self) -> list[int]:
        """In which Spark and DuckDB agree."""
        found = self.bench.ids()
        by_duckdb = sorted(int(row.split("'id': ")[1].split(",")[0]) for row in self.bench.duckdb())
        assert by_duckdb == found
        return found

    def deletes(self) -> list[Any]:
        """Content, format, rows and partition spec of each."""
        self.sql("REFRESH TABLE {}")
        columns = "content, lower(file_format) AS format, record_count AS rows, spec_id"
        return sorted(tuple(row) for row in self.sql(f"SELECT {columns} FROM {{}}.delete_files").collect())

    def operation(self) -> str:
        snapshot = self.bench.load().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return str(snapshot.summary.operation.value)

    def lineage(self) -> list[Any]:
        self.sql("REFRESH TABLE {}")
        return sorted(tuple(row) for row in self.sql(f"SELECT {LINEAGE} FROM {{}}").collect())

    def on_disk(self) -> set[str]:
        """Delete files in the table's directory, live or not."""
        directory = self.bench.warehouse / self.bench.namespace / self.bench.name / "data"
        return {str(path) for path in directory.rglob("*") if path.suffix == ".puffin" or "delete" in path.name}

    def explained(self) -> set[str]:
        """Files that no commit names, in the quarantine."""
        return {file.path for file in self.neve.quarantined(f"{self.bench.namespace}.{self.bench.name}")}


Make = Callable[..., Keeping]


@pytest.fixture(scope="module")
def neve(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neve]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.upkeep")
    state = tmp_path_factory.mktemp("state") / "state.db"
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{state}"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, neve: Neve) -> Make:
    def make(version: int, how: str = "", *, scope: str = "file") -> Keeping:
        bench = Bench(spark, warehouse, "upkeep", f"t{next(NUMBERS)}")
        properties = f"'format-version' = '{version}', 'write.delete.granularity' = '{scope}', {MODES}"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, region STRING, key STRING) USING iceberg {how} TBLPROPERTIES ({properties})")
        return Keeping(bench, neve, version)

    return make


@pytest.fixture(params=[2, 3])
def cdc(make: Make, request: pytest.FixtureRequest) -> Keeping:
    """Ids 0 to 39 in four files; 3 and 13 are deleted by position, 5, 15 and 3 by equality, and 5 came back."""
    table = make(request.param)
    for start in (0, 10, 20):
        table.append(start, start + 10)
    table.sql("DELETE FROM {} WHERE id IN (3, 13)")
    table.delete_equal(5, 15)
    table.append(5, 6)
    table.append(30, 40)
    table.delete_equal(3, 33)
    return table


ALL = [i for i in range(40) if i not in (3, 13, 15, 33)]


def test_conversion_leaves_no_equality_delete_and_every_row(cdc: Keeping) -> None:
    assert cdc.ids() == ALL
    lineage, files = cdc.lineage() if cdc.version == 3 else [], cdc.bench.paths()
    record = cdc.run("convert")
    assert (record.outcome, record.reason) == (RunOutcome.DONE, None)
    assert (record.deletes_before, record.equality_before, record.equality_removed) == (4, 2, 2)
    assert (record.data_files, record.rows) == (3, 5)
    assert cdc.ids() == ALL
    assert cdc.bench.paths() == files
    assert cdc.operation() == "delete"
    form = "puffin" if cdc.version == 3 else "parquet"
    assert cdc.deletes() == [(POSITION, form, 1, 0), (POSITION, form, 2, 0), (POSITION, form, 2, 0)]
    assert record.deletes_after == 3
    if cdc.version == 3:
        assert cdc.lineage() == lineage
    head = cdc.bench.load().metadata.current_snapshot_id
    assert record.snapshots == (head,)
    assert cdc.run("convert").outcome is RunOutcome.NOTHING_TO_DO
    assert cdc.run("rewrite").outcome is RunOutcome.NOTHING_TO_DO


def test_a_dry_run_commits_nothing_and_writes_nothing(cdc: Keeping) -> None:
    disk, head = cdc.on_disk(), cdc.bench.load().metadata_location
    record = cdc.run("convert", dry_run=True)
    assert (record.outcome, record.equality_removed, record.data_files) == (RunOutcome.DONE, 2, 5)
    assert (cdc.on_disk(), cdc.bench.load().metadata_location) == (disk, head)


def test_every_file_on_disk_is_named_by_the_table_or_in_the_quarantine(cdc: Keeping) -> None:
    before = cdc.on_disk()
    cdc.run("convert")
    assert cdc.on_disk() - before - cdc.explained() == cdc.bench.deletes()
    assert not cdc.explained() & cdc.bench.deletes()
    assert cdc.neve.runs(limit=1)[0].kind == "deletes"
    assert "neve.lease" not in cdc.bench.load().properties


@pytest.mark.parametrize("version", [2, 3])
def test_partitions_and_specs_that_changed_keep_their_deletes_apart(make: Make, version: int) -> None:
    table = make(version, "PARTITIONED BY (region)")
    table.append(0, 10, "eu")
    table.append(0, 10, "us")
    table.delete_equal(4, partition="region=eu")
    table.sql("ALTER TABLE {} DROP PARTITION FIELD region")
    table.append(0, 10, "new")
    table.delete_equal(7)  # of an unpartitioned spec: for the whole table
    table.append(7, 8, "new")
    table.sql("ALTER TABLE {} ADD PARTITION FIELD bucket(4, id)")
    table.append(100, 104, "last")
    ids = table.bench.ids()  # DuckDB takes equality deletes of one partition for those of all
    assert ids == sorted(
        [*[i for i in range(10) if i not in (4, 7)], *[i for i in range(10) if i != 7] * 2, 7, *range(100, 104)]
    )
    lineage = table.lineage() if version == 3 else []
    record = table.run("convert")
    assert (record.outcome, record.equality_removed, record.data_files) == (RunOutcome.DONE, 2, 3)
    assert table.ids() == ids
    form = "puffin" if version == 3 else "parquet"
    assert table.deletes() == [(POSITION, form, 1, 0), (POSITION, form, 1, 1), (POSITION, form, 2, 0)]
    if version == 3:
        assert table.lineage() == lineage
    table.sql("REFRESH TABLE {}")
    homes = table.sql("SELECT partition.region, record_count FROM {}.delete_files ORDER BY 1 NULLS LAST").collect()
    assert [tuple(row) for row in homes] == [("eu", 2), ("us", 1), (None, 1)]


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_on_a_column_that_was_dropped_since_is_converted(make: Make, version: int) -> None:
    table = make(version)
    table.append(0, 10)
    table.append(10, 20)
    table.delete_equal(5, 15, column="key")
    table.sql("ALTER TABLE {} DROP COLUMN key")
    record = table.run("convert")
    assert (record.outcome, record.equality_removed, record.rows) == (RunOutcome.DONE, 1, 2)
    assert table.ids() == [i for i in range(20) if i not in (5, 15)]


def test_rewriting_in_version_2_gives_each_file_its_own(make: Make) -> None:
    table = make(2, "PARTITIONED BY (region)", scope="partition")
    for start in (0, 10, 20):
        table.append(start, start + 10)
    table.append(50, 60, "us")
    for gone in ("3", "4, 14", "5, 25", "55"):
        table.sql(f"DELETE FROM {{}} WHERE id IN ({gone})")
    table.delete_equal(16, partition="region=eu")
    ids = table.ids()
    before = len(table.deletes()) - 1  # by position: some of one file, some of several
    record = table.run("rewrite")
    assert (record.outcome, record.deletes_after, record.equality_removed) == (RunOutcome.DONE, 5, 0)
    assert record.deletes_removed > before - 4
    assert table.ids() == ids
    rows = [(POSITION, "parquet", i, 0) for i in (1, 1, 1, 3)]
    assert table.deletes() == [*rows, (EQUALITY, "parquet", 1, 0)]
    assert table.operation() == "delete"
    assert table.run("rewrite").outcome is RunOutcome.NOTHING_TO_DO


def test_rewriting_after_an_upgrade_makes_vectors_and_row_ids_stay(make: Make) -> None:
    table = make(2, scope="partition")
    for start in (0, 10, 20):
        table.append(start, start + 10)
    table.sql("DELETE FROM {} WHERE id IN (3, 13)")
    table.sql("DELETE FROM {} WHERE id IN (4)")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
    table.append(30, 40)
    table.sql("DELETE FROM {} WHERE id IN (33)")
    ids, lineage = table.ids(), table.lineage()
    record = table.run("rewrite")
    assert (record.outcome, record.data_files, record.rows) == (RunOutcome.DONE, 2, 3)
    assert (table.ids(), table.lineage()) == (ids, lineage)
    assert table.deletes() == [(POSITION, "puffin", rows, 0) for rows in (1, 1, 2)]


@pytest.mark.parametrize("version", [2, 3])
def test_pruning_drops_what_compactions_left_behind_and_nothing_else(make: Make, version: int) -> None:
    table = make(version, "PARTITIONED BY (region)")
    table.append(0, 10, "us")
    table.append(10, 20)
    table.append(20, 30)
    table.sql("DELETE FROM {} WHERE id IN (2, 12)")
    table.delete_equal(23, partition="region=eu")
    table.delete_equal(4, partition="region=us")
    before = len(table.deletes())
    call = (
        "CALL local.system.rewrite_data_files(table => '{}', where => 'region = \"eu\"', options => map('rewrite-all', 'true'))"
    )
    table.bench.spark.sql(call.format(f"upkeep.{table.bench.name}")).collect()
    left, ids = table.deletes(), table.ids()
    assert ids == [i for i in range(30) if i not in (2, 4, 12, 23)]
    loose = 1 if version == 3 else 2  # vectors go with their file
    assert len(left) == before - (version == 3)
    record = table.run("prune")
    assert (record.outcome, record.deletes_removed, record.equality_removed) == (RunOutcome.DONE, loose, 1)
    assert table.ids() == ids
    form = "puffin" if version == 3 else "parquet"
    assert table.deletes() == [(POSITION, form, 1, 0), (EQUALITY, "parquet", 1, 0)]
    assert table.operation() == "replace"
    assert table.run("prune").outcome is RunOutcome.NOTHING_TO_DO


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Lets others do something between the last look and the first commit; counts the commits that are sent."""

    def arm(strike: Callable[[], object]) -> list[int]:
        sent: list[int] = []
        row_delta = TableBridge.row_delta

        def struck(self: TableBridge, *args: Any, **words: Any) -> None:
            sent.append(words["head"])
            if len(sent) == 1:
                strike()
            row_delta(self, *args, **words)

        monkeypatch.setattr(TableBridge, "row_delta", struck)
        return sent

    return arm


AtCommit = Callable[[Callable[[], object]], list[int]]


def test_deletes_that_others_commit_meanwhile_are_taken_along(cdc: Keeping, at_commit: AtCommit) -> None:
    sent = at_commit(lambda: cdc.sql("DELETE FROM {} WHERE id IN (6, 26)"))
    record = cdc.run("convert")
    assert (record.outcome, record.equality_removed) == (RunOutcome.DONE, 2)
    assert cdc.ids() == [i for i in ALL if i not in (6, 26)]
    assert len(sent) == 2  # Spark replaces a file's own delete by one that holds more, so that ours was gone
    assert {content for content, *_ in cdc.deletes()} == {POSITION}


def test_an_equality_delete_that_comes_meanwhile_stays_for_the_next_time(cdc: Keeping, at_commit: AtCommit) -> None:
    at_commit(lambda: cdc.delete_equal(26))
    assert cdc.run("convert").outcome is RunOutcome.DONE
    assert cdc.ids() == [i for i in ALL if i != 26]
    assert [content for content, *_ in cdc.deletes()].count(EQUALITY) == 1


def test_a_conversion_leaves_out_what_others_compacted_meanwhile(make: Make, at_commit: AtCommit) -> None:
    table = make(2, "PARTITIONED BY (region)")
    for start, region in ((0, "eu"), (10, "eu"), (20, "us"), (30, "us")):
        table.append(start, start + 10, region)
    table.delete_equal(4, 14, partition="region=eu")
    table.delete_equal(24, partition="region=us")
    where = "where => 'region = \"eu\"', options => map('rewrite-all', 'true')"
    call = f"CALL local.system.rewrite_data_files(table => 'upkeep.{table.bench.name}', {where})"
    sent = at_commit(lambda: table.bench.spark.sql(call).collect())
    disk = table.on_disk()
    record = table.run("convert")
    assert (record.outcome, record.equality_removed, record.data_files, len(sent)) == (RunOutcome.DONE, 1, 1, 2)
    assert table.ids() == [i for i in range(40) if i not in (4, 14, 24)]
    assert len(table.on_disk() - disk - table.explained()) == 1


def test_a_branch_is_kept_up_and_main_is_not(cdc: Keeping) -> None:
    cdc.sql("ALTER TABLE {} CREATE BRANCH audit")
    before = cdc.deletes()
    record = cdc.run("convert", branch="audit")
    assert (record.outcome, record.branch, record.equality_removed) == (RunOutcome.DONE, "audit", 2)
    assert cdc.deletes() == before
    cdc.sql("REFRESH TABLE {}")
    on_branch = [row.id for row in cdc.sql("SELECT id FROM {} VERSION AS OF 'audit'").collect()]
    assert (sorted(on_branch), cdc.ids()) == (ALL, ALL)


def test_a_damaged_delete_file_is_named_and_the_table_is_left_alone(make: Make) -> None:
    table = make(3)
    table.append(0, 10)
    table.sql("DELETE FROM {} WHERE id IN (3)")
    table.delete_equal(5)
    (vector,) = [path for path in table.on_disk() if path.endswith(".puffin")]
    damaged = bytearray(Path(vector).read_bytes())
    damaged[20] ^= 0xFF
    Path(vector).write_bytes(damaged)
    head, disk = table.bench.load().metadata.current_snapshot_id, table.on_disk()
    with pytest.raises(NeveError, match=f"{Path(vector).name}.*checksum"):
        table.run("convert")
    assert (table.bench.load().metadata.current_snapshot_id, table.on_disk() - table.explained()) == (head, disk)
    assert "neve.lease" not in table.bench.load().properties


def test_streams_pass_a_conversion_with_the_option_that_the_guide_names_and_stop_without(cdc: Keeping, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    start = cdc.bench.load().metadata.current_snapshot_id
    cdc.run("convert")
    cdc.append(60, 63)

    def read(name: str, **options: str) -> list[int]:
        stream = cdc.bench.spark.readStream.format("iceberg").option("stream-from-timestamp", "0")
        stream = stream.option("streaming-skip-overwrite-snapshots", "true").options(**options)
        writer = stream.load(cdc.bench.sql_name).select("id").writeStream.format("memory").queryName(name)
        query = writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
        query.awaitTermination(60)
        return [row.id for row in cdc.bench.spark.sql(f"SELECT id FROM {name}").collect()]

    assert start is not None
    assert set(read(f"with_{cdc.bench.name}", **{"streaming-skip-delete-snapshots": "true"})) >= {60, 61, 62}
    with pytest.raises(StreamingQueryException, match="delete snapshot"):
        read(f"without_{cdc.bench.name}")


def test_an_unknown_operation_is_refused_before_anything_is_opened(neve: Neve) -> None:
    with pytest.raises(BadRequestError, match="Cannot use operation 'polish': there are convert, rewrite, prune"):
        neve.deletes("upkeep.none", "polish")
