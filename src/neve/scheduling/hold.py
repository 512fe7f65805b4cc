"""Why an operation does not run on a table now. Pure; counted by `decide`, shown by surfaces."""

from __future__ import annotations

from enum import StrEnum

from neve.table.frozen import Frozen

PAUSED_BY_HAND = "paused"
"""The outcome of a `LastRun` that stands for no run: someone paused an operation that never ran on the table."""

LIMITED = "limited"
"""The outcome of a run that would have had something to do if its limits had allowed it."""


class HoldCode(StrEnum):
    """The kind of a reason for which an operation has to wait."""

    NOT_DUE = "not due"
    PAUSED = "paused"
    """After failures."""
    RECENT = "ran recently"
    """By `at-most-every`."""
    WRITING = "recently written"
    """By `quiet-for`."""
    CLOSED = "outside its windows"
    COVERED = "covered by maintain"
    WAITING = "already waiting"
    BUSY = "table is busy"
    """Another job of the table runs."""
    DUPLICATE = "listed twice"
    """Another name of the same table has the job."""
    NO_TARGET = "no target"
    TEAM = "team is busy"
    FULL = "queue is full"
    BUDGET = "budget"


class HeldBack(Frozen):
    """An operation that is due on a table and has to wait, or is paused."""

    table: str
    operation: str
    code: HoldCode
    reason: str
    next_ms: int | None = None
    """When it can start at the earliest, if that is known."""
