"""What an expiry of snapshots leaves behind: what went and what stayed, by which settings, and what became of files."""

from __future__ import annotations

from neve.maintenance.record import MaintenanceRecord
from neve.maintenance.retention import Keep
from neve.table.frozen import Frozen


class Setting(Frozen):
    """A value that decided, and where it came from."""

    key: str
    value: str
    origin: str


class ExpiryRecord(MaintenanceRecord):
    """What an expiry came to, or, where `dry_run`, would come to."""

    snapshots_before: int = 0
    expired: tuple[int, ...] = ()
    """Snapshots that went, oldest first."""
    refs_removed: tuple[str, ...] = ()
    metadata_keep: int | None = None
    """To which the table's property was set, if it was."""
    kept: dict[Keep, int] = {}
    """How many stay, by the reason."""
    settings: tuple[Setting, ...] = ()
    metadata_only: str | None = None
    """Why files are left as they are: it was asked for, or the table does not allow it."""
    files: dict[str, int] = {}
    """Files that nothing needs any more, by kind."""
    size_bytes: int = 0
    """Of these files, where metadata gives their sizes: what can be reclaimed."""
    files_without_size: int = 0
    """Of these files, those whose size is recorded only when they are moved: manifest lists and metadata files."""
    recorded: int = 0
    """How many of them are new in the quarantine."""
    listed: tuple[str, ...] = ()
    """Where `dry_run`: these files, as far as there are not too many to list."""

    @property
    def snapshots_after(self) -> int:
        """Snapshots of the table afterwards, if nobody else has committed."""
        return self.snapshots_before - len(self.expired)
