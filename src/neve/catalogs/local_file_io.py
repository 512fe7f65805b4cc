"""Files of a local disk as metadata readers want them, without PyIceberg, whose import takes longer than reading a small table.

Called by `opening`. The names are those of PyIceberg's FileIO, which opens what lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from neve.kernels.request_counts import count
from neve.table.location import address


class LocalFile:
    """One file, opened by its path."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._path = Path(address(location).local_path)

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self._path.exists()

    def open(self, seekable: bool = True) -> BinaryIO:  # noqa: ARG002 - PyIceberg's signature
        """A stream over it."""
        count("read")
        return self._path.open("rb")


class LocalFileIO:
    """Opens files of this machine by itself."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)

    def new_input(self, location: str) -> Any:
        """A file to read; nothing is opened yet."""
        return LocalFile(location) if address(location).kind == "file" else self._elsewhere.new_input(location)

    @cached_property
    def _elsewhere(self) -> Any:
        from neve.catalogs.file_io import LiteralFileIO

        return LiteralFileIO(self.properties)
