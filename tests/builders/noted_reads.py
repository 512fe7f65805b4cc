"""Notes which files of a table are opened for reading in Python."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from neve.catalogs.local_file_io import LocalFile


def reads_noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The locations opened from now on, in order, as they are opened."""
    opened: list[str] = []

    def noting(original: Any) -> Any:
        def open_and_note(self: Any, *args: Any, **options: Any) -> Any:
            opened.append(self.location)
            return original(self, *args, **options)

        return open_and_note

    for kind in (PyArrowFile, LocalFile):
        monkeypatch.setattr(kind, "open", noting(kind.open))
    return opened
