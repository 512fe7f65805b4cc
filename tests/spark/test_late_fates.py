"""What comes late in a run's life: expiry before a resume, Ctrl-C in the middle, a sort order to keep."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from neve.api import Neve
from neve.rewrite.group import Kernel
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import data_files, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Killed(BaseException):
    """Nobody catches it: the process might as well have died."""


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    made = Bench(spark, warehouse, f"late_{uuid4().hex[:12]}", "t")
    spark.sql(f"CREATE NAMESPACE local.{made.namespace}")
    return made


@pytest.fixture
def neve(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neve]:
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as opened:
        monkeypatch.setattr(opened.connection, "session", bench.spark)
        yield opened


def fill(bench: Bench, *, partitions: str = "") -> None:
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, shop STRING) USING iceberg {partitions}")
    for first in (0, 10, 20):
        bench.sql(f"INSERT INTO {{}} SELECT id, concat('s', id % 3) FROM range({first}, {first + 10}, 1, 1)")


@pytest.mark.parametrize("plan_is_expired", [True, False], ids=["plan expired", "plan kept"])
def test_a_group_that_landed_and_is_held_by_a_tag_alone_ends_in_doubt_with_its_files(
    *, plan_is_expired: bool, bench: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bench)
    if not plan_is_expired:
        bench.sql("ALTER TABLE {} CREATE TAG planned")
    real = TableBridge.rewrite

    def dying(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(TableBridge, "rewrite", dying)
        with pytest.raises(Killed):
            neve.compact(f"{bench.namespace}.t", request=Request(force=True))
    (ours,) = bench.paths()
    bench.sql("INSERT INTO {} VALUES (30, 's0')")
    bench.sql("ALTER TABLE {} CREATE TAG held")
    bench.sql("INSERT OVERWRITE {} VALUES (99, 's9')")
    bench.expire()
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as later:
        monkeypatch.setattr(later.connection, "session", bench.spark)
        (journalled,) = later.unfinished()
        record = later.resume(journalled.run_id)
    (group,) = record.groups
    assert (record.outcome, group.state) == (RunOutcome.FAILED, GroupState.IN_DOUBT)
    assert group.reason.endswith("it may have landed before")
    assert [output.path for output in group.outputs] == [ours]
    assert local(ours).exists()
    held = bench.sql("SELECT id FROM {} VERSION AS OF 'held'").collect()
    assert sorted(row.id for row in held) == list(range(31))
    assert bench.ids() == [99]


INTERRUPTED_RUN = """
import os, signal, sys
from contextlib import contextmanager
from neve.spark.table import bridge, deltas
from neve.spark.tasks import rewrite
from neve.operations import rewrite_run as run
from neve.state import StateStore

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background have it ignored
moment = sys.argv.pop(1)
run.BATCH_GROUPS = 1
rewrite.WAVE_BYTES = 0
settled, committing, rewrite_files = StateStore.settled, deltas.committing, bridge.TableBridge.rewrite

def interrupt(*_):
    os.killpg(0, signal.SIGINT)

def settled_then_interrupted(self, run_id, states):
    settled(self, run_id, states)
    interrupt()

@contextmanager
def interrupted_soon():
    deltas.committing = committing  # one Ctrl-C, not one for each commit
    with committing():
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        yield

def rewrite_interrupted(*args, **options):
    signal.signal(signal.SIGALRM, interrupt)
    deltas.committing = interrupted_soon
    rewrite_files(*args, **options)

if moment == "after a commit":
    StateStore.settled = settled_then_interrupted
else:
    bridge.TableBridge.rewrite = rewrite_interrupted
sys.argv = ["neve", "compact", *sys.argv[1:]]
from neve.cli import main
main()
"""
"""Ctrl-C reaches every process of a terminal's group; here it comes when the first group is committed, or about to be."""


@pytest.mark.parametrize("moment", [pytest.param("after a commit", marks=pytest.mark.slow), "during a commit"])
def test_ctrl_c_keeps_what_is_committed_and_the_rest_is_resumed(moment: str, bench: Bench, neve: Neve) -> None:
    fill(bench, partitions="PARTITIONED BY (shop)")
    table = [f"{bench.namespace}.t", "--force", "--warehouse", str(bench.warehouse)]
    options = ["--set", "spark.master=local[1]", "--set", "spark.driver-memory=1 GB"]
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_RUN, moment, *table, *options],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )
    assert result.returncode == 130, result.stdout + result.stderr
    (journalled,) = neve.unfinished()
    given = "--set 'spark.master=local[1]' --set 'spark.driver-memory=1 GB'"
    finish = f"Finish the run with: neve resume {journalled.run_id[:8]} --warehouse {bench.warehouse} {given}"
    assert result.stderr.splitlines()[-2:] == ["Interrupted", finish]
    assert "WARNING" not in result.stderr
    assert "Traceback" not in result.stderr
    assert [run.outcome for run in neve.runs(f"{bench.namespace}.t")] == ["interrupted"]
    states = [group.state for group in journalled.groups]
    assert len(states) == 3
    assert states.count(GroupState.COMMITTED) in ({1} if moment == "after a commit" else {0, 1})
    assert bench.ids() == list(range(30))
    assert len(bench.paths()) > 3
    record = neve.resume(journalled.run_id)
    assert record.outcome is RunOutcome.DONE
    assert len(bench.paths()) == 3
    assert bench.ids() == list(range(30))
    known = {row.file_path for row in bench.sql("SELECT file_path FROM {}.all_data_files").collect()}
    assert bench.on_disk() - {file.path for file in neve.quarantined(f"{bench.namespace}.t")} == known


@pytest.mark.parametrize("kernel", list(Kernel))
def test_files_of_a_sorted_table_stay_sorted_and_say_so_only_if_they_are(kernel: Kernel, bench: Bench) -> None:
    fill(bench)
    bench.sql("ALTER TABLE {} WRITE ORDERED BY shop, id DESC")
    bench.sql("INSERT INTO {} SELECT id, concat('s', id % 3) FROM range(30, 60, 1, 1)")
    record = bench.compact(kernel)
    assert record.outcome is RunOutcome.DONE
    table = bench.load()
    (output,) = data_files(table)
    rows = pq.read_table(local(output.file_path)).to_pylist()
    assert [(row["shop"], -row["id"]) for row in rows] == sorted((f"s{i % 3}", -i) for i in range(60))
    assert output.sort_order_id == table.sort_order().order_id


def test_files_of_a_table_that_is_sorted_no_more_do_not_claim_an_order(bench: Bench) -> None:
    fill(bench)
    bench.sql("ALTER TABLE {} WRITE ORDERED BY id DESC")
    bench.sql("INSERT INTO {} SELECT id, 's' FROM range(30, 40, 1, 1)")
    bench.sql("INSERT INTO {} SELECT id, 's' FROM range(40, 50, 1, 1)")
    bench.sql("ALTER TABLE {} WRITE UNORDERED")
    assert bench.compact(Kernel.ARROW).outcome is RunOutcome.DONE
    (output,) = data_files(bench.load())
    assert output.sort_order_id == 0
