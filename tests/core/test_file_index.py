"""Which directories stand for a manifest's files, and how they are compared with what is asked about."""

from __future__ import annotations

import pytest

from neve.maintenance.file_index import (
    MOST_PLACES,
    BelowRoot,
    Comparison,
    ManifestPlaces,
    TableIndex,
    TheseFiles,
    Trust,
    fingerprint,
    kept_manifests,
    keys_of,
    places_of_files,
    unresolved,
)
from neve.maintenance.orphans import Neighbour, overlapping
from neve.table.location import Spellings

PLAIN = Spellings.of()


def test_local_directories_are_kept_one_by_one_as_they_are_spelled() -> None:
    paths = [f"/wh/t/data/p={number}/f" for number in range(40)] + ["file:/wh/t//x/../f", "file:///a/f"]
    found = places_of_files(paths)
    assert len(found) == 42
    assert {"file:/wh/t//x/..", "file:///a"} <= set(found)


def test_many_directories_of_an_object_store_become_the_few_above() -> None:
    ours = [f"s3://lake/db/t/data/p={number}/f" for number in range(40)]
    assert places_of_files(ours) == ("s3://lake/db/t/data",)
    imported = [f"s3://lake/raw/p={number}/f" for number in range(40)]
    assert places_of_files(ours + imported) == ("s3://lake/db/t", "s3://lake/raw") or len(places_of_files(ours + imported)) == 2
    assert places_of_files(["s3://lake/a/x/../b/f", "s3a://other/f"]) == ("s3://lake/a/b", "s3a://other")
    scattered = [f"s3://lake/{number}/f" for number in range(MOST_PLACES + 1)]
    assert places_of_files(scattered) == ("s3://lake",)


CUT_PATHS = {
    "s3://lake/db/t/data/x.parquet?v=1": "s3://lake/db/t/data/x.parquet",
    "s3a://lake/db/t/data/p=1#2/y": "s3://lake/db/t/data/p=1",
    "s3://lake/db/t/import#1/deep/er/z": "s3://lake/db/t/import",
}


@pytest.mark.parametrize(("named", "opened"), CUT_PATHS.items())
def test_what_iceberg_opens_for_a_path_that_it_cuts_is_needed_too(named: str, opened: str) -> None:
    literal = named.replace("s3a:", "s3:")
    for target in (BelowRoot("s3://lake/db/t", PLAIN, str), TheseFiles([opened, literal], PLAIN, str)):
        comparison = Comparison(target, str)
        assert set(comparison.matches([named])) == {opened, literal}
    asked = Comparison(TheseFiles([opened], PLAIN, str), str)
    assert any(asked.may_match(place, is_own=False) for place in places_of_files([named]))
    of_metadata = TableIndex("u", "f", lists={named: 0}).metadata_places
    assert any(asked.may_match(place, is_own=False) for place in of_metadata)


def test_a_local_path_is_never_cut() -> None:
    here = Comparison(BelowRoot("/wh/t", PLAIN, str), str)
    assert list(here.matches(["/wh/t/data/p=1#2/x", "file:/wh/t/a?b"])) == ["/wh/t/data/p=1#2/x", "/wh/t/a?b"]


def test_the_directories_hold_every_file_they_stand_for() -> None:
    paths = [f"s3://lake/{a}/{b}/{c}/f" for a in range(5) for b in range(a + 1) for c in range(3)] + [
        "s3://lake/0/f",
        "s3://lake/f",
    ]
    places = [PLAIN.parse(place).key for place in places_of_files(paths)]
    assert len(places) <= MOST_PLACES
    assert all(any(PLAIN.parse(path).key.startswith(f"{place}/") for place in places) for path in paths)


def index() -> TableIndex:
    manifests = {"/m/1": ManifestPlaces(7, 0, 3, 2, ("/a", "/b")), "/m/2": ManifestPlaces(8, 3, 3, 1, ("/a", "/b"))}
    return TableIndex("u", "f", ("/wh/t",), ("/m/v1.json",), {"/m/snap-0": 0, "/m/snap-3": 3}, manifests)


def test_an_entry_is_equal_to_itself_after_a_trip_through_the_store() -> None:
    assert TableIndex.from_bytes(index().to_bytes()) == index()
    assert index().entries == 3
    assert set(index().metadata_files()) == {"/m/v1.json", "/m/snap-0", "/m/snap-3", "/m/1", "/m/2"}
    assert index().metadata_places == ("/m",)


