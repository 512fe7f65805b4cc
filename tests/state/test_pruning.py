"""What the store forgets and what it never does, in every database."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from sqlalchemy import event, func, select

from neve.errors import StateError
from neve.rewrite.journal import JournaledGroup
from neve.rewrite.record import GroupState
from neve.state import Run, StateStore, pruning, schema
from neve.state.rows import Pruned
from neve.table.files import Partition
from tests.builders.stored_runs import RESULT, RUN, add_run, make_record, prune, run_ids

DAY = pruning.DAY_MS
MONDAY, TUESDAY = Partition(0, "d=1"), Partition(0, "d=2")
NOTHING = Pruned(runs=0, groups=0, partitions=0, outputs=0, quarantined=0, bytes=0)


def count(store: StateStore, name: str) -> int:
    with store._engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(schema.metadata.tables[name])).scalar_one()


def test_forgets_finished_runs_that_ended_before_the_moment(store: StateStore) -> None:
    for run_id, ended in [("old", 99), ("edge", 100), ("new", 101)]:
        add_run(store, run_id, ended)
    pruned = prune(store, 100)
    assert (pruned.runs, pruned.groups, pruned.partitions, pruned.outputs) == (1, 0, 0, 0)
    assert run_ids(store) == {"edge", "new"}
    assert prune(store, 100) == NOTHING


def test_never_forgets_a_run_that_has_not_ended(store: StateStore) -> None:
    add_run(store, "under-way", None)
    store.begin(RUN)
    store.written("r1", [RESULT])
    assert prune(store, 10**15, outputs=True) == NOTHING
    assert run_ids(store) == {"under-way", "r1"}
    assert store.unfinished()[0].groups[0].result == RESULT


def test_forgets_the_groups_of_a_run_with_it(store: StateStore) -> None:
    store.begin(RUN.model_copy(update={"groups": tuple(JournaledGroup(group_id=n, output_prefix="p") for n in range(3))}))
    store.finish_run("r1", finished_ms=5, outcome="done", record={})
    pruned = prune(store, 6)
    assert (pruned.runs, pruned.groups) == (1, 3)
    assert count(store, "run_groups") == 0


def test_never_forgets_a_run_with_a_group_in_doubt(store: StateStore) -> None:
    store.begin(RUN)
    store.written("r1", [RESULT])
    store.settled("r1", {0: GroupState.IN_DOUBT})
    store.finish_run("r1", finished_ms=5, outcome="failed", record={})
    assert prune(store, 10**15, outputs=True) == NOTHING
    with store._engine.connect() as connection:
        (row,) = connection.execute(select(schema.run_groups)).all()
    assert (row.output_prefix, row.result) == ("/wh/data/neve-x", RESULT.model_dump(mode="json"))


def test_the_last_compaction_of_each_partition_stays_known(store: StateStore) -> None:
    add_run(store, "a", 10, MONDAY, TUESDAY)
    add_run(store, "b", 20, MONDAY)
    add_run(store, "other", 30, MONDAY, table="u")
    pruned = prune(store, 100)
    assert (pruned.runs, pruned.partitions) == (3, 1)
    assert store.last_compactions("t") == {MONDAY: 20, TUESDAY: 10}
    assert store.last_compactions("u") == {MONDAY: 30}


def test_the_last_compaction_of_a_partition_on_each_branch_stays_known(store: StateStore) -> None:
    for run_id, ended, branch in [("a", 10, "main"), ("b", 20, "audit"), ("c", 15, "main")]:
        store.start_run(Run(run_id, "t", "db.t", "compact", 1))
        store.add_commit(run_id, partitions=[MONDAY], outputs=[], committed_ms=ended, snapshot_id=ended, branch=branch)
        store.finish_run(run_id, finished_ms=ended, outcome="done", record={})
    assert prune(store, 100).partitions == 1
    assert {commit.run_id for commit in store.compaction_commits("t")} == {"b", "c"}


def test_of_two_compactions_of_a_partition_at_one_moment_one_stays(store: StateStore) -> None:
    add_run(store, "a", 10, MONDAY)
    add_run(store, "b", 10, MONDAY)
    assert prune(store, 100).partitions == 1
    assert store.last_compactions("t") == {MONDAY: 10}


def test_a_compaction_whose_run_was_forgotten_goes_when_a_later_one_is_known(store: StateStore) -> None:
    add_run(store, "a", 10, MONDAY)
    assert prune(store, 11).partitions == 0
    add_run(store, "b", 20, MONDAY)
    assert prune(store, 11).partitions == 1
    assert (store.last_compactions("t"), count(store, "partitions_compacted")) == ({MONDAY: 20}, 1)


def test_row_groups_of_files_stay_known_unless_asked(store: StateStore) -> None:
    add_run(store, "a", 10)
    add_run(store, "b", 20)
    assert prune(store, 15).outputs == 0
    assert store.row_groups("t") == {"a.parquet": 3, "b.parquet": 3}
    assert prune(store, 15, outputs=True).outputs == 1
    assert store.row_groups("t") == {"b.parquet": 3}


def test_a_dry_run_gives_the_same_numbers_and_changes_nothing(store: StateStore) -> None:
    add_run(store, "a", 10, MONDAY)
    add_run(store, "b", 20, MONDAY)
    told = prune(store, 100, outputs=True, dry_run=True)
    assert (told.runs, told.partitions, told.outputs) == (2, 1, 2)
    assert run_ids(store) == {"a", "b"}
    assert store.row_groups("t") == {"a.parquet": 3, "b.parquet": 3}
    assert prune(store, 100, outputs=True) == told


def test_counts_the_bytes_of_documents_and_texts(store: StateStore) -> None:
    store.start_run(Run("r", "t", "db.t", "compact", 1))
    store.finish_run("r", finished_ms=2, outcome="done", record={"x": "y" * 1000})
    record = len('{"x": "' + "y" * 1000 + '"}')
    assert prune(store, 3).bytes == record + len("r" + "t" + "db.t" + "compact" + "done")


@pytest.fixture
def keeping(url: str) -> Iterator[StateStore]:
    """A store that forgets after ten days."""
    with StateStore.open(url, keep_seconds=10 * 86_400) as store:
        yield store


def test_keeping_a_run_forgets_old_ones_at_most_once_a_day(keeping: StateStore) -> None:
    add_run(keeping, "first", 1)
    keeping.keep_run(make_record(run_id="a", finished_ms=10 * DAY), [])
    assert run_ids(keeping) == {"first", "a"}  # not yet ten days old, by a millisecond
    keeping.keep_run(make_record(run_id="b", finished_ms=11 * DAY - 1), [])
    assert run_ids(keeping) == {"first", "a", "b"}
    keeping.keep_run(make_record(run_id="c", finished_ms=11 * DAY), [])
    assert run_ids(keeping) == {"a", "b", "c"}


def test_of_two_processes_that_would_tidy_the_second_leaves_it(keeping: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    keeping.keep_run(make_record(run_id="a", finished_ms=20 * DAY), [])
    add_run(keeping, "old", 1)
    monkeypatch.setattr(pruning, "_done_ms", lambda _: 0)  # as it was before the first was done
    keeping.keep_run(make_record(run_id="b", finished_ms=20 * DAY), [])
    assert run_ids(keeping) == {"a", "b", "old"}


def test_a_clock_that_was_ahead_does_not_stop_the_forgetting(keeping: StateStore) -> None:
    keeping.keep_run(make_record(run_id="ahead", finished_ms=10_000 * DAY), [])
    add_run(keeping, "old", 1)
    keeping.keep_run(make_record(run_id="now", finished_ms=20 * DAY), [])
    assert run_ids(keeping) == {"ahead", "now"}


def test_without_a_limit_nothing_is_forgotten(store: StateStore) -> None:
    add_run(store, "old", 1)
    store.keep_run(make_record(run_id="now", finished_ms=10_000 * DAY), [])
    assert run_ids(store) == {"old", "now"}


def test_a_run_is_kept_even_if_old_ones_cannot_be_removed(
    keeping: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StateError("Cannot prune state store: it is locked")

    monkeypatch.setattr(pruning, "_prune", fail)
    with caplog.at_level(logging.WARNING):
        keeping.keep_run(make_record(run_id="now", finished_ms=DAY), [])
    assert run_ids(keeping) == {"now"}
    assert caplog.messages == ["old runs were not removed: Cannot prune state store: it is locked"]


def test_keeping_a_run_on_a_day_that_was_tidied_takes_one_transaction_that_writes(keeping: StateStore) -> None:
    keeping.keep_run(make_record(run_id="a", finished_ms=DAY), [])
    commits: list[object] = []
    event.listen(keeping._engine, "commit", commits.append)
    keeping.keep_run(make_record(run_id="b", finished_ms=DAY + 1), [])
    assert len(commits) == 1
