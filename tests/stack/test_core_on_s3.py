"""The core of compaction where tables really live: on S3 behind a REST catalog, every kernel, layout and interruption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from stack.endpoints import RestEndpoint, S3Endpoint
from stack.servers.s3 import client
from tests.builders.s3_contents import objects, referenced, uploads
from tests.builders.spark_driver import Driver, at_rest, write_settings
from tests.builders.table_contents import data_files, pyiceberg_rows

pytestmark = pytest.mark.stack

FLAT = "id BIGINT, shop STRING, text STRING"
NESTED = "id BIGINT, place STRUCT<x: DOUBLE, tags: ARRAY<STRING>>, notes MAP<STRING, INT>"
FILL = "INSERT INTO {} SELECT id, concat('s', id % 2), sha2(string(id), 256) FROM range({first}, {first} + 6000, 1, 1)"
FILL_NESTED = (
    "INSERT INTO {} SELECT id, IF(id % 5 = 0, NULL, named_struct('x', id / 3, 'tags', array(string(id), NULL))), "
    "map('a', int(id)) FROM range({first}, {first} + 100, 1, 1)"
)
THREE = (FILL, FILL, FILL)


@dataclass(frozen=True)
class Case:
    """How a table is made, `{}` being its name, and what its compaction comes to."""

    columns: str
    statements: tuple[str, ...]
    kernel: str
    files: int
    partitions: str = ""
    properties: str = "'format-version' = '2'"


# Set after the file is written: Iceberg's writer would cut it itself.
LARGE = "ALTER TABLE {} SET TBLPROPERTIES ('write.target-file-size-bytes' = '100000', 'neve.max-file-size' = '200000')"
MERGE_ON_READ = "'format-version' = '2', 'write.delete.mode' = 'merge-on-read'"
EVOLVED = (
    FILL,
    "ALTER TABLE {} ADD COLUMN more INT",
    "ALTER TABLE {} RENAME COLUMN text TO words",
    FILL.replace(" FROM", ", int(id) FROM"),
)
CASES = {
    "partitioned, copied": Case(FLAT, THREE, "copy", 2, partitions="PARTITIONED BY (shop)"),
    "partitioned, re-encoded": Case(FLAT, THREE, "arrow", 2, partitions="PARTITIONED BY (bucket(2, id))"),
    "partitioned, by Spark": Case(FLAT, THREE, "spark", 2, partitions="PARTITIONED BY (shop)"),
    "nested": Case(NESTED, (FILL_NESTED,) * 3, "arrow", 1),
    "evolved": Case(FLAT, EVOLVED, "arrow", 1),
    "position deletes": Case(FLAT, (*THREE, "DELETE FROM {} WHERE id % 10 = 3"), "spark", 1, properties=MERGE_ON_READ),
    "large files": Case(FLAT, (FILL.replace("6000", "12000"), LARGE), "arrow", 4),
    "object storage layout": Case(FLAT, THREE, "arrow", 1, properties="'write.object-storage.enabled' = 'true'"),
    "data elsewhere": Case(FLAT, THREE, "copy", 1, properties="'write.data.path' = '{elsewhere}'"),
}


@pytest.fixture(scope="module")
def settings(rest: RestEndpoint, s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("core-on-s3")
    return write_settings(directory, at_rest(rest), s3)


@pytest.fixture(scope="module")
def driver(settings: Path, s3: S3Endpoint) -> Iterator[Driver]:
    with Driver(settings, s3) as started:
        yield started


@dataclass(frozen=True)
class Lake:
    """A namespace of its own, and what can be done to the tables in it."""

    driver: Driver
    rest: RestEndpoint
    s3: S3Endpoint
    namespace: str

    @property
    def elsewhere(self) -> str:
        return f"s3://{self.s3.bucket}/elsewhere/{self.namespace}"

    def make(self, case: Case) -> Table:
        properties = case.properties.format(elsewhere=self.elsewhere)
        name = f"lake.{self.namespace}.t"
        self.driver.sql(f"CREATE TABLE {name} ({case.columns}) USING iceberg {case.partitions} TBLPROPERTIES ({properties})")
        for number, statement in enumerate(case.statements):
            self.driver.sql(statement.format(name, first=6000 * number))
        return load_catalog("lake", **self.rest.properties()).load_table(f"{self.namespace}.t")

    def compact(self, kernel: str | None) -> dict[str, Any]:
        answered: dict[str, Any] = self.driver.ask("compact", table=f"{self.namespace}.t", kernel=kernel)
        return answered

    def strays(self, table: Table) -> set[str]:
        """Files that neither a snapshot nor the quarantine knows, and uploads that were begun and not ended."""
        places = (f"{table.location()}/data", self.elsewhere)
        lying = {path for place in places for path in objects(self.s3, place) | uploads(self.s3, place)}
        return lying - referenced(table) - set(self.driver.ask("quarantined", table=f"{self.namespace}.t"))


@pytest.fixture
def lake(driver: Driver, rest: RestEndpoint, s3: S3Endpoint) -> Lake:
    namespace = f"core_{uuid4().hex[:12]}"
    driver.sql(f"CREATE NAMESPACE lake.{namespace}")
    return Lake(driver, rest, s3, namespace)


@pytest.mark.parametrize("name", CASES)
def test_a_table_reads_the_same_after_compaction_and_leaves_nothing_behind(name: str, lake: Lake) -> None:
    case = CASES[name]
    table = lake.make(case)
    before, old = pyiceberg_rows(table), {file.file_path for file in data_files(table)}
    record = lake.compact(case.kernel)
    assert (record.get("outcome"), set(record.get("kernels", ()))) == ("done", {case.kernel}), record
    new = {file.file_path for file in data_files(table.refresh())}
    assert len(new) == case.files
    assert not new & old
    assert pyiceberg_rows(table) == before
    assert lake.strays(table) == set()
    home = lake.elsewhere if name == "data elsewhere" else f"{table.location()}/data"
    assert {path.startswith(f"{home}/") for path in new} == {True}


def spoil(s3: S3Endpoint, path: str) -> bytes:
    """Breaks the pages of a file on S3, leaving size and footer as they are; returns what it was."""
    place = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
    with closing(client(s3)) as asked:
        whole: bytes = asked.get_object(**place)["Body"].read()
        asked.put_object(**place, Body=whole[:100] + bytes(len(whole) // 2) + whole[100 + len(whole) // 2 :])
    return whole


def mend(s3: S3Endpoint, path: str, whole: bytes) -> None:
    bucket, _, key = path.removeprefix("s3://").partition("/")
    with closing(client(s3)) as asked:
        asked.put_object(Bucket=bucket, Key=key, Body=whole)


@pytest.mark.parametrize("kernel", ["arrow", "spark"])
def test_a_group_that_fails_leaves_no_file_and_does_not_hold_up_the_others(kernel: str, lake: Lake) -> None:
    table = lake.make(CASES["partitioned, copied"])
    before = pyiceberg_rows(table)
    bad = sorted(file.file_path for file in data_files(table) if "shop=s1" in file.file_path)[-1]
    whole = spoil(lake.s3, bad)
    record = lake.compact(kernel)
    mend(lake.s3, bad, whole)
    assert record.get("outcome") == "partly-done", record
    assert {group["partition"]: group["state"] for group in record["groups"]} == {"shop=s0": "committed", "shop=s1": "failed"}
    assert len(data_files(table.refresh())) == 1 + 3
    assert pyiceberg_rows(table) == before
    assert lake.strays(table) == set()


@pytest.mark.parametrize(("at", "landed"), [("written:before", 0), ("rewrite:after", 2)])
def test_a_killed_run_is_resumed_by_another_process(at: str, landed: int, lake: Lake, settings: Path, s3: S3Endpoint) -> None:
    table = lake.make(CASES["partitioned, copied"])
    before = pyiceberg_rows(table)
    with Driver(settings, s3) as victim:
        victim.compact_and_die(at, table=f"{lake.namespace}.t")
    (record,) = lake.driver.ask("resume")
    assert record["outcome"] == "done"
    reasons = [group["reason"] for group in record["groups"]]
    assert reasons.count("committed before the run was interrupted") == landed
    assert len(data_files(table.refresh())) == 2
    assert pyiceberg_rows(table) == before
    assert lake.strays(table) == set()
