"""How long a command took and what it used, as records of all operations keep it. Pure."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from neve.rewrite.usage import Used
from neve.table.frozen import Frozen

WRITTEN_IF_KNOWN: Any = Field(default=None, exclude_if=lambda known: known is None)
"""Of a field that records of earlier versions do not have: they are written as they were."""


class Timed(Frozen):
    """What a record says of its command besides its own begin and end. None in records of earlier versions."""

    elapsed_seconds: float | None = WRITTEN_IF_KNOWN
    """From the request to the record: Spark's start, planning and the work."""
    session_start_seconds: float | None = WRITTEN_IF_KNOWN
    """How long Spark took to start; None if it was not started for this, or was running already."""
    planning_seconds: float | None = WRITTEN_IF_KNOWN
    """How long reading metadata and planning took, without Spark's start; None if nothing was planned."""
    used: Used | None = WRITTEN_IF_KNOWN
    """Requests, CPU time and money."""
