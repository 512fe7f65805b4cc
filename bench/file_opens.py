"""How often the files of a directory are opened, by whatever process: the operating system counts (inotify, Linux only).

Used by `deletes.py`, where the code under test is not asked how often it read a file.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_OPEN, _CLOSE, _OVERFLOW = 0x20, 0x08 | 0x10, 0x4000
_HEADER = struct.Struct("iIII")


class FileOpens:
    """Use as a context manager; `count` says afterwards how many opens there were. Hidden files (checksums) do not count."""

    def __init__(self, directory: Path) -> None:
        self.count = 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._inotify = self._done(self._libc.inotify_init1(os.O_NONBLOCK))
        # Two opens of a file in a row would be told as one; with closes in between they are not.
        self._done(self._libc.inotify_add_watch(self._inotify, os.fsencode(directory), _OPEN | _CLOSE))
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._keep_reading, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._reader.join()
        os.close(self._inotify)

    def _keep_reading(self) -> None:
        while select.select([self._inotify], [], [], 0.1)[0] or not self._ended.is_set():
            try:
                self._read(os.read(self._inotify, 1 << 20))
            except BlockingIOError:
                continue

    def _read(self, events: bytes) -> None:
        at = 0
        while at < len(events):
            _, what, _, length = _HEADER.unpack_from(events, at)
            name = events[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
            at += _HEADER.size + length
            if what & _OVERFLOW:
                raise OverflowError("more files were opened at a time than the operating system tells")
            if what & _OPEN and name and not name.startswith(b"."):
                self.count += 1

    @staticmethod
    def _done(answer: int) -> int:
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return answer
