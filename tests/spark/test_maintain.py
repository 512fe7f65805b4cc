"""The whole upkeep of real tables: what is due is done in one go, and nothing the second time; rows stay the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from neve.api import Neve
from neve.errors import StorageError
from neve.maintenance.steps import MaintainRecord, Step, StepOutcome
from neve.rewrite.record import RunOutcome
from neve.state.rows import Run
from tests.builders.spark_connections import Moved, opened
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
DAY = 86_400_000
ROWS = 240


@pytest.fixture
def table(spark: SparkSession, warehouse: Path) -> Bench:
    """Twelve appends, a branch, a tag, deletes by position, and statistics of the past."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.maintain")
    bench = Bench(spark, warehouse, "maintain", f"t{next(NUMBERS)}")
    bench.sql(
        "CREATE TABLE {} (id BIGINT, part BIGINT, city STRING, day DATE) USING iceberg PARTITIONED BY (part) TBLPROPERTIES "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read', 'commit.manifest-merge.enabled' = 'false')"
    )
    for start in range(0, ROWS, 20):
        bench.sql(
            f"INSERT INTO {{}} SELECT id, id % 2, CAST(id AS STRING), DATE '2025-06-15' FROM range({start}, {start + 20}, 1, 1)"
        )
        if start == 100:
            bench.sql("ALTER TABLE {} CREATE TAG half")
            bench.sql("ALTER TABLE {} CREATE BRANCH audit")
    bench.sql("DELETE FROM {} WHERE id % 20 = 7")
    backdate(bench, 8 * DAY)
    return bench


def backdate(bench: Bench, by_ms: int) -> None:
    """Makes all that happened so far so much older, as no engine would: in a version of the metadata of its own."""
    table, catalog = bench.load(), bench.catalog()
    found = json.loads(Path(table.metadata_location).read_text(encoding="utf-8"))
    for moment in (found, *found["snapshots"], *found["snapshot-log"], *found["metadata-log"]):
        moment |= {key: value - by_ms for key, value in moment.items() if key in ("timestamp-ms", "last-updated-ms")}
    older = Path(table.metadata_location).with_name(f"99999-{uuid4()}.metadata.json")
    older.write_text(json.dumps(found), encoding="utf-8")
    catalog.drop_table(table.name())
    catalog.register_table(table.name(), str(older))
    bench.sql("REFRESH TABLE {}")


@pytest.fixture
def clock() -> Moved:
    return Moved(time.time_ns() // 1_000_000)


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path, clock: Moved) -> Iterator[Neve]:
    with opened(spark, warehouse, tmp_path / "state.db", clock=clock) as found:
        yield found


def name(table: Bench) -> str:
    return f"maintain.{table.name}"


def did(record: MaintainRecord) -> dict[Step, StepOutcome]:
    return {step.step: step.outcome for step in record.steps if step.outcome is not StepOutcome.NOT_DUE}


def reads(table: Bench) -> None:
    """By Spark and by DuckDB at the head, by Spark at the refs."""
    ids = [row for row in range(ROWS) if row % 20 != 7]
    assert table.ids() == ids
    assert len(table.duckdb()) == len(ids)
    for ref in ("half", "audit"):
        found = table.spark.sql(f"SELECT id FROM {table.sql_name} VERSION AS OF '{ref}'").collect()
        assert sorted(row.id for row in found) == list(range(120))


def test_all_that_is_due_is_done_and_nothing_the_second_time(table: Bench, neve: Neve, clock: Moved) -> None:
    told = neve.maintain(name(table), dry_run=True)
    assert {Step.EXPIRE, Step.COMPACT, Step.ORPHANS} <= set(did(told))

    record = neve.maintain(name(table))
    assert record.outcome is RunOutcome.DONE, record
    done = did(record)
    assert done[Step.EXPIRE] is done[Step.COMPACT] is StepOutcome.DONE
    assert (record.health_before or 0) < (record.health_after or 0)
    reads(table)

    again = neve.maintain(name(table))
    assert (again.outcome, did(again)) == (RunOutcome.NOTHING_TO_DO, {}), again.done
    assert [run.kind for run in neve.runs(name(table)) if run.kind == "maintain"] == ["maintain"]

    clock.now += 2 * DAY
    assert did(neve.maintain(name(table)))[Step.SETTLE] is StepOutcome.DONE
    reads(table)
    clock.now += 8 * DAY
    last = did(neve.maintain(name(table)))
    assert last[Step.PURGE] is StepOutcome.DONE
    reads(table)
    assert {str(file.fate) for file in neve.quarantined(name(table))} <= {"purged", "needed", "recorded", "trashed"}


