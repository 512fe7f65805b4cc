"""A table's metadata file as plain JSON: read without a model of schemas, so that types and versions we do not know do no harm.

Used by `table.document_state`, and by whoever only asks where the files of a table are (`TableOutline`). A document that breaks
the specification is corrupt; one that merely says more than we know is not.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from neve.errors import CorruptMetadataError, NotUnderstoodError
from neve.table.frozen import Frozen

Document = dict[str, Any]

KNOWN_VERSIONS = (1, 2, 3)
FILE_NAME = re.compile(r"\.metadata\.json(\.gz)?\Z")
"""How names of metadata files end; `.gz.metadata.json` is among them."""

PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
"""Properties that tell a table's writers where to put files, besides its location."""

_COMMON = ("last-updated-ms", "last-column-id")
_SINCE_V2 = (
    *_COMMON,
    "last-sequence-number",
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "last-partition-id",
    "sort-orders",
    "default-sort-order-id",
)
_REQUIRED = {1: _COMMON, 2: _SINCE_V2, 3: _SINCE_V2}
_CHOICES = (
    ("current-schema-id", "schemas", "schema-id"),
    ("default-spec-id", "partition-specs", "spec-id"),
    ("current-snapshot-id", "snapshots", "snapshot-id"),
)
_STATISTICS = ("statistics", "partition-statistics")
_STATISTICS_PATH = "statistics-path"
_GZIP = b"\x1f\x8b"
_PRIMITIVE = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns|string|uuid|binary|unknown"
    r"|fixed\[\d+\]|decimal\(\d+,\s*\d+\)|geometry|geography"
)
_GEO = re.compile(r"(geometry|geography)\(\s*([^\s'\",][^'\",]*?)\s*(?:,\s*(\w+)\s*)?\)")


class TableOutline(Frozen):
    """Which table a metadata file belongs to, and what it names directly, as it is spelled there."""

    uuid: str | None
    """None for a table of format v1 whose writer gave it none."""
    location: str
    metadata_location: str
    format_version: int
    properties: dict[str, str] = {}
    metadata_log: tuple[str, ...] = ()
    """Earlier metadata files, oldest first."""
    manifest_lists: dict[int, str] = {}
    """By snapshot id."""
    manifests: tuple[str, ...] = ()
    """Those that snapshots of format v1 name without a list."""
    statistics: tuple[str, ...] = ()
    """Of columns and of partitions."""
    statistics_snapshots: dict[str, int] = {}
    """The snapshot of each statistics file, where the metadata says."""
    statistics_sizes: dict[str, int] = {}
    """The size in bytes of each, where the metadata says."""

    @property
    def places(self) -> tuple[str, ...]:
        """Directories that the table's writers put files into."""
        return (self.location, *(self.properties[key] for key in PATH_PROPERTIES if self.properties.get(key)))

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that the metadata names directly, itself included; data files are only named by manifests."""
        return (
            self.metadata_location,
            *self.metadata_log,
            *self.manifest_lists.values(),
            *self.manifests,
            *self.statistics,
        )


def read_document(data: bytes, metadata_location: str) -> Document:
    """Parses a metadata file, compressed or not. Raises CorruptMetadataError if it is not a JSON object."""
    try:
        found = json.loads(decompressed(data))
    except (ValueError, EOFError, OSError, RecursionError) as error:
        what = "the file is empty" if not data else f"it is not JSON ({error})"
        raise _corrupt(metadata_location, what) from error
    if not isinstance(found, dict):
        raise _corrupt(metadata_location, "it is not a JSON object")
    return found


def decompressed(data: bytes) -> bytes:
    """The JSON of a metadata file, which may be compressed whatever its name is."""
    return gzip.decompress(data) if data.startswith(_GZIP) else data


def outline(document: Mapping[str, Any], metadata_location: str) -> TableOutline:
    """What a document says of the table's files. Raises CorruptMetadataError where that is missing or malformed."""

    def must(holds: bool, what: str) -> None:
        if not holds:
            raise _corrupt(metadata_location, what)

    version, location = document.get("format-version"), document.get("location")
    must(isinstance(version, int), "it has no format-version")
    must(isinstance(location, str) and bool(location), "it has no location")
    uuid = document.get("table-uuid")
    must(isinstance(uuid, str) or (uuid is None and version == 1), "it has no table-uuid")
    lists, manifests = dict[int, str](), list[str]()
    for snapshot in _objects(document, "snapshots", metadata_location):
        number: Any = snapshot.get("snapshot-id")
        named, inline = snapshot.get("manifest-list"), snapshot.get("manifests")
        must(isinstance(number, int), "a snapshot has no snapshot-id")
        if named is None:
            must(_are_texts(inline), f"snapshot {number} has no manifest list")
            manifests += inline or ()
        else:
            must(isinstance(named, str), f"the manifest list of snapshot {number} is not a path")
            lists[number] = named
    properties = document.get("properties") or {}
    must(isinstance(properties, dict), "its properties are not a map")
    return TableOutline(
        uuid=uuid,
        location=location,
        metadata_location=metadata_location,
        format_version=version,
        properties={key: value for key, value in properties.items() if isinstance(value, str)},
        metadata_log=tuple(_named(document, "metadata-log", "metadata-file", metadata_location)),
        manifest_lists=lists,
        manifests=tuple(manifests),
        statistics=tuple(path for key in _STATISTICS for path in _named(document, key, _STATISTICS_PATH, metadata_location)),
        statistics_snapshots=_numbers(document, "snapshot-id"),
        statistics_sizes=_numbers(document, "file-size-in-bytes"),
    )