def test_an_entry_of_another_format_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.maintenance import file_index

    data = index().to_bytes()
    monkeypatch.setattr(file_index, "_FORMAT", 99)
    assert TableIndex.from_bytes(data) is None


def test_a_fingerprint_of_another_format_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from neve.maintenance import file_index

    before = fingerprint("u", "m", ["a"], ["b"])
    monkeypatch.setattr(file_index, "_FORMAT", 99)
    assert fingerprint("u", "m", ["a"], ["b"]) != before


def test_a_manifest_goes_when_no_list_between_its_first_and_last_is_left() -> None:
    known = index()
    assert kept_manifests(None, ["/m/snap-0"]) == ({}, {})
    assert kept_manifests(known, ["/m/snap-0", "/m/new"]) == ({"/m/snap-0": 0}, {"/m/1": known.manifests["/m/1"]})
    assert kept_manifests(known, ["/m/snap-3"]) == ({"/m/snap-3": 3}, known.manifests)
    assert kept_manifests(known, ["/m/new"]) == ({}, {})


def test_a_fingerprint_changes_with_whatever_the_metadata_names() -> None:
    same = fingerprint("u", "m", ["a", "b"], ["c"])
    assert fingerprint("u", "m", ["b", "a"], ["c"]) == same
    others = [
        ("v", "m", ["a", "b"], ["c"]),
        ("u", "n", ["a", "b"], ["c"]),
        ("u", "m", ["a"], ["c"]),
        ("u", "m", ["a", "b", "c"], []),
    ]
    assert same not in {fingerprint(*each) for each in others}


def test_a_directory_has_the_keys_of_every_way_to_read_it() -> None:
    links = {"/link": "/real/deep"}
    assert keys_of("file:/link", PLAIN, lambda one: links.get(one, one)) == ("/link", "/real/deep")
    assert keys_of("/wh/t", PLAIN, str) == ("/wh/t",)
    by_system = {"/wh/x": "/wh/x", "/wh/link/../x": "/real/x"}
    assert keys_of("/wh/link/../x", PLAIN, lambda one: by_system[one]) == ("/wh/x", "/real/x")
    assert keys_of("s3a://lake//t/", PLAIN, lambda _: "never asked") == ("/t",)


def test_a_root_is_told_from_its_siblings() -> None:
    root = BelowRoot("s3://lake/db/t", PLAIN, str)
    assert [root.may_be_in(key) for key in ("/db/t", "/db", "", "/db/t/data", "/db/t_2", "/db/u")] == [True] * 4 + [False] * 2
    assert list(root.matching("/db/t/data/f")) == ["s3://lake/db/t/data/f"]
    assert list(root.matching("/db/t_2/f")) == []


@pytest.mark.parametrize(
    ("trust", "found"),
    [
        (Trust(), "c.db.u"),
        (Trust(ignored=("c",)), None),
        (Trust(ignored=("c.db",)), None),
        (Trust(ignored=("c.d", "c.db.u2")), "c.db.u"),
        (Trust(exclusive_prefixes=("s3a://lake/db/t/",)), None),
        (Trust(exclusive_prefixes=("s3://lake/db",)), None),
        (Trust(exclusive_prefixes=("s3://other/db", "s3://lake/db/t/data", "s3://lake/d")), "c.db.u"),
    ],
)
def test_doubt_is_resolved_by_names_and_by_prefixes(trust: Trust, found: str | None) -> None:
    neighbours = [Neighbour(name="c.db.v", places=("/v",)), Neighbour(name="c.db.u", trouble="denied")]
    doubtful = unresolved(neighbours, ["s3://lake/db/t"], trust, PLAIN)
    assert (doubtful.name if doubtful else None) == found


def test_tables_overlap_by_their_real_directories() -> None:
    links = {"/wh/ta2": "/wh/tc"}
    neighbours = [Neighbour(name="ta2", places=("/wh/ta2",)), Neighbour(name="s3", places=("s3://b/wh/ta2",))]
    root = PLAIN.parse("/wh/tc")
    assert overlapping(root, neighbours, PLAIN) == {}
    assert overlapping(root, neighbours, PLAIN, lambda one: links.get(one, one)) == {"ta2": "/wh/ta2"}
