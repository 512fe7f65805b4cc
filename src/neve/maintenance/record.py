"""Maintenance besides the rewrite: what the records of all its operations have in common. Pure values.

Each operation is one file under `maintenance/` and goes through the same stages: it looks, plans, carries out, commits, checks
and records. Its own record derives from `MaintenanceRecord` and says in numbers what was done, or, where `dry_run`, would be.
"""

from __future__ import annotations

from enum import StrEnum

from neve.health.not_due import NotDue
from neve.rewrite.record import RunOutcome
from neve.table.frozen import Frozen
from neve.table.state import MAIN


class Operation(StrEnum):
    """What can be done to a table besides compacting it; the word of the command line, and of the state store."""

    EXPIRE = "expire"  # old snapshots go, and with them what only they need
    ORPHANS = "orphans"  # files that no snapshot ever had, or has any more
    SETTLE = "settle"  # quarantined files are looked at again, and go to the trash
    PURGE = "purge"  # quarantined files go for good
    RESTORE = "restore"  # quarantined files come back
    MANIFESTS = "manifests"
    TTL = "ttl"  # rows past their time go
    TAGS = "tags"
    STATS = "stats"
    MAINTAIN = "maintain"  # all of it, when due
    PREVENT = "prevent"  # properties are set that keep files from becoming bad


class MaintenanceRecord(Frozen):
    """One operation on one table. `reason` says why nothing was done, or why it failed.

    If nothing was done, `not_due` has the rules that were checked, with thresholds, measured values and when they would be due.
    """

    run_id: str
    table: str
    table_uuid: str
    branch: str = MAIN
    operation: Operation
    dry_run: bool = False
    outcome: RunOutcome
    reason: str | None = None
    not_due: tuple[NotDue, ...] = ()
    started_ms: int
    finished_ms: int
    snapshot_before: int | None = None
    snapshots: tuple[int, ...] = ()
    """That it committed."""
    interrupted: bool = False
    """Whether its process was stopped, and a later run ended the record."""

    @property
    def seconds(self) -> float:
        """Wall time; 0 for a run that was interrupted, since nobody knows how long it worked."""
        return 0.0 if self.interrupted else (self.finished_ms - self.started_ms) / 1000
