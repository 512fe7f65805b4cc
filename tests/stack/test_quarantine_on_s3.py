"""The quarantine on a real S3 server: moves are copies that are looked at, deletes go together, versions are found again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from neve.errors import AccessDeniedError, NeveError
from neve.maintenance.quarantine import Fate, StoredFile
from neve.maintenance.record import Operation
from neve.operations.quarantine import purge, restore, settle
from neve.operations.quarantine_moves import Moving, QuarantineRequest
from neve.rewrite.record import RunOutcome
from neve.state import StateStore
from neve.storage.moves import StoredFiles
from neve.storage.s3 import S3Files
from stack.endpoints import S3Endpoint
from stack.servers.s3 import client
from tests.builders.fake_quarantines import DAY, TABLE, World, proof

pytestmark = pytest.mark.stack


class Bucket:
    """A bucket of its own on the test server, seen past the code under test."""

    def __init__(self, s3: S3Endpoint, *, versioned: bool) -> None:
        self.name = f"quarantine-{uuid4().hex[:8]}"
        self.s3, self.plain = s3, client(s3)
        self.plain.create_bucket(Bucket=self.name)
        if versioned:
            self.plain.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        self.location = f"s3://{self.name}/db/t"
        self.files = StoredFiles(self.properties)

    @property
    def properties(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.s3.endpoint,
            "s3.region": self.s3.region,
            "s3.access-key-id": self.s3.access_key,
            "s3.secret-access-key": self.s3.secret_key,
        }

    def put(self, *names: str, size: int = 100) -> list[str]:
        for name in names:
            self.plain.put_object(Bucket=self.name, Key=f"db/t/{name}", Body=(name.encode() * size)[:size])
        return [f"{self.location}/{name}" for name in names]

    def seen(self, *paths: str) -> dict[str, StoredFile]:
        return {path: found for path, found in zip(paths, self.files.stat(paths), strict=True) if found is not None}

    def keys(self) -> list[str]:
        pages = self.plain.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return sorted(found["Key"].removeprefix("db/t/") for page in pages for found in page.get("Contents", []))


@pytest.fixture
def bucket(s3: S3Endpoint) -> Iterator[Bucket]:
    made = Bucket(s3, versioned=False)
    with closing(made.plain):
        yield made


@pytest.fixture
def versioned(s3: S3Endpoint) -> Iterator[Bucket]:
    made = Bucket(s3, versioned=True)
    with closing(made.plain):
        yield made


@pytest.fixture
def world() -> Iterator[World]:
    with StateStore.open("sqlite://") as store:
        yield World(store)


def moving(world: World, bucket: Bucket, operation: Operation) -> Moving:
    return world.moving(operation, QuarantineRequest(TABLE, world.uuid, bucket.location, run_id="run1"), bucket.files)


NAMES = ("data/a", "data/day=2024-02-29/b c", "data/100%25", "data/a#b", "data/über", "data/x+y")


def test_files_go_to_the_trash_come_back_go_again_and_are_purged(bucket: Bucket, world: World) -> None:
    paths = bucket.put(*NAMES)
    (needed,) = bucket.put("data/needed")
    world.record(*paths, needed, f"{bucket.location}/data/gone")
    world.reach.all = {needed}
    done = settle(moving(world, bucket, Operation.SETTLE), grace_seconds=86_400, at_once=True)
    assert (done.outcome, done.files, done.needed, done.missing) == (RunOutcome.DONE, len(NAMES), 1, 1)
    # Nothing else is there: no empty object stands for a directory that lost its last file.
    assert bucket.keys() == sorted([*(f".neve-trash/run1/{name}" for name in NAMES), "data/needed"])

    assert restore(moving(world, bucket, Operation.RESTORE)).files == len(NAMES)
    assert bucket.keys() == sorted([*NAMES, "data/needed"])
    got = bucket.plain.get_object(Bucket=bucket.name, Key="db/t/data/a")["Body"].read()
    assert got == (b"data/a" * 100)[:100]

    world.record(*paths)
    settle(moving(world, bucket, Operation.SETTLE), grace_seconds=86_400, at_once=True)
    world.clock.ms += 8 * DAY
    assert purge(moving(world, bucket, Operation.PURGE), keep_seconds=7 * 86_400, rate=4).files == len(NAMES)
    assert bucket.keys() == ["data/needed"]


def test_without_a_proof_nothing_is_moved_or_deleted(bucket: Bucket) -> None:
    a, b = bucket.put("a", "b")
    s3 = S3Files(bucket.properties)
    with pytest.raises(NeveError, match=rf"^Cannot remove {a}: nobody has checked"):
        s3.delete([b, a], proof(b))
    with pytest.raises(NeveError, match=rf"^Cannot remove {a}: nobody has checked"):
        s3.move([(a, f"{a}2")], proof(b), {})
    with pytest.raises(NeveError, match=rf"^Cannot put {a} back: it is in no trash directory$"):
        s3.put_back([(a, f"{a}2")])
    assert bucket.keys() == ["a", "b"]


def test_a_move_overwrites_nothing_and_tells_what_is_missing(bucket: Bucket) -> None:
    a, taken = bucket.put("a", "taken")
    gone = f"{bucket.location}/gone"
    seen = {**bucket.seen(a), gone: StoredFile(1, 0)}
    assert bucket.files.move([(a, taken), (gone, f"{gone}2")], proof(a, gone), seen) == {
        a: f"Cannot move {a}: there is a file at {taken}",
        gone: f"Cannot move {gone}: it is not there",
    }
    assert bucket.keys() == ["a", "taken"]


def test_the_original_stays_where_the_copy_came_out_different(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    (a,) = bucket.put("a")

    def damage(self: S3Files, source: str, target: str, head: Any) -> None:  # noqa: ARG001
        bucket.put("b", size=99)

    monkeypatch.setattr(S3Files, "_copy", damage)
    target = f"{bucket.location}/b"
    failures = bucket.files.move([(a, target)], proof(a), bucket.seen(a))
    assert failures == {a: f"Cannot move {a}: its copy {target} came out different"}
    assert bucket.keys() == ["a"]


def test_an_object_that_is_written_again_before_or_during_its_move_stays(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    (a,) = bucket.put("a")
    target, before = f"{bucket.location}/.neve-trash/r/a", bucket.seen(a)
    bucket.put("a", size=99)
    why = {a: f"Cannot move {a}: it was written again since it was checked"}
    assert bucket.files.move([(a, target)], proof(a), before) == why
    copy = S3Files._copy

    def rewritten(self: S3Files, source: str, target: str, head: Any) -> None:
        copy(self, source, target, head)
        bucket.put("a", size=98)

    monkeypatch.setattr(S3Files, "_copy", rewritten)
    assert bucket.files.move([(a, target)], proof(a), bucket.seen(a)) == why
    assert bucket.keys() == ["a"]


def test_a_file_that_was_uploaded_in_parts_is_moved_although_its_etag_changes(bucket: Bucket) -> None:
    place = {"Bucket": bucket.name, "Key": "db/t/parts"}
    upload = bucket.plain.create_multipart_upload(**place)["UploadId"]
    sizes = (5 * 1024**2, 10)
    parts = [
        bucket.plain.upload_part(**place, UploadId=upload, PartNumber=n, Body=b"x" * size)["ETag"]
        for n, size in enumerate(sizes, 1)
    ]
    told = {"Parts": [{"ETag": etag, "PartNumber": n} for n, etag in enumerate(parts, 1)]}
    bucket.plain.complete_multipart_upload(**place, UploadId=upload, MultipartUpload=told)
    source, target = f"{bucket.location}/parts", f"{bucket.location}/.neve-trash/r/parts"
    assert bucket.files.move([(source, target)], proof(source), bucket.seen(source)) == {}
    assert [found and found.size_bytes for found in bucket.files.stat([source, target])] == [None, sum(sizes)]


def test_thousands_of_files_are_deleted_with_few_requests(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = bucket.put(*(f"data/{n}" for n in range(30)))
    monkeypatch.setattr("neve.storage.s3._DELETES", 12)
    s3 = bucket.files._s3
    calls: list[int] = []
    real = s3._client.delete_objects  # type: ignore[attr-defined]

    def counting(**words: Any) -> Any:
        calls.append(len(words["Delete"]["Objects"]))
        return real(**words)

    monkeypatch.setattr(s3._client, "delete_objects", counting)  # type: ignore[attr-defined]
    doomed = [*paths, f"{bucket.location}/gone"]
    assert bucket.files.delete(doomed, proof(*doomed)) == {}
    assert (sorted(calls), bucket.keys()) == ([7, 12, 12], [])


def test_versions_are_seen_and_what_was_deleted_is_found_again(bucket: Bucket, versioned: Bucket, world: World) -> None:
    assert not bucket.files.keeps_versions(bucket.location)
    assert versioned.files.keeps_versions(versioned.location)
    paths = versioned.put("data/a", "data/ab")
    world.record(*paths)
    done = settle(moving(world, versioned, Operation.SETTLE), grace_seconds=86_400, at_once=True, delete=True)
    assert (done.files, versioned.keys()) == (2, [])
    assert set(world.fates().values()) == {Fate.TRASHED}
    assert restore(moving(world, versioned, Operation.RESTORE)).files == 2
    assert versioned.keys() == ["data/a", "data/ab"]
    assert versioned.files.undelete([paths[0]]) == {
        paths[0]: f"Cannot restore {paths[0]}: its bucket keeps no version of it that was deleted"
    }


def test_a_wrong_secret_is_access_denied(bucket: Bucket) -> None:
    wrong = StoredFiles({**bucket.properties, "s3.secret-access-key": "wrong"})
    with pytest.raises(AccessDeniedError, match=r"^Cannot look at s3://"):
        wrong.stat([f"{bucket.location}/a"])
    failures = wrong.delete([f"{bucket.location}/a"], proof(f"{bucket.location}/a"))
    assert "access denied" in failures[f"{bucket.location}/a"]
