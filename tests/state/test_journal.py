"""The journal: what a run wrote down comes back as it was, from SQLite and from PostgreSQL, and from an upgraded store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.plan_words import Kernel
from neve.core.policy import Policy
from neve.core.record import GroupState
from neve.core.work import Counted, Metrics, OutputFile, WorkResult
from neve.flow.plan import plan
from neve.state import StateStore
from tests.core.make import make_files
from tests.flow.test_inspect import make_state

PLAN = plan(make_state(files=make_files([{"size_bytes": 1000} for _ in range(20)])), Policy(), now_ms=10**13)
RUN = JournaledRun(
    run_id="r1", owner="host:1", started_ms=5, plan=PLAN, groups=(JournaledGroup(group_id=0, output_prefix="/wh/data/neve-x"),)
)
RESULT = WorkResult(
    order_id="o",
    group_id=0,
    kernel=Kernel.COPY,
    outputs=(
        OutputFile(
            path="/wh/data/neve-x-1.parquet",
            size_bytes=9,
            records=8,
            row_groups=7,
            split_offsets=(4,),
            metrics={1: Metrics(values=8, lower=b"\x00\xff")},
        ),
    ),
    rows_read=8,
    kept={1: Counted(values=8, nulls=0)},
    seconds=1.5,
    cpu_seconds=1.0,
    peak_memory_bytes=3,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def test_a_run_comes_back_as_it_was_begun(url: str) -> None:
    with StateStore.open(url) as store:
        store.begin(RUN)
        assert store.unfinished() == (RUN,)


def test_groups_come_back_with_their_results_and_states(url: str) -> None:
    with StateStore.open(url) as store:
        store.begin(RUN)
        store.written("r1", [RESULT])
        (group,) = store.unfinished()[0].groups
        assert (group.state, group.result) == (GroupState.WRITTEN, RESULT)
        store.settled("r1", {0: GroupState.COMMITTED})
        assert store.unfinished()[0].groups[0].state is GroupState.COMMITTED


def test_a_finished_run_is_not_unfinished(url: str) -> None:
    with StateStore.open(url) as store:
        store.begin(RUN)
        store.finish_run("r1", finished_ms=9, outcome="done", record={})
        assert store.unfinished() == ()


def test_a_store_of_the_first_version_is_upgraded_with_what_it_holds(url: str, tmp_path: Path) -> None:
    with StateStore.open(url) as store:
        store.begin(RUN)
        store.finish_run("r1", finished_ms=9, outcome="done", record={"a": 1})
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("DROP TABLE run_groups")
        database.execute("ALTER TABLE runs DROP COLUMN plan")
        database.execute("ALTER TABLE runs DROP COLUMN owner")
        database.execute("UPDATE neve_version SET version_num = '0001'")
    with StateStore.open(url) as store:
        run = store.run("r1")
        assert run is not None
        assert (run.outcome, run.record) == ("done", {"a": 1})
        store.begin(RUN.model_copy(update={"run_id": "r2"}))
        assert [found.run_id for found in store.unfinished()] == ["r2"]
