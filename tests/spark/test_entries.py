"""Properties that plain Python sets in a SQL catalog, as Iceberg's Java sees them: what one writes the other goes on from."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from neve.catalogs.entries import PlainEntry
from neve.context.connection import Connection, SystemClock
from neve.ports import TableEntry
from neve.settings import CatalogSettings, load_settings
from neve.spark.table.bridge import TableBridge
from neve.spark.table.descriptions import java_class
from neve.table.state import TableName
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
KEY = "neve.lease"
PROPERTIES = {
    "previous versions": {"write.metadata.previous-versions-max": "3"},
    "gzip": {"write.metadata.compression-codec": "gzip"},
    "another directory": {"write.metadata.path": "{}/elsewhere/"},
}


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.entries")
    return Bench(spark, warehouse, "entries", f"s{next(NUMBERS)}")


def plain(bench: Bench, **properties: str) -> PlainEntry:
    found = entry_of(bench, **properties)
    assert isinstance(found, PlainEntry)
    return found


def entry_of(bench: Bench, **properties: str) -> TableEntry | None:
    described = CatalogSettings(type="sql", warehouse=str(bench.warehouse), properties=properties)
    loaded = load_settings(environ={})
    connection = Connection(loaded, {"local": described}, "local", environ={}, clock=SystemClock())
    return connection.entry(name_of(bench))


def name_of(bench: Bench) -> TableName:
    return TableName(catalog="local", namespace=(bench.namespace,), name=bench.name)


def create(bench: Bench, properties: dict[str, str], columns: str = "id BIGINT") -> None:
    given = {"format-version": "2", **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    bench.sql(f"CREATE TABLE {{}} ({columns}) USING iceberg TBLPROPERTIES ({listed})")
    bench.sql("INSERT INTO {} VALUES (1), (2)")


def location(bench: Bench) -> str:
    """The metadata file that the catalog's row names."""
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(bench.warehouse / "catalog.db")) as opened:
        return str(opened.execute(query, (bench.namespace, bench.name)).fetchone()[0])


def document(at: str) -> dict[str, Any]:
    data = Path(unquote(urlsplit(at).path)).read_bytes()
    return dict(json.loads(gzip.decompress(data) if at.endswith(".gz.metadata.json") else data))


def shape(at: str, found: dict[str, Any]) -> dict[str, Any]:
    """A metadata file without what differs between two tables: names, times and ids."""

    def name(path: str) -> str:
        return re.sub(r"-[0-9a-f-]{36}", "-id", path).replace(found["location"], "T")

    return {
        "location": name(at),
        "log": [name(entry["metadata-file"]) for entry in found["metadata-log"]],
        "times": [entry["timestamp-ms"] <= found["last-updated-ms"] for entry in found["metadata-log"]],
        "properties": {key: value.replace(found["location"], "T") for key, value in found["properties"].items()},
        "keys": set(found),
        "snapshots": len(found["snapshots"]),
    }


@pytest.mark.parametrize("kind", PROPERTIES)
def test_metadata_files_are_those_that_java_would_write(spark: SparkSession, warehouse: Path, kind: str) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.entries")
    found = []
    for is_plain in (True, False):
        bench = Bench(spark, warehouse, "entries", f"s{next(NUMBERS)}")
        home = warehouse / bench.namespace / bench.name
        create(bench, {key: value.format(home) for key, value in PROPERTIES[kind].items()})
        entry: TableEntry = plain(bench) if is_plain else TableBridge(spark, name_of(bench))
        for value in ("a", "b", "c"):
            assert entry.swap_property(KEY, entry.properties().get(KEY), value)
        assert entry.swap_property(KEY, "c", None)
        assert entry.metadata_location() == location(bench)
        found.append(shape(location(bench), document(location(bench))))
    assert found[0] == found[1]


