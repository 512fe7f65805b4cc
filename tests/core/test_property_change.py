"""The metadata file that follows a change of properties: named as Iceberg's Java names it, and otherwise unchanged."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from neve.errors import NotUnderstoodError
from neve.table.property_change import MetadataFile, refusal, with_properties

BEFORE = "s3://b/t/metadata/00041-aaaa.metadata.json"
NOW = 2_000


def document(**changes: Any) -> dict[str, Any]:
    found = {
        "format-version": 2,
        "table-uuid": "u",
        "location": "s3://b/t",
        "last-updated-ms": 1_000,
        "last-column-id": 1,
        "properties": {"a": "1"},
        "snapshots": [],
        "metadata-log": [],
    }
    return {**found, **changes}


def changed(found: dict[str, Any] | str, values: dict[str, str | None] | None = None, at: str = BEFORE) -> MetadataFile:
    text = found if isinstance(found, str) else json.dumps(found)
    return with_properties(text.encode(), at, values or {}, now_ms=NOW, file_id="id")


def test_properties_are_set_and_removed_and_the_log_names_the_file_before() -> None:
    file = changed(document(properties={"a": "1", "b": "2"}), {"a": None, "c": "3", "nothing": None})
    assert json.loads(file.data) == file.document
    assert file.document == document(
        properties={"b": "2", "c": "3"},
        **{"last-updated-ms": NOW, "metadata-log": [{"timestamp-ms": 1_000, "metadata-file": BEFORE}]},
    )
    assert file.location == "s3://b/t/metadata/00042-id.metadata.json"


def test_what_nobody_knows_stays_to_the_last_digit() -> None:
    unknown = {
        "big": 2**70,
        "float": 1.5e300,
        "zero": -0.0,
        "text": "ä\ud800\u2028",
        "null": None,
        "deep": [[{"x": [True, 1]}]],
    }
    old = json.dumps(document(future=unknown)).replace("1.5e+300", "1.50E300")
    new = json.loads(changed(old, {"c": "3"}).data)
    assert (new["future"], list(new)) == (unknown, list(json.loads(old)))


@pytest.mark.parametrize("value", ["0.1234567890123456789012", "1e999", "NaN"])
def test_a_number_that_would_not_survive_is_refused(value: str) -> None:
    text = json.dumps(document(future="VALUE")).replace('"VALUE"', value)
    with pytest.raises(NotUnderstoodError, match=f"^Cannot write the metadata that follows {BEFORE}: "):
        changed(text)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("/w/t/metadata/00009-x.metadata.json", "00010-id"),
        ("/w/t/metadata/99999-x.metadata.json", "100000-id"),
        ("/w/t/metadata/v7.metadata.json", "00000-id"),
        ("/w/t/metadata/v7-x.metadata.json", "00000-id"),
        ("7-x.metadata.json", "00008-id"),
    ],
)
def test_versions_are_counted_as_java_counts_them(before: str, name: str) -> None:
    assert changed(document(), at=before).location == f"s3://b/t/metadata/{name}.metadata.json"


@pytest.mark.parametrize(
    ("location", "path", "directory"),
    [
        ("s3://b/t///", None, "s3://b/t/metadata"),
        ("s3://b/t", "s3://other/m/", "s3://other/m"),
        ("file:///w/t", None, "file:///w/t/metadata"),
    ],
)
def test_the_file_goes_to_where_the_table_keeps_metadata(location: str, path: str | None, directory: str) -> None:
    properties = {} if path is None else {"write.metadata.path": path}
    file = changed(document(location=location, properties=properties))
    assert file.location == f"{directory}/00042-id.metadata.json"
    assert file.document["location"] == location


@pytest.mark.parametrize(("most", "kept"), [(None, 99), ("3", 2), ("1", 0), ("0", 0), ("-5", 0), ("101", 100)])
def test_the_log_is_as_long_as_the_table_says(most: str | None, kept: int) -> None:
    log = [{"timestamp-ms": n, "metadata-file": f"m{n}"} for n in range(100)]
    properties = {} if most is None else {"write.metadata.previous-versions-max": most}
    found = changed(document(properties=properties, **{"metadata-log": log})).document["metadata-log"]
    assert found == [*log[100 - kept :], {"timestamp-ms": 1_000, "metadata-file": BEFORE}]


def test_a_compressed_file_is_read_and_one_is_written_where_the_table_says_so() -> None:
    codec = {"write.metadata.compression-codec": "GZIP"}
    file = with_properties(gzip.compress(json.dumps(document()).encode()), BEFORE, codec, now_ms=NOW, file_id="id")
    assert file.location.endswith("/00042-id.gz.metadata.json")
    assert json.loads(gzip.decompress(file.data))["properties"] == {"a": "1", **codec}


def test_a_clock_that_lags_does_not_set_the_table_back() -> None:
    assert changed(document(**{"last-updated-ms": 5_000})).document["last-updated-ms"] == 5_000


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"format-version": 4}, "format version 4 is not known"),
        ({"format-version": 1, "table-uuid": None}, "the table has no uuid"),
        ({"encryption-keys": [{"key-id": "k"}]}, "the table is encrypted"),
        ({"properties": {"encryption.key-id": "k"}}, "the table is encrypted"),
        ({"last-updated-ms": None}, "the metadata has no last-updated-ms"),
        ({"properties": {"write.metadata.compression-codec": "zstd"}}, "write.metadata.compression-codec is zstd"),
        ({"properties": {"write.metadata.previous-versions-max": "x"}}, "write.metadata.previous-versions-max is x"),
    ],
)
def test_a_table_that_only_java_may_change_is_refused(odd: dict[str, Any], reason: str) -> None:
    assert refusal(document(**odd), BEFORE) == reason
    with pytest.raises(NotUnderstoodError, match=f": {reason}$"):
        changed(document(**odd))
