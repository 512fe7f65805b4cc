"""How a table is written, read from its snapshot history: the cadence, and a class that policies can hang on.

Compactions, ours and others', are not writes and are left out. Called by `operations.inspect`; pure.
"""

from __future__ import annotations

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

_DELETE_KEYS = ("added-delete-files", "added-position-deletes", "added-equality-deletes", "added-dvs")


def is_write(snapshot: Snapshot) -> bool:
    """Whether the snapshot changed rows, as opposed to rearranging them."""
    return snapshot.operation != "replace" and RUN_ID not in snapshot.summary


def classify(snapshots: Sequence[Snapshot], now_ms: int) -> Workload:
    """The class of the last week that saw writes."""
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
    deleting = sum(1 for s in writes if any((s.count(key) or 0) > 0 for key in _DELETE_KEYS))
    if deleting >= 2 and deleting >= CDC_SHARE * count:
        return WorkloadKind.CDC, f"{deleting} of {count} writes bring row-level deletes"
    replacing = sum(1 for s in writes if s.operation in ("overwrite", "delete"))
    if 2 * replacing >= count:
        does = "overwrites or deletes" if replacing == 1 else "overwrite or delete"
        return WorkloadKind.BATCH, f"{replacing} of {counted(count, 'write')} {does}"
    if gap is None:
        return WorkloadKind.BATCH, f"{counted(count, 'append')} only"
    if gap > BATCH_GAP_SECONDS:
        return WorkloadKind.BATCH, f"{counted(count, 'append')}, {format_seconds(gap)} apart"
    kind = WorkloadKind.STREAMING if gap <= STREAMING_GAP_SECONDS and count >= 3 else WorkloadKind.APPEND
    return kind, f"{counted(count, 'append')}, {format_seconds(gap)} apart (median)"


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
    )
