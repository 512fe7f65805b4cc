"""A large file seen by pyarrow as a whole, of which only a window is in memory at a time.

Reads within the window cost nothing; others go to storage as they are. `reading` moves the window from row group to row group.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa

from neve.kernels.streams import Source


@dataclass(frozen=True)
class Window:
    """Bytes of a file that were read in one request."""

    start: int
    data: pa.Buffer

    def slice(self, offset: int, length: int) -> pa.Buffer | None:
        """These bytes without a copy, None if they are not all here."""
        at = offset - self.start
        return self.data.slice(at, length) if at >= 0 and at + length <= self.data.size else None


class WindowedFile:
    """The file object that pyarrow reads from."""

    closed = False

    def __init__(self, source: Source, tail: Window) -> None:
        self._source = source
        self._windows = [tail]
        self._at = 0

    def show(self, window: Window) -> None:
        """Replaces the window; what pyarrow still holds of the old one stays valid."""
        self._windows = [window, self._windows[-1]]

    def hide(self) -> None:
        """Lets go of the window, keeps the tail."""
        self._windows = self._windows[-1:]

    def read(self, length: int = -1) -> bytes | pa.Buffer:
        """The next bytes."""
        length = min(length, self._source.size_bytes - self._at) if length >= 0 else self._source.size_bytes - self._at
        found = next((part for w in self._windows if (part := w.slice(self._at, length)) is not None), None)
        data = found if found is not None else pa.py_buffer(self._source.read_at(self._at, length))
        self._at += length
        return data

    # pyarrow asks for this one where it can do without a copy.
    read_buffer = read

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a place in the file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size_bytes}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """The place in the file."""
        return self._at

    def size(self) -> int:
        """How long the file is."""
        return self._source.size_bytes

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Lets go of everything."""
        self._windows = self._windows[-1:]
        self.closed = True
