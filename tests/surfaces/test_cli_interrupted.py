"""Interrupted runs on the command line: how `neve runs` calls them, and what the dry runs of resume and rollback show."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import neve as package
from neve.api import Neve
from neve.commit.lease_terms import LEASE_MS
from neve.commit.process import this_process
from neve.context.connection import Connection
from neve.errors import BadRequestError
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState
from neve.rewrite.remaining import NextStep, Remaining
from neve.samples import SAMPLES
from neve.settings import load_settings
from neve.state import Run, StateStore
from neve.table.state import RUN_ID
from tests.builders.processes import gone_process
from tests.builders.stored_runs import RESULT, make_record

TABLE = "db.floats"
ALIVE = replace(this_process(), pid=os.getppid(), nonce="other", started=None).text
"""The process that started the tests, as far as anybody can tell."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A warehouse of this test's own with one table of five files; Spark cannot be started."""
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("NEVE_STATE__URL", f"sqlite:///{tmp_path / 'state.db'}")
    monkeypatch.setattr(Connection, "spark", property(lambda _: pytest.fail("Spark was started")))
    path = tmp_path / "warehouse"
    with Neve.open(load_settings(), warehouse=str(path), create_warehouse=True) as neve, neve.demo_target("db") as target:
        SAMPLES["floats"].build(target, scale=0.2)
    return path


@pytest.fixture
def store(place: Path, tmp_path: Path) -> Any:
    assert place.is_dir()
    with StateStore.open(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def begin(place: Path, store: StateStore, *groups: JournaledGroup) -> JournaledRun:
    """A compaction of the table that stopped by itself, as after Ctrl-C."""
    with Neve.open(load_settings(), warehouse=str(place)) as neve:
        plan = neve.plan(TABLE, request=Request(force=True))
    assert len(plan.groups) == 1
    groups = groups or (JournaledGroup(group_id=0, output_prefix="/wh/neve-x"),)
    run = JournaledRun(run_id="begun-01", owner=gone_process(), started_ms=now_ms(), plan=plan, groups=groups)
    store.begin(run)
    store.pause(run.run_id)
    return run


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize(
    ("owner", "until_ms", "result"),
    [("otherhost:7", 0, "interrupted"), (gone_process(), LEASE_MS, "interrupted"), ("otherhost:7", LEASE_MS, "running")],
)
def test_a_compaction_is_interrupted_if_no_process_works_on_it_any_more(
    owner: str, until_ms: int, result: str, neve: Any, place: Path, store: StateStore
) -> None:
    run = begin(place, store)
    with store._engine.begin() as connection:
        until = now_ms() + until_ms if until_ms else 0
        connection.exec_driver_sql("UPDATE runs SET owner = ?, until_ms = ?", (owner, until))
    listed = neve("runs", "--warehouse", str(place))
    minute = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.started_ms / 1000))
    (line,) = listed.stdout.splitlines()[1:]
    assert line.split() == ["begun-01", *minute.split(), "compact", "local.db.floats", result]
    document = json.loads(neve("runs", "show", "begun", "--json", "--warehouse", str(place)).stdout)
    assert (document["outcome"], document["finished_ms"]) == (result if result == "interrupted" else None, None)
    page = neve("runs", "show", "begun", "--warehouse", str(place)).stdout
    assert ("neve resume begun-01" in page) is (result == "interrupted")


@pytest.mark.parametrize(
    ("kind", "lease", "owner", "expected"),
    [
        ("expire", ("r1", "otherhost:7"), None, None),
        ("expire", ("r1", "gone"), None, "interrupted"),
        ("expire", ("r2", "otherhost:7"), None, "interrupted"),
        ("orphans", None, None, "interrupted"),
        ("maintain", None, "otherhost:7", None),
        ("maintain", None, ALIVE, None),
        ("maintain", None, "gone", "interrupted"),
    ],
)
def test_maintenance_is_interrupted_if_neither_its_lease_nor_its_process_is_there(
    kind: str, lease: tuple[str, str] | None, owner: str | None, expected: str | None, place: Path, store: StateStore
) -> None:
    gone, now = gone_process(), now_ms()
    record = {"owner": gone if owner == "gone" else owner} if owner else {}
    store.start_run(Run("r1", "t", "c.db.t", kind, now, record=record))
    if lease is not None:
        holder = gone if lease[1] == "gone" else lease[1]
        store.take_lease("t", run_id=lease[0], owner=holder, now_ms=now, lease_ms=LEASE_MS)
    with Neve.open(load_settings(), warehouse=str(place)) as neve:
        assert neve.run("r1").outcome == expected
        assert [run.outcome for run in neve.runs()] == [expected]


