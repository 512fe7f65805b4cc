"""Versions that a table's history does not have: whose they are, what they need, and what cannot be known of them."""

from __future__ import annotations

import pytest

from neve.errors import InDoubtError
from neve.operations import other_versions
from neve.operations.other_versions import OtherVersions
from tests.builders.table_versions import UUID, FakeVersion, Lake, version


def live_paths(data: bytes, manifest: str) -> list[str]:
    assert manifest
    return data.decode().splitlines()


def versions_of(lake: Lake, current: str = "v3") -> OtherVersions:
    return OtherVersions(lambda: FakeVersion(lake, lake.versions[current]), live_paths)


def test_the_history_follows_the_log_of_the_oldest_version_and_stops_where_that_is_gone() -> None:
    lake = Lake({"v3": version("v3", log=("v2",)), "v2": version("v2", log=("v1",))})
    assert versions_of(lake).history() == {"v1", "v2", "v3"}


def test_versions_known_before_a_reload_stay_in_the_history() -> None:
    lake = Lake({"v3": version("v3", log=("v2",))})
    versions = versions_of(lake)
    lake.versions["v3"] = version("v3")
    versions.reload()
    assert versions.history() == {"v2", "v3"}


def test_a_lost_commit_needs_its_own_snapshot_with_manifests_statistics_and_data() -> None:
    lake = Lake(
        {"v3": version("v3", 1), "lost": version("lost", 1, 2)},
        {"list-1": ["m1"], "list-2": ["m1", "m2"]},
        {"m1": ["a"], "m2": ["b"]},
    )
    found = versions_of(lake).needs(["lost"])
    assert found.versions == ("lost",)
    assert set(found.paths) == {"list-2", "m1", "m2", "1.stats", "2.stats", "a", "b"}
    assert lake.reads["list-1"] == 0


def test_an_attempt_of_a_commit_that_landed_later_needs_nothing() -> None:
    """It has the snapshot's id, and a manifest list of its own."""
    attempt = version("attempt", 1, 2).model_copy(update={"manifest_lists": {1: "list-1", 2: "first-try"}})
    lake = Lake({"v3": version("v3", 1, 2), "attempt": attempt}, {"first-try": ["m2"]}, {"m2": ["b"]})
    assert versions_of(lake).needs(["attempt"]).versions == ()


def test_manifests_without_a_list_are_needed_too() -> None:
    old = version("old").model_copy(update={"manifests": ("m1", "m2")})
    current = version("v3").model_copy(update={"manifests": ("m1",)})
    lake = Lake({"v3": current, "old": old}, {"old": ["m1", "m2"]}, {"m1": ["a"], "m2": ["b"]})
    assert set(versions_of(lake).needs(["old"]).paths) == {"m2", "b"}


def test_a_path_that_iceberg_cuts_is_needed_in_both_spellings() -> None:
    lake = Lake({"v3": version("v3"), "lost": version("lost", 2)}, {"list-2": ["m"]}, {"m": ["s3://b/t/a#b"]})
    assert {"s3://b/t/a#b", "s3://b/t/a"} <= set(versions_of(lake).needs(["lost"]).paths)


def test_what_many_versions_share_is_read_once() -> None:
    """A search must not slow down with the number of commits that were lost."""
    lost = {f"lost-{number:02}": version(f"lost-{number:02}", *range(1, number + 2)) for number in range(40)}
    lists = {f"list-{number}": ["shared", f"m{number}"] for number in range(1, 42)}
    manifests = {"shared": ["s"], **{f"m{number}": [f"d{number}"] for number in range(1, 42)}}
    lake = Lake({"v3": version("v3", 1), **lost}, lists, manifests)
    found = versions_of(lake).needs(lost)
    assert set(found.paths) >= {"s", *(f"d{number}" for number in range(2, 41))}
    assert set(lake.reads.values()) == {1}
    assert found.versions == ("lost-39",)


def test_snapshots_that_were_expired_since_a_commit_was_lost_are_held_and_do_not_end_the_search() -> None:
    """A busy table expires far more snapshots in a day than it loses commits."""
    lists = {f"list-{number}": [f"m{number}"] for number in range(1, 301)}
    manifests = {f"m{number}": [f"d{number}"] for number in range(1, 301)}
    lake = Lake({"v3": version("v3", 300), "lost": version("lost", *range(1, 301))}, lists, manifests)
    assert {f"d{number}" for number in range(1, 300)} <= set(versions_of(lake).needs(["lost"]).paths)


def test_what_is_gone_is_not_needed() -> None:
    lake = Lake({"v3": version("v3"), "lost": version("lost", 1, 2)}, {"list-2": ["m1", "m2"]}, {"m2": ["b"]})
    found = versions_of(lake).needs(["gone", "lost"])
    assert found.versions == ("lost",)
    assert set(found.paths) == {"list-2", "m1", "m2", "1.stats", "2.stats", "b"}


def test_a_version_without_snapshots_of_its_own_needs_nothing() -> None:
    lake = Lake({"v3": version("v3", 1), "lost": version("lost", 1)}, {"list-1": ["m1"]}, {"m1": ["a"]})
    found = versions_of(lake).needs(["lost"])
    assert (found.versions, list(found.paths)) == ((), [])


@pytest.mark.parametrize("file", ["list-2", "m2"])
def test_what_is_there_and_cannot_be_read_is_in_doubt(file: str) -> None:
    lake = Lake({"v3": version("v3"), "lost": version("lost", 2)}, {"list-2": ["m2"]}, {"m2": ["b"]}, {file})
    with pytest.raises(InDoubtError, match=f"^Cannot tell what lost needs: Cannot read {file}: the disk says no$"):
        list(versions_of(lake).needs(["lost"]).paths)


def test_too_many_snapshots_are_no_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_versions, "_MOST_SNAPSHOTS", 2)
    lake = Lake({"v3": version("v3"), "lost": version("lost", 1, 2, 3)}, {f"list-{n}": [] for n in (1, 2, 3)})
    with pytest.raises(InDoubtError, match=r"such as lost are not in its history, and have over 2 snapshots of their own$"):
        versions_of(lake).needs(["lost"])


def test_owners_are_told_by_the_uuid() -> None:
    lake = Lake({"v3": version("v3"), "a": version("a"), "b": version("b", uuid="other")})
    assert versions_of(lake).owners(["a", "b"]) == {"a": UUID, "b": "other"}


def test_a_metadata_file_without_a_uuid_is_in_doubt() -> None:
    lake = Lake({"v3": version("v3"), "a": version("a", uuid=None)})
    with pytest.raises(InDoubtError, match=r"^Cannot tell which table a belongs to: it has no table uuid$"):
        versions_of(lake).owners(["a"])


def test_a_metadata_file_that_cannot_be_read_is_in_doubt() -> None:
    lake = Lake({"v3": version("v3"), "a": version("a")}, broken={"a"})
    with pytest.raises(InDoubtError, match=r"^Cannot tell which table a belongs to: Cannot read a: the disk says no$"):
        versions_of(lake).owners(["a"], may_be_gone=True)


def test_a_metadata_file_that_went_away_is_in_doubt_unless_the_listing_is_old() -> None:
    versions = versions_of(Lake({"v3": version("v3")}))
    assert versions.owners(["a"], may_be_gone=True) == {}
    with pytest.raises(InDoubtError, match=r"^Cannot tell which table a belonged to: it is gone since it was listed$"):
        versions.owners(["a"])
