"""The quarantine on real Iceberg tables and a real disk: what goes, what stays, and that the table reads fully all along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.context.connection import Connection
from neve.errors import BadRequestError, LeaseHeldError
from neve.maintenance.quarantine import TRASH, Candidate, Fate, FateChange
from neve.maintenance.record import Operation
from neve.operations import reachable
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
DAY = 86_400_000


class MovedClock:
    def __init__(self) -> None:
        self.ms = 4_000_000_000_000  # ahead: files were written before they are recorded

    def now_ms(self) -> int:
        return self.ms


@dataclass
class Quarantined:
    """A table with its quarantine."""

    bench: Bench
    neve: Neve
    clock: MovedClock
    state: str

    @property
    def name(self) -> str:
        return f"{self.bench.namespace}.{self.bench.name}"

    def append(self, start: int) -> None:
        self.bench.sql(f"INSERT INTO {{}} SELECT id, id % 2 FROM range({start}, {start + 10}, 1, 1)")

    def doom(self, *paths: str, run_id: str = "run1") -> None:
        with StateStore.open(self.state) as store:
            files = [
                Candidate(path=path, reason="no snapshot needs it", size_bytes=Path(path).stat().st_size) for path in paths
            ]
            assert store.record_candidates(str(self.bench.load().metadata.table_uuid), run_id, files, self.clock.ms) == len(
                paths
            )

    def fates(self) -> dict[str, Fate]:
        return {file.path: file.fate for file in self.neve.quarantined(self.name)}

    def trash(self) -> list[str]:
        root = self.bench.warehouse / self.bench.namespace / self.bench.name
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and TRASH in path.parts)

    def reads(self, rows: int) -> None:
        """By Spark and by DuckDB, every file of it."""
        assert self.bench.ids() == list(range(rows))
        assert len(self.bench.duckdb()) == rows


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Quarantined]]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.quarantine")
    url, clock = f"sqlite:///{tmp_path_factory.mktemp('state') / 'state.db'}", MovedClock()
    loaded = load_settings(environ={}, flags={"state.url": url})

    with Neve.open(loaded, warehouse=str(warehouse), environ={}, clock=clock) as opened:
        opened.connection.session = spark

        def make() -> Quarantined:
            bench = Bench(spark, warehouse, "quarantine", f"t{next(NUMBERS)}")
            bench.sql("CREATE TABLE {} (id BIGINT, part BIGINT) USING iceberg PARTITIONED BY (part)")
            table = Quarantined(bench, opened, clock, url)
            for start in (0, 10, 20):
                table.append(start)
            return table

        yield make


@pytest.fixture(params=["plain", "java"])
def table(make: Callable[[], Quarantined], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Quarantined:
    """Its entry in the catalog is changed in plain Python, and by Iceberg's Java as in other catalogs."""
    if request.param == "java":
        monkeypatch.setattr(Connection, "entry", lambda *_: None)
    return make()


def stray(table: Quarantined, name: str = "stray.parquet") -> str:
    """A file beside the table's own that no snapshot knows."""
    model = Path(sorted(table.bench.paths())[0])
    path = model.with_name(name)
    path.write_bytes(model.read_bytes())
    return str(path)


def test_what_the_table_needs_stays_and_the_rest_goes_to_a_trash_that_gives_it_back(table: Quarantined) -> None:
    wrongly, rightly = sorted(table.bench.paths())[0], stray(table)
    content = Path(rightly).read_bytes()
    table.doom(wrongly, rightly)

    early = table.neve.settle(table.name)
    assert (early.outcome, early.reason) == (
        RunOutcome.NOTHING_TO_DO,
        "no file has been in the quarantine for the grace time and waits",
    )
    table.clock.ms += DAY + 1
    told = table.neve.settle(table.name, dry_run=True)
    assert [(change.path, change.step) for change in told.changes] == [(rightly, "move to the trash"), (wrongly, "stay")]
    assert table.fates() == {wrongly: Fate.RECORDED, rightly: Fate.RECORDED}

    done = table.neve.settle(table.name)
    assert (done.operation, done.outcome, done.files, done.needed, done.size_bytes) == (
        Operation.SETTLE,
        RunOutcome.DONE,
        1,
        1,
        len(content),
    )
    assert table.fates() == {wrongly: Fate.NEEDED, rightly: Fate.TRASHED}
    assert table.trash() == [f"{TRASH}/run1/data/part=0/stray.parquet"]
    assert not Path(rightly).exists()
    table.reads(30)

    back = table.neve.restore("run", table=table.name)
    assert (back.outcome, back.files) == (RunOutcome.DONE, 1)
    assert Path(rightly).read_bytes() == content
    assert table.trash() == []
    assert table.neve.run(done.recorded_id).kind == "quarantine"
    table.reads(30)


