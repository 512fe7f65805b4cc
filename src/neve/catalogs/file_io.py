"""Files as PyIceberg's catalogs read them: our FileIO in place of theirs, which takes locations for URLs.

Every metadata file that a catalog loads passes through here (`documents.read_metadata`).
"""

from __future__ import annotations

import io
import json
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from neve.catalogs.documents import read_metadata
from neve.kernels.request_counts import count
from neve.table.document import FILE_NAME
from neve.table.location import address

if TYPE_CHECKING:
    from neve.storage.s3_objects import S3Objects

_WITH_HOSTS = ("hdfs", "viewfs")


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
        """A file to read; the metadata file of a table by way of whoever watches."""
        count("read")
        found = _ObjectFile(location, self._objects) if has_odd_key(location) else super().new_input(location)
        return _MetadataFile(found, self) if FILE_NAME.search(location) else found

    def new_output(self, location: str) -> Any:
        """A file to write."""
        count("write")
        return super().new_output(location)

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
    """A table's metadata file. Whoever watches gets its document, and PyIceberg, which then reads on, plain JSON."""

    def __init__(self, file: InputFile, file_io: FileIO) -> None:
        super().__init__(file.location.replace(".gz.metadata.json", ".metadata.json"))
        self._file, self._io = file, file_io

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return bool(self._file.exists())

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - it is in memory
        return io.BytesIO(json.dumps(read_metadata(self._file, self._io)).encode())


def entries_of(file_io: PyArrowFileIO, directory: str) -> list[tuple[str, int]]:
    """Names and sizes of the files in a directory; none for one that is not there."""
    from pyarrow.fs import FileSelector

    scheme, netloc, path = file_io.parse_location(directory, file_io.properties)
    found = file_io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=True))
    return [(file.base_name, file.size or 0) for file in found]
