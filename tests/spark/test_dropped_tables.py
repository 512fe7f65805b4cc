"""A table that was dropped and created again at the same location: what the first one left goes the way of all orphans."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.api import Neve
from neve.errors import InDoubtError
from neve.maintenance.orphans import Verdict
from neve.maintenance.quarantine import TRASH, Fate
from neve.maintenance.steps import Step, StepOutcome, StepRecord
from neve.operations.requests import OrphansRequest
from neve.rewrite.record import RunOutcome
from tests.builders.spark_connections import Moved, opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
DAY = 86_400_000


@pytest.fixture
def clock() -> Moved:
    return Moved(time.time_ns() // 1_000_000)


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path, clock: Moved) -> Iterator[Neve]:
    with opened(spark, warehouse, tmp_path / "state.db", clock=clock) as found:
        yield found


@pytest.fixture
def table(spark: SparkSession, warehouse: Path) -> Bench:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.dropped")
    bench = Bench(spark, warehouse, "dropped", f"t{next(NUMBERS)}")
    create(bench, rows=30)
    return bench


def create(bench: Bench, *, rows: int) -> None:
    bench.sql("CREATE TABLE {} (id BIGINT) USING iceberg TBLPROPERTIES ('neve.maintain-compact' = 'no')")
    for start in range(0, rows, 10):
        bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + 10}, 1, 1)")


def drop(bench: Bench) -> str:
    """Drops the table and leaves its files, as catalogs do; returns its uuid."""
    uuid = str(bench.load().metadata.table_uuid)
    bench.sql("DROP TABLE {}")
    return uuid


def name(bench: Bench) -> str:
    return f"{bench.namespace}.{bench.name}"


def home(bench: Bench) -> Path:
    return bench.warehouse / bench.namespace / bench.name


def files(bench: Bench) -> set[str]:
    found = (path for path in home(bench).rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path) for path in found if TRASH not in path.parts}


def orphans_step(neve: Neve, bench: Bench) -> StepRecord:
    return next(step for step in neve.maintain(name(bench), only=["orphans"]).steps if step.step is Step.ORPHANS)


def test_leftovers_of_a_dropped_table_block_maintenance_until_somebody_vouches(table: Bench, neve: Neve, clock: Moved) -> None:
    left = files(table)
    uuid = drop(table)
    create(table, rows=20)
    own = files(table) - left
    clock.now += 10 * DAY
    refused = orphans_step(neve, table)
    assert refused.outcome is StepOutcome.FAILED
    command = f"neve orphans local.{name(table)} --dropped-table {uuid}"
    assert f"({uuid}: 4 metadata files, the newest is {home(table)}/metadata/00003-" in (refused.told or "")
    assert f"`{command} --dry-run`" in (refused.told or "")

    dry = neve.orphans(name(table), OrphansRequest(dropped_tables=(uuid.upper(),), dry_run=True))
    assert {file.path for file in dry.files} == left
    assert dry.verdicts[Verdict.DROPPED] == 4
    assert left | own <= files(table)

    taken = neve.orphans(name(table), OrphansRequest(dropped_tables=(uuid,)))
    assert (taken.outcome, taken.taken) == (RunOutcome.DONE, len(left))
    assert left | own <= files(table)

    clock.now += 8 * DAY
    again = orphans_step(neve, table)
    assert again.outcome is StepOutcome.NOTHING
    assert again.told == f"Nothing to do: all {len(left)} orphans wait in the quarantine already"
    assert neve.settle(name(table)).files == len(left)
    assert (files(table) & left, own <= files(table)) == (set(), True)
    assert (table.ids(), len(table.duckdb())) == (list(range(20)), 20)
    assert orphans_step(neve, table).outcome is StepOutcome.NOT_DUE

    assert neve.restore(taken.run_id).outcome is RunOutcome.DONE
    assert left | own <= files(table)
    with pytest.raises(InDoubtError, match="metadata of another table is there"):
        neve.orphans(name(table))


def test_a_limit_takes_the_metadata_of_a_dropped_table_first(table: Bench, neve: Neve, clock: Moved) -> None:
    left = files(table)
    uuid = drop(table)
    create(table, rows=10)
    clock.now += 10 * DAY
    taken = neve.orphans(name(table), OrphansRequest(dropped_tables=(uuid,), limit=4))
    assert (taken.taken, taken.limited) == (4, True)
    recorded = [file.path for file in neve.quarantined(name(table))]
    assert all(path.endswith(".metadata.json") for path in recorded)
    assert neve.orphans(name(table)).taken == len(left) - 4


def test_settings_can_declare_dropped_tables_for_every_run(
    table: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path, clock: Moved
) -> None:
    left = files(table)
    uuid = drop(table)
    create(table, rows=10)
    clock.now += 10 * DAY
    with opened(spark, warehouse, tmp_path / "other.db", clock=clock, **{"orphans.dropped-tables": uuid}) as neve:
        done = orphans_step(neve, table)
        assert done.outcome is StepOutcome.DONE
        assert {file.path for file in neve.quarantined(name(table)) if file.fate is Fate.RECORDED} == left


def test_the_trash_of_a_dropped_table_is_purged_by_the_table_that_took_its_place(
    table: Bench, neve: Neve, clock: Moved
) -> None:
    clock.now += 2 * DAY
    expired = neve.expire(name(table), older_than="1 hour", keep=1)
    clock.now += 2 * DAY
    trashed = neve.settle(name(table)).files
    assert trashed > 0
    uuid = drop(table)
    create(table, rows=10)
    clock.now += 10 * DAY
    assert neve.purge(name(table)).outcome is RunOutcome.NOTHING_TO_DO
    record = neve.orphans(name(table), OrphansRequest(dropped_tables=(uuid,)))
    assert f"{trashed} files in the trash of dropped tables: purged with those of this table" in record.warnings
    assert {file.run_id for file in neve.quarantined(name(table)) if file.fate is Fate.TRASHED} == {expired.run_id}
    assert neve.restore(expired.run_id, table=name(table), dry_run=True).files == trashed
    assert neve.purge(name(table)).files == trashed
    assert not [path for path in (home(table) / TRASH / expired.recorded_id).rglob("*") if path.is_file()]
    assert (table.ids(), len(table.duckdb())) == (list(range(10)), 10)