def test_an_ended_run_keeps_its_outcome(place: Path, store: StateStore) -> None:
    store.keep_run(make_record(), [])
    with Neve.open(load_settings(), warehouse=str(place)) as neve:
        assert neve.run("r1").outcome == "done"


def test_a_dry_run_of_resume_shows_each_group_and_leaves_the_run_as_it_is(neve: Any, place: Path, store: StateStore) -> None:
    run = begin(place, store)
    before = store.unfinished()
    result = neve("resume", "--dry-run", "--warehouse", str(place))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "local.db.floats"
    assert lines[1].startswith("A resume would rewrite 1 group (5 files, ")
    assert lines[1].endswith("; 0 of 1 group committed already")
    assert "  group 0  rewrite  it was not written" in lines
    assert lines[-2:] == ["Next", f"  neve resume begun-01 --warehouse {place}"]
    document = json.loads(neve("resume", "begun", "--dry-run", "--json", "--warehouse", str(place)).stdout)
    assert document["dry_run"] is True
    assert document["groups"] == [
        {
            "group_id": 0,
            "partition": "",
            "step": "rewrite",
            "state": "planned",
            "reason": "it was not written",
            "snapshot_id": None,
            "input_files": 5,
            "input_bytes": run.plan.groups[0].input_bytes,
        }
    ]
    assert store.unfinished() == before


def test_a_dry_run_of_resume_goes_by_the_live_files_and_the_files_that_exist(place: Path, store: StateStore) -> None:
    path = place / "neve-x-1.parquet"
    output = RESULT.outputs[0].model_copy(update={"path": str(path)})
    result = RESULT.model_copy(update={"outputs": (output,)})
    group = JournaledGroup(group_id=0, output_prefix=str(place / "neve-x"), state=GroupState.WRITTEN, result=result)
    begin(place, store, group)

    def steps() -> list[tuple[NextStep, GroupState]]:
        (left,) = package.resume(dry_run=True, warehouse=place)
        assert isinstance(left, Remaining)
        return [(one.step, one.state) for one in left.groups]

    assert steps() == [(NextStep.REWRITE, GroupState.WRITTEN)]
    path.write_bytes(b"x")
    assert steps() == [(NextStep.COMMIT, GroupState.WRITTEN)]
    with Neve.open(load_settings(), warehouse=str(place)) as neve, neve.demo_target("db") as target:
        target.load("floats").delete()
    assert steps() == [(NextStep.NONE, GroupState.SUPERSEDED)]
    assert path.exists()


def test_a_dry_run_does_not_abandon(neve: Any, place: Path) -> None:
    result = neve("resume", "begun", "--abandon", "--dry-run", "--warehouse", str(place))
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "Error: Cannot abandon a run in a dry run")


def committed_run(place: Path, store: StateStore) -> tuple[int, int]:
    """A run that committed the table's newest snapshot; its parent, and itself."""
    with Neve.open(load_settings(), warehouse=str(place)) as neve, neve.demo_target("db") as target:
        table = target.load("floats")
        table.append(table.scan(limit=1).to_arrow(), snapshot_properties={RUN_ID: "r1"})
        head = table.refresh().current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is not None
    record = make_record(table_uuid=str(table.metadata.table_uuid))
    store.keep_run(record.model_copy(update={"table": f"local.{TABLE}", "snapshots": (head.snapshot_id,)}), [])
    return head.parent_snapshot_id, head.snapshot_id


def test_a_dry_run_of_rollback_names_both_snapshots_and_moves_nothing(neve: Any, place: Path, store: StateStore) -> None:
    before, head = committed_run(place, store)
    result = neve("rollback", "r1", "--dry-run", "--warehouse", str(place))
    assert (result.exit_code, result.stdout) == (
        0,
        f"Would roll back run r1 over local.db.floats: main moves from snapshot {head} back to {before}.\n",
    )
    done = package.rollback("r1", dry_run=True, warehouse=place)
    assert (done.dry_run, done.from_snapshot, done.to_snapshot) == (True, head, before)
    with Neve.open(load_settings(), warehouse=str(place)) as opened, opened.demo_target("db") as target:
        assert target.load("floats").current_snapshot().snapshot_id == head
    assert [run.kind for run in store.runs()] == ["compact"]


def test_a_dry_run_of_rollback_refuses_what_the_rollback_would_refuse(place: Path, store: StateStore) -> None:
    committed_run(place, store)
    with Neve.open(load_settings(), warehouse=str(place)) as opened, opened.demo_target("db") as target:
        table = target.load("floats")
        table.append(table.scan(limit=1).to_arrow())
    with pytest.raises(BadRequestError, match="1 later commit would be lost"):
        package.rollback("r1", dry_run=True, warehouse=place)
