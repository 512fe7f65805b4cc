"""One behaviour suite over every catalog that can be had (implements the contract of `ports.Catalog`)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from neve.catalogs.cache import MetadataCache
from neve.errors import TableNotFoundError
from neve.operations.examine import examine
from neve.operations.inspect import read
from neve.policy.model import Policy
from neve.table.depth import Depth
from neve.table.state import TableName
from tests.builders.catalog_descriptions import Described
from tests.builders.noted_reads import reads_noted
from tests.builders.pyiceberg_tables import loaded_table

pytestmark = pytest.mark.stack

NOW_MS = time.time_ns() // 1_000_000
ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "region": ["eu"] * 10})


@pytest.fixture
def namespace(family: str, described: Described) -> str:
    """A namespace of this test's own, since servers outlive tests."""
    name = f"db_{uuid4().hex[:12]}"
    if family != "hadoop":
        described.open().client.create_namespace(name)
    return name


def named(namespace: str, table: str) -> TableName:
    return TableName(catalog="lake", namespace=(namespace,), name=table)


def register(described: Described, family: str, name: TableName, original: Table) -> None:
    """Shows the catalog the original's metadata under a name of its own."""
    if family == "hadoop":
        put_hadoop_version(described, name, original, version=1)
    else:
        described.open().client.register_table(name.identifier, original.metadata_location)


def put_hadoop_version(described: Described, name: TableName, original: Table, *, version: int) -> None:
    """A version as a hadoop catalog's writer leaves it; the hint lags one behind, as it may."""
    directory = f"{described.settings['warehouse']}/{name.namespace[0]}/{name.name}/metadata"
    with original.io.new_input(original.metadata_location).open() as source:
        content = source.read()
    files = {f"v{version}.metadata.json": content, "version-hint.text": str(max(1, version - 1)).encode()}
    for file, data in files.items():
        with original.io.new_output(f"{directory}/{file}").create(overwrite=True) as sink:
            sink.write(data)


def inspected(described: Described, name: TableName, cache: MetadataCache | None = None) -> dict[str, Any]:
    state = read(described.open(cache).open(name), Depth.FILES)
    return json.loads(examine(state, Policy(), now_ms=NOW_MS).model_dump_json())


@pytest.fixture
def expected(original: Table) -> dict[str, Any]:
    """What a look at the original through pyiceberg's own catalog gives."""
    from neve.catalogs.reader import MetadataReader

    state = read(MetadataReader(named("db", "events"), loaded_table(original), None), Depth.FILES)
    return json.loads(examine(state, Policy(), now_ms=NOW_MS).model_dump_json())


def test_the_same_table_gives_the_same_answer_apart_from_its_name(
    family: str, described: Described, namespace: str, original: Table, expected: dict[str, Any]
) -> None:
    name = named(namespace, "events")
    register(described, family, name, original)
    found = inspected(described, name)
    assert found.pop("table") == f"lake.{namespace}.events"
    expected.pop("table")
    if family == "nessie":  # keeps only the current snapshot in the metadata that it hands out, and writes that file anew
        for answer in (found, expected):
            for key in ("snapshots", "oldest_snapshot_ms", "metadata_bytes", "metadata_log_entries", "workload", "refs"):
                answer.pop(key)
            for partition in answer["partitions"]:
                for key in ("last_write_ms", "score"):
                    partition.pop(key)
    assert found == expected


def test_a_second_look_reads_no_manifest(
    family: str, described: Described, namespace: str, original: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = named(namespace, "events")
    register(described, family, name, original)
    cache = MetadataCache(tmp_path / "cache", max_bytes=10**8, ttl_seconds=3600)
    first = inspected(described, name, cache)
    opened = reads_noted(monkeypatch)
    second = inspected(described, name, cache)
    # Only a REST catalog hands out the metadata file itself, so that nothing at all is read from storage.
    assert second.pop("metadata_from_cache") == (not opened)
    assert first.pop("metadata_from_cache") is False
    assert second == first
    assert [path for path in opened if path.endswith(".avro")] == []


def test_lists_its_tables(family: str, described: Described, namespace: str, original: Table) -> None:
    register(described, family, named(namespace, "b"), original)
    register(described, family, named(namespace, "a"), original)
    listed = [str(name) for name in described.open().tables((namespace,))]
    assert listed == [f"lake.{namespace}.a", f"lake.{namespace}.b"]
    assert set(listed) <= {str(name) for name in described.open().tables()}


@pytest.mark.parametrize("table", ["nope", "no_such_namespace.t"])
def test_a_missing_table_is_a_bad_request(described: Described, namespace: str, table: str) -> None:
    *parents, last = table.split(".")
    name = TableName(catalog="lake", namespace=tuple(parents) or (namespace,), name=last)
    with pytest.raises(TableNotFoundError, match=f"Cannot load table {name}: there is no such table"):
        described.open().open(name)


def test_sees_what_was_written_a_moment_ago(family: str, described: Described, namespace: str, original: Table) -> None:
    name = named(namespace, "t")
    if family == "hadoop":  # pyiceberg writes no hadoop catalog: the commits are the original's, put there by hand
        table = original
        put_hadoop_version(described, name, original, version=1)
    else:
        table = described.open().client.create_table(name.identifier, schema=original.schema())
        table.append(ROWS)
    catalog = described.open()
    before = read(catalog.open(name), Depth.FILES)
    table.append(ROWS)
    if family == "hadoop":
        put_hadoop_version(described, name, original, version=2)
    after = read(catalog.open(name), Depth.FILES)
    assert len(after.files or ()) == len(before.files or ()) + 1
