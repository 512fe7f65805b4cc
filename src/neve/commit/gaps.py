"""gaps: lets a writer that changes rows commit first, so that ours lands between two of its commands.

Called by `commit.rewrite_files` and `operations.delete_files` before the first attempt. It chooses the moment and nothing else:
every check of the commit comes after it. What goes wrong here is left to the commit to find out.
"""

from __future__ import annotations

import logging

from neve.commit.access import Sleeper
from neve.commit.failure import Failure
from neve.health.row_changes import RECENT_COMMITS, Rhythm, changes_rows
from neve.ports import Clock, TableWriter

log = logging.getLogger(__name__)

_MOST_SNAPSHOTS = 5 * RECENT_COMMITS
"""How far back the history is read: other commits lie between those that change rows."""
_GAP_SHARE = 0.1
"""Within this share of a period after its last commit, the writer's next command has hardly begun."""
_POLLS_PER_PERIOD, _LEAST_POLL_MS, _MOST_POLL_MS = 50, 100, 1_000


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


def wait_ms(rhythm: Rhythm, now_ms: int, limit_ms: int) -> int:
    """How long to wait at most for the writer's next commit, 0 to commit now.

    A commit now would fail a command that is under way. None is in the moments after the last commit, nor, most likely,
    while the next is further away than the limit.
    """
    since = max(0, now_ms - rhythm.last_ms)
    next_in = rhythm.period_ms - since
    if since <= _GAP_SHARE * rhythm.period_ms or next_in > limit_ms:
        return 0
    return min(limit_ms, next_in + rhythm.period_ms)


def poll_ms(rhythm: Rhythm) -> int:
    """How often to check for that commit: often enough that most of the gap after it is left."""
    return min(max(rhythm.period_ms // _POLLS_PER_PERIOD, _LEAST_POLL_MS), _MOST_POLL_MS)


def _wait(writer: TableWriter, branch: str, clock: Clock, sleep: Sleeper, limit_ms: int) -> None:
    writer.refresh()
    head, began = writer.head(branch), clock.now_ms()
    rhythm = Rhythm.of(_changes(writer, head, None), began)
    if rhythm is None or not (wait := wait_ms(rhythm, began, limit_ms)):
        return
    period, poll = rhythm.period_ms / 1000, poll_ms(rhythm)
    log.info("another writer changes rows every %.1f s: waiting up to %.1f s for its next commit", period, wait / 1000)
    for _ in range(wait // poll + 1):  # bounded also where the clock is set back meanwhile
        left = began + wait - clock.now_ms()
        if left <= 0 or _changes(writer, writer.head(branch), head):
            break
        sleep(min(poll, left) / 1000)
        writer.refresh()
    log.info("waited %.1f s for a gap between the commits of another writer", (clock.now_ms() - began) / 1000)


def _changes(writer: TableWriter, head: int | None, since: int | None) -> list[int]:
    """When other writers changed rows after the snapshot `since`."""
    if head is None:
        return []
    ancestors = writer.ancestry(head, since, most=_MOST_SNAPSHOTS)
    return [a.timestamp_ms for a in ancestors if changes_rows(a.operation, a.summary)]
