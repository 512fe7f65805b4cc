"""Files on their way out: recorded, left in place, looked at again, moved to the trash, purged. Pure values and rules.

No operation deletes a file. It records what it would delete and why; after the grace time `maintenance.quarantine` asks the
table's current metadata once more, and only then does the file go to the trash, from where it comes back until it is purged.
"""

from __future__ import annotations

from enum import StrEnum

from neve.core.model import Frozen


class Fate(StrEnum):
    """How far a file has come."""

    RECORDED = "recorded"  # in its place
    NEEDED = "needed"  # in its place, and stays: it was needed when it was looked at again
    TRASHED = "trashed"  # under the trash prefix
    RESTORED = "restored"  # back in its place
    PURGED = "purged"  # gone


class Doomed(Frozen):
    """A file that nothing needs, as far as was seen."""

    path: str
    reason: str
    size_bytes: int | None = None


class Quarantined(Frozen):
    """A file in the quarantine, and the run that put it there."""

    path: str
    reason: str
    size_bytes: int | None = None
    run_id: str
    fate: Fate
    recorded_ms: int
    changed_ms: int
    trash_path: str | None = None
