"""Files on their way out: recorded, left in place, looked at again, moved to the trash, purged. Pure values and rules.

No operation deletes a file. It records what it would delete and why; after the grace time `operations.quarantine` asks the
table's current metadata once more, and only then does the file go to the trash, from where it comes back until it is purged.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from neve.health.not_due import NotDue, Unit, after_interval
from neve.maintenance.record import MaintenanceRecord
from neve.table.frozen import Frozen
from neve.table.location import inner_path

TRASH = ".neve-trash"
"""The directory that trash is in. It is hidden by its dot: neither Iceberg's removal of orphans nor ours looks into it."""
_SECOND_MS = 1000


class Fate(StrEnum):
    """How far a file has come."""

    RECORDED = "recorded"  # in its place
    NEEDED = "needed"  # in its place, and stays: it was needed when it was looked at again
    TRASHED = "trashed"  # under the trash prefix
    RESTORED = "restored"  # back in its place
    PURGED = "purged"  # gone


class Candidate(Frozen):
    """A file that nothing needs, as far as was seen."""

    path: str
    reason: str
    size_bytes: int | None = None
    modified_ms: int | None = None
    """When it was last modified, if it comes from a listing; metadata does not tell."""


class StoredFile(NamedTuple):
    """A file as its storage has it now."""

    size_bytes: int
    modified_ms: int | None


class Quarantined(Frozen):
    """A file in the quarantine, and the run that put it there."""

    path: str
    reason: str
    size_bytes: int | None = None
    modified_ms: int | None = None
    """When the file that was judged was last modified; None if it comes from metadata, or from a store before schema 0008."""
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


class FateChange(NamedTuple):
    """What became of a file in the quarantine."""

    path: str
    fate: Fate
    trash_path: str | None = None
    size_bytes: int | None = None
    """None leaves the recorded size as it is."""


class QuarantinedRun(Frozen):
    """Files of one table that one run put into the quarantine for one reason, and that have come equally far."""

    run_id: str
    reason: str
    fate: Fate
    files: int
    size_bytes: int
    """Of files whose size is known."""
    files_without_size: int = 0
    """Metadata does not give the size of some files; it is recorded when they are moved."""
    recorded_ms: int
    changed_ms: int
    """Of the one that changed last."""


class QuarantineStep(StrEnum):
    """What is to be done with a file."""

    STAY = "stay"  # it is in its place and is needed there, or asked for
    REWRITTEN = "stay: written again since it was recorded"  # another file than the one that was judged
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


def waits_for(oldest_ms: int | None, wait_seconds: float, now_ms: int, *, knob: str, where: str) -> NotDue:
    """Returns when the oldest file somewhere has been there for its time; `oldest_ms` is when it came, None without a file."""
    if oldest_ms is None:
        return NotDue(rule=knob, what=f"no file is {where}", knob=knob, until="there is one")
    since = (now_ms - oldest_ms) / 1000
    return NotDue(
        rule=knob,
        what=f"time that the oldest file has been {where}",
        measured=since,
        threshold=wait_seconds,
        unit=Unit.SECONDS,
        comparison="above",
        knob=knob,
        due_ms=after_interval(since, wait_seconds, now_ms) + 1,
    )


def waiting_since_ms(now_ms: int, wait_seconds: float) -> int:
    """A file that came before this moment has waited long enough."""
    return now_ms - round(wait_seconds * 1000)


def is_trash(path: str) -> bool:
    """Whether it lies in a trash directory."""
    return f"/{TRASH}/" in path


def trash_path(path: str, run_id: str, location: str) -> str:
    """Where a file of a run goes: under the table's location, or under its own directory if it lies elsewhere, so that it never
    leaves its disk or bucket."""
    name = path.rpartition("/")[2]
    below = inner_path(location, path) or name
    if ".." in below.split("/"):
        below = name  # dots could lead out of the trash again
    return f"{path.removesuffix(below)}{TRASH}/{run_id}/{below}"


def original_path(trash_path: str) -> str:
    """Where a file in the trash came from: the path without the part that the trash added, for whoever has lost the list."""
    home, _, rest = trash_path.partition(f"/{TRASH}/")
    return f"{home}/{rest.partition('/')[2]}"


def is_judged_file(file: Quarantined, found: StoredFile) -> bool:
    """Whether the file in a recorded file's place is the one that was judged, and was not written again at the same path.

    A listing has its time and size. S3 tells the time in seconds to some and in milliseconds to others, and an inventory may
    lack sizes. Without a time, the file must not have been modified since it was recorded.
    """
    if found.modified_ms is None:
        return False
    if file.modified_ms is None:
        return found.modified_ms <= file.recorded_ms
    return abs(found.modified_ms - file.modified_ms) < _SECOND_MS and file.size_bytes in (None, 0, found.size_bytes)


def second_look(sides: Sides, *, needed: bool, rewritten: bool = False) -> QuarantineStep:
    """What becomes of a file that was recorded, now that it has been looked at again.

    If another file was written in its place, that one stays; the trash may have the judged one from a move that was
    interrupted.
    """
    if rewritten and not needed:
        return QuarantineStep.REWRITTEN if sides.there is None else QuarantineStep.DONE
    if sides.here is not None and sides.there not in (None, sides.here):
        return QuarantineStep.REFUSE
    if sides.here is not None:
        return QuarantineStep.STAY if needed else QuarantineStep.TRASH
    if sides.there is not None:
        return QuarantineStep.BACK if needed else QuarantineStep.DONE
    return QuarantineStep.LOST if needed else QuarantineStep.GONE


def way_back(file: Quarantined, sides: Sides) -> QuarantineStep:
    """How a file is restored. What is in its place is not overwritten; after a move that was interrupted it may be the file."""
    if sides.here is None:
        return QuarantineStep.GONE if sides.there is None else QuarantineStep.BACK
    same = file.fate is Fate.RECORDED and sides.here == sides.there
    return QuarantineStep.STAY if sides.there is None or same else QuarantineStep.REFUSE


class FileChange(Frozen):
    """What a dry run would do with one file."""

    path: str
    step: QuarantineStep
    reason: str
    size_bytes: int | None = None


class QuarantineRecord(MaintenanceRecord):
    """A second look, a purge or a restore."""

    files: int = 0
    """That were moved to the trash, purged, or put back; where `dry_run`, would be."""
    size_bytes: int = 0
    """Of these, where sizes are known."""
    files_without_size: int = 0
    """Of these, files whose size is not known."""
    not_moved: int = 0
    """Of these, files that a restore found in their place: they were recorded, and not moved yet."""
    needed: int = 0
    """That turned out to be needed: they stay, or were put back."""
    rewritten: int = 0
    """That were written again since they were recorded: they stay, and are not in the quarantine any more."""
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
    changes: tuple[FileChange, ...] = ()
    """Every file that a dry run would do something with."""
    elsewhere: dict[str, int] = {}
    """Files that were recorded for another table with the same uuid, by its name; they are left for that table."""
    note: str | None = None
    """What a restore does not bring back."""
