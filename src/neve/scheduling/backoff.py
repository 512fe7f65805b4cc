"""How long an operation is paused on a table after consecutive failures, and when people are notified. Pure.

Called when a job ends. A success resets the count. The pause grows and is capped; tables that failed together do not come back
together, as a part of the pause depends on the table's id.
"""

from __future__ import annotations

from zlib import crc32

from neve.scheduling.clock import credible
from neve.scheduling.observation import LastRun
from neve.table.frozen import Frozen


class Backoff(Frozen):
    """How failures are answered."""

    first_seconds: float = 300.0
    """The pause after the first failure."""
    factor: float = 2.0
    max_seconds: float = 86_400.0
    jitter: float = 0.2
    """The largest part of a pause that a table may be spared."""
    alert_after: tuple[int, ...] = (3, 10, 30)
    """Consecutive failures at which people are notified."""

    def pause_ms(self, failures: int, table_id: str) -> int:
        """How long a table is paused after so many consecutive failures; 0 after none."""
        if failures < 1:
            return 0
        # The power of a large count is no number.
        steps = min(failures - 1, 64)
        seconds = min(self.first_seconds * self.factor**steps, self.max_seconds)
        return round(seconds * (1 - self.jitter * _share(table_id)) * 1000)

    def alerts(self, failures: int) -> bool:
        """Whether this failure is one that people are notified of: at the thresholds, then at every multiple of the last."""
        last = max(self.alert_after, default=0)
        return failures in self.alert_after or (last > 0 and failures > last and failures % last == 0)


DEFAULT_BACKOFF = Backoff()


def after_run(
    last: LastRun, *, failures_before: int, failed: bool, table_id: str, backoff: Backoff = DEFAULT_BACKOFF
) -> LastRun:
    """The record of a run that ended, with its failures counted and its pause set. A success resets both."""
    if not failed:
        return last.model_copy(update={"failures": 0, "paused_until_ms": None})
    failures = failures_before + 1
    ended_ms = last.started_ms if last.finished_ms is None else last.finished_ms
    return last.model_copy(update={"failures": failures, "paused_until_ms": ended_ms + backoff.pause_ms(failures, table_id)})


def paused_until(last: LastRun, now_ms: int) -> int | None:
    """Until when an operation is paused on its table; None if it is not.

    A pause after a run of the distant future was set by a clock that was wrong, and is over.
    """
    until, ended_ms = last.paused_until_ms, last.started_ms if last.finished_ms is None else last.finished_ms
    if until is None or until <= now_ms or credible(ended_ms, now_ms) is None:
        return None
    return until


def _share(table_id: str) -> float:
    """A number from 0 to 1 that is the same in every process, unlike Python's own hashes."""
    return crc32(table_id.encode("utf-8", "surrogatepass")) / 0xFFFFFFFF
