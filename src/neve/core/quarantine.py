"""Files on their way out: recorded, left in place, looked at again, moved to the trash, purged. Pure values and rules.

No operation deletes a file. It records what it would delete and why; after the grace time `maintenance.quarantine` asks the
table's current metadata once more, and only then does the file go to the trash, from where it comes back until it is purged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from neve.core.maintenance import MaintenanceRecord
from neve.core.model import Frozen

TRASH = ".neve-trash"
"""The directory that trash is in. It is hidden by its dot: neither Iceberg's removal of orphans nor ours looks into it."""


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
    """When it came to this fate."""
    trash_path: str | None = None
    """Where it lies in the trash. With RECORDED, it may be on either side or on both: a move was begun. The path itself, where
    the store keeps what is deleted as an older version."""

    @property
    def is_version(self) -> bool:
        """Whether the trash is the store's own memory of older versions."""
        return self.trash_path == self.path


class QuarantinedRun(Frozen):
    """Files of one table that one run put into the quarantine for one reason, and that have come equally far."""

    run_id: str
    reason: str
    fate: Fate
    files: int
    size_bytes: int
    """As far as sizes are known."""
    recorded_ms: int
    changed_ms: int
    """Of the one that changed last."""


class Step(StrEnum):
    """What is to be done with a file."""

    STAY = "stay"  # it is in its place and is needed there, or asked for
    BACK = "put back"  # the same, but it is only in the trash
    TRASH = "move to the trash"
    DELETE = "delete"  # in its place; the store keeps it as an older version
    DONE = "already in the trash"  # a move that was interrupted after it was done
    PURGE = "purge"
    GONE = "missing"  # neither in its place nor in the trash
    LOST = "needed, and neither in its place nor in the trash"
    REFUSE = "left in the trash, since another file is in its place"


class Sides(NamedTuple):
    """The size of a file in its place, and in the trash; None where it is not."""

    here: int | None
    there: int | None


def is_trash(path: str) -> bool:
    """Whether it lies in a trash directory."""
    return f"/{TRASH}/" in path


def trash_path(path: str, run_id: str, location: str) -> str:
    """Where a file of a run goes: under the table's location, or under its own directory if it lies elsewhere, so that it never
    leaves its disk or bucket."""
    home = f"{location.rstrip('/')}/"
    if not path.startswith(home):
        home = path.removesuffix(path.rpartition("/")[2])
    return f"{home}{TRASH}/{run_id}/{path.removeprefix(home)}"


def original_path(trash_path: str) -> str:
    """Where a file in the trash came from: the path without the part that the trash added, for whoever has lost the list."""
    home, _, rest = trash_path.partition(f"/{TRASH}/")
    return f"{home}/{rest.partition('/')[2]}"


def second_look(sides: Sides, *, needed: bool) -> Step:
    """What becomes of a file that was recorded, now that it has been looked at again."""
    if sides.here is not None and sides.there not in (None, sides.here):
        return Step.REFUSE
    if sides.here is not None:
        return Step.STAY if needed else Step.TRASH
    if sides.there is not None:
        return Step.BACK if needed else Step.DONE
    return Step.LOST if needed else Step.GONE


def way_back(file: Quarantined, sides: Sides) -> Step:
    """How a file is restored. What is in its place is not overwritten; after a move that was interrupted it may be the file."""
    if sides.here is None:
        return Step.GONE if sides.there is None else Step.BACK
    same = file.fate is Fate.RECORDED and sides.here == sides.there
    return Step.STAY if sides.there is None or same else Step.REFUSE


class Change(Frozen):
    """What a dry run would do with one file."""

    path: str
    step: Step
    reason: str
    size_bytes: int | None = None


class QuarantineRecord(MaintenanceRecord):
    """A second look, a purge or a restore."""

    files: int = 0
    """That were moved to the trash, purged, or put back; where `dry_run`, would be."""
    size_bytes: int = 0
    """Of these, as far as sizes are known."""
    needed: int = 0
    """That turned out to be needed: they stay, or were put back."""
    missing: int = 0
    """That were neither in their place nor in the trash."""
    purged: int = 0
    """That cannot be restored any more."""
    failed: int = 0
    failures: tuple[str, ...] = ()
    """The first few reasons."""
    more: bool = False
    """Whether there is more to do than the limit allowed."""
    runs: tuple[str, ...] = ()
    """The runs that put these files into the quarantine; `neve restore` takes them."""
    changes: tuple[Change, ...] = ()
    """Every file that a dry run would do something with."""
