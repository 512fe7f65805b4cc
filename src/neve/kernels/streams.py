"""What kernels read from and write to, and the local implementations of both.

Storage adapters implement `Source` and `Sink`; kernels know nothing else of storage. A `read_at` is one request, so that
counting calls counts what an object store would bill.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Protocol

from neve.errors import MissingFileError, StorageError
from neve.kernels.request_counts import count


class Source(Protocol):
    """One input file, open for reading."""

    @property
    def path(self) -> str:
        """Where it is, for messages."""
        ...

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Exactly these bytes, in one request; raises a NeveError when they cannot be had. Called from several threads."""
        ...


class Sink(Protocol):
    """One output file being written."""

    def write(self, data: bytes | memoryview) -> None:
        """Appends all of it."""
        ...

    def close(self) -> None:
        """Completes the file: it exists after this, and not before."""
        ...

    def abort(self) -> None:
        """Gives up and leaves nothing behind; harmless when called twice."""
        ...

    def take_back(self) -> None:
        """Removes the file, complete or not, as long as nobody has been told of it; harmless when called twice."""
        ...


class BytesSource:
    """A file that is in memory already."""

    def __init__(self, data: bytes, path: str = "memory") -> None:
        self.path = path
        self.size_bytes = len(data)
        self._data = data

    def read_at(self, offset: int, length: int) -> bytes:
        """These bytes."""
        check_range(self, offset, length)
        return self._data[offset : offset + length]


class LocalSource:
    """A file on a local disk. No descriptor stays open between requests, so an order may name any number of files."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        try:
            self.size_bytes = os.stat(self.path).st_size  # noqa: PTH116 - thousands of files: no Path for each
        except OSError as error:
            kind = MissingFileError if isinstance(error, FileNotFoundError) else StorageError
            raise kind(f"Cannot open {self.path}: {error.strerror or error}") from error

    def read_at(self, offset: int, length: int) -> bytes:
        """These bytes, with one seek and one read."""
        check_range(self, offset, length)
        count("read")
        try:
            # Unbuffered: a buffered file would read ahead of what was asked, and copy it once more.
            with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of Path.open
                file.seek(offset)
                data = file.read(length)
        except OSError as error:
            raise StorageError(f"Cannot read {self.path}: {error.strerror or error}") from error
        if data is None or len(data) != length:
            raise StorageError(f"Cannot read {self.path}: it ended after {offset + len(data or b'')} bytes")
        return data


class LocalSink:
    """A file on a local disk, under a temporary name until it is complete."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        self._completed = False
        try:
            self._file: BinaryIO | None = self._partial.open("xb")
        except OSError as error:
            raise StorageError(f"Cannot create {self.path}: {error.strerror or error}") from error

    def write(self, data: bytes | memoryview) -> None:
        """Appends all of it."""
        if self._file is None:
            raise StorageError(f"Cannot write {self.path}: it is closed")
        try:
            self._file.write(data)
        except OSError as error:
            raise StorageError(f"Cannot write {self.path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Gives the file its name."""
        if self._file is None:
            raise StorageError(f"Cannot complete {self.path}: it is closed")
        try:
            count("write")
            self._file.close()
            self._partial.rename(self.path)
            self._completed = True
        except OSError as error:
            raise StorageError(f"Cannot complete {self.path}: {error.strerror or error}") from error
        self._file = None

    def abort(self) -> None:
        """Removes what was written."""
        if self._file is None:
            return
        self._file.close()
        self._file = None
        self._partial.unlink(missing_ok=True)

    def take_back(self) -> None:
        """Removes what was written, under either name."""
        self.abort()
        if self._completed:
            count("delete")
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"Cannot delete {self.path}: {error.strerror or error}") from error


def check_range(source: Source, offset: int, length: int) -> None:
    """Raises unless these bytes lie within the file."""
    if offset < 0 or length < 0 or offset + length > source.size_bytes:
        asked = f"bytes {offset} to {offset + length} of {source.size_bytes} were asked for"
        raise StorageError(f"Cannot read {source.path}: {asked}")