def test_what_the_policy_asks_for_is_done_too(
    table: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path, clock: Moved
) -> None:
    flags = {"policy.auto-tags": "daily 3", "policy.stats-columns": "city", "policy.maintain-orphans": "false"}
    with opened(spark, warehouse, tmp_path / "state.db", clock=clock, **flags) as neve:
        first = did(neve.maintain(name(table)))
        assert first[Step.TAGS] is first[Step.STATS] is StepOutcome.DONE
        assert first[Step.ORPHANS] is StepOutcome.LEFT_OUT
        second = did(neve.maintain(name(table)))
        assert second == {Step.ORPHANS: StepOutcome.LEFT_OUT}
    reads(table)


def test_rows_past_their_time_go_only_after_somebody_has_seen_which(
    table: Bench, spark: SparkSession, warehouse: Path, tmp_path: Path, clock: Moved
) -> None:
    flags = {"policy.ttl": "90 days", "policy.ttl-column": "day"}
    with opened(spark, warehouse, tmp_path / "state.db", clock=clock, **flags) as neve:
        shown = neve.maintain(name(table), only=["ttl"])
        assert did(shown)[Step.COMPACT] is StepOutcome.LEFT_OUT
        unseen = next(step for step in shown.steps if step.step is Step.TTL)
        assert (unseen.outcome, unseen.why) == (
            StepOutcome.NOT_DUE,
            f"the limit was never previewed, due once `neve ttl local.{name(table)}` has shown what would go",
        )
        neve.ttl(name(table))
        record = neve.maintain(name(table), only=["ttl"])
        assert did(record)[Step.TTL] is StepOutcome.DONE, next(step.told for step in record.steps if step.step is Step.TTL)
    assert table.ids() == []


def test_a_rewrite_that_stopped_is_ended_first_and_its_files_are_no_orphans(
    table: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neve.spark.table.bridge import TableBridge

    def fails(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TableBridge, "rewrite", fails)
    with pytest.raises(KeyboardInterrupt):
        neve.maintain(name(table))
    monkeypatch.undo()
    open_runs = [run for run in neve.runs(name(table)) if run.kind == "maintain" and run.finished_ms is None]
    assert len(open_runs) == 1

    record = neve.maintain(name(table))
    assert did(record)[Step.RESUME] is StepOutcome.DONE
    assert record.outcome is RunOutcome.DONE
    reads(table)
    ended = neve.run(open_runs[0].run_id)
    assert (ended.outcome, ended.record["reason"]) == (
        "failed",
        f"it was interrupted; run {record.recorded_id[:8]} went on with it",
    )


def test_one_that_may_be_at_work_on_another_host_is_not_told_as_interrupted(table: Bench, neve: Neve) -> None:
    uuid, started = str(table.load().metadata.table_uuid), int(time.time() * 1000)
    at_work = Run("other", uuid, f"local.{name(table)}", "maintain", started, record={"owner": "otherhost:7"})
    with neve.connection.store() as store:
        store.start_run(at_work)
    assert neve.maintain(name(table)).outcome is RunOutcome.DONE
    assert neve.run("other").finished_ms is None


def test_a_failing_compaction_leaves_orphans_alone(table: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.operations import compact

    def fails(*_: object, **__: object) -> None:
        raise StorageError("Cannot write: the disk is full")

    monkeypatch.setattr(compact, "run", fails)
    record = neve.maintain(name(table))
    assert did(record)[Step.COMPACT] is StepOutcome.FAILED
    assert did(record)[Step.ORPHANS] is StepOutcome.NOT_TRIED
    assert did(record)[Step.EXPIRE] is StepOutcome.DONE
    assert record.outcome is RunOutcome.PARTLY_DONE
    reads(table)
