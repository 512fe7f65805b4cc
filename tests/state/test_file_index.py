"""The file index in the store: an entry is replaced as a whole, and two processes may refresh at the same time."""

from __future__ import annotations

import multiprocessing

import pytest

from neve.maintenance.file_index import BelowRoot, Comparison, ManifestPlaces, TableIndex
from neve.state import StateStore
from neve.table.location import Spellings
from tests.builders.fake_catalogs import World, name
from tests.builders.state_databases import POSTGRES

NAMES = [f"c.db.t{number}" for number in range(600)]


def entry(digest: str, *, entries: int = 2) -> TableIndex:
    manifests = {f"s3://lake/{digest}/m.avro": ManifestPlaces(9, 0, 0, entries, ("s3://lake/raw",))}
    return TableIndex("u", digest, ("s3://lake/t",), ("s3://lake/t/v1.json",), {f"s3://lake/{digest}/snap": 0}, manifests)


def test_entries_are_kept_replaced_and_found_by_name(store: StateStore) -> None:
    assert (store.index_fingerprints(NAMES), store.table_indexes(NAMES)) == ({}, {})
    store.keep_table_indexes({}, 1)
    store.keep_table_indexes({each: entry("one") for each in NAMES}, 1)
    store.keep_table_indexes({NAMES[7]: entry("two")}, 2)
    assert len(store.index_fingerprints(NAMES)) == 600
    assert store.index_fingerprints(NAMES[7:9]) == {NAMES[7]: "two", NAMES[8]: "one"}
    assert store.table_indexes(NAMES[7:8]) == {NAMES[7]: entry("two")}
    assert store.table_indexes(["c.db.none"]) == {}


def test_tables_that_are_gone_are_forgotten_in_their_catalog_alone(store: StateStore) -> None:
    store.keep_table_indexes({each: entry("one") for each in ("c.db.a", "c.db.b", "cc.db.a")}, 1)
    store.forget_table_indexes("c", ["c.db.b", "c.db.new"])
    store.forget_table_indexes("other", [])
    assert set(store.index_fingerprints(["c.db.a", "c.db.b", "cc.db.a"])) == {"c.db.b", "cc.db.a"}


def test_what_cannot_be_decoded_by_this_release_counts_as_none(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.maintenance import file_index

    with monkeypatch.context() as newer:
        newer.setattr(file_index, "_FORMAT", 99)
        store.keep_table_indexes({"c.db.a": entry("one")}, 1)
    assert store.table_indexes(["c.db.a"]) == {}
    assert store.index_fingerprints(["c.db.a"]) == {"c.db.a": "one"}


def test_an_index_of_another_release_is_built_anew(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.maintenance import file_index

    made = World(store=store)
    made.table("c.db.u").commit(["/wh/c/db/t/import/1"])
    with monkeypatch.context() as newer:
        newer.setattr(file_index, "_FORMAT", 99)
        made.index().refresh()
    index = made.index()
    index.refresh()
    comparison = Comparison(BelowRoot("/wh/c/db/t", Spellings.of(), made.real), made.real)
    assert list(index.needed(comparison, name("c.db.t"))) == [("/wh/c/db/t/import/1", "c.db.u")]


def _keep(url: str, digest: str) -> None:
    with StateStore.open(url) as store:
        for _ in range(5):
            store.keep_table_indexes({each: entry(digest) for each in NAMES[:40]}, 1)


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_two_processes_never_leave_a_mixture(url: str) -> None:
    StateStore.open(url).close()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_keep, args=(url, digest)) for digest in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    with StateStore.open(url) as store:
        found = store.table_indexes(NAMES[:40])
    assert set(found) == set(NAMES[:40])
    assert all(index in (entry("one"), entry("two")) for index in found.values())
