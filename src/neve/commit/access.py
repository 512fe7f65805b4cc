"""What reads a table, and what a run needs of the context of its table. Declared here, since contexts are made further up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from neve.ports import Clock, Journal, Leases, Quarantine, TableWriter
from neve.rewrite.live_files import Ancestor, LiveFile
from neve.table.state import MAIN

Sleeper = Callable[[float], None]
"""Waits so many seconds; handed in, so that tests need not wait."""


class TableView(Protocol):
    """What a dry run reads of a table: its metadata is enough. Every `ports.TableWriter` is one."""

    def refresh(self) -> None:
        """Loads the newest metadata."""
        ...

    def head(self, branch: str = MAIN) -> int | None:
        """The branch's snapshot."""
        ...

    def knows(self, snapshot_id: int) -> bool:
        """Whether the snapshot is there, or has been expired."""
        ...

    def ancestry(self, snapshot_id: int, until: int | None) -> list[Ancestor]:
        """The snapshots after `until` up to `snapshot_id`, newest first."""
        ...

    def scan(self, snapshot_id: int | None, *, statistics: bool = True) -> list[LiveFile]:
        """Every live data file of a snapshot."""
        ...

    def missing(self, paths: Iterable[str]) -> set[str]:
        """Those of the files that do not exist in the table's storage."""
        ...


class RunContext(Protocol):
    """What a run needs of its table: a `context.table.TableContext` has it.

    Without a journal nothing can be resumed, without leases the table's mark counts, and without `quarantine` files that were
    never committed stay in place for orphan removal.
    """

    @property
    def clock(self) -> Clock:
        """What time it is."""
        ...

    @property
    def writer(self) -> TableWriter:
        """The table where it is committed to."""
        ...

    @property
    def journal(self) -> Journal | None:
        """Where the run is written down."""
        ...

    @property
    def leases(self) -> Leases | None:
        """Where leases are taken."""
        ...

    @property
    def quarantine(self) -> Quarantine | None:
        """Where files are recorded for removal."""
        ...
