"""Files by location, on disk and on a real S3 server: every spelling, what is not there or not allowed, what is given up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from pyarrow.fs import FileSelector, S3FileSystem

from neve.errors import AccessDeniedError, BadRequestError, StorageError
from neve.storage.files import Storage, unsupported

if TYPE_CHECKING:
    from stack.endpoints import S3Endpoint


@pytest.mark.parametrize("spelling", ["{}", "file:{}", "file://{}", "file://localhost{}"])
@pytest.mark.parametrize("name", ["plain", "day=2024-02-29", "with space", "100%25", "a#b?c", "über"])
def test_a_local_file_is_written_read_found_and_taken_back_however_it_is_spelled(
    tmp_path: Path, spelling: str, name: str
) -> None:
    path = tmp_path / name / "part.parquet"
    location, storage = spelling.format(path), Storage({})
    sink = storage.sink(location)
    sink.write(b"0123")
    sink.write(memoryview(b"4567"))
    assert not path.exists()
    sink.close()

    assert path.read_bytes() == b"01234567"
    source = storage.source(location, 8)
    assert (source.size_bytes, source.read_at(2, 3)) == (8, b"234")
    assert storage.begins_with(location.removesuffix(".parquet")) == [location]
    sink.take_back()
    sink.take_back()
    assert not path.exists()


def test_a_local_file_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    sink = Storage({}).sink(str(tmp_path / "part.parquet"))
    sink.write(b"0123")
    sink.abort()
    sink.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_sink_takes_back_a_file_that_it_has_not_completed(tmp_path: Path) -> None:
    sink = Storage({}).sink(str(tmp_path / "part.parquet"))
    sink.write(b"0123")
    sink.take_back()
    assert list(tmp_path.iterdir()) == []


def test_a_sink_that_wrote_nothing_takes_back_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "part.parquet").write_bytes(b"theirs")
    sink = Storage({}).sink(str(tmp_path / "part.parquet"))
    sink.take_back()
    assert (tmp_path / "part.parquet").read_bytes() == b"theirs"


def test_storage_has_no_way_to_delete() -> None:
    assert [name for name in dir(Storage) if re.search("delete|remove|unlink|move|purge", name)] == []


def test_a_missing_local_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"Cannot open .*gone\.parquet: No such file or directory"):
        Storage({}).source(str(tmp_path / "gone.parquet"), 8)


def test_a_local_file_in_the_way_of_a_directory_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StorageError, match=r"Cannot create .*part\.parquet"):
        Storage({}).sink(str(tmp_path / "data" / "sub" / "part.parquet"))


def test_storage_that_tasks_do_not_read_is_refused() -> None:
    with pytest.raises(BadRequestError, match="Cannot open gs://b/k: storage gs is not read by tasks") as caught:
        Storage({}).source("gs://b/k", 1)
    assert caught.value.hint == "Use the spark kernel."


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, None),
        ({"s3.endpoint": "http://x", "s3.region": "r", "s3.path-style-access": "true", "uri": "x"}, None),
        ({"s3.endpoint": "http://x", "s3.sse.type": "kms"}, "s3.sse.type"),
        ({"s3.signer": "S3V4RestSigner"}, "s3.signer"),
        ({"gcs.project-id": "p"}, "gcs.project-id"),
        ({"adls.account-name": "a"}, "adls.account-name"),
    ],
)
def test_a_storage_property_that_would_be_ignored_is_named(properties: dict[str, str], found: str | None) -> None:
    assert unsupported(properties) == found


class Bucket:
    """A bucket of its own on the test server, seen past the code under test."""

    def __init__(self, s3: S3Endpoint) -> None:
        self.name = f"storage-{uuid4().hex[:8]}"
        self.properties = {
            "s3.endpoint": s3.endpoint,
            "s3.region": s3.region,
            "s3.access-key-id": s3.access_key,
            "s3.secret-access-key": s3.secret_key,
        }
        self.plain = S3FileSystem(
            endpoint_override=s3.endpoint,
            region=s3.region,
            access_key=s3.access_key,
            secret_key=s3.secret_key,
            allow_bucket_creation=True,
        )
        self.plain.create_dir(self.name)

    def objects(self) -> list[str]:
        """The files in it."""
        found = self.plain.get_file_info(FileSelector(self.name, recursive=True))
        return sorted(entry.path.removeprefix(f"{self.name}/") for entry in found if entry.is_file)


@pytest.fixture(scope="module")
def bucket(s3: S3Endpoint) -> Bucket:
    return Bucket(s3)


@pytest.mark.stack
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
@pytest.mark.parametrize("name", ["plain", "day=2024-02-29", "with space", "100%25", "a#b"])
def test_an_object_is_written_read_found_and_taken_back(bucket: Bucket, scheme: str, name: str) -> None:
    storage, location = Storage(bucket.properties), f"{scheme}://{bucket.name}/{scheme}/{name}/part.parquet"
    sink = storage.sink(location)
    sink.write(b"0123")
    sink.write(memoryview(b"4567"))
    sink.close()

    assert f"{scheme}/{name}/part.parquet" in bucket.objects()
    source = storage.source(location, 8)
    assert (source.size_bytes, source.read_at(2, 3)) == (8, b"234")
    assert storage.begins_with(location.removesuffix(".parquet")) == [location]
    sink.take_back()
    assert f"{scheme}/{name}/part.parquet" not in bucket.objects()
    sink.take_back()


@pytest.mark.stack
def test_an_object_that_is_given_up_leaves_nothing(bucket: Bucket) -> None:
    before = bucket.objects()
    sink = Storage(bucket.properties).sink(f"s3://{bucket.name}/aborted/part.parquet")
    sink.write(b"0123" * 3_000_000)
    sink.abort()
    sink.abort()
    assert bucket.objects() == before


@pytest.mark.stack
def test_an_object_that_is_not_there_or_too_short_is_named(bucket: Bucket) -> None:
    storage, location = Storage(bucket.properties), f"s3://{bucket.name}/short.parquet"
    with pytest.raises(StorageError, match=r"Cannot read s3://.*/short\.parquet: "):
        storage.source(location, 8).read_at(0, 8)
    sink = storage.sink(location)
    sink.write(b"0123")
    sink.close()
    with pytest.raises(StorageError, match=r"Cannot read s3://.*/short\.parquet: "):
        storage.source(location, 8).read_at(0, 8)


@pytest.mark.stack
def test_a_wrong_secret_is_access_denied_and_not_worth_a_retry(bucket: Bucket) -> None:
    storage = Storage({**bucket.properties, "s3.secret-access-key": "wrong"})
    with pytest.raises(AccessDeniedError, match="access denied") as caught:
        storage.source(f"s3://{bucket.name}/any.parquet", 8).read_at(0, 8)
    assert not caught.value.retryable


@pytest.mark.stack
def test_a_server_that_is_gone_is_worth_a_retry(bucket: Bucket) -> None:
    gone = {**bucket.properties, "s3.endpoint": "http://127.0.0.1:9", "s3.connect-timeout": "1", "s3.request-timeout": "1"}
    with pytest.raises(StorageError, match="Cannot read s3://") as caught:
        Storage(gone).source(f"s3://{bucket.name}/any.parquet", 8).read_at(0, 8)
    assert caught.value.retryable
