"""What a run works with, as one value: the table where it is committed to, the engine, the clock, and whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from neve.ports import (
    Clock,
    ContentVerifier,
    DeleteFiles,
    Engine,
    EqualityResolver,
    Journal,
    Leases,
    Progress,
    Quarantine,
    TableWriter,
)
from neve.rewrite.live_files import Ancestor, LiveFile
from neve.rewrite.record import RunRecord
from neve.table.state import MAIN, PartitionSpec

Sleeper = Callable[[float], None]
"""Waits so many seconds; handed in, so that tests need not wait."""
Afterwards = Callable[[RunRecord, Callable[[], None]], RunRecord]
"""Work after a compaction: takes its record and a check that raises if its lease was lost, returns the completed record."""


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


@dataclass(frozen=True)
class Tools:
    """Made by `operations.compact` for one plan. Without a journal nothing can be resumed, without leases the table's mark
    counts; without `deletes`, rows that are deleted while a run lasts cost it the groups that they are in; without
    `quarantine`, files that were never committed stay in place for orphan removal."""

    writer: TableWriter
    engine: Engine
    specs: Sequence[PartitionSpec]
    clock: Clock
    sleep: Sleeper
    progress: Progress | None = None
    journal: Journal | None = None
    leases: Leases | None = None
    content: ContentVerifier | None = None
    deletes: DeleteFiles | None = None
    resolver: EqualityResolver | None = None
    quarantine: Quarantine | None = None
    afterwards: Afterwards = lambda record, _: record
    """Completes the record of a compaction while its lease is still held."""
