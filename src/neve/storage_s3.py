"""Whole objects on S3 by boto3: sizes, moves, deletes by the thousand, older versions. Called by `storage_moves`.

An object moves by a copy inside the store; the original goes only after the copy has the same size and, where they can be
compared, the same ETag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import Any, TypeVar

from neve.core.units import GIB
from neve.errors import AccessDeniedError, BadRequestError, MissingExtraError, NeveError, StorageError
from neve.storage import key_of, unsupported

_T = TypeVar("_T")
_R = TypeVar("_R")

_THREADS = 16
_DELETES = 1000
"""As many objects go with one request."""
_LARGE = 5 * GIB
"""What is larger is only copied in parts."""
_MISSING = ("404", "NoSuchKey", "NotFound")
_DENIED = ("401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")


class S3Files:
    """Objects by location; made from storage properties in pyiceberg's spelling."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        if (key := unsupported(properties)) is not None:
            raise BadRequestError(f"Cannot move files on S3: the storage property {key} is not implemented for that")
        self._client = _connect(properties)
        self._versioned: dict[str, bool] = {}

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each; None where there is no such object."""
        heads = _at_once(self._head, paths)
        return [None if head is None else int(head["ContentLength"]) for head in heads]

    def move(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Copies, compares and deletes; overwrites nothing."""
        return self._tried(lambda move: self._move(*move), moves, [source for source, _ in moves])

    def delete(self, paths: Sequence[str]) -> dict[str, str]:
        """Removes objects, a thousand with each request."""
        failures: dict[str, str] = {}
        places = sorted((*_place(path), path) for path in paths)
        for bucket, ours in groupby(places, key=lambda place: place[0]):
            by_key = {key: path for _, key, path in ours}
            for start in range(0, len(by_key), _DELETES):
                keys = list(by_key)[start : start + _DELETES]
                failures |= {by_key[key]: why for key, why in self._delete(bucket, keys).items()}
        return failures

    def keeps_versions(self, path: str) -> bool:
        """Whether the bucket keeps what is deleted as an older version."""
        bucket, _ = _place(path)
        if bucket not in self._versioned:
            with _translated("look at the versioning of", f"bucket {bucket}"):
                self._versioned[bucket] = self._client.get_bucket_versioning(Bucket=bucket).get("Status") == "Enabled"
        return self._versioned[bucket]

    def undelete(self, paths: Sequence[str]) -> dict[str, str]:
        """Takes the marks away that deletes left, so that the newest version is seen again."""
        return self._tried(self._unmark, paths, paths)

    def lifecycle(self, path: str) -> tuple[str, str, list[Any]]:
        """The bucket and the key of a place, and the rules that the bucket treats its objects by."""
        bucket, key = _place(path)
        with _translated("look at the rules of", f"bucket {bucket}"):
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

        return {path: why for path, why in zip(paths, _at_once(tried, items), strict=True) if why is not None}

    def _head(self, path: str) -> Any:
        bucket, key = _place(path)
        with _translated("look at", path):
            try:
                return self._client.head_object(Bucket=bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in _MISSING:
                    return None
                raise

    def _move(self, source: str, target: str) -> None:
        head = self._head(source)
        if head is None:
            raise StorageError(f"Cannot move {source}: it is not there")
        if self._head(target) is not None:
            raise StorageError(f"Cannot move {source}: there is a file at {target}")
        self._copy(source, target, head)
        copy = self._head(target)
        if copy is None or not is_same(head, copy):
            self.delete([target])  # nothing was there before, so it is ours
            raise StorageError(f"Cannot move {source}: its copy {target} came out different")
        bucket, key = _place(source)
        with _translated("delete", source):
            self._client.delete_object(Bucket=bucket, Key=key)

    def _copy(self, source: str, target: str, head: Any) -> None:
        origin = dict(zip(("Bucket", "Key"), _place(source), strict=True))
        bucket, key = _place(target)
        with _translated("copy", source):
            if head["ContentLength"] > _LARGE:
                self._client.copy(origin, bucket, key)
            else:
                self._client.copy_object(Bucket=bucket, Key=key, CopySource=origin, CopySourceIfMatch=head["ETag"])

    def _delete(self, bucket: str, keys: list[str]) -> dict[str, str]:
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            with _translated("delete from", f"bucket {bucket}"):
                answer = self._client.delete_objects(Bucket=bucket, Delete=objects)
        except NeveError as error:
            return dict.fromkeys(keys, str(error))
        failed = [error for error in answer.get("Errors", ()) if error.get("Code") not in _MISSING]
        return {error["Key"]: f"{error.get('Code')}: {error.get('Message')}" for error in failed}

    def _unmark(self, path: str) -> None:
        bucket, key = _place(path)
        with _translated("restore", path):
            found = self._client.list_object_versions(Bucket=bucket, Prefix=key)
            marks = [mark for mark in found.get("DeleteMarkers", ()) if mark["Key"] == key and mark["IsLatest"]]
            if not marks:
                raise StorageError(f"Cannot restore {path}: its bucket keeps no version of it that was deleted")
            self._client.delete_object(Bucket=bucket, Key=key, VersionId=marks[0]["VersionId"])


def _at_once(act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    if not items:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="neve-s3") as pool:
        return list(pool.map(act, items))


def is_same(head: Any, copy: Any) -> bool:
    """Whether two objects have the same size and, where their ETags are hashes of the content, the same ETag. For what was
    uploaded in parts, or under a key of KMS, it is none."""
    if head["ContentLength"] != copy["ContentLength"]:
        return False
    hashes = all("-" not in one["ETag"] and one.get("ServerSideEncryption") in (None, "AES256") for one in (head, copy))
    return not hashes or head["ETag"] == copy["ETag"]


def _place(path: str) -> tuple[str, str]:
    bucket, _, key = key_of(path).partition("/")
    return bucket, key


def _connect(properties: Mapping[str, str]) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Cannot move files on S3: {error.name} is not installed", hint="Install it with: pip install 'neve[aws]'"
        ) from error
    virtual = properties.get("s3.force-virtual-addressing", "").lower() == "true"
    style = "virtual" if virtual else "path" if properties.get("s3.endpoint") else "auto"
    waits = {
        name: float(properties[key])
        for key, name in (("s3.connect-timeout", "connect_timeout"), ("s3.request-timeout", "read_timeout"))
        if key in properties
    }
    config = Config(
        s3={"addressing_style": style},
        retries={"mode": "standard", "max_attempts": 5},
        max_pool_connections=_THREADS,
        # Not every store knows the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **waits,
    )
    with _translated("use", "S3"):
        session = boto3.Session(region_name=properties.get("s3.region"), **_credentials(boto3, properties))
        return session.client("s3", endpoint_url=properties.get("s3.endpoint"), config=config)


def _credentials(boto3: Any, properties: Mapping[str, str]) -> dict[str, Any]:
    """Those that are given, as the role that is given; without either, the machine's own."""
    names = {"s3.access-key-id": "aws_access_key_id", "s3.secret-access-key": "aws_secret_access_key"}
    names["s3.session-token"] = "aws_session_token"
    given = {name: properties[key] for key, name in names.items() if key in properties}
    role = properties.get("s3.role-arn")
    if role is None:
        return given
    sts = boto3.Session(region_name=properties.get("s3.region"), **given).client("sts")
    lent = sts.assume_role(RoleArn=role, RoleSessionName="neve")["Credentials"]
    return {
        "aws_access_key_id": lent["AccessKeyId"],
        "aws_secret_access_key": lent["SecretAccessKey"],
        "aws_session_token": lent["SessionToken"],
    }


@contextmanager
def _translated(verb: str, what: str) -> Iterator[None]:
    """Turns boto3's errors into ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        text = " ".join(str(error).split())[:300]
        if code in _DENIED or isinstance(error, NoCredentialsError):
            raise AccessDeniedError(f"Cannot {verb} {what}: access denied ({text})") from error
        raise StorageError(f"Cannot {verb} {what}: {text}") from error
