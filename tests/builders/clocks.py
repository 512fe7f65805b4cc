"""A clock that stands still until it is moved."""

from __future__ import annotations


class FixedClock:
    """Implements `ports.Clock`."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Moves the clock; back, if negative."""
        self._now_ms += milliseconds
