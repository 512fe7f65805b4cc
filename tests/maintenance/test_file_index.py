"""The index finds every file that another table needs, reads only what is new, and reports what it cannot read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve.errors import AccessDeniedError, InDoubtError, MissingFileError
from neve.maintenance.file_index import BelowRoot, Comparison, TableIndex, TheseFiles, Trust
from neve.maintenance.orphans import Neighbour
from neve.operations.file_index import OWN_FILES, EveryTable, FileIndex
from neve.table.location import Spellings
from tests.builders.fake_catalogs import World, name

OWN = name("c.db.t")
ROOT = "/wh/c/db/t"


def world() -> World:
    made = World()
    made.table("c.db.t").commit([f"{ROOT}/data/own.parquet"])
    return made


def below(made: World, index: FileIndex, root: str = ROOT) -> dict[str, str]:
    spellings = Spellings.of()
    return dict(index.needed(Comparison(BelowRoot(root, spellings, made.real), made.real, spellings), OWN))


def test_files_that_another_table_has_in_the_directory_are_found() -> None:
    made = world()
    made.table("c.db.u").commit(["/wh/c/db/u/data/1", f"file:{ROOT}/import/2"], [f"{ROOT}//old/../old/3"])
    made.table("other.v").commit(["/wh/other/v/1"], metadata=f"{ROOT}/once")
    index = made.index()
    index.refresh()
    found = below(made, index)
    assert {path for path, table in found.items() if table == "c.db.u"} == {f"{ROOT}/import/2", f"{ROOT}/old/3"}
    assert {path.rpartition("/")[0] for path, table in found.items() if table == "other.v"} == {f"{ROOT}/once"}
    assert len([table for table in found.values() if table == "other.v"]) == 3


def test_files_of_neve_itself_are_needed_wherever_they_are() -> None:
    made = world()
    index = FileIndex(
        replace(
            made.index()._tools, own_files=lambda: [f"{ROOT}/neve/state.db", f"{ROOT}/neve/state.db.lock", "/else/neve.yaml"]
        )
    )
    found = below(made, index)
    assert set(found) == {f"{ROOT}/neve/state.db", f"{ROOT}/neve/state.db.lock"}
    assert set(found.values()) == {OWN_FILES}


def test_every_snapshot_counts_and_an_expired_one_does_not() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit([f"{ROOT}/a"])
    other.replace_all(["/wh/c/db/u/b"])
    index = made.index()
    index.refresh()
    assert list(below(made, index)) == [f"{ROOT}/a"]
    other.replace_all(["/wh/c/db/u/c"], keep=2)
    index.refresh()
    assert below(made, index) == {}


def test_a_manifest_stays_as_long_as_any_snapshot_names_it() -> None:
    made = world()
    other = made.table("c.db.u")
    index = made.index()
    for groups in ([[f"{ROOT}/a"]], [[f"{ROOT}/b"]], [[f"{ROOT}/c"]]):
        other.commit(*groups)
        index.refresh()
    other.expire(keep=2)
    index.refresh()
    assert set(below(made, index)) == {f"{ROOT}/{name}" for name in "abc"}
    other.replace_all(["/wh/c/db/u/d"], keep=2)
    index.refresh()
    assert set(below(made, index)) == {f"{ROOT}/{name}" for name in "abc"}
    other.expire(keep=1)
    index.refresh()
    assert below(made, index) == {}


def test_a_second_refresh_reads_only_what_is_new() -> None:
    made = world()
    other = made.table("c.db.u")
    for number in range(5):
        other.commit([f"/wh/c/db/u/{number}"])
    index = made.index()
    index.refresh()
    assert index.counts == {"loads": 2, "unchanged": 0, "lists": 6, "manifests": 6, "entries": 6}
    made.lake.reads.clear()
    again = made.index()
    again.refresh()
    assert (again.counts["loads"], again.counts["unchanged"], made.lake.reads) == (2, 2, [])
    other.commit(["/wh/c/db/u/9"])
    again.refresh()
    assert (len(made.lake.reads), again.counts["lists"], again.counts["manifests"]) == (2, 1, 1)
    made.lake.reads.clear()
    assert below(made, again) == {}
    assert made.lake.reads == []


def test_links_are_followed_on_both_sides() -> None:
    made = world()
    made.links = {"/link": f"{ROOT}/shared", "/other": "/wh/c/db/u/x", f"{ROOT}/p": "/wh/c/db/u/p"}
    made.table("c.db.u").commit(["/link/f", "/link/sub/g", "/other/h", "/wh/c/db/u/p/i"])
    made.tables["c.db.t"].commit(["/link/own"], [f"{ROOT}/data/plain"])
    index = made.index()
    index.refresh()
    assert set(below(made, index)) == {f"{ROOT}/shared/{path}" for path in ("f", "sub/g", "own")}


def test_a_warehouse_behind_a_link_costs_no_reading_of_the_table_itself() -> None:
    made = world()
    made.links = {"/wh": "/disk/wh"}
    made.table("c.db.u", "/disk/wh/c/db/u").commit(["/disk/wh/c/db/t/import/1"])
    index = made.index()
    index.refresh()
    made.lake.reads.clear()
    assert list(below(made, index)) == [f"{ROOT}/import/1"]
    assert len(made.lake.reads) == 1


def test_what_cannot_be_read_is_reported_with_its_name() -> None:
    made = world()
    made.refuses = {"secret": AccessDeniedError("Cannot load catalog secret: no"), "c.db.u": AccessDeniedError("Cannot: u")}
    made.table("c.db.u")
    made.table("c.db.v").commit(["/wh/c/db/v/1"])
    del made.lake.files[made.tables["c.db.v"].now.lists[0]]
    made.table("c.db.w").commit(["/wh/c/db/w/1"], [f"{ROOT}/w"])
    broken, _ = made.lake.files[made.tables["c.db.w"].now.lists[0]]
    del made.lake.files[broken.path]
    index = made.index()
    troubles = {one.name: one.trouble for one in index.refresh() if one.trouble}
    assert set(troubles) == {"secret", "c.db.u", "c.db.v", "c.db.w"}
    assert broken.path in str(troubles["c.db.w"])
    # What could be read counts, whoever vouches for the rest.
    assert list(below(made, index)) == [f"{ROOT}/w"]
    made.lake.files[broken.path] = b'["/wh/c/db/w/1"]'
    assert "c.db.w" not in {one.name for one in index.refresh() if one.trouble}


def test_a_manifest_that_could_not_be_read_once_is_read_at_the_next_refresh() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit([f"{ROOT}/a"])
    index = made.index()
    index.refresh()
    other.commit([f"{ROOT}/b"], metadata=f"{ROOT}/once")
    (*_, throttled) = made.lake.files[other.now.lists[-1]]
    content = made.lake.files.pop(throttled.path)
    assert [one.name for one in index.refresh() if one.trouble] == ["c.db.u"]
    # The files that are known by name stay protected for those who vouch for the table.
    assert {throttled.path, other.now.lists[-1]} <= set(below(made, index))
    made.lake.files[throttled.path] = content
    for again in (index, made.index()):
        assert [one.name for one in again.refresh() if one.trouble] == []
        assert set(below(made, again)) == {path for path in other.now.reachable() if path.startswith(f"{ROOT}/")}


def test_a_manifest_list_that_could_not_be_read_stays_protected_and_is_read_at_the_next_refresh() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit([f"{ROOT}/a"], metadata=f"{ROOT}/once")
    (path,) = other.now.lists
    content = made.lake.files.pop(path)
    index = made.index()
    assert [one.name for one in index.refresh() if one.trouble] == ["c.db.u"]
    assert path in below(made, index)
    made.lake.files[path] = content
    assert [one.name for one in index.refresh() if one.trouble] == []
    assert set(below(made, index)) == {path for path in other.now.reachable() if path.startswith(f"{ROOT}/")}


def test_an_entry_without_metadata_is_no_table() -> None:
    made = world()
    made.table("c.db.u").commit([f"{ROOT}/u"])
    made.remains.add("c.db.u")
    index = made.index()
    assert [(one.name, one.trouble) for one in index.refresh()] == [("c.db.t", None)]
    assert below(made, index) == {}
    made.remains.clear()
    index.refresh()
    made.remains.add("c.db.u")
    with pytest.raises(InDoubtError, match=r"^Cannot tell which files c\.db\.u needs"):
        below(made, index)


def test_a_manifest_that_lists_name_with_two_lengths_stays_as_long_as_one_of_them() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit([f"{ROOT}/a"])
    (first,) = other.now.lists
    (manifest,) = made.lake.files[first]
    index = made.index()
    index.refresh()
    made.lake.files[manifest.path] += b" "
    made.lake.files["/wh/second"] = (manifest.model_copy(update={"length_bytes": manifest.length_bytes + 1}),)
    other.now = replace(other.now, lists=(first, "/wh/second"))
    index.refresh()
    other.expire(keep=2)
    other.now = replace(other.now, lists=(first,))
    index.refresh()
    assert list(below(made, index)) == [f"{ROOT}/a"]


def test_a_refresh_tells_the_uuids_of_tables() -> None:
    made = world()
    made.tables["d.copy"] = made.tables["c.db.t"]
    uuid = made.tables["c.db.t"].now.uuid
    assert {one.name: one.uuid for one in made.index().refresh()} == {"c.db.t": uuid, "d.copy": uuid}


def test_a_table_that_can_no_longer_be_read_keeps_what_was_known_of_it() -> None:
    made = world()
    made.table("c.db.u").commit([f"{ROOT}/u"])
    made.index().refresh()
    made.refuses["c.db.u"] = AccessDeniedError("Cannot load table c.db.u: no")
    index = made.index()
    (trouble,) = [one for one in index.refresh() if one.trouble]
    assert (trouble.name, trouble.places) == ("c.db.u", ("/wh/c/db/u",))
    with pytest.raises(InDoubtError, match=r"^Cannot tell which files c\.db\.u needs in the places that are to be cleaned"):
        below(made, index)


def test_a_table_that_is_renamed_during_the_refresh_is_found_under_its_new_name() -> None:
    made = world()
    made.table("c.db.z").commit([f"{ROOT}/z"])

    def rename(_: str) -> None:
        if "c.db.z" in made.tables:
            made.tables["a.first"] = made.tables.pop("c.db.z")

    made.on_open = rename
    index = made.index()
    index.refresh()
    assert below(made, index) == {f"{ROOT}/z": "a.first"}


def test_two_tables_that_swap_their_names_during_the_refresh_are_both_found() -> None:
    made = world()
    made.table("c.db.x").commit([f"{ROOT}/x"])
    made.table("c.db.y").commit([f"{ROOT}/y"])
    swaps = iter([False, True])

    def swap(opened: str) -> None:
        if opened == "c.db.y" and next(swaps, None) is False:
            made.tables["c.db.x"], made.tables["c.db.y"] = made.tables["c.db.y"], made.tables["c.db.x"]

    made.on_open = swap
    index = made.index()
    index.refresh()
    assert set(below(made, index)) == {f"{ROOT}/x", f"{ROOT}/y"}


def test_a_table_that_its_catalog_lists_and_cannot_load_is_in_doubt_and_a_dropped_one_is_not() -> None:
    made = world()
    made.table("c.db.u")

    def drop(opened: str) -> None:
        if opened == "c.db.u":
            made.tables.pop("c.db.u", None)

    made.on_open = drop
    assert [one.name for one in made.index().refresh()] == ["c.db.t"]
    listed = made.listing()
    made.listing = lambda: ([*listed[0], name("c.db.ghost")], [])  # type: ignore[method-assign]
    assert [one.name for one in made.index().refresh() if one.trouble] == ["c.db.ghost"]


def test_a_table_that_cannot_be_loaded_is_not_gone_if_the_last_listing_failed() -> None:
    made = world()
    made.table("c.db.u").commit([f"{ROOT}/u"])
    made.index().refresh()
    complete, denied = made.listing(), Neighbour(name="c.db", trouble="Cannot list c.db: throttled")
    listings = iter([complete, complete])
    made.listing = lambda: next(listings, ([], [denied]))  # type: ignore[method-assign]
    forgotten = list[str]()
    made.store.forget_table_indexes = lambda catalog, _: forgotten.append(catalog)
    del made.tables["c.db.u"]
    assert denied in made.index().refresh()
    assert forgotten == []


def test_what_another_process_kept_meanwhile_is_not_taken_for_what_was_seen() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit(["/wh/c/db/u/1"])
    made.index().refresh()
    older: dict[str, TableIndex] = made.store.table_indexes(["c.db.u"])
    other.commit([f"{ROOT}/new"])
    index = made.index()
    index.refresh()
    made.store.keep_table_indexes(older, 1)
    assert list(below(made, index)) == [f"{ROOT}/new"]
    made.store._found.clear()
    assert list(below(made, index)) == [f"{ROOT}/new"]


def test_a_manifest_that_is_gone_is_in_doubt_only_if_a_snapshot_names_it() -> None:
    made = world()
    other = made.table("c.db.u")
    other.commit([f"{ROOT}/a"])
    other.replace_all(["/wh/c/db/u/b"])
    other.replace_all(["/wh/c/db/u/c"])
    index = made.index()
    index.refresh()
    (gone,) = made.lake.files[other.now.lists[0]]
    del made.lake.files[gone.path]
    with pytest.raises(InDoubtError, match=gone.path) as caught:
        below(made, index)
    assert caught.value.hint == "Repair c.db.u, or drop it from its catalog. It had files there when it was last read."
    other.now = replace(other.now, lists=other.now.lists[1:])
    assert below(made, index) == {}


class OwnOnly:
    """What the table itself needs."""

    def __init__(self, *needed: str) -> None:
        self._needed = needed

    def needed(self, paths: object) -> tuple[str, ...]:  # noqa: ARG002
        return self._needed


def every(made: World, trust: Trust | None = None) -> EveryTable:
    return EveryTable(OWN, OwnOnly(f"{ROOT}/own"), made.index(), lambda: made.real, trust or Trust())  # type: ignore[arg-type]


def test_the_second_check_finds_what_any_table_needs() -> None:
    made = world()
    made.links = {"/link": f"{ROOT}/import"}
    made.table("c.db.u").commit(["/link/1", f"{ROOT}/import/2"])
    asked = [f"{ROOT}/own", f"{ROOT}/import/1", f"file:{ROOT}/import/2", f"{ROOT}/import/3"]
    assert sorted(every(made).needed(asked)) == sorted(asked[:3])
    assert list(every(made).needed([])) == []
    made.tables["c.db.u"].commit([f"{ROOT}/import/3"])
    assert sorted(every(made).needed(asked)) == sorted(asked)


def test_the_second_check_refuses_in_doubt_unless_somebody_vouches() -> None:
    made = world()
    made.refuses["d"] = AccessDeniedError("Cannot load catalog d: no")
    with pytest.raises(InDoubtError, match=r"^Cannot remove files of c\.db\.t: it is not known where d has its files"):
        list(every(made).needed([f"{ROOT}/x", f"{ROOT}/y"]))
    for trust in (Trust(ignored=("d",)), Trust(exclusive_prefixes=("/wh/c",))):
        assert list(every(made, trust).needed([f"{ROOT}/x"])) == [f"{ROOT}/own"]
    with pytest.raises(InDoubtError):
        list(every(made, Trust(exclusive_prefixes=("/wh/c",))).needed([f"{ROOT}/x", "/elsewhere/y"]))


class MissesAManifest:
    """The table's own metadata cannot be read."""

    def needed(self, paths: object) -> tuple[str, ...]:  # noqa: ARG002
        raise MissingFileError("Cannot read m.avro: it is not there")


