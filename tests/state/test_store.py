"""The behaviour that every database must show."""

from __future__ import annotations

import pytest

from neve.errors import StateError
from neve.ports import Records
from neve.rewrite.compactions import CompactionCommit
from neve.state import Run, StateStore, StoredOutput
from neve.state.schema import HEAD
from neve.table.files import Partition

DAY = Partition(0, "day=2025-01-17/region=eu")


def make_run(run_id: str = "r1", *, table: str = "t1", started_ms: int = 1) -> Run:
    return Run(run_id=run_id, table_uuid=table, table_name=f"lake.db.{table}", kind="compact", started_ms=started_ms)


def make_output(path: str, row_groups: int = 3) -> StoredOutput:
    return StoredOutput(path=path, row_groups=row_groups, bytes=2**40, rows=2**33)


def test_is_the_records_port(store: StateStore) -> None:
    records: Records = store
    assert records.row_groups("t1") == {}
    assert (records.last_compactions("t1"), records.compaction_commits("t1")) == ({}, ())


def test_keeps_row_groups_of_each_table_by_path(store: StateStore) -> None:
    for run in (make_run("r1"), make_run("r2", table="t2")):
        store.start_run(run)
    store.add_commit("r1", partitions=[], outputs=[make_output("a.parquet", 3), make_output("b.parquet", 7)], committed_ms=1)
    store.add_commit("r2", partitions=[], outputs=[make_output("a.parquet", 1)], committed_ms=1)
    assert store.row_groups("t1") == {"a.parquet": 3, "b.parquet": 7}
    assert store.row_groups("t2") == {"a.parquet": 1}
    assert store.row_groups("t3") == {}


def test_knows_the_last_commit_of_each_partition_and_spec(store: StateStore) -> None:
    other_spec = Partition(1, DAY.path)
    whole = Partition(0, "")
    for run_id, partitions, committed_ms in [("r1", [DAY, whole], 300), ("r2", [DAY, other_spec], 200), ("r3", [DAY], 400)]:
        store.start_run(make_run(run_id))
        store.add_commit(run_id, partitions=partitions, outputs=[], committed_ms=committed_ms)
    assert store.last_compactions("t1") == {DAY: 400, other_spec: 200, whole: 300}


def test_commits_of_compactions_are_known_by_run_branch_and_snapshot(store: StateStore) -> None:
    whole = Partition(0, "")
    for run_id, branch, snapshot_id, committed_ms in [
        ("r1", "main", 2**62, 100),
        ("r2", "audit", 7, 200),
        ("r3", "main", None, 300),
        ("r4", "main", None, 250),
    ]:
        store.start_run(make_run(run_id))
        store.add_commit(
            run_id, partitions=[DAY], outputs=[], committed_ms=committed_ms, snapshot_id=snapshot_id, branch=branch
        )
    store.add_commit("r2", partitions=[whole], outputs=[], committed_ms=210, snapshot_id=8, branch="audit")
    first, second, later, third, fourth = commits = (
        CompactionCommit("r1", "main", 2**62, 100),
        CompactionCommit("r2", "audit", 7, 200),
        CompactionCommit("r2", "audit", 8, 210),
        CompactionCommit("r3", "main", None, 300),
        CompactionCommit("r4", "main", None, 250),
    )
    assert sorted(store.compaction_commits("t1"), key=lambda commit: (commit.run_id, commit.committed_ms)) == [*commits]
    assert store.compaction_commits("t2") == ()
    assert store.last_compactions("t1", [third]) == {DAY: 250, whole: 210}
    assert store.last_compactions("t1", [third, fourth]) == {DAY: 200, whole: 210}
    assert store.last_compactions("t1", [second, third, fourth]) == {DAY: 100, whole: 210}
    assert store.last_compactions("t1", [first, second, third, fourth, later]) == {}


