"""A directory of tables, as Spark's `hadoop` catalog lays it out: read freely, written by one process only.

pyiceberg has no such catalog. The current version is found as Iceberg finds it: the hint is best effort, so the versions after
it are tried one by one. Commits go through Spark; `refuse_commits` says when even that is unsafe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable, Table

from neve.catalogs.errors import reading
from neve.catalogs.storage import scheme
from neve.errors import BadRequestError
from neve.settings.catalog import CatalogSettings

_SUFFIXES = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_NAME = re.compile(r"v(\d+)(\.gz\.metadata\.json|\.metadata\.json(\.gz)?)")


class HadoopCatalog:
    """The reading part of a catalog over a directory; the names follow pyiceberg's catalogs."""

    def __init__(self, name: str, **properties: str) -> None:
        self.name = name
        self.properties = properties
        self._root = properties["warehouse"].rstrip("/")
        self._io: FileIO = load_file_io(properties, self._root)

    def load_table(self, identifier: tuple[str, ...]) -> Table:
        """Opens the newest version."""
        location = "/".join((self._root, *identifier))
        with reading(location):
            metadata = self._newest(f"{location}/metadata")
        if metadata is None:
            raise NoSuchTableError(f"no metadata under {location}")
        document = FromInputFile.table_metadata(self._io.new_input(metadata))
        io = load_file_io({**self.properties, **document.properties}, metadata)
        return StaticTable(("static-table", metadata), document, metadata, io, NoopCatalog("static-table"))

    def list_namespaces(self, namespace: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """Directories that hold no table themselves."""
        return [(*namespace, name) for name in self._directories(namespace) if not self._is_table((*namespace, name))]

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Directories with metadata in them."""
        return [(*namespace, name) for name in self._directories(namespace) if self._is_table((*namespace, name))]

    def list_loadable(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Those with a metadata file; a directory without one is left over from a table that was never made or is gone."""
        return [identifier for identifier in self.list_tables(namespace) if self._has_metadata(identifier)]

    def _has_metadata(self, identifier: tuple[str, ...]) -> bool:
        from pyarrow.fs import FileSelector

        filesystem, path = _filesystem(self._io, "/".join((self._root, *identifier, "metadata")))
        entries = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return any(entry.base_name.endswith(_SUFFIXES) for entry in entries)

    def _newest(self, directory: str) -> str | None:
        """What the hint leads to, or, where it leads nowhere, the highest version in the directory."""
        version = self._hint(directory) or 0
        found = self._version(directory, version) if version else None
        if found is None:
            version, found = max(self._versions(directory), default=(0, None))
        candidate = version + 1
        while (newer := self._version(directory, candidate)) is not None:
            found, candidate = newer, candidate + 1
        return found

    def _hint(self, directory: str) -> int | None:
        hint = self._io.new_input(f"{directory}/version-hint.text")
        if not hint.exists():
            return None
        with hint.open() as stream:
            text = bytes(stream.read()).decode().strip()
        return int(text) if text.isdigit() else None

    def _versions(self, directory: str) -> Iterator[tuple[int, str]]:
        from pyarrow.fs import FileSelector

        filesystem, path = _filesystem(self._io, directory)
        for file in filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
            if (named := _NAME.fullmatch(file.base_name)) is not None:
                yield int(named[1]), f"{directory}/{file.base_name}"

    def _version(self, directory: str, version: int) -> str | None:
        paths = (f"{directory}/v{version}{suffix}" for suffix in _SUFFIXES)
        return next((path for path in paths if self._io.new_input(path).exists()), None)

    def _is_table(self, identifier: tuple[str, ...]) -> bool:
        return "metadata" in self._directories(identifier)

    def _directories(self, parts: tuple[str, ...]) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        filesystem, path = _filesystem(self._io, "/".join((self._root, *parts)))
        entries = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type == FileType.Directory)


def _filesystem(io: Any, location: str) -> tuple[Any, str]:
    kind, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(kind, netloc), path


def refuse_commits(settings: CatalogSettings) -> None:
    """Raises where two writers could both believe that they had committed."""
    if scheme(settings.warehouse) != "file" and not settings.lock_manager:
        raise BadRequestError(
            f"Cannot commit to the hadoop catalog at {settings.warehouse}: an object store cannot rename atomically",
            hint="Use a sql or rest catalog, or set lock-manager to one that every writer shares.",
        )
