"""Maintenance besides the rewrite: what the records of all its operations have in common. Pure values.

What an operation decides is one file here; the operation itself is one file of `operations`, which inspects, plans, commits,
checks and records. Its own record derives from `MaintenanceRecord` and says in numbers what was done, or would be in a dry run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from neve.rewrite.preview import Preview
from neve.rewrite.record import Record


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


class OperationRecord(Preview, Record):
    """One operation on one table that rewrites no data file. `reason` says why nothing was done, or why it failed."""

    json_order: ClassVar[str] = "run_id table table_uuid branch operation dry_run outcome reason"

    dry_run: bool = False
    reason: str | None = None


class MaintenanceRecord(OperationRecord):
    """One operation on one table's metadata, or on files that it does not need."""

    operation: Operation
    interrupted: bool = False
    """Whether its process was stopped, and a later run ended the record."""

    @property
    def seconds(self) -> float:
        """Wall time; 0 for a run that was interrupted, since nobody knows how long it worked."""
        return 0.0 if self.interrupted else (self.finished_ms - self.started_ms) / 1000
