"""How PyIceberg's catalogs get at files: our FileIO in place of theirs, which takes locations for URLs and fails on new types.

Every metadata file that a catalog loads passes through here, as do the answers of REST catalogs. Each is parsed as plain JSON
first: types that PyIceberg does not know are replaced, and `watching` remembers the document. So a table that PyIceberg cannot
parse is told from a corrupt one, and its neighbors can still learn where its files are.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from neve.errors import CorruptMetadataError
from neve.table.document import FILE_NAME, Document, read_document, with_known_types
from neve.table.location import address

if TYPE_CHECKING:
    from neve.storage.s3_objects import S3Objects

_WITH_HOSTS = ("hdfs", "viewfs")


@dataclass
class Watched:
    """The last table document that was read. `enough` ends the loading as soon as there is one."""

    enough: bool = False
    location: str = ""
    document: Document | None = None
    io: FileIO | None = None
    is_absent: bool = False
    """Whether the metadata file is missing, or has no bytes."""
    answer: Document = field(default_factory=dict)
    """The answer of a REST catalog around the document, with what it grants for the table's files."""


class Enough(Exception):  # noqa: N818 - no error
    """The document was read, and nobody wants PyIceberg to parse it."""


_watched: ContextVar[Watched | None] = ContextVar("neve_watched_document", default=None)


@contextmanager
def watching(*, enough: bool = False) -> Iterator[Watched]:
    """Remembers the documents that are read inside the block, by this thread."""
    found = Watched(enough=enough)
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


def understandable(document: Document, location: str, answer: Document | None = None) -> Document:
    """The document as PyIceberg can parse it; remembered as it was, with the answer of a catalog that it is part of."""
    if (watched := _watched.get()) is not None:
        watched.location, watched.document, watched.answer = location, document, answer or {}
        if watched.enough:
            raise Enough
    return with_known_types(document)


class LiteralFileIO(PyArrowFileIO):  # type: ignore[misc]
    """PyIceberg's FileIO over Arrow, by our own parser of locations: `#`, `?` and `%` stand for themselves."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Scheme, authority, and the path that Arrow's file system of this scheme wants."""
        found = address(location)
        if not found.scheme and "DEFAULT_SCHEME" in properties:
            return properties["DEFAULT_SCHEME"], properties.get("DEFAULT_NETLOC", ""), found.path
        if found.kind == "file":
            return "file", "", os.path.abspath(found.local_path)  # noqa: PTH100 - links stay as they are
        if found.scheme in _WITH_HOSTS:
            return found.scheme, found.authority, found.path
        return found.scheme, found.authority, found.object_path

    def new_input(self, location: str) -> Any:
        """A file to read; a table's metadata in a form that PyIceberg understands."""
        found = _ObjectFile(location, self._objects) if has_odd_key(location) else super().new_input(location)
        return _MetadataFile(found, self) if FILE_NAME.search(location) else found

    @cached_property
    def _objects(self) -> S3Objects:
        from neve.storage.s3_objects import S3Objects

        return S3Objects({key: value for key, value in self.properties.items() if key.startswith("s3.")})


def has_odd_key(location: str) -> bool:
    """Whether it is an object on S3 that Arrow cannot name: it refuses keys with doubled slashes."""
    found = address(location)
    return found.kind == "s3" and "//" in found.path


class _ObjectFile(InputFile):  # type: ignore[misc]
    """An object, read by boto3."""

    def __init__(self, location: str, objects: S3Objects) -> None:
        super().__init__(location)
        self._objects = objects

    def __len__(self) -> int:
        [size] = self._objects.sizes([self.location])
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._objects.sizes([self.location]) != [None]

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - it is in memory
        return io.BytesIO(self._objects.read(self.location))


class _MetadataFile(InputFile):  # type: ignore[misc]
    """A table's metadata file. It is as long as it is stored, and opens as plain JSON of known types."""

    def __init__(self, file: InputFile, file_io: FileIO) -> None:
        super().__init__(file.location.replace(".gz.metadata.json", ".metadata.json"))
        self._file, self._io = file, file_io

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return bool(self._file.exists())

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - it is in memory
        location = self._file.location
        watched = _watched.get() or Watched()
        watched.location, watched.io = location, self._io
        try:
            with self._file.open() as stream:
                data = bytes(stream.read())
        except FileNotFoundError:
            watched.is_absent = True
            raise
        watched.is_absent = not data
        known = understandable(read_document(data, location), location)
        return io.BytesIO(json.dumps(known).encode())


def other_metadata(watched: Watched) -> list[str]:
    """Files with content that lie beside the metadata file that was asked for, manifests included, metadata files last.

    Raises CorruptMetadataError where nobody can tell: a disk on which even the table's parent directory is missing may not be
    mounted.
    """
    from pyarrow.fs import FileSelector, FileType

    directory = watched.location.rpartition("/")[0]
    if not isinstance(watched.io, PyArrowFileIO) or has_odd_key(directory):
        raise CorruptMetadataError(f"Cannot read metadata {watched.location}: it is missing")
    scheme, netloc, path = watched.io.parse_location(directory, watched.io.properties)
    files = watched.io.fs_by_scheme(scheme, netloc)
    parent = path.rsplit("/", 2)[0]
    if scheme == "file" and files.get_file_info(parent).type is not FileType.Directory:
        raise CorruptMetadataError(
            f"Cannot read metadata {watched.location}: it is missing, and so is the directory {parent}",
            hint="Its disk may not be mounted. If the table is gone, drop its entry in the catalog.",
        )
    found = files.get_file_info(FileSelector(path, allow_not_found=True))
    names = sorted((bool(FILE_NAME.search(file.base_name)), file.base_name) for file in found if file.size)
    return [f"{directory}/{name}" for _, name in names]
