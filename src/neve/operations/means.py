"""What an operation works with, as one value: the table where it is committed to, a way to look at it anew, time, listeners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neve.ports import Clock, Leases, Progress, Quarantine, TableReader, TableWriter
from neve.table.state import TableName


@dataclass(frozen=True)
class Means:
    """Made by `compose` for one table. Without a quarantine, files that came to nothing are left to the removal of orphans."""

    table: TableName
    table_uuid: str
    writer: TableWriter
    look: Callable[[], TableReader]
    """Loads the table anew."""
    clock: Clock
    sleep: Callable[[float], None]
    progress: Progress | None = None
    leases: Leases | None = None
    quarantine: Quarantine | None = None

    def tell(self, stage: str) -> None:
        """Says what is going on."""
        if self.progress:
            self.progress(stage, 0, None)
