"""What an expiry of snapshots leaves behind: what went and what stayed, by which settings, and what became of files."""

from __future__ import annotations

from datetime import UTC, datetime

from neve.errors import BadRequestError
from neve.maintenance.record import MaintenanceRecord, Operation
from neve.maintenance.retention import Keep
from neve.rewrite.record import RunOutcome
from neve.table.frozen import Frozen
from neve.table.units import parse_seconds


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


def taken_over(run_id: str, started_ms: int, *, by: ExpiryRecord) -> ExpiryRecord:
    """The record of an expiry that was killed, once another has gone on with it."""
    return ExpiryRecord(
        run_id=run_id,
        table=by.table,
        table_uuid=by.table_uuid,
        operation=Operation.EXPIRE,
        outcome=RunOutcome.FAILED,
        reason=f"it was interrupted; run {by.recorded_id[:8]} went on with it",
        interrupted=True,
        started_ms=started_ms,
        finished_ms=by.finished_ms,
    )


def age_ms(text: str, now_ms: int) -> int:
    """How long to keep: a duration such as `7 days`, or up to a moment such as `2025-01-31` (UTC unless it says otherwise)."""
    try:
        age = int(parse_seconds(text) * 1000)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            hint = "Write a duration, such as '7 days', or a moment, such as 2025-01-31T12:00:00."
            raise BadRequestError(f"Cannot read {text!r}: neither a duration nor a moment", hint=hint) from None
        age = now_ms - int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if age <= 0:
        raise BadRequestError(f"Cannot expire what is older than {text}: that is not in the past")
    return age
