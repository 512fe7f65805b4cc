"""How long a command took, as records of all operations keep it: the whole, and the parts that a user waits for. Pure."""

from __future__ import annotations

from neve.table.frozen import Frozen


class Timed(Frozen):
    """What a record says of its command besides its own begin and end. None in records of earlier versions."""

    elapsed_seconds: float | None = None
    """From the request to the record: Spark's start, planning and the work."""
    session_start_seconds: float | None = None
    """How long Spark took to start; None if it was not started for this, or was running already."""
    planning_seconds: float | None = None
    """How long reading metadata and planning took, without Spark's start; None if nothing was planned."""