def require_valid(document: Mapping[str, Any], metadata_location: str) -> None:
    """Raises CorruptMetadataError for a document that lacks what its format version requires, or contradicts itself."""
    version = outline(document, metadata_location).format_version
    lacking = [key for key in _REQUIRED.get(version, ()) if document.get(key) is None]
    if lacking:
        raise _corrupt(metadata_location, f"it has no {lacking[0]}")
    for chosen, key, name in _CHOICES:
        known = [item.get(name) for item in _objects(document, key, metadata_location)]
        if known and document.get(chosen) not in (None, -1, *known):
            raise _corrupt(metadata_location, f"its {chosen} {document[chosen]} is not among its {key}")


def not_understood(table: str, error: Exception) -> NotUnderstoodError:
    """The error for a valid document that cannot be parsed all the same."""
    return _not_understood(table, " ".join(f"{type(error).__name__}: {error}".split())[:300])


def newer_version(table: str, document: Mapping[str, Any]) -> NotUnderstoodError:
    """The error for a format version that we do not know."""
    return _not_understood(table, f"format version {document.get('format-version')} is newer than this Neve")


def _not_understood(table: str, what: str) -> NotUnderstoodError:
    return NotUnderstoodError(
        f"Cannot read table {table}: {what}",
        hint="The metadata is not corrupt, but uses something that this version does not know. Upgrade Neve; other tables of "
        "the catalog are not affected.",
    )


def is_known(kind: str) -> bool:
    """Whether it names a primitive type of format v1 to v3."""
    return _PRIMITIVE.fullmatch(kind) is not None or _GEO.fullmatch(kind) is not None


def _objects(document: Mapping[str, Any], key: str, metadata_location: str) -> list[Document]:
    found = document.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _corrupt(metadata_location, f"its {key} are not a list of objects")
    return found


def _named(document: Mapping[str, Any], key: str, name: str, metadata_location: str) -> Iterator[str]:
    for item in _objects(document, key, metadata_location):
        if not isinstance(path := item.get(name), str):
            raise _corrupt(metadata_location, f"an entry of its {key} has no {name}")
        yield path


def _numbers(document: Mapping[str, Any], name: str) -> dict[str, int]:
    """A number of each statistics file by its path, where there is one."""
    files = [file for key in _STATISTICS for file in document.get(key) or ()]
    return {file[_STATISTICS_PATH]: file[name] for file in files if isinstance(file.get(name), int)}


def _are_texts(found: Any) -> TypeGuard[list[str]]:
    return isinstance(found, list) and all(isinstance(item, str) for item in found)


def _corrupt(metadata_location: str, what: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Cannot read metadata {metadata_location}: {what}",
        hint="The file is damaged. Register the newest undamaged metadata file of the table, or drop the table's entry.",
    )
