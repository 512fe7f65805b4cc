"""Objects on S3 by boto3, to be read: sizes and whole contents. Nothing here can remove one; `storage_s3` builds on it.

Called by `catalogs.file_io` for keys that Arrow cannot name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from neve.errors import AccessDeniedError, BadRequestError, MissingExtraError, StorageError
from neve.kernels.request_counts import Kind, count
from neve.maintenance.quarantine import StoredFile
from neve.outage import denial, outage
from neve.storage.files import unreachable_storage, unsupported
from neve.table.location import address

_T = TypeVar("_T")
_R = TypeVar("_R")

_THREADS = 16
MISSING = ("404", "NoSuchKey", "NotFound")
_DENIED = ("401", "403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")


class S3Objects:
    """Objects by location; made from storage properties in pyiceberg's spelling."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        if (key := unsupported(properties)) is not None:
            raise BadRequestError(f"Cannot use objects on S3: the storage property {key} is not implemented for that")
        self._client = connect(properties)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each; None where there is no such object."""
        heads = at_once(self._head, paths)
        return [None if head is None else int(head["ContentLength"]) for head in heads]

    def stat(self, paths: Sequence[str]) -> list[StoredFile | None]:
        """The size and time of each; None where there is no such object."""
        return [None if head is None else stored(head) for head in at_once(self._head, paths)]

    def read(self, path: str) -> bytes:
        """The whole content. Raises FileNotFoundError where there is no such object."""
        bucket, key = place_of(path)
        with translated("read", path):
            try:
                return bytes(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in MISSING:
                    raise FileNotFoundError(path) from error
                raise

    def _head(self, path: str) -> Any:
        bucket, key = place_of(path)
        with translated("look at", path):
            try:
                return self._client.head_object(Bucket=bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in MISSING:
                    return None
                raise


def stored(head: Any) -> StoredFile:
    """What the answer to a HEAD tells of an object."""
    return StoredFile(int(head["ContentLength"]), round(head["LastModified"].timestamp() * 1000))


def at_once(act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Does it for all items, several at a time."""
    if not items:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="neve-s3") as pool:
        return list(pool.map(act, items))


def place_of(path: str) -> tuple[str, str]:
    """Bucket and key of a location."""
    found = address(path)
    return found.authority, found.key


def connect(properties: Mapping[str, str]) -> Any:
    """A client of boto3."""
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Cannot use objects on S3: {error.name} is not installed", hint="Install it with: pip install 'neve[aws]'"
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
    with translated("use", "S3"):
        lent = _credentials(boto3, properties, Config(**waits))
        session = boto3.Session(region_name=properties.get("s3.region"), **lent)
        client = session.client("s3", endpoint_url=properties.get("s3.endpoint"), config=config)
    client.meta.events.register("before-send.s3", _count)
    return client


def _count(event_name: str, **_: Any) -> None:
    """Counts a request by the name of its operation, such as `before-send.s3.GetObject`."""
    operation = event_name.rpartition(".")[2]
    kinds: dict[str, Kind] = {"Get": "read", "Head": "read", "List": "list", "Delete": "delete"}
    count(next((kind for begin, kind in kinds.items() if operation.startswith(begin)), "write"))


def _credentials(boto3: Any, properties: Mapping[str, str], config: Any) -> dict[str, Any]:
    """Those that are given, as the role that is given; without either, the machine's own."""
    names = {"s3.access-key-id": "aws_access_key_id", "s3.secret-access-key": "aws_secret_access_key"}
    names["s3.session-token"] = "aws_session_token"
    given = {name: properties[key] for key, name in names.items() if key in properties}
    role = properties.get("s3.role-arn")
    if role is None:
        return given
    sts = boto3.Session(region_name=properties.get("s3.region"), **given).client("sts", config=config)
    lent = sts.assume_role(RoleArn=role, RoleSessionName="neve")["Credentials"]
    return {
        "aws_access_key_id": lent["AccessKeyId"],
        "aws_secret_access_key": lent["SecretAccessKey"],
        "aws_session_token": lent["SessionToken"],
    }


@contextmanager
def translated(verb: str, what: str) -> Iterator[None]:
    """Turns boto3's errors into ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        text = " ".join(str(error).split())[:300]
        if code in _DENIED or isinstance(error, NoCredentialsError):
            raise AccessDeniedError(f"Cannot {verb} {what}: access denied ({denial(error) or text})") from error
        if (found := outage(error)) is not None:
            raise unreachable_storage(found, what, verb) from error
        raise StorageError(f"Cannot {verb} {what}: {text}") from error
