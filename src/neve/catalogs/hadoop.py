"""A directory of tables, as Spark's `hadoop` catalog lays it out: read freely, written by one process only.

pyiceberg has no such catalog. The current version is found as Iceberg finds it: the hint is best effort, so the versions after
it are tried one by one. Commits go through Spark; `refuse_commits` says when even that is unsafe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable, Table

from neve.catalogs.errors import endpoint_of, reading
from neve.errors import StorageError
from neve.settings.catalog import CatalogSettings
from neve.table.hadoop_commits import refuse_unlocked
from neve.table.location import address
from neve.table.units import whole_number

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
        with reading(location, endpoint=endpoint_of(self.properties)):
            metadata = self._newest(f"{location}/metadata")
        if metadata is None:
            raise NoSuchTableError(f"no metadata under {location}")
        document = FromInputFile.table_metadata(self._io.new_input(metadata))
        io = load_file_io({**self.properties, **document.properties}, metadata)
        return StaticTable(("static-table", metadata), document, metadata, io, NoopCatalog("static-table"))

    def list_namespaces(self, namespace: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """Directories that hold no table themselves."""
        found = self.directories(namespace)
        return [child for child in found if not self.leads_back(child) and not self.is_table(child)]

    def list_tables(self, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Directories with metadata files."""
        return [child for child in self.directories(namespace) if self.is_table(child)]

    def is_table(self, identifier: tuple[str, ...]) -> bool:
        """Whether a directory has a metadata file in `metadata`, as Iceberg's Java decides it.

        `metadata` alone is no sign: it may be a table of that name, or left over from a table that is gone.
        """
        return any(name.endswith(_SUFFIXES) for name in self._names((*identifier, "metadata"), of_directories=False))

    def directories(self, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Directories in a directory, by their names. Raises StorageError if there is no warehouse."""
        if not parts and not _exists(self._io, self._root):
            raise StorageError(
                f"Cannot list warehouse {self._root}: there is no such directory",
                hint=f"Its disk may not be mounted. Create the directory, or remove catalog {self.name} from the settings.",
            )
        return [(*parts, name) for name in sorted(self._names(parts, of_directories=True))]

    def leads_back(self, identifier: tuple[str, ...]) -> bool:
        """Whether a directory is a link to one that its own name leads through, so that all in it has a shorter name."""
        real = self._real(identifier)
        return real is not None and any(real == self._real(identifier[:end]) for end in range(len(identifier)))

    def leads_out(self, identifier: tuple[str, ...]) -> bool:
        """Whether a directory is a link to one that the warehouse lies in."""
        real, root = self._real(identifier), self._real(())
        return real is not None and root is not None and real != root and f"{root}/".startswith(f"{real.rstrip('/')}/")

    def _real(self, parts: tuple[str, ...]) -> str | None:
        """The directory without links; None for an object store, which has none."""
        found = address("/".join((self._root, *parts)))
        return os.path.realpath(found.local_path) if found.kind == "file" else None

    def _names(self, parts: tuple[str, ...], *, of_directories: bool) -> Iterator[str]:
        """What is in a directory, links followed; nothing if it is gone."""
        from pyarrow.fs import FileSelector, FileType

        location, wanted = "/".join((self._root, *parts)), FileType.Directory if of_directories else FileType.File
        with reading(location, endpoint=endpoint_of(self.properties), catalog=self.name):
            filesystem, path = _filesystem(self._io, location)
            entries = filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        for entry in entries:
            if entry.type == wanted:
                with suppress(UnicodeDecodeError):  # no catalog can name it
                    yield entry.base_name

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
            return whole_number(bytes(stream.read()).decode(errors="replace").strip())

    def _versions(self, directory: str) -> Iterator[tuple[int, str]]:
        from pyarrow.fs import FileSelector

        filesystem, path = _filesystem(self._io, directory)
        for file in filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
            if (named := _NAME.fullmatch(file.base_name)) is not None:
                yield int(named[1]), f"{directory}/{file.base_name}"

    def _version(self, directory: str, version: int) -> str | None:
        paths = (f"{directory}/v{version}{suffix}" for suffix in _SUFFIXES)
        return next((path for path in paths if self._io.new_input(path).exists()), None)


def _filesystem(io: Any, location: str) -> tuple[Any, str]:
    kind, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(kind, netloc), path


def _exists(io: Any, root: str) -> bool:
    """Whether a warehouse is there. An object store has no directories, so an empty one cannot be told from a missing one."""
    from pyarrow.fs import FileType

    if address(root).kind != "file":
        return True
    filesystem, path = _filesystem(io, root)
    return bool(filesystem.get_file_info(path).type == FileType.Directory)


def refuse_commits(settings: CatalogSettings, *, default_filesystem: str = "file:///") -> None:
    """Raises where two writers could both believe that they had committed."""
    refuse_unlocked(
        str(settings.warehouse),
        str(settings.warehouse),
        lock=settings.lock_manager,
        default_filesystem=default_filesystem,
        hint="Use a sql or rest catalog, or set lock-manager to one that every writer shares.",
    )
