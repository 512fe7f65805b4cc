"""Files that a small table's metadata needs, read in Python; large or unreadable metadata is left to Spark.

That Python and Spark find the same files on real tables is checked in tests/spark/test_expire.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from neve.errors import TableGoneError
from neve.maintenance.quarantine import Candidate
from neve.operations import reachable
from neve.operations.reachable import Reachable, open_reachable
from tests.builders.table_versions import FakeVersion, Lake, version

BY_SPARK = Candidate(path="/found/by/spark", reason="test")


class Large:
    """Stands for Spark."""

    def lost_since(self, metadata_location: str) -> Iterator[Candidate]:
        assert metadata_location
        yield BY_SPARK

    def lost_without(self, snapshots: Collection[int]) -> Iterator[Candidate]:
        assert snapshots
        yield BY_SPARK

    def needed(self, paths: Iterable[str]) -> Iterator[str]:
        assert list(paths)
        yield BY_SPARK.path


@dataclass
class Writer:
    location: str
    steps: list[str] = field(default_factory=list)

    def refresh(self) -> None:
        self.steps.append("refresh")

    def metadata_location(self) -> str:
        return self.location


def live_files(data: bytes, manifest: str) -> list[tuple[str, int]]:
    assert manifest
    return [(path, len(path)) for path in data.decode().splitlines()]


@pytest.fixture
def lake() -> Lake:
    """Snapshot 1 has the files /a and /b, snapshot 2 has /b and /c."""
    return Lake(
        {"v1": version("v1", 1), "v2": version("v2", 1, 2, log=("v1",)), "v3": version("v3", 2, log=("v2",))},
        {"list-1": ["m1", "shared"], "list-2": ["shared", "m2"]},
        {"m1": ["/a", "s3://b/b"], "shared": ["/d"], "m2": ["s3a://b//b", "/c"]},
    )


def reach(lake: Lake, current: str = "v3") -> Reachable:
    writer: Any = Writer(current)
    return Reachable(writer, lambda: FakeVersion(lake, lake.versions[current]), live_files, Large())


def test_what_only_an_older_version_needs_is_lost(lake: Lake) -> None:
    found = {one.path: (one.reason, one.size_bytes) for one in reach(lake).lost_since("v2")}
    assert found == {
        "/a": ("data file of expired snapshots", 2),
        "m1": ("manifest of expired snapshots", 7),
        "list-1": ("manifest list of an expired snapshot", None),
        "1.stats": ("statistics of an expired snapshot", None),
        "v1": ("metadata or statistics that the table names no more", None),
    }


def test_metadata_files_that_iceberg_removes_itself_are_not_listed(lake: Lake) -> None:
    properties = {"write.metadata.delete-after-commit.enabled": "true"}
    lake.versions["v3"] = lake.versions["v3"].model_copy(update={"properties": properties})
    assert {one.path for one in reach(lake).lost_since("v2")} == {"/a", "m1", "list-1", "1.stats"}


def test_a_dry_run_lists_what_only_some_snapshots_need(lake: Lake) -> None:
    owners = {"1.stats": 1, "2.stats": 2}
    lake.versions["v2"] = lake.versions["v2"].model_copy(update={"statistics_snapshots": owners})
    assert {one.path for one in reach(lake, "v2").lost_without([1])} == {"/a", "m1", "list-1", "1.stats"}
    assert list(reach(lake, "v2").lost_without([])) == []


def test_files_are_needed_however_they_are_spelled(lake: Lake) -> None:
    asked = ["/a", "file:/c", "s3n://b/b", "v3", "v2", "list-1", "list-2", "shared", "2.stats"]
    assert set(reach(lake).needed(asked)) == {"file:/c", "s3n://b/b", "v3", "v2", "list-2", "shared", "2.stats"}
    assert list(reach(lake).needed([])) == []


def test_a_file_that_iceberg_opens_in_place_of_a_path_it_cuts_is_needed(lake: Lake) -> None:
    lake.manifests["m2"] = ["s3://b/x#y"]
    assert set(reach(lake).needed(["s3://b/x", "s3://b/x#y", "s3://b/y"])) == {"s3://b/x", "s3://b/x#y"}


def test_the_writer_is_refreshed_first_so_that_both_see_one_version(lake: Lake) -> None:
    found = reach(lake)
    list(found.needed(["/a"]))
    list(found.lost_since("v2"))
    writer: Any = found._entry
    assert writer.steps == ["refresh", "refresh"]


@pytest.mark.parametrize("limit", ["_MOST_LISTS", "_MOST_FILES"])
def test_a_large_table_is_left_to_spark(lake: Lake, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachable, limit, 0)
    assert_left_to_spark(lake)


@pytest.mark.parametrize("path", ["list-2", "m2", "v3"])
def test_what_cannot_be_read_is_left_to_spark(lake: Lake, path: str) -> None:
    lake.broken.add(path)
    assert_left_to_spark(lake)


def test_a_snapshot_without_a_manifest_list_is_left_to_spark(lake: Lake) -> None:
    lake.versions["v3"] = lake.versions["v3"].model_copy(update={"manifests": ("m2",)})
    assert_left_to_spark(lake)


def assert_left_to_spark(lake: Lake) -> None:
    assert list(reach(lake).lost_since("v2")) == [BY_SPARK]
    assert list(reach(lake).lost_without([2])) == [BY_SPARK]
    assert list(reach(lake).needed(["/a"])) == [BY_SPARK.path]


@dataclass
class FakeContext:
    """A context whose table in Java has this uuid; it counts how often that was opened."""

    uuid: str
    opened: int = 0
    name: str = "c.db.t"

    @property
    def bridge(self) -> Any:
        self.opened += 1
        return SimpleNamespace(uuid=lambda: self.uuid)


def test_spark_starts_at_the_first_question_about_a_large_table_and_not_for_another_table_of_the_name() -> None:
    context, entry = FakeContext("other"), SimpleNamespace(uuid=lambda: "u")
    reach = open_reachable(cast("Any", context), cast("Any", entry))
    assert context.opened == 0
    with pytest.raises(TableGoneError, match=r"^Cannot tell which files c\.db\.t needs: another table has its name \(other "):
        reach._large.needed(["/a"])
    assert context.opened == 1
