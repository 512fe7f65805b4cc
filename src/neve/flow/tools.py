"""What a run works with, as one value: the table where it is committed to, the engine, the clock, and whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neve.core.model import PartitionSpec
from neve.ports import Clock, ContentVerifier, DeleteFiles, Engine, EqualityResolver, Journal, Leases, Progress, TableWriter

Sleeper = Callable[[float], None]
"""Waits so many seconds; handed in, so that tests need not wait."""


@dataclass(frozen=True)
class Tools:
    """Made by `compose` for one table. Without a journal nothing can be resumed, without leases the table's mark counts;
    without `deletes`, rows that are deleted while a run lasts cost it the groups that they are in."""

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
