"""Counts what writers other than Neve committed to a table between two observations, from its metadata file alone. Pure.

Called by `scheduling.table_metadata`. A snapshot counts once, when it first is part of the main branch. Snapshots that were
rolled back count; those of other branches count when they are published to main. The count is exact as long as the snapshots in
between still exist. Where they were expired before anyone observed them:

- Format v2 and later: each snapshot has a sequence number of its own, so none is missed. Every missing number counts as a
  commit of others, so the count is too high by at most the number of Neve's own commits, compactions by other tools, and
  commits to other branches among the expired ones. Their bytes and files are taken from the growth of the totals that the
  remaining snapshots do not explain, which is too low by what was added and removed again.
  An expiry also removes entries of the log, so that nothing tells whether an unreferenced snapshot that is left was rolled
  back or never published. Each counts as a commit. So does an older snapshot to which main was rolled back, if the expiry of
  one in between hides that it was part of main before.
- Format v1: snapshots have no numbers. If the oldest snapshot that is left has an expired parent, one commit is counted for all
  that were expired.
- A table that was registered again from an older metadata file counts only snapshots that are younger than the last
  observation. If its sequence numbers have grown beyond those observed before, the count is off by at most the commits since it
  was registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neve.health.workload import is_write
from neve.scheduling.observation import Counters, Observation
from neve.table.document_state import snapshot_of
from neve.table.state import RUN_ID, Snapshot

_TOTALS = ("total-files-size", "total-data-files")
_ADDED = ("added-files-size", "added-data-files")
_REMOVED = ("removed-files-size", "deleted-data-files")


@dataclass(frozen=True)
class SnapshotLog:
    """The parts of a metadata file that tell how its main branch changed."""

    by_id: Mapping[int, Mapping[str, Any]]
    head: int | None
    sequence_number: int
    entries: Sequence[tuple[int, int]]
    """When which snapshot became the current one, oldest first."""
    refs: Sequence[int] = ()
    """The heads of branches and tags."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SnapshotLog:
        """Raises KeyError, TypeError or AttributeError for a malformed document."""
        head = document.get("current-snapshot-id")
        return cls(
            by_id={one["snapshot-id"]: one for one in document.get("snapshots") or ()},
            head=None if head == -1 else head,
            sequence_number=document.get("last-sequence-number") or 0,
            entries=[(one["timestamp-ms"], one["snapshot-id"]) for one in document.get("snapshot-log") or ()],
            refs=[one["snapshot-id"] for one in (document.get("refs") or {}).values()],
        )

    @property
    def newest_ms(self) -> int:
        """When main last changed; 0 for a table that never had a snapshot."""
        if self.entries:
            return self.entries[-1][0]
        head = self.by_id.get(self.head) if self.head is not None else None
        return int(head["timestamp-ms"]) if head is not None else 0

    def chain(self, head: int | None) -> Iterable[Mapping[str, Any]]:
        """A snapshot and those before it, newest first, as far as they are not expired."""
        seen = set[int]()
        while head is not None and head not in seen and (snapshot := self.by_id.get(head)) is not None:
            seen.add(head)
            yield snapshot
            head = snapshot.get("parent-snapshot-id")

    def reachable(self, heads: Iterable[int | None]) -> set[int]:
        """These snapshots and all before them."""
        found = set[int]()
        for head in heads:
            while head is not None and head not in found and (snapshot := self.by_id.get(head)) is not None:
                found.add(head)
                head = snapshot.get("parent-snapshot-id")
        return found


