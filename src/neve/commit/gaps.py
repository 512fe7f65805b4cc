"""gaps: lets a writer that changes rows commit first, so that ours lands between two of its commands.

Called by `commit.rewrite_files` and `operations.delete_files` before the first attempt. It chooses the moment and nothing else:
every check of the commit comes after it. What goes wrong here is left to the commit to find out.
"""

from __future__ import annotations

import logging

from neve.commit.failure import Failure
from neve.commit.tools import Sleeper
from neve.health.row_changes import RECENT_COMMITS, Rhythm, changes_rows
from neve.ports import Clock, TableWriter

log = logging.getLogger(__name__)

_MOST_SNAPSHOTS = 5 * RECENT_COMMITS
"""How far back the history is read: other commits lie between those that change rows."""


def wait_for_gap(writer: TableWriter, branch: str, *, clock: Clock, sleep: Sleeper, limit_seconds: float) -> bool:
    """Waits for the next UPDATE, DELETE or MERGE of another writer to be committed, if one is expected soon. Returns whether it
    has loaded newer metadata, which is so wherever the history shows such a writer."""
    try:
        if not limit_seconds or len(_changes(writer, writer.head(branch), None)) < 2:
            return False
        _wait(writer, branch, clock, sleep, round(1000 * limit_seconds))
    except Exception as error:
        log.warning("the commit does not wait for other writers: %s", Failure.of(error).reason)
    return True


def _wait(writer: TableWriter, branch: str, clock: Clock, sleep: Sleeper, limit_ms: int) -> None:
    writer.refresh()
    head, began = writer.head(branch), clock.now_ms()
    rhythm = Rhythm.of(_changes(writer, head, None), began)
    if rhythm is None or not (wait := rhythm.wait_ms(began, limit_ms)):
        return
    period = rhythm.period_ms / 1000
    log.info("another writer changes rows every %.1f s: waiting up to %.1f s for its next commit", period, wait / 1000)
    for _ in range(wait // rhythm.poll_ms + 1):  # bounded also where the clock is set back meanwhile
        left = began + wait - clock.now_ms()
        if left <= 0 or _changes(writer, writer.head(branch), head):
            break
        sleep(min(rhythm.poll_ms, left) / 1000)
        writer.refresh()
    log.info("waited %.1f s for a gap between the commits of another writer", (clock.now_ms() - began) / 1000)


def _changes(writer: TableWriter, head: int | None, since: int | None) -> list[int]:
    """When other writers changed rows after the snapshot `since`."""
    if head is None:
        return []
    ancestors = writer.ancestry(head, since, most=_MOST_SNAPSHOTS)
    return [a.timestamp_ms for a in ancestors if changes_rows(a.operation, a.summary)]