def test_commits_that_are_withdrawn_are_forgotten_and_others_of_the_same_run_are_not(store: StateStore) -> None:
    whole = Partition(0, "")
    for run_id in ("r1", "r2"):
        store.start_run(make_run(run_id))
        store.add_commit(run_id, partitions=[DAY], outputs=[make_output(run_id)], committed_ms=5, snapshot_id=1)
    store.add_commit("r1", partitions=[whole], outputs=[], committed_ms=6, snapshot_id=2)
    store.start_run(make_run("r3"))
    store.add_commit("r3", partitions=[DAY], outputs=[], committed_ms=7)
    store.withdraw_compactions([])
    store.withdraw_compactions([CompactionCommit("r1", "main", 1, 5), CompactionCommit("r3", "main", None, 7)])
    assert set(store.compaction_commits("t1")) == {CompactionCommit("r1", "main", 2, 6), CompactionCommit("r2", "main", 1, 5)}
    assert store.row_groups("t1") == {"r1": 3, "r2": 3}


def test_telling_the_same_commit_again_changes_nothing(store: StateStore) -> None:
    store.start_run(make_run())
    for _ in range(2):
        store.add_commit("r1", partitions=[DAY], outputs=[make_output("a")], committed_ms=5)
    assert (store.row_groups("t1"), store.last_compactions("t1")) == ({"a": 3}, {DAY: 5})


def test_a_commit_is_noted_wholly_or_not_at_all(store: StateStore) -> None:
    store.start_run(make_run())
    broken = StoredOutput(path="b", row_groups=None, bytes=1, rows=1)  # type: ignore[arg-type]
    with pytest.raises(StateError, match=r"^Cannot write to state store "):
        store.add_commit("r1", partitions=[DAY], outputs=[make_output("a"), broken], committed_ms=5)
    assert (store.row_groups("t1"), store.last_compactions("t1")) == ({}, {})


def test_keeps_a_run_from_start_to_end(store: StateStore) -> None:
    store.start_run(make_run(started_ms=1_760_000_000_000))
    unfinished = store.run("r1")
    assert unfinished == make_run(started_ms=1_760_000_000_000)
    record = {"files_before": 15, "ratio": 0.5, "reasons": ["small", "späť"], "nothing": None}
    store.finish_run("r1", finished_ms=1_760_000_060_000, outcome="committed", record=record)
    finished = store.run("r1")
    assert finished is not None
    assert (finished.finished_ms, finished.outcome, finished.record) == (1_760_000_060_000, "committed", record)
    assert store.run("r2") is None


def test_a_run_that_ended_began_when_its_record_says(store: StateStore) -> None:
    store.start_run(make_run(started_ms=1_760_000_009_000))
    store.finish_run("r1", finished_ms=1_760_000_060_000, outcome="done", record={"started_ms": 1_760_000_000_000})
    finished = store.run("r1")
    assert finished is not None
    assert finished.started_ms == 1_760_000_000_000


def test_lists_runs_newest_first(store: StateStore) -> None:
    for run_id, table, started in [("a", "t1", 1), ("b", "t2", 3), ("c", "t1", 2)]:
        store.start_run(make_run(run_id, table=table, started_ms=started))
    assert [run.run_id for run in store.runs()] == ["b", "c", "a"]
    assert [run.run_id for run in store.runs("t1")] == ["c", "a"]
    assert [run.run_id for run in store.runs(limit=1)] == ["b"]


def test_refuses_a_run_id_twice_and_unknown_ones(store: StateStore) -> None:
    store.start_run(make_run())
    with pytest.raises(StateError, match=r"^Cannot start run r1: there is one with this id$"):
        store.start_run(make_run())
    with pytest.raises(StateError, match=r"^Cannot finish run gone: there is no such run$"):
        store.finish_run("gone", finished_ms=1, outcome="failed", record={})
    with pytest.raises(StateError, match=r"^Cannot add a commit to run gone: there is no such run$"):
        store.add_commit("gone", partitions=[DAY], outputs=[], committed_ms=1)


def test_check_writes_reads_and_leaves_nothing(store: StateStore) -> None:
    store.start_run(make_run())
    assert store.check().endswith(f", schema {HEAD}, 1 run")
    assert [run.run_id for run in store.runs()] == ["r1"]
