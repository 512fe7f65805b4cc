"""Whole objects on S3 by boto3: sizes, moves, deletes by the thousand, older versions. Called by `storage_moves`.

An object moves by a copy inside the store; the original goes only after the copy has the same size and, where they can be
compared, the same ETag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from neve.errors import NeveError, StorageError
from neve.maintenance.quarantine import StoredFile
from neve.maintenance.removal import Unreachable, require, require_trash
from neve.storage.files import rewritten
from neve.storage.s3_objects import MISSING, S3Objects, at_once, place_of, stored, translated
from neve.table.units import GIB

_T = TypeVar("_T")
_R = TypeVar("_R")

_DELETES = 1000
"""As many objects go with one request."""
_LARGE = 5 * GIB
"""What is larger is only copied in parts."""


class S3Files(S3Objects):
    """Objects by location, which can also be moved and deleted."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._versioned: dict[str, bool] = {}

    def move(self, moves: Sequence[tuple[str, str]], proof: Unreachable, seen: Mapping[str, StoredFile]) -> dict[str, str]:
        """Copies, compares and deletes objects that are still those that were seen; overwrites nothing."""
        require(proof, (source for source, _ in moves))
        return self._tried(lambda move: self._move(*move, seen[move[0]]), moves, [source for source, _ in moves])

    def put_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """The same for objects in a trash."""
        require_trash(source for source, _ in moves)
        return self._tried(lambda move: self._move(*move), moves, [source for source, _ in moves])

    def copy_back(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Copies objects out of a trash and leaves them there as well."""
        require_trash(source for source, _ in moves)
        return self._tried(lambda move: self._copied(*move), moves, [source for source, _ in moves])

    def delete(self, paths: Sequence[str], proof: Unreachable) -> dict[str, str]:
        """Removes objects, a thousand with each request."""
        require(proof, paths)
        failures: dict[str, str] = {}
        places = sorted((*place_of(path), path) for path in paths)
        for bucket, ours in groupby(places, key=lambda place: place[0]):
            by_key = {key: path for _, key, path in ours}
            for start in range(0, len(by_key), _DELETES):
                keys = list(by_key)[start : start + _DELETES]
                failures |= {by_key[key]: why for key, why in self._delete(bucket, keys).items()}
        return failures

    def keeps_versions(self, path: str) -> bool:
        """Whether the bucket keeps what is deleted as an older version."""
        bucket, _ = place_of(path)
        if bucket not in self._versioned:
            with translated("look at the versioning of", f"bucket {bucket}"):
                self._versioned[bucket] = self._client.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
        return self._versioned[bucket]

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Takes the marks away that deletes left, so that the newest version is seen again."""
        return self._tried(self._unmark, paths, paths)

    def lifecycle(self, path: str) -> tuple[str, str, list[Any]]:
        """The bucket and the key of a place, and the rules that the bucket treats its objects by."""
        bucket, key = place_of(path)
        with translated("look at the rules of", f"bucket {bucket}"):
            try:
                found = self._client.get_bucket_lifecycle_configuration(Bucket=bucket)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                    raise
                found = {}
        return bucket, key, list(found.get("Rules", ()))

    def _tried(self, act: Callable[[_T], None], items: Sequence[_T], paths: Sequence[str]) -> dict[str, str]:
        def tried(item: _T) -> str | None:
            try:
                act(item)
            except NeveError as error:
                return str(error)
            return None

        return {path: why for path, why in zip(paths, at_once(tried, items), strict=True) if why is not None}

    def _move(self, source: str, target: str, seen: StoredFile | None = None) -> None:
        """Checks again right before the delete: a writer may have replaced the object while it was copied."""
        copied = self._copied(source, target, seen)
        bucket, key = place_of(source)
        if not is_unchanged(copied, self._head(source)):
            self._delete(*_one(target))
            raise rewritten(source)
        with translated("delete", source):
            self._client.delete_object(Bucket=bucket, Key=key)

    def _copied(self, source: str, target: str, seen: StoredFile | None = None) -> Any:
        """Copies an object, compares the copy with it and returns the head of the original. Overwrites nothing."""
        head = self._head(source)
        if head is None:
            raise StorageError(f"Cannot move {source}: it is not there")
        if seen is not None and stored(head) != seen:
            raise rewritten(source)
        if self._head(target) is not None:
            raise StorageError(f"Cannot move {source}: there is a file at {target}")
        self._copy(source, target, head)
        copy = self._head(target)
        if copy is None or not is_same(head, copy):
            self._delete(*_one(target))  # nothing was there before, so it is ours
            raise StorageError(f"Cannot move {source}: its copy {target} came out different")
        return head

    def _copy(self, source: str, target: str, head: Any) -> None:
        origin = dict(zip(("Bucket", "Key"), place_of(source), strict=True))
        bucket, key = place_of(target)
        with translated("copy", source):
            if head["ContentLength"] > _LARGE:
                self._client.copy(origin, bucket, key)
            else:
                self._client.copy_object(Bucket=bucket, Key=key, CopySource=origin, CopySourceIfMatch=head["ETag"])

    def _delete(self, bucket: str, keys: list[str]) -> dict[str, str]:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            with translated("delete from", f"bucket {bucket}"):
                answer = self._client.delete_objects(Bucket=bucket, Delete=objects)
        except NeveError as error:
            return dict.fromkeys(keys, str(error))
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") not in MISSING]
        return {error["Key"]: f"{error.get('Code')}: {error.get('Message')}" for error in failed}

    def _unmark(self, path: str) -> None:
        bucket, key = place_of(path)
        with translated("restore", path):
            found = self._client.list_object_versions(Bucket=bucket, Prefix=key)
            marks = [mark for mark in found.get("DeleteMarkers", ()) if mark["Key"] == key and mark["IsLatest"]]
            if not marks:
                raise StorageError(f"Cannot restore {path}: its bucket keeps no version of it that was deleted")
            self._client.delete_object(Bucket=bucket, Key=key, VersionId=marks[0]["VersionId"])


def is_unchanged(before: Any, now: Any) -> bool:
    """Whether nobody has written or deleted an object between two HEADs."""
    return now is not None and all(before[key] == now[key] for key in ("ETag", "ContentLength", "LastModified"))


def _one(path: str) -> tuple[str, list[str]]:
    bucket, key = place_of(path)
    return bucket, [key]


def is_same(head: Any, copy: Any) -> bool:
    """Whether two objects have the same size and, where their ETags are hashes of the content, the same ETag. For what was
    uploaded in parts, or under a key of KMS, it is none."""
    if head["ContentLength"] != copy["ContentLength"]:
        return False
    hashes = all("-" not in one["ETag"] and one.get("ServerSideEncryption") in (None, "AES256") for one in (head, copy))
    return not hashes or head["ETag"] == copy["ETag"]
