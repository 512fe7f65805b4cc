"""What people are notified of: a failure, a pause, a recovery, a day. Pure values, kept in the `notices` table as JSON.

Written in the transaction of what happened; `service.notify` sends them later. Texts are bounded, as
a message may have many.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator

from neve.table.frozen import Frozen

MAX_TEXT = 1000
"""The most characters of a reason or a message."""


def _shortened(value: object) -> object:
    return f"{value[: MAX_TEXT - 1]}…" if isinstance(value, str) and len(value) > MAX_TEXT else value


BoundedText = Annotated[str, BeforeValidator(_shortened)]
"""A text that is cut where it is too long."""


class NoticeKind(StrEnum):
    """The kind of a notice."""

    FAILURE = "failure"
    PAUSE = "pause"
    RECOVERY = "recovery"
    DIGEST = "digest"


class JobFailure(Frozen):
    """A job failed and will be tried again."""

    table: str
    operation: str
    reason: BoundedText
    policy: str = ""
    run_id: str | None = None
    failures: int = 1
    """Consecutive failures, this one included."""
    at_ms: int
    next_ms: int | None = None
    """When it may be tried again."""
    command: BoundedText | None = None
    """What to run next; derived from the run or the table unless set."""


class TablePause(Frozen):
    """An operation on a table failed so often that it is paused."""

    table: str
    operation: str
    reason: BoundedText
    """The last failure's."""
    policy: str = ""
    run_id: str | None = None
    failures: int
    at_ms: int
    until_ms: int
    command: BoundedText | None = None
    """What ends the pause immediately, where there is such a command."""


class TableRecovery(Frozen):
    """An operation on a table succeeded after failures."""

    table: str
    operation: str
    policy: str = ""
    run_id: str | None = None
    failures: int
    """Consecutive failures before."""
    was_paused: bool = False
    at_ms: int


class OperationTotal(Frozen):
    """How often an operation ran in a day, and on how many tables."""

    operation: str
    runs: int
    tables: int


class TableLine(Frozen):
    """One table in a digest, with a sentence about it."""

    table: str
    operation: str
    text: BoundedText = ""
    at_ms: int | None = None


class DayDigest(Frozen):
    """What happened to a team's tables in a day. Lists are cut; the counts beside them are whole."""

    owner: str
    day: str
    """The date on which it is sent."""
    from_ms: int
    until_ms: int
    done: tuple[OperationTotal, ...] = ()
    files_fewer: int | None = None
    bytes_freed: int | None = None
    bytes_used: int | None = None
    core_seconds: float | None = None
    money: float | None = None
    unmeasured: int = 0
    """Runs whose use is unknown."""
    failed: tuple[TableLine, ...] = ()
    failed_count: int = 0
    """Operations on tables that failed, however often."""
    paused: tuple[TableLine, ...] = ()
    paused_count: int = 0
    waiting: tuple[TableLine, ...] = ()
    waiting_count: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.done or self.failed_count or self.paused_count or self.waiting_count)


NoticeContent = JobFailure | TablePause | TableRecovery | DayDigest

CONTENT: dict[str, type[NoticeContent]] = {
    NoticeKind.FAILURE: JobFailure,
    NoticeKind.PAUSE: TablePause,
    NoticeKind.RECOVERY: TableRecovery,
    NoticeKind.DIGEST: DayDigest,
}
"""The content of each kind of notice."""
