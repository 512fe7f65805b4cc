"""Maintenance on Apache's REST catalog and S3: what it takes out of tables is not needed, comes back, and refs read fully."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from stack.endpoints import RestEndpoint, S3Endpoint
from stack.servers.s3 import client
from tests.builders.s3_contents import objects
from tests.builders.spark_driver import Driver, at_rest, write_settings

pytestmark = pytest.mark.stack

NUMBERS = count(1)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
POLICY = {"neve.manifest-min-count": "3", "neve.auto-tags": "daily 7", "neve.ttl": "60 days", "neve.ttl-column": "ts"}
LATER = 10
"""Days until every snapshot and every file is old."""


@dataclass
class Lake:
    """A table, written and read by pyiceberg, and kept by Neve in a process of its own."""

    table: Table
    driver: Driver
    s3: S3Endpoint

    @property
    def name(self) -> str:
        return ".".join(self.table.name())

    def append(self, start: int, *, days: float = 0, branch: str = "main") -> None:
        """One file of ten ids, so many days old, of which odd ones are new."""
        now, ids = datetime.now(UTC), range(start, start + 10)
        stamps = [now - timedelta(days=days if i % 2 == 0 else 0) for i in ids]
        self.table.refresh().append(pa.table({"id": list(ids), "ts": stamps}, SCHEMA), branch=branch)

    def run(self, operation: str, **words: Any) -> dict[str, Any]:
        answered = self.driver.ask("maintain", operation=operation, table=self.name, **words)
        assert "error" not in answered, answered
        found: dict[str, Any] = answered
        return found

    def fates(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.driver.ask("quarantined", table=self.name)
        return found

    def objects(self) -> set[str]:
        return objects(self.s3, self.table.location())

    def ids(self) -> dict[str, list[int]]:
        """Of every ref."""
        refs = self.table.refresh().metadata.refs
        return {
            name: sorted(self.table.scan(snapshot_id=ref.snapshot_id).to_arrow()["id"].to_pylist())
            for name, ref in refs.items()
        }

    def named(self) -> set[str]:
        """Every file that the metadata names."""
        table = self.table.refresh()
        found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {manifest.manifest_path, *(entry.data_file.file_path for entry in entries)}
        return found


@pytest.fixture(scope="module")
def driver(rest: RestEndpoint, s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    directory = tmp_path_factory.mktemp("driver")
    with Driver(write_settings(directory, at_rest(rest), s3), s3) as driver:
        yield driver


@pytest.fixture(scope="module")
def catalog(rest: RestEndpoint) -> Catalog:
    made = load_catalog("lake", **rest.properties())
    made.create_namespace(NAMESPACE)
    return made


NAMESPACE = f"kept_{uuid4().hex[:8]}"


@pytest.fixture
def lake(catalog: Catalog, driver: Driver, s3: S3Endpoint) -> Lake:
    """Ids 0 to 39 in four files and snapshots, of which the first is tagged."""
    made = Lake(catalog.create_table(f"{NAMESPACE}.t{next(NUMBERS)}", schema=SCHEMA, properties=POLICY), driver, s3)
    for start in range(0, 40, 10):
        made.append(start)
    first = made.table.snapshots()[0].snapshot_id
    made.table.manage_snapshots().create_tag(first, "first").commit()
    return made


def test_what_an_expiry_writes_down_is_all_that_is_not_needed_and_comes_back_from_the_trash(lake: Lake) -> None:
    lake.table.delete("id >= 30")
    before = lake.objects()
    record = lake.run("expire", days=LATER)
    assert (record["outcome"], len(record["expired"]), len(lake.table.refresh().snapshots())) == ("done", 3, 2)
    # The mark of the lease came and went, each time in new metadata.
    unneeded = lake.objects() - lake.named()
    assert (set(lake.fates()), set(lake.fates().values())) == (unneeded, {"recorded"})
    assert before <= lake.objects()
    assert lake.run("settle", days=LATER, at_once=True)["files"] == len(unneeded)
    assert unneeded & lake.objects() == set()
    assert lake.ids() == {"main": list(range(30)), "first": list(range(10))}
    assert lake.run("expire", days=LATER)["outcome"] == "nothing-to-do"
    restored = lake.driver.ask("restore", run=record["run_id"])
    assert (restored["files"], unneeded <= lake.objects()) == (len(unneeded), True)


def test_only_files_that_nobody_wrote_down_anywhere_are_orphans(lake: Lake) -> None:
    bucket, _, prefix = lake.table.location().removeprefix("s3://").partition("/")
    planted = [f"{prefix}/data/left over.parquet", f"{prefix}/metadata/left-over.avro"]
    with closing(client(lake.s3)) as asked:
        for key in planted:
            asked.put_object(Bucket=bucket, Key=key, Body=b"PAR1")
    record = lake.run("orphans", days=LATER)
    assert (record["outcome"], record["taken"]) == ("done", 2)
    assert set(lake.fates()) == {f"s3://{bucket}/{key}" for key in planted}
    assert lake.run("orphans", days=LATER)["outcome"] == "nothing-to-do"


def test_manifests_statistics_and_tags_are_kept_and_the_rows_stay(lake: Lake) -> None:
    manifests = lake.run("manifests")
    assert (manifests["outcome"], manifests["manifests_replaced"], manifests["manifests_written"]) == ("done", 4, 1)
    statistics = lake.run("stats", columns=["id"])
    assert (statistics["outcome"], statistics["distinct"]) == ("done", [{"column": "id", "values": 40}])
    tags = lake.run("tags", days=LATER)
    assert (tags["outcome"], len(tags["created"])) == ("done", 1)
    table = lake.table.refresh()
    head = table.current_snapshot()
    assert head is not None
    assert (len(head.manifests(table.io)), [file.snapshot_id for file in table.metadata.statistics]) == (1, [head.snapshot_id])
    assert {file.statistics_path for file in table.metadata.statistics} <= lake.objects()
    made = tags["created"][0]["name"]
    assert lake.ids() == {"main": list(range(40)), "first": list(range(10)), made: list(range(40))}
    again = (lake.run("manifests"), lake.run("stats", columns=["id"]), lake.run("tags", days=LATER))
    assert [record["outcome"] for record in again] == ["nothing-to-do"] * 3


def test_rows_past_their_time_go_as_previewed(lake: Lake) -> None:
    lake.append(40, days=100)
    lake.table.refresh().append(pa.table({"id": [50, 51], "ts": [datetime(2020, 1, 1, tzinfo=UTC)] * 2}, SCHEMA))
    seen = lake.run("ttl")
    counts = {key: seen["counts"][key] for key in ("files_dropped", "rows_dropped", "files_touched", "rows_deleted")}
    assert counts == {"files_dropped": 1, "rows_dropped": 2, "files_touched": 1, "rows_deleted": 5}
    done = lake.run("ttl", enforce=True)
    assert (done["outcome"], done["counts"]) == ("done", seen["counts"])
    assert lake.ids() == {"main": [*range(40), *range(41, 50, 2)], "first": list(range(10))}
    assert lake.run("ttl", enforce=True)["outcome"] == "nothing-to-do"


def test_a_branch_that_is_moved_onto_an_expired_snapshot_at_that_moment_costs_no_file(lake: Lake) -> None:
    """The catalog merges both changes, and with the snapshot goes the branch. Its files must not follow."""
    second, third = (snapshot.snapshot_id for snapshot in lake.table.snapshots()[1:3])
    lake.table.manage_snapshots().create_branch(third, "audit").commit()
    before, name = lake.objects(), f"lake.{lake.name}"
    record = lake.run("expire", days=LATER, strike=f"ALTER TABLE {name} CREATE OR REPLACE BRANCH audit AS OF VERSION {second}")
    assert (record["outcome"], record["reason"]) == (
        "partly-done",
        "audit went meanwhile, so files are left for orphan removal",
    )
    assert (lake.fates(), before <= lake.objects()) == ({}, True)
    assert lake.ids() == {"main": list(range(40)), "first": list(range(10))}
