"""The directory of the demo: a marker file says that it is ours to empty, and which samples in it are finished.

Called by `neve demo`. A directory without the marker is never touched.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from neve.errors import BadRequestError, StorageError

MARKER = ".neve-demo"


class DemoDirectory:
    """A directory that holds a demo warehouse and nothing else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marker = path / MARKER

    def finished(self) -> frozenset[str]:
        """The samples that an earlier run completed."""
        try:
            return frozenset(json.loads(self._marker.read_text(encoding="utf-8"))["finished"])
        except (OSError, ValueError, KeyError, TypeError):
            return frozenset()

    def start_afresh(self) -> None:
        """Makes the directory, or empties it. The marker goes in first and stays: an interrupted run can start again."""
        if self.path.exists() and not self._is_ours():
            raise BadRequestError(
                f"Cannot use {self.path} for the demo: it exists and is not a demo warehouse",
                hint="Name a directory that is new or empty: `neve demo --warehouse DIR`.",
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.mark(())
            for entry in self.path.iterdir():
                if entry != self._marker:
                    _remove(entry)
        except OSError as error:
            raise StorageError(f"Cannot prepare demo directory {self.path}: {error.strerror}") from error

    def mark(self, finished: Iterable[str]) -> None:
        """Notes which samples are complete."""
        content: dict[str, Any] = {"about": "A demo warehouse; `neve demo` may empty it.", "finished": sorted(finished)}
        self._marker.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def _is_ours(self) -> bool:
        return self.path.is_dir() and (self._marker.is_file() or not any(self.path.iterdir()))


def _remove(entry: Path) -> None:
    # A link is removed, never followed: what it points to is not ours.
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink()
