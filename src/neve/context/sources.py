"""Where a request has read the table's metadata: from the cache alone, or from storage too.

`TableContext` notes what it opens; the contexts of one request share the notes. The API puts the result into dry runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.ports import TableReader


class MetadataSources:
    """What one request has opened. Says that storage was not read only if that is certain."""

    def __init__(self) -> None:
        self._readers: list[TableReader] = []
        self._is_storage_open = False

    def opened(self, reader: TableReader) -> TableReader:
        """Notes a reader, which knows by itself what it reads from storage."""
        if not self._is_storage_open:  # after that the reader changes nothing, and is not kept for the length of a run
            self._readers.append(reader)
        return reader

    def open_storage(self) -> None:
        """Notes that Spark or the table's storage was opened: nobody counts what is read there."""
        self._is_storage_open = True
        self._readers.clear()

    @property
    def from_cache(self) -> bool:
        """Whether all metadata came from the cache, and nothing was read from storage."""
        return bool(self._readers) and all(reader.from_cache() for reader in self._readers)