def test_java_reads_and_commits_after_a_swap_and_a_swap_after_java(bench: Bench) -> None:
    create(bench, {})
    entry, bridge = plain(bench), TableBridge(bench.spark, name_of(bench))
    assert entry.swap_property(KEY, None, "mine")
    bridge.refresh()
    assert (bridge.properties()[KEY], bridge.metadata_location()) == ("mine", entry.metadata_location())
    assert not bridge.swap_property(KEY, None, "theirs")
    bench.sql("INSERT INTO {} VALUES (3)")
    bench.sql("ALTER TABLE {} ADD COLUMN more STRING")
    assert entry.swap_property(KEY, "mine", None)
    bench.sql("INSERT INTO {} VALUES (4, 'x')")
    assert (bench.ids(), len(bench.duckdb())) == ([1, 2, 3, 4], 4)
    assert KEY not in bench.load().properties
    versions = [entry["metadata-file"].rpartition("/")[2][:5] for entry in document(location(bench))["metadata-log"]]
    assert versions == [f"{number:05}" for number in range(len(versions))]


def test_a_commit_of_java_on_older_metadata_than_the_swap_is_refused_and_tried_again(bench: Bench) -> None:
    create(bench, {})
    bridge = TableBridge(bench.spark, name_of(bench))
    append = bridge.table.updateProperties().set("theirs", "1")
    assert plain(bench).swap_property(KEY, None, "mine")
    append.commit()
    assert {"theirs": "1", KEY: "mine"}.items() <= bench.load().properties.items()


def test_fields_that_nobody_knows_stay_as_they_are(bench: Bench) -> None:
    create(bench, {})
    at = location(bench)
    path = Path(unquote(urlsplit(at).path))
    known = document(at)
    future = {"x": [1.5, 2**60, None, "ä"], "y": {"z": True}}
    path.write_text(json.dumps({**known, "future": future, "schemas": [{**known["schemas"][0], "doc-of-tomorrow": "d"}]}))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    assert plain(bench).swap_property(KEY, None, "mine")
    after = document(location(bench))
    assert after["future"] == future
    assert after["schemas"] == [{**known["schemas"][0], "doc-of-tomorrow": "d"}]
    changed = {key for key in known if known[key] != after[key]}
    assert changed == {"properties", "metadata-log", "last-updated-ms", "schemas"}
    assert bench.ids() == [1, 2]


def test_a_file_whose_swap_was_lost_is_taken_back(bench: Bench) -> None:
    create(bench, {})
    entry, files = plain(bench), metadata_files(bench)
    from neve.catalogs.sql_entries import SqlEntries

    real, struck = SqlEntries._is_swapped, list[int]()

    def is_swapped(self: SqlEntries, *args: str) -> bool:
        if not struck:
            struck.append(1)
            bench.sql("INSERT INTO {} VALUES (3)")
        return real(self, *args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SqlEntries, "_is_swapped", is_swapped)
        assert entry.swap_property(KEY, None, "mine")
    new = metadata_files(bench) - files
    assert len(new) == 2  # of the insert and of the swap that landed
    assert bench.ids() == [1, 2, 3]


def metadata_files(bench: Bench) -> set[str]:
    directory = bench.warehouse / bench.namespace / bench.name / "metadata"
    return {path.name for path in directory.glob("*.json")} | {path.name for path in directory.glob(".*.partial")}


@pytest.mark.parametrize(
    ("properties", "table"),
    [
        ({"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}, {}),
        ({"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}, {}),
        ({}, {"encryption.key-id": "key"}),
    ],
)
def test_what_only_java_may_change_is_left_to_it(bench: Bench, properties: dict[str, str], table: dict[str, str]) -> None:
    create(bench, {})
    with bench.load().transaction() as change:
        change.set_properties(**table, unused="1")
    assert entry_of(bench, **properties) is None


def test_java_requires_no_more_than_the_uuid_for_a_change_of_properties(bench: Bench) -> None:
    """What `catalogs.rest` sends. If this fails, Iceberg has become stricter, and so must we."""
    create(bench, {})
    bridge = TableBridge(bench.spark, name_of(bench))
    base = bridge.newest("read it")
    properties = bridge.jvm.java.util.HashMap(base.properties())
    properties.put(KEY, "mine")
    changes = base.replaceProperties(properties).changes()
    requirements = java_class(bridge.jvm, "UpdateRequirements").forUpdateTable(base, changes)
    parser = java_class(bridge.jvm, "UpdateRequirementParser")
    assert [json.loads(parser.toJson(one)) for one in requirements] == [{"type": "assert-table-uuid", "uuid": bridge.uuid()}]
    update = java_class(bridge.jvm, "MetadataUpdateParser")
    assert [json.loads(update.toJson(one)) for one in changes] == [{"action": "set-properties", "updates": {KEY: "mine"}}]
