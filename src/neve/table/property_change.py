"""A table's next metadata file, in which only properties differ. Pure; sent by `catalogs.sql_entries`.

The document is changed as plain JSON and compared with the one it came from: what we do not know stays as it is. Names, log and
compression are those that Iceberg's Java would choose (`BaseMetastoreTableOperations`, `TableMetadata.addPreviousFile`).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from neve.errors import NotUnderstoodError
from neve.table.document import KNOWN_VERSIONS, Document, decompressed, outline, read_document
from neve.table.units import whole_number

_CODEC = "write.metadata.compression-codec"
_PATH = "write.metadata.path"
_MAX_VERSIONS = "write.metadata.previous-versions-max"
_EXTENSIONS = {"none": "", "gzip": ".gz"}
_VERSION = re.compile(r"(?:.*/)?(\d{1,9})-[^/]*", re.DOTALL)
_CHANGED = ("properties", "metadata-log", "last-updated-ms")
_ENCRYPTED = ("encryption.key-id", "encryption.table-key")


@dataclass(frozen=True)
class MetadataFile:
    """A metadata file that is not written yet."""

    location: str
    document: Document
    data: bytes


def refusal(document: Mapping[str, Any], metadata_location: str) -> str | None:
    """Why this code must not write the table's next metadata file; None if it may."""
    found = outline(document, metadata_location)
    if found.format_version not in KNOWN_VERSIONS:
        return f"format version {found.format_version} is not known"
    if found.uuid is None:
        return "the table has no uuid"
    if document.get("encryption-keys") or any(key in found.properties for key in _ENCRYPTED):
        return "the table is encrypted"
    if not isinstance(document.get("last-updated-ms"), int):
        return "the metadata has no last-updated-ms"
    if (codec := found.properties.get(_CODEC, "none").lower()) not in _EXTENSIONS:
        return f"{_CODEC} is {codec}"
    if _most_versions(found.properties) is None:
        return f"{_MAX_VERSIONS} is {found.properties[_MAX_VERSIONS]}"
    return None


def with_properties(
    data: bytes, metadata_location: str, values: Mapping[str, str | None], *, now_ms: int, file_id: str
) -> MetadataFile:
    """Returns the metadata file that follows the given one. None stands for a property that is removed.

    Raises NotUnderstoodError where a value of the document would not survive.
    """
    document = read_document(data, metadata_location)
    if (reason := refusal(document, metadata_location)) is not None:
        raise _not_written(metadata_location, reason)
    properties = {**(document.get("properties") or {}), **values}
    document["properties"] = {key: value for key, value in properties.items() if value is not None}
    document["metadata-log"] = _log(document, metadata_location)
    # Iceberg refuses a table whose log is ahead of it: a clock that lags must not make one.
    document["last-updated-ms"] = max(now_ms, document["last-updated-ms"])
    extension = _EXTENSIONS[document["properties"].get(_CODEC, "none").lower()]
    name = f"{_next_version(metadata_location):05}-{file_id}{extension}.metadata.json"
    content = _written(document, data, metadata_location)
    return MetadataFile(f"{_directory(document)}/{name}", document, gzip.compress(content) if extension else content)


def _log(document: Document, metadata_location: str) -> list[Any]:
    log = [*(document.get("metadata-log") or ())]
    kept = log[max(0, len(log) - (_most_versions(document["properties"]) or 1) + 1) :]
    return [*kept, {"timestamp-ms": document["last-updated-ms"], "metadata-file": metadata_location}]


def _most_versions(properties: Mapping[str, str]) -> int | None:
    """How long the log may become; None if nobody can tell."""
    asked = properties.get(_MAX_VERSIONS, "100")
    found = whole_number(asked.removeprefix("-"))
    return None if found is None else max(1, -found if asked.startswith("-") else found)


def _next_version(metadata_location: str) -> int:
    found = _VERSION.fullmatch(metadata_location)
    return int(found[1]) + 1 if found is not None else 0


def _directory(document: Document) -> str:
    path = document["properties"].get(_PATH)
    return _without_slash(path) if path is not None else f"{_without_slash(document['location'])}/metadata"


def _without_slash(location: str) -> str:
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    return location


def _written(document: Document, before: bytes, metadata_location: str) -> bytes:
    """The document's bytes, read again to prove that nothing but the change is different: not even a digit of a number."""
    try:
        text = json.dumps(document, allow_nan=False)
        old, new = (json.loads(one, parse_float=Decimal) for one in (decompressed(before), text))
    except ValueError as error:
        raise _not_written(metadata_location, f"it is not plain JSON ({error})") from error
    if _unchanged(old) != _unchanged(new):
        raise _not_written(metadata_location, "a value in it cannot be written again as it is")
    return text.encode()


def _unchanged(document: Document) -> Document:
    return {key: value for key, value in document.items() if key not in _CHANGED}


def _not_written(metadata_location: str, reason: str) -> NotUnderstoodError:
    return NotUnderstoodError(
        f"Cannot write the metadata that follows {metadata_location}: {reason}", hint="Nothing was changed. Please report this."
    )
