"""What the tasks of a caller's session need to know of its storage: Iceberg's Java properties in the words of
`neve.storage.files`.

Called by `callers`; pure. Where something cannot be said in those words, the reason stands under `REFUSAL` instead: then Spark
rewrites the files itself, with everything that the session knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neve.storage.files import REFUSAL
from neve.table.location import address

_HADOOP = "org.apache.iceberg.hadoop.HadoopFileIO"
_S3 = "org.apache.iceberg.aws.s3.S3FileIO"
_ASSUME_ROLE = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"

_SAME_MEANING = {
    "s3.endpoint": "s3.endpoint",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "s3.session-token": "s3.session-token",
    "client.region": "s3.region",
    "client.assume-role.arn": "s3.role-arn",
    "client.assume-role.region": "s3.region",
}
_HARMLESS = (
    "s3.path-style-access",  # pyarrow puts the bucket into the path wherever an endpoint is set
    "s3.session-token-expires-at-ms",
    "s3.checksum-enabled",
    "s3.crt.",
    "s3.delete-enabled",
    "s3.delete.batch-size",
    "s3.delete.num-threads",
    "s3.multipart.",
    "s3.preload-client-enabled",
    "s3.remote-signing-enabled",
    "s3.retry.",
    "s3.staging-dir",
    "client.assume-role.session-name",
    "client.assume-role.timeout-sec",
    "client.refresh-credentials-",
)
"""Speed, retries and room, which are ours to choose in a task; remote signing is looked at by its value."""


def task_storage(
    io_class: str, properties: Mapping[str, str], *, locations: Iterable[str], default_filesystem: str
) -> dict[str, str]:
    """For tables whose files this FileIO reads and writes at these locations."""
    if io_class == _S3:
        return _s3(properties)
    if io_class != _HADOOP:
        return {REFUSAL: f"the session reads files by {io_class.rpartition('.')[2]}, which tasks cannot"}
    away = next((where for where in locations if not _is_local(where, default_filesystem)), None)
    return {REFUSAL: f"the session reads {away} through Hadoop, whose credentials tasks do not have"} if away else {}


def _s3(properties: Mapping[str, str]) -> dict[str, str]:
    foreign = next((key for key, value in sorted(properties.items()) if _is_foreign(key, value)), None)
    if foreign is not None:
        return {REFUSAL: f"the session's storage property {foreign} means nothing to tasks"}
    return {_SAME_MEANING[key]: value for key, value in properties.items() if key in _SAME_MEANING}


def _is_foreign(key: str, value: str) -> bool:
    """Whether a property changes how files are reached or written, in a way that tasks would not follow."""
    if not key.startswith(("s3.", "client.")):
        return False
    if key == "client.factory":
        return value != _ASSUME_ROLE
    if key == "s3.remote-signing-enabled":
        return value.lower() == "true"
    return key not in _SAME_MEANING and not key.startswith(_HARMLESS)


def _is_local(location: str, default_filesystem: str) -> bool:
    """Hadoop looks a path without a scheme up in its default file system."""
    return address(location if address(location).scheme else default_filesystem).kind == "file"