def test_iceberg_s_own_removal_of_orphans_does_not_see_the_trash(table: Quarantined) -> None:
    path = stray(table)
    table.doom(path)
    table.neve.settle(table.name, at_once=True)
    before = table.trash()
    assert len(before) == 1
    seen = stray(table, "seen.parquet")
    jvm: Any = table.bench.spark._jvm
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(table.bench.spark._jsparkSession)
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(table.bench.spark._jsparkSession, table.bench.sql_name)
    orphans = list(actions.deleteOrphanFiles(loaded).olderThan(2**53).execute().orphanFileLocations())
    assert [orphan.removeprefix("file:") for orphan in orphans] == [seen]
    assert table.trash() == before


def test_a_file_that_came_to_be_needed_in_the_trash_is_put_back_by_the_purge(table: Quarantined) -> None:
    needed, stray_file = sorted(table.bench.paths())[0], stray(table)
    table.doom(stray_file)
    table.neve.settle(table.name, at_once=True)
    with StateStore.open(table.state) as store:  # as a judgement would have it that knew nothing of the table's refs
        uuid = str(table.bench.load().metadata.table_uuid)
        store.record_candidates(uuid, "run2", [Candidate(path=needed, reason="wrong")], table.clock.ms)
        trash = f"{table.bench.load().location().removeprefix('file:')}/{TRASH}/run2/data/x.parquet"
        Path(trash).parent.mkdir(parents=True)
        Path(needed).rename(trash)
        store.settle_candidates(uuid, [FateChange(needed, Fate.TRASHED, trash)], table.clock.ms)
    table.clock.ms += 7 * DAY + 1
    done = table.neve.purge(table.name)
    assert (done.outcome, done.files, done.needed) == (RunOutcome.DONE, 1, 1)
    assert table.fates() == {stray_file: Fate.PURGED, needed: Fate.NEEDED}
    assert table.trash() == []
    table.reads(30)
    with pytest.raises(BadRequestError, match="Cannot restore run run1: all of its files are purged") as caught:
        table.neve.restore("run1", table=table.name)
    assert caught.value.hint == "trash-keep says how long files can be restored."


def test_a_file_outside_of_the_table_is_judged_only_by_the_table_it_was_recorded_for(
    table: Quarantined, tmp_path: Path
) -> None:
    """A copy of a table has the same uuid, and this table does not know what the copy needs."""
    files = {name: tmp_path / f"{name}.parquet" for name in ("dr.db.t", "local.quarantine.renamed", "unknown")}
    uuid = str(table.bench.load().metadata.table_uuid)
    with StateStore.open(table.state) as store:
        for name in ("dr.db.t", "local.quarantine.renamed"):
            store.start_run(Run(f"{table.name} of {name}", uuid, name, "orphans", 1))
    for name, file in files.items():
        file.write_text("data")
        table.doom(str(file), run_id=f"{table.name} of {name}")
    record = table.neve.settle(table.name, at_once=True)
    assert (record.files, record.elsewhere) == (1, {"dr.db.t": 1, "an unknown table": 1})
    assert [name for name, file in files.items() if file.exists()] == ["dr.db.t", "unknown"]


def test_a_table_that_another_run_holds_is_left_alone(table: Quarantined) -> None:
    table.doom(path := stray(table))
    with StateStore.open(table.state) as store:
        uuid = str(table.bench.load().metadata.table_uuid)
        store.take_lease(uuid, run_id="other", owner="elsewhere:1", now_ms=table.clock.ms, lease_ms=DAY)
    with pytest.raises(LeaseHeldError, match="run other"):
        table.neve.settle(table.name, at_once=True)
    assert Path(path).exists()
    assert table.neve.settle(table.name, at_once=True, dry_run=True).files == 1


def test_a_table_whose_files_are_not_to_be_removed_keeps_them(table: Quarantined) -> None:
    table.doom(path := stray(table))
    table.bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    done = table.neve.settle(table.name, at_once=True)
    assert (done.outcome, done.reason) == (
        RunOutcome.NOTHING_TO_DO,
        "the table property gc.enabled is false, so no file is removed",
    )
    assert Path(path).exists()


def test_what_a_large_table_needs_is_found_on_spark_and_the_same_files_go(
    make: Callable[[], Quarantined], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make()
    wrongly, rightly = sorted(table.bench.paths())[0], stray(table)
    table.doom(wrongly, rightly)
    monkeypatch.setattr(reachable, "_MOST_FILES", 0)
    done = table.neve.settle(table.name, at_once=True)
    assert (done.outcome, done.files, done.needed) == (RunOutcome.DONE, 1, 1)
    assert table.fates() == {wrongly: Fate.NEEDED, rightly: Fate.TRASHED}
    table.reads(30)
