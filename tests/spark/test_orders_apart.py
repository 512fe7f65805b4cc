"""Orders of a plan carried out one by one in processes of their own, elsewhere and without Java, then committed together."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.errors import BadRequestError, RunInterrupted
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from neve.rewrite.work_order import WorkOrder, WorkResult
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = Request(tier=Tier.FULL, kernel=Kernel.COPY, force=True)
_NUMBERS = count()


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    """A new table of two partitions with two files each."""
    bench = Bench(spark, warehouse, "apart", f"t{next(_NUMBERS)}")
    bench.sql("CREATE TABLE {} (id BIGINT, v DOUBLE, tags ARRAY<STRING>, region INT) USING iceberg PARTITIONED BY (region)")
    add(bench, 0)
    add(bench, 100)
    return bench


def add(bench: Bench, start: int) -> None:
    """A file of 50 rows in each partition."""
    columns = "id, CAST(id AS DOUBLE) / 7, array(CAST(id AS STRING), 'x'), CAST(id % 2 AS INT)"
    bench.sql(f"INSERT INTO {{}} SELECT {columns} FROM range({start}, {start + 100})")


@pytest.fixture
def opened(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neve]:
    """The composition root over the shared session: there is one in a process."""
    monkeypatch.chdir(tmp_path)
    flags = {"state.url": f"sqlite:///{tmp_path}/state.db", "cache.enabled": "false"}
    with Neve.open(load_settings(flags=flags, environ={}), warehouse=str(bench.warehouse), environ={}) as neve:
        neve.connection.session = bench.spark
        yield neve


def plan_of(opened: Neve, bench: Bench) -> Plan:
    """Of every file; has been through JSON, as between two processes."""
    return Plan.model_validate_json(opened.plan(bench.sql_name, request=EVERYTHING).model_dump_json())


def carry_out(orders: Sequence[WorkOrder], directory: Path) -> list[WorkResult]:
    """Each order in a process of its own, with no settings, no Java, and nothing on its path but what is installed."""
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    environ = {"HOME": str(elsewhere), "PATH": str(elsewhere)}
    results = []
    for number, order in enumerate(orders):
        (elsewhere / f"{number}.json").write_text(order.model_dump_json())
        command = [sys.executable, "-m", "neve", "work", f"{number}.json", "--out", f"{number}.result.json"]
        done = subprocess.run(command, cwd=elsewhere, env=environ, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        results.append(WorkResult.model_validate_json((elsewhere / f"{number}.result.json").read_text()))
    return results


def eager(order: WorkOrder) -> WorkOrder:
    """The order as it would be for large files: those of a test are too small to be copied otherwise."""
    return order.model_copy(update={"write": order.write.model_copy(update={"min_chunk_bytes": 0})})


def test_orders_carried_out_apart_are_committed_together_and_no_row_changes(opened: Neve, bench: Bench, tmp_path: Path) -> None:
    before, files = bench.duckdb(), bench.paths()
    plan = plan_of(opened, bench)
    first, second = opened.work_orders(plan)

    results = carry_out([eager(first), second], tmp_path)

    assert [result.kernel for result in results] == [Kernel.COPY, Kernel.ARROW]
    assert bench.paths() == files
    record = opened.commit(plan, results)
    assert record.outcome is RunOutcome.DONE
    assert (record.files_compacted, record.files_written, record.rows, len(record.snapshots)) == (4, 2, 200, 1)
    assert bench.paths() == {output.path for result in results for output in result.outputs}
    assert bench.duckdb() == before
    assert opened.run(record.recorded_id).outcome == "done"


def test_a_result_that_was_tampered_with_is_refused_by_the_proof_and_the_honest_one_is_not(opened: Neve, bench: Bench) -> None:
    before, files = bench.duckdb(), bench.paths()
    plan = plan_of(opened, bench)
    honest = [opened.execute(order) for order in opened.work_orders(plan)]
    output, counted = honest[0].outputs[0], honest[0].kept[1]
    forged: dict[str, dict[str, Any]] = {
        "rows read: 101, expected 100": {"rows_read": 101},
        "rows written: 101, expected 100": {"outputs": (output.model_copy(update={"records": 101}),)},
        "rows dropped: ": {"rows_dropped": 1, "outputs": (output.model_copy(update={"records": 99}),)},
        "nulls by column: column 1: 0, expected 1": {"kept": {**honest[0].kept, 1: counted.model_copy(update={"nulls": 1})}},
        "inputs: the result is of other files (00000000, expected ": {"inputs_digest": "0" * 64},
        "paths are new: ": {"outputs": (output.model_copy(update={"path": sorted(files)[0]}),)},
    }
    for objection, changes in forged.items():
        record = opened.commit(plan, [honest[0].model_copy(update=changes)])
        assert record.outcome is RunOutcome.FAILED
        assert [group.state for group in record.groups] == [GroupState.FAILED]
        assert record.groups[0].reason.startswith(f"verification failed: {objection}")
        assert bench.paths() == files
        assert bench.duckdb() == before
    assert opened.commit(plan, honest).outcome is RunOutcome.DONE
    assert bench.duckdb() == before


def test_results_of_another_plan_are_refused_and_their_files_stay(opened: Neve, bench: Bench) -> None:
    plan = plan_of(opened, bench)
    results = [opened.execute(order) for order in opened.work_orders(plan)]
    assert opened.commit(plan, results).outcome is RunOutcome.DONE
    add(bench, 200)
    before, files = bench.duckdb(), bench.paths()

    record = opened.commit(plan_of(opened, bench), results)

    assert record.outcome is RunOutcome.FAILED
    for group in record.groups:
        assert group.state is GroupState.FAILED
        assert group.reason.startswith("verification failed: inputs: the result is of other files (")
    assert bench.paths() == files
    assert bench.duckdb() == before


def test_committing_the_same_results_again_returns_the_first_record_and_changes_nothing(opened: Neve, bench: Bench) -> None:
    before = bench.duckdb()
    plan = plan_of(opened, bench)
    results = [opened.execute(order) for order in opened.work_orders(plan)]
    first = opened.commit(plan, results)
    assert first.outcome is RunOutcome.DONE
    files, snapshots = bench.paths(), bench.load().snapshots()

    assert opened.commit(plan, results) == first

    assert [run.run_id for run in opened.runs()] == [first.run_id]
    assert bench.load().snapshots() == snapshots
    assert bench.paths() == files
    assert bench.duckdb() == before


def test_a_commit_of_results_that_was_interrupted_is_finished_by_the_next_one(
    opened: Neve, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.duckdb()
    plan = plan_of(opened, bench)
    results = [opened.execute(order) for order in opened.work_orders(plan)]

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TableBridge, "rewrite", stopped)
        with pytest.raises(RunInterrupted) as stop:
            opened.commit(plan, results)
    assert [(run.run_id, run.outcome) for run in opened.runs()] == [(stop.value.run_id, "interrupted")]

    record = opened.commit(plan, results)

    assert (record.run_id, record.outcome, len(record.snapshots)) == (stop.value.run_id, RunOutcome.DONE, 1)
    assert opened.commit(plan, results) == record
    assert bench.paths() == {output.path for result in results for output in result.outputs}
    assert bench.duckdb() == before


def test_a_result_without_a_group_and_a_group_with_two_results_are_bad_requests(opened: Neve, bench: Bench) -> None:
    plan = plan_of(opened, bench)
    result = opened.execute(opened.work_orders(plan)[0])
    with pytest.raises(BadRequestError) as caught:
        opened.commit(plan, [result.model_copy(update={"group_id": 9})])
    assert str(caught.value) == "Cannot commit the results: the plan has no group 9"
    with pytest.raises(BadRequestError) as caught:
        opened.commit(plan, [result, result])
    assert str(caught.value) == f"Cannot commit the results: there are several of group {result.group_id}"
