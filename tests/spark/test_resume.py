"""The driver is killed at every stage of a run; `resume` finishes it, redoes only what was not written, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.api import Neve
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.samples import SAMPLES, Target
from neve.settings import load_settings
from neve.spark.tasks.rewrite import SparkEngine
from tests.builders.table_contents import duckdb_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPS = 5

KILLED_RUN = """
import os, signal, sys
from neve.api import Neve
from neve.spark.table.bridge import TableBridge
from neve.operations import rewrite_run as run
from neve.rewrite.planner import Request
from neve.settings import load_settings
from neve.state import StateStore

warehouse, table, where, number = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
run.BATCH_GROUPS = 2

def die_at(owner, name, *, before):
    real, calls = getattr(owner, name), []
    def dying(*args, **options):
        calls.append(1)
        if before and len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **options)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, dying)

owners = {"begin": StateStore, "written": StateStore, "settled": StateStore, "keep_run": StateStore, "rewrite": TableBridge}
name, _, moment = where.partition(":")
die_at(owners[name], name, before=moment == "before")
with Neve.open(load_settings(flags={"spark.driver-memory": "1 GB"}), warehouse=warehouse) as neve:
    neve.compact(table, request=Request(force=True))
print("survived")
"""


@pytest.fixture
def table(warehouse: Path) -> Iterator[str]:
    """A fresh copy of the stream, five partitions of fifty files, for each test."""
    namespace = f"resume_{uuid4().hex[:12]}"
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    catalog.create_namespace_if_not_exists(namespace)
    SAMPLES["stream"].build(Target(catalog=catalog, namespace=namespace), seed=7)
    yield f"{namespace}.stream"
    catalog.close()


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Neve]:
    with Neve.open(load_settings(), warehouse=str(warehouse)) as opened:
        monkeypatch.setattr(opened.connection, "session", spark)
        yield opened


def kill_at(where: str, number: int, *, warehouse: Path, table: str) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(warehouse), table, where, str(number)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, env=os.environ)
    assert result.returncode == -signal.SIGKILL, f"{result.returncode} {result.stdout} {result.stderr}"


def resume(neve: Neve, monkeypatch: pytest.MonkeyPatch) -> tuple[RunRecord, list[int]]:
    """The record, and the groups that were rewritten again."""
    redone: list[int] = []
    real = SparkEngine.run

    def counting(self: SparkEngine, orders: Any) -> Any:
        redone.extend(order.group_id for order in orders)
        return real(self, orders)

    monkeypatch.setattr(SparkEngine, "run", counting)
    (journalled,) = neve.unfinished()
    record = neve.resume(journalled.run_id)
    assert Neve.open(load_settings(), warehouse=None).unfinished() == ()
    return record, redone


def data_files(warehouse: Path, table: str) -> set[str]:
    location = warehouse / table.replace(".", "/") / "data"
    return {str(path) for path in location.rglob("*") if path.is_file()}


def referenced(warehouse: Path, table: str) -> set[str]:
    """Every data file of every snapshot, as pyiceberg tells it."""
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    loaded = catalog.load_table(table)
    paths = {
        entry.data_file.file_path
        for snapshot in loaded.snapshots()
        for manifest in snapshot.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
    }
    catalog.close()
    return paths


KILLS = [
    ("begin:after", 1, 5),  # planned, nothing written
    ("written:before", 1, 5),  # files exist that the journal does not know
    ("rewrite:before", 1, None),  # written, nothing committed
    ("rewrite:after", 1, None),  # a commit landed that nobody noted
    ("settled:after", 2, None),  # two commits noted, one to go
    ("keep_run:before", 1, 0),  # everything is done but the record
]
QUICK = ("rewrite:after",)
"""Each kill starts a Spark of its own; the most treacherous one runs every time, the others in `make soak`."""


@pytest.mark.parametrize(
    ("where", "number", "redone"),
    [pytest.param(*kill, id=kill[0], marks=() if kill[0] in QUICK else pytest.mark.slow) for kill in KILLS],
)
def test_a_killed_run_is_finished_and_only_unwritten_groups_are_redone(
    where: str,
    number: int,
    redone: int | None,
    table: str,
    warehouse: Path,
    neve: Neve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    before = duckdb_rows(catalog.load_table(table))
    kill_at(where, number, warehouse=warehouse, table=table)
    (journalled,) = neve.unfinished()
    written = {group.group_id for group in journalled.groups if group.state is not GroupState.PLANNED}
    record, again = resume(neve, monkeypatch)
    assert record.outcome is RunOutcome.DONE, [group.reason for group in record.groups]
    assert len(record.groups) == GROUPS
    assert set(again) == set(range(GROUPS)) - written
    if redone is not None:
        assert len(again) == redone
    assert duckdb_rows(catalog.load_table(table)) == before
    explained = {file.path for file in neve.quarantined(table)}
    assert data_files(warehouse, table) - explained == referenced(warehouse, table)
    assert neve.plan(table, request=Request(force=True)).empty_reason is not None
    catalog.close()
