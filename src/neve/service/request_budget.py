"""How many requests the observer may send to one catalog in one round, and when it tries again what has failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

FIRST_WAIT_MS = 60_000
LONGEST_WAIT_MS = 3_600_000
UNBOUNDED = sys.maxsize


@dataclass
class RequestBudget:
    """What may be sent to one catalog in one round. It is asked before a request.

    What one request needs besides may exceed it: opening the catalog, further pages of a listing, and repetitions.
    """

    limit: int
    sent: Callable[[], int]
    """Returns how many requests were ever sent to the catalog."""
    _before: int = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.sent()

    @property
    def spent(self) -> int:
        """Requests of this round."""
        return self.sent() - self._before

    @property
    def left(self) -> int:
        """Requests that may still be sent."""
        return max(0, self.limit - self.spent)


@dataclass(frozen=True)
class _Failure:
    times: int
    next_ms: int
    version: str | None


class Retries:
    """What has failed, and when it is tried again: after a minute, then after twice as long each time, an hour at most.

    Kept in memory: after a restart, everything is tried again.
    """

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._failures

    def may_try(self, name: str, now_ms: int, version: str | None = None) -> bool:
        """Whether it has not failed at this version of it, or has waited long enough.

        A clock that was set back makes nothing wait longer.
        """
        failure = self._failures.get(name)
        if failure is None or failure.version != version:
            return True
        return not now_ms < failure.next_ms <= now_ms + LONGEST_WAIT_MS

    def failed(self, name: str, now_ms: int, version: str | None = None) -> None:
        """It has failed, maybe not for the first time."""
        times = self._failures[name].times + 1 if name in self._failures else 1
        wait = min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** min(times - 1, 16))
        self._failures[name] = _Failure(times, now_ms + wait, version)

    def succeeded(self, name: str) -> None:
        """It has succeeded."""
        self._failures.pop(name, None)

    def forget(self, names: Iterable[str]) -> None:
        """These are gone."""
        for name in names:
            self._failures.pop(name, None)