@dataclass(frozen=True)
class NewCommits:
    """Snapshots that became part of main since the last observation, oldest first, and how many more were expired."""

    snapshots: tuple[Snapshot, ...] = ()
    expired: int = 0

    @property
    def of_others(self) -> list[Snapshot]:
        """Those that Neve did not commit."""
        return [snapshot for snapshot in self.snapshots if RUN_ID not in snapshot.summary]

    def added_to(self, before: Observation, totals: Mapping[str, int | None]) -> Counters:
        """The table's counters with these commits, by the totals of the current snapshot's summary."""
        writes = [snapshot for snapshot in self.snapshots if is_write(snapshot)]
        lost = [0, 0] if not self.expired else self._unexplained(before, totals)
        size, files = (_sum(writes, key) + extra for key, extra in zip(_ADDED, lost, strict=True))
        return Counters(
            commits=before.counters.commits + len(writes) + self.expired,
            bytes_added=before.counters.bytes_added + size,
            files_added=before.counters.files_added + files,
        )

    def _unexplained(self, before: Observation, totals: Mapping[str, int | None]) -> list[int]:
        """The growth in bytes and files that the remaining snapshots do not explain; at least 0."""
        growth = []
        for key, was, added, removed in zip(_TOTALS, (before.total_bytes, before.data_files), _ADDED, _REMOVED, strict=True):
            now = totals.get(key)
            explained = _sum(self.snapshots, added) - _sum(self.snapshots, removed)
            growth.append(max(0, now - was - explained) if now is not None and was is not None else 0)
        return growth


def commits_since(log: SnapshotLog, before: Observation) -> NewCommits:
    """Returns what became part of main since the observation."""
    if (log.head, log.sequence_number, log.newest_ms) == (before.snapshot_id, before.sequence_number, before.log_ms):
        return NewCommits()
    position = _position(log.entries, before)
    known = log.reachable([before.snapshot_id, *(snapshot for _, snapshot in log.entries[:position])])
    found = log.reachable([log.head, *(snapshot for _, snapshot in log.entries[position:])]) - known
    if before.snapshot_id is not None and before.snapshot_id not in log.by_id:
        # Nothing tells which of these main had before; they were counted unless they are younger.
        found = {one for one in found if _is_younger(log.by_id[one], before, log.sequence_number)}
    snapshots = sorted(map(snapshot_of, (log.by_id[one] for one in found)), key=lambda s: (s.sequence_number, s.timestamp_ms))
    return NewCommits(tuple(snapshots), _expired(log, before, found))


def _position(entries: Sequence[tuple[int, int]], before: Observation) -> int:
    """How many entries of the log were there at the last observation."""
    last = (before.log_ms, before.snapshot_id)
    exact = [number for number, entry in enumerate(entries, 1) if entry == last]
    return exact[-1] if exact else next((n for n, (ms, _) in enumerate(entries) if ms > before.log_ms), len(entries))


def _is_younger(snapshot: Mapping[str, Any], before: Observation, sequence_number: int) -> bool:
    number = snapshot.get("sequence-number") or 0
    if number and sequence_number >= before.sequence_number:
        return bool(number > before.sequence_number)
    return bool(snapshot["timestamp-ms"] > before.log_ms)  # format v1, or registered from an older metadata file


def _expired(log: SnapshotLog, before: Observation, found: set[int]) -> int:
    """How many snapshots came and went since the observation."""
    if log.sequence_number:
        young = {key for key, one in log.by_id.items() if (one.get("sequence-number") or 0) > before.sequence_number}
        missing = max(0, log.sequence_number - before.sequence_number - len(young))
        if missing or not _is_complete(log, before):
            return missing + len(young - found - log.reachable(log.refs))
        return 0
    if before.snapshot_id in log.by_id or not found:
        return 0
    parents = {log.by_id[one].get("parent-snapshot-id") for one in found} - {None, -1, before.snapshot_id}
    return int(any(parent not in log.by_id for parent in parents))


def _is_complete(log: SnapshotLog, before: Observation) -> bool:
    """Whether the log has every entry since the observation. Iceberg removes all entries up to that of an expired snapshot."""
    return before.snapshot_id is None or (before.log_ms, before.snapshot_id) in log.entries


def _sum(snapshots: Iterable[Snapshot], key: str) -> int:
    return sum(max(0, snapshot.count(key) or 0) for snapshot in snapshots)
