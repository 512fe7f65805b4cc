"""A table of the caller's session as a metadata reader wants it: its metadata, and its files, all through the session's JVM.

Called by `callers`. The names are pyiceberg's, so that the reader which reads every other table reads this one too; storage and
credentials are the session's own, and nothing of them is copied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from neve.errors import StorageError
from neve.spark.table.outcome import is_missing
from neve.table.document import Document, TableOutline, outline, read_document


class CallerTable:
    """One Iceberg table at the metadata version that the JVM held when this was made."""

    def __init__(self, jvm: Any, table: Any) -> None:
        current = table.operations().current()
        self._text = str(jvm.org.apache.iceberg.TableMetadataParser.toJson(current))
        self.metadata_location = str(current.metadataFileLocation())
        self.io = SessionFiles(jvm, table.io())
        self.is_stored = "RESTTableOperations" not in str(table.operations().getClass().getName())
        """Whether its metadata file was read from storage: a REST catalog hands the metadata out itself."""

    @cached_property
    def document(self) -> Document:
        """The whole metadata, parsed at its first use."""
        return read_document(self._text.encode(), self.metadata_location)

    def outline(self) -> TableOutline:
        """Where its files are."""
        return outline(self.document, self.metadata_location)


class SessionFiles:
    """Files as the session reads them."""

    def __init__(self, jvm: Any, file_io: Any) -> None:
        self._jvm = jvm
        self._io = file_io

    def new_input(self, location: str) -> SessionFile:
        """A file to read; nothing is opened yet."""
        return SessionFile(self._jvm, self._io, location)


class SessionFile:
    """One file."""

    def __init__(self, jvm: Any, file_io: Any, location: str) -> None:
        self._streams = jvm.org.apache.iceberg.relocated.com.google.common.io.ByteStreams
        self._io = file_io
        self._location = location

    def __len__(self) -> int:
        with _told(self._location):
            return int(self._io.newInputFile(self._location).getLength())

    def exists(self) -> bool:
        """Whether there is such a file."""
        with _told(self._location):
            return bool(self._io.newInputFile(self._location).exists())

    def open(self, *, seekable: bool = True) -> io.IOBase:
        """A stream over it: the whole content where nobody wants to jump, since each call to the JVM takes its time."""
        if seekable:
            return _SeekableFile(self, len(self))
        return io.BytesIO(self.read(0, None))

    def read(self, offset: int, length: int | None) -> bytes:
        """Some of its bytes, or all of them."""
        with _told(self._location):
            stream = self._io.newInputFile(self._location).newStream()
            try:
                if length is None:
                    return bytes(self._streams.toByteArray(stream))
                stream.seek(offset)
                return bytes(self._streams.toByteArray(self._streams.limit(stream, length)))
            finally:
                stream.close()


class _SeekableFile(io.RawIOBase):
    def __init__(self, file: SessionFile, size_bytes: int) -> None:
        super().__init__()
        self._file, self._size, self._at = file, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = max(0, min(len(buffer), self._size - self._at))
        data = self._file.read(self._at, wanted) if wanted else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def _told(location: str) -> Iterator[None]:
    """Java's complaints in the words that metadata readers know."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except Py4JJavaError as error:
        if is_missing(error):
            raise FileNotFoundError(location) from error
        raise StorageError(f"Cannot read {location}: {' '.join(str(error.java_exception).split())[:300]}") from error
    except (Py4JError, PySparkException) as error:
        raise StorageError(f"Cannot read {location}: {' '.join(str(error).split())[:300]}") from error
