"""How a table is written, read from its snapshot history: the cadence, and a class that policies can hang on.

Compactions, ours and others', are not writes and are left out. Called by `operations.inspect`; pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from neve.health.inspection import Workload, WorkloadKind
from neve.table.state import RUN_ID, Snapshot
from neve.table.units import counted, format_seconds

WINDOW_SECONDS = 7 * 86400.0
COLD_AFTER_SECONDS = 7 * 86400.0
STREAMING_GAP_SECONDS = 15 * 60.0
BATCH_GAP_SECONDS = 12 * 3600.0
CDC_SHARE = 0.1

_ORDER = ("append", "update", "overwrite", "delete")
_DELETE_KEYS = ("added-delete-files", "added-position-deletes", "added-equality-deletes", "added-dvs")


def is_write(snapshot: Snapshot) -> bool:
    """Whether the snapshot changed rows, as opposed to rearranging them."""
    return snapshot.operation != "replace" and RUN_ID not in snapshot.summary


def operation_of(snapshot: Snapshot) -> str:
    """What a write did: append, update, overwrite or delete. The summary says more than Iceberg's operation.

    Iceberg calls an UPDATE by merge-on-read an overwrite, though it replaces no data file; older versions do so with a DELETE.
    """
    adds, removes = bool(snapshot.count("added-data-files")), bool(snapshot.count("deleted-data-files"))
    if _deletes_rows(snapshot):
        return "update" if adds else "delete"
    return "delete" if removes and not adds else snapshot.operation


def _deletes_rows(snapshot: Snapshot) -> bool:
    """Whether it brings delete files or deletion vectors."""
    return any((snapshot.count(key) or 0) > 0 for key in _DELETE_KEYS)


def classify(snapshots: Sequence[Snapshot], now_ms: int) -> Workload:
    """The class of the last week that saw writes, from the snapshots of one branch (`table.state.ancestry`)."""
    writes = sorted((s for s in snapshots if is_write(s)), key=lambda s: s.timestamp_ms)
    if not writes:
        return _workload(WorkloadKind.EMPTY, "no write in the snapshot history", [], None)
    last_ms = writes[-1].timestamp_ms
    recent = [s for s in writes if last_ms - s.timestamp_ms <= WINDOW_SECONDS * 1000]
    gap = _median_gap(recent)
    idle = (now_ms - last_ms) / 1000
    if idle > COLD_AFTER_SECONDS:
        return _workload(WorkloadKind.COLD, f"last write {format_seconds(idle)} ago", recent, gap)
    return _workload(*_active(recent, gap), recent, gap)


def _active(writes: Sequence[Snapshot], gap: float | None) -> tuple[WorkloadKind, str]:
    count = len(writes)
    deleting = sum(_deletes_rows(s) for s in writes)
    if deleting >= 2 and deleting >= CDC_SHARE * count:
        return WorkloadKind.CDC, f"{deleting} of {count} writes bring row-level deletes"
    replacing = sum(operation_of(s) in ("update", "overwrite", "delete") for s in writes)
    if 2 * replacing >= count:
        does = "overwrites or deletes" if replacing == 1 else "overwrite or delete"
        return WorkloadKind.BATCH, f"{replacing} of {counted(count, 'write')} {does}"
    told = _told(writes)
    if gap is None:
        return WorkloadKind.BATCH, f"{told} only"
    if gap > BATCH_GAP_SECONDS:
        return WorkloadKind.BATCH, f"{told}, {format_seconds(gap)} apart"
    kind = WorkloadKind.STREAMING if gap <= STREAMING_GAP_SECONDS and count >= 3 else WorkloadKind.APPEND
    return kind, f"{told}, {format_seconds(gap)} apart (median)"


def _operations(writes: Sequence[Snapshot]) -> dict[str, int]:
    """Writes by what they did, the usual kinds first and in one order."""
    found = Counter(operation_of(s) for s in writes)
    return {name: found[name] for name in (*_ORDER, *sorted(found.keys() - set(_ORDER))) if name in found}


def _told(writes: Sequence[Snapshot]) -> str:
    """`4 appends, 2 updates and 1 delete`."""
    *most, last = (counted(number, name) for name, number in _operations(writes).items())
    return f"{', '.join(most)} and {last}" if most else last


def _median_gap(writes: Sequence[Snapshot]) -> float | None:
    gaps = [(b.timestamp_ms - a.timestamp_ms) / 1000 for a, b in pairwise(writes)]
    return median(gaps) if gaps else None


def _workload(kind: WorkloadKind, evidence: str, writes: Sequence[Snapshot], gap: float | None) -> Workload:
    span = (writes[-1].timestamp_ms - writes[0].timestamp_ms) / 1000 if writes else 0.0
    return Workload(
        kind=kind,
        evidence=evidence,
        commits=len(writes),
        window_seconds=span,
        median_gap_seconds=gap,
        last_write_ms=writes[-1].timestamp_ms if writes else None,
        operations=_operations(writes),
    )
