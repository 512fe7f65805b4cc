"""What the flow needs of the outside world, as small interfaces. Adapters implement them; `compose` picks which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from neve.core.files import FileColumns, Partition
from neve.core.model import Manifest, TableName, TableState


class Clock(Protocol):
    """The time, so that tests need not wait for it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...


class Progress(Protocol):
    """Told how far long work has come; a surface draws it, a library ignores it."""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """`total` is None while nobody knows it."""
        ...


class TableReader(Protocol):
    """One loaded table at one metadata version. Each method reads only what it names, through the cache."""

    def state(self) -> TableState:
        """Depth SUMMARY: what the metadata file says."""
        ...

    def manifests(self) -> tuple[Manifest, ...]:
        """The current snapshot's manifest list."""
        ...

    def files(self, manifests: tuple[Manifest, ...], progress: Progress | None = None) -> FileColumns:
        """The live files in these manifests."""
        ...

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Row groups per file from footers; reads data files' ends, so only on request."""
        ...


class Catalog(Protocol):
    """A place where tables are found by name."""

    def open(self, name: TableName) -> TableReader:
        """Loads a table: one catalog call. Raises TableNotFoundError, AccessDeniedError, CatalogUnreachableError."""
        ...

    def tables(self, namespace: tuple[str, ...] | None = None) -> Iterable[TableName]:
        """The tables of a namespace, or of the whole catalog."""
        ...


class Records(Protocol):
    """What earlier runs left behind, as far as an inspection asks (the state store's reading side)."""

    def row_groups(self, table_uuid: str) -> Mapping[str, int]:
        """Row groups by path, of files that we wrote."""
        ...

    def last_compactions(self, table_uuid: str) -> Mapping[Partition, int]:
        """Milliseconds of our last committed compaction, by partition."""
        ...
