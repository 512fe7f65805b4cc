"""Writers that change rows: which commits are theirs, and how often they come. Pure.

An UPDATE, DELETE or MERGE reads files at its start and fails if one of them is replaced before it commits; whoever sent it has
to run it again. Appends, equality deletes of streams and overwrites of whole partitions do not fail. Called by
`health.ranking`, `rewrite.planner` and `commit.gaps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from neve.table.state import RUN_ID, Snapshot
from neve.table.units import whole_number

RECENT_COMMITS = 20
"""How many of a writer's commits its period is taken from."""

_OPERATIONS = frozenset({"overwrite", "delete"})
_BY_POSITION = ("added-position-delete-files", "added-dvs")
_QUIET_PERIODS = 3
"""A writer that lets so many of its periods pass has stopped."""
_CHANGING_PERIODS, _CHANGING_LEAST_MS = 10, 60_000


def changes_rows(operation: str, summary: Mapping[str, str]) -> bool:
    """Whether a commit is an UPDATE, DELETE or MERGE of another writer, by copy-on-write or merge-on-read."""
    if operation not in _OPERATIONS or RUN_ID in summary or summary.get("replace-partitions") == "true":
        return False
    if _count(summary, "deleted-data-files"):
        return True
    return any(_count(summary, key) for key in _BY_POSITION) and not _count(summary, "added-equality-delete-files")


def _count(summary: Mapping[str, str], key: str) -> int:
    return whole_number(summary.get(key, "")) or 0


@dataclass(frozen=True)
class Rhythm:
    """A writer at work: its last commit, and the usual time from one commit to the next."""

    last_ms: int
    period_ms: int

    @classmethod
    def of(cls, commits_ms: Iterable[int], now_ms: int) -> Rhythm | None:
        """From the times of its commits. None for fewer than two, and for a writer that has stopped."""
        recent = sorted(commits_ms)[-RECENT_COMMITS:]
        if len(recent) < 2:
            return None
        found = cls(recent[-1], round(median(later - earlier for earlier, later in pairwise(recent))))
        return found if now_ms - found.last_ms <= _QUIET_PERIODS * found.period_ms else None


def row_changes(snapshots: Iterable[Snapshot], head: int | None) -> list[int]:
    """When rows were changed last in the history of `head`, newest first."""
    by_id, found = {s.snapshot_id: s for s in snapshots}, list[int]()
    while (snapshot := by_id.get(head) if head is not None else None) is not None and len(found) < RECENT_COMMITS:
        if changes_rows(snapshot.operation, snapshot.summary):
            found.append(snapshot.timestamp_ms)
        head = snapshot.parent_id
    return found


def changing_since_ms(commits_ms: Iterable[int], now_ms: int) -> int:
    """From this moment on a change of rows means that a writer is at work in a partition now: the last minute, or as long as
    it takes a writer to come by ten times."""
    rhythm = Rhythm.of(commits_ms, now_ms)
    return now_ms - max(_CHANGING_LEAST_MS, _CHANGING_PERIODS * rhythm.period_ms if rhythm else 0)