def test_of_the_table_itself_the_error_says_what_is_missing() -> None:
    made = world()
    (manifest,) = made.lake.files[made.tables["c.db.t"].now.lists[0]]
    del made.lake.files[manifest.path]
    check = replace(every(made), reach=MissesAManifest())  # type: ignore[arg-type]
    with pytest.raises(MissingFileError, match=r"^Cannot read m\.avro"):
        list(check.needed([f"{ROOT}/x"]))
    # If the table could be read by then, it is still not known what else it names in this place, through a link.
    with pytest.raises(InDoubtError, match=r"not known where c\.db\.t has its files"):
        list(every(made).needed([f"{ROOT}/x"]))


def test_files_asked_by_name_are_matched_in_object_stores_whatever_the_scheme() -> None:
    made = World()
    many = [f"s3://lake/db/u/data/{number}/f" for number in range(40)]
    made.table("c.db.u", "s3://lake/db/u").commit([*many, "s3a://lake/db/t/import/f"])
    index = made.index()
    index.refresh()
    asked = ["s3://lake/db/t/import/f", "s3://lake/db/t/import/g", "s3n://lake/db/u/data/7/f"]
    target = TheseFiles(asked, Spellings.of(), made.real)
    found = [path for path, _ in index.needed(Comparison(target, made.real), OWN)]
    assert sorted(found) == [asked[0], asked[2]]


def test_what_iceberg_opens_for_a_cut_path_of_another_table_is_needed() -> None:
    made = World()
    made.table("c.db.u", "s3://lake/db/u").commit(["s3://lake/db/t/data/x.parquet?v=1"], ["s3://lake/db/t/data/p=1#2/y"])
    index = made.index()
    index.refresh()
    found = below(made, index, "s3://lake/db/t")
    assert {"s3://lake/db/t/data/x.parquet", "s3://lake/db/t/data/p=1"} <= set(found)
