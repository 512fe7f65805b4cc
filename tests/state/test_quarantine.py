"""The list of files on their way out, in every database: what is new, what begins anew, its order, and what stays."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import islice

import pytest

from neve.maintenance.quarantine import Candidate, Fate, FateChange, Quarantined, QuarantinedRun
from neve.state import StateStore, pruning, quarantine
from tests.builders.old_stores import make_old_store
from tests.builders.state_databases import POSTGRES
from tests.builders.stored_runs import add_run, prune, run_ids

R, N, T, B, P = Fate.RECORDED, Fate.NEEDED, Fate.TRASHED, Fate.RESTORED, Fate.PURGED


def doomed(*paths: str, reason: str = "old") -> list[Candidate]:
    return [Candidate(path=path, reason=reason, size_bytes=7) for path in paths]


def fates(store: StateStore, table: str = "t") -> dict[str, Fate]:
    return {file.path: file.fate for file in store.quarantined(table)}


def test_a_file_is_kept_with_its_run_its_reason_and_its_moment(store: StateStore) -> None:
    assert store.record_candidates("t", "r1", [Candidate(path="/x", reason="why")], 1_760_000_000_000) == 1
    moment = 1_760_000_000_000
    expected = Quarantined(path="/x", reason="why", run_id="r1", fate=R, recorded_ms=moment, changed_ms=moment)
    assert list(store.quarantined("t")) == [expected]
    assert list(store.quarantined("other")) == []
    assert list(store.quarantined("t", fates=[])) == []


def test_a_file_that_is_there_keeps_its_first_moment(store: StateStore) -> None:
    store.record_candidates("t", "r1", doomed("a", "b", "a"), 1)
    store.settle_candidates("t", [FateChange("b", T, "/trash/b")], 2)
    before = list(store.quarantined("t"))
    assert store.record_candidates("t", "r2", doomed("a", "b", reason="again"), 3) == 0
    assert list(store.quarantined("t")) == before


@pytest.mark.parametrize("ended", [N, B, P])
def test_a_file_whose_story_ended_begins_anew(store: StateStore, ended: Fate) -> None:
    store.record_candidates("t", "r1", doomed("a", "b"), 1)
    store.settle_candidates("t", [FateChange("a", ended, "/trash/a")], 2)
    assert store.record_candidates("t", "r2", doomed("a", "b", "c", reason="again"), 3) == 2
    files = {file.path: file for file in store.quarantined("t")}
    assert (files["b"].run_id, files["c"].run_id) == ("r1", "r2")
    anew = {"reason": "again", "size_bytes": 7, "run_id": "r2", "recorded_ms": 3, "changed_ms": 3}
    assert files["a"] == Quarantined(path="a", fate=R, **anew)


def test_the_trash_of_a_dropped_table_is_handed_to_another_and_nothing_else_is(store: StateStore) -> None:
    store.record_candidates("old", "r1", doomed("a", "b", "c", "d"), 1)
    store.settle_candidates(
        "old", [FateChange("a", T, "/trash/a"), FateChange("b", T, "/trash/b"), FateChange("c", P, None)], 2
    )
    store.record_candidates("t", "r2", doomed("b"), 3)
    assert store.adopt_trash("old", "t") == 1
    assert (fates(store, "old"), fates(store)) == ({"b": T, "c": P, "d": R}, {"a": T, "b": R})
    adopted = next(store.quarantined("t", fates=[T]))
    assert (adopted.run_id, adopted.trash_path, adopted.changed_ms) == ("r1", "/trash/a", 2)
    assert store.adopt_trash("old", "t") == 0


def test_a_new_fate_has_a_new_moment_and_a_mark_has_none(store: StateStore) -> None:
    store.record_candidates("t", "r1", doomed("a"), 1)
    store.settle_candidates("t", [FateChange("a", R, "/trash/a")], 5)
    marked = next(store.quarantined("t"))
    assert (marked.fate, marked.trash_path, marked.recorded_ms, marked.changed_ms) == (R, "/trash/a", 1, 1)
    store.settle_candidates("t", [FateChange("a", T, "/trash/a")], 6)
    assert next(store.quarantined("t")).changed_ms == 6
    store.settle_candidates("t", [FateChange("nobody's", T, None)], 7)
    store.settle_candidates("u", [FateChange("a", P, None)], 7)
    assert fates(store) == {"a": T}


def test_a_size_is_recorded_with_the_new_fate_and_kept_where_none_is_given(store: StateStore) -> None:
    store.record_candidates("t", "r1", [Candidate(path="a", reason="why"), Candidate(path="b", reason="why")], 1)
    (row,) = store.quarantined_runs("t")
    assert (row.files, row.size_bytes, row.files_without_size) == (2, 0, 2)
    store.settle_candidates("t", [FateChange("a", R, "/trash/a", size_bytes=2**40)], 2)
    (row,) = store.quarantined_runs("t")
    assert (row.size_bytes, row.files_without_size) == (2**40, 1)
    store.settle_candidates("t", [FateChange("a", T, "/trash/a")], 3)
    assert {file.path: file.size_bytes for file in store.quarantined("t")} == {"a": 2**40, "b": None}


def test_files_come_oldest_first_across_fates_and_pages(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "BATCH", 3)
    monkeypatch.setattr(quarantine, "_PAGE", 3)
    for moment in range(4):
        store.record_candidates("t", f"r{moment % 2}", doomed(*(f"{moment}-{n}" for n in range(5))), moment)
    store.settle_candidates("t", [FateChange("0-1", T, "x"), FateChange("1-0", T, "x")], 2)
    paths = [file.path for file in store.quarantined("t")]
    assert paths == [
        *("0-0", "0-2", "0-3", "0-4", "1-1", "1-2", "1-3", "1-4"),
        *("0-1", "1-0", "2-0", "2-1", "2-2", "2-3", "2-4", "3-0", "3-1", "3-2", "3-3", "3-4"),
    ]
    assert [file.path for file in store.quarantined("t", changed_before_ms=1)] == ["0-0", "0-2", "0-3", "0-4"]
    assert [file.path for file in store.quarantined("t", fates=[T])] == ["0-1", "1-0"]
    assert [file.path for file in store.quarantined("t", fates=[R], run_id="r1", changed_before_ms=3)] == paths[4:8]


def test_files_may_change_while_they_are_read(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_PAGE", 2)
    store.record_candidates("t", "r", doomed(*"abcdefg"), 1)
    seen = []
    for file in store.quarantined("t", fates=[R]):
        seen.append(file.path)
        store.settle_candidates("t", [FateChange(file.path, T, "x")], 2)
    assert seen == list("abcdefg")


def test_runs_are_counted_by_reason_and_fate(store: StateStore) -> None:
    store.record_candidates("t", "r1", [*doomed("a", "b"), Candidate(path="c", reason="orphan")], 1)
    store.record_candidates("t", "r2", doomed("d"), 5)
    store.settle_candidates("t", [FateChange("b", T, "x")], 9)
    row = {"run_id": "r1", "reason": "old", "files": 1, "size_bytes": 7, "recorded_ms": 1, "changed_ms": 1}
    assert store.quarantined_runs("t") == (
        QuarantinedRun(**row, fate=R),
        QuarantinedRun(**row | {"changed_ms": 9}, fate=T),
        QuarantinedRun(**row | {"reason": "orphan", "size_bytes": 0, "files_without_size": 1}, fate=R),
        QuarantinedRun(**row | {"run_id": "r2", "recorded_ms": 5, "changed_ms": 5}, fate=R),
    )


def test_pruning_keeps_what_is_not_settled_and_the_runs_that_put_it_there(store: StateStore) -> None:
    for run_id in ("recorded", "trashed", "purged", "young"):
        add_run(store, run_id, 10)
        store.record_candidates("t", run_id, doomed(f"{run_id}-file"), 10)
    store.record_candidates("t", "purged", doomed("back", "needed"), 10)
    store.settle_candidates(
        "t",
        [
            FateChange("trashed-file", T, "x"),
            FateChange("purged-file", P, None),
            FateChange("back", B, None),
            FateChange("needed", N, None),
        ],
        20,
    )
    store.settle_candidates("t", [FateChange("young-file", P, None)], 90)
    assert prune(store, 21, dry_run=True).quarantined == 3
    pruned = prune(store, 21)
    assert (pruned.runs, pruned.quarantined) == (2, 3)
    assert run_ids(store) == {"recorded", "trashed"}
    assert fates(store) == {"recorded-file": R, "trashed-file": T, "young-file": P}
    assert prune(store, 10**15).quarantined == 1
    assert fates(store) == {"recorded-file": R, "trashed-file": T}


def test_tidying_at_the_end_of_a_run_keeps_them_too(store: StateStore) -> None:
    add_run(store, "old", 10)
    store.record_candidates("t", "old", doomed("a"), 10)
    pruning.tidy(store._engine, now_ms=10**15, keep_seconds=1)
    assert (run_ids(store), fates(store)) == ({"old"}, {"a": R})


def test_an_older_store_gets_a_quarantine(url: str) -> None:
    if url == "sqlite://":
        return  # gone as soon as it is closed
    make_old_store(url, "0003")
    with StateStore.open(url) as store:
        assert store.record_candidates("t", "r", doomed("a"), 1) == 1


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_many_files_are_written_and_read_in_little_memory(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch at a time: all of them at once would be 12 MB and more."""
    monkeypatch.setattr(quarantine, "BATCH", 500)
    monkeypatch.setattr(quarantine, "_PAGE", 500)
    number = 12_000

    def files() -> Iterator[Candidate]:
        return (Candidate(path=f"s3://lake/db/t/data/{n:0>120}.parquet", reason="no snapshot needs it") for n in range(number))

    list(islice(store.quarantined("t"), 1))
    tracemalloc.start()
    assert store.record_candidates("t", "r", files(), 1) == number
    assert sum(1 for _ in store.quarantined("t")) == number
    changes = (FateChange(file.path, T, f"/trash/{file.path}") for file in store.quarantined("t", fates=[R]))
    store.settle_candidates("t", changes, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(1 for _ in store.quarantined("t", fates=[T])) == number
    assert peak < 4_000_000
