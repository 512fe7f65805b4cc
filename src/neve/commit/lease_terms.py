"""The right to work on one table, as the state store hands it out and the flow renews it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

LEASE_MS = 5 * 60_000
"""How long a lease, and the heartbeat of a run, are valid without being renewed."""


@dataclass(frozen=True)
class Lease:
    """Which process may work on a table for which run, and until when, by the clock of the state store.

    `owner` is the text of a `commit.owner.Owner`. `token` grows each time the lease is taken, so that an earlier holder is
    known.
    """

    run_id: str
    owner: str
    token: int
    until_ms: int


@dataclass(frozen=True)
class Taken:
    """What came of trying to take a lease: the lease as it is now, and the one that it replaced, if there was one."""

    lease: Lease
    before: Lease | None = None


def shown_time(ms: int) -> str:
    """A moment for messages."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms after 1970"  # a clock that was far off wrote it
