"""When rows were last added to a table, from facts that snapshot expiry does not remove. Pure.

`maintenance.ttl` counts back from this moment (`ttl-since: last-write`). A later moment deletes more rows, so every doubt is
resolved toward an earlier one, and where nothing is known the answer is None: then no row may be deleted. Expiry removes the
snapshots that answer the question, so `operations.expire_snapshots` writes the answer into the table in the same commit. A fact
belongs to a snapshot id, not to a branch: it stays true after a rollback, a restore, REPLACE TABLE or a registration elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from neve.maintenance.retention import SnapshotHistory
from neve.table.properties import LAST_WRITES
from neve.table.state import MAIN, RUN_ID, RefKind, Snapshot, ancestry

_ADDING = frozenset({"append", "overwrite"})
_ADDED = ("added-data-files", "added-records")
_TOTALS = ("total-records", "total-data-files", "changed-partition-count")
_AMORO_MAINTENANCE = frozenset({"OPTIMIZE", "DATA_EXPIRATION", "CLEAN_DANGLING_DELETE"})


@dataclass(frozen=True)
class LastWrite:
    """The moment, or why it is unknown."""

    ms: int | None
    why_unknown: str = ""


def adds_rows(snapshot: Snapshot) -> bool:
    """Whether somebody other than maintenance added rows. Empty commits of streams do not, nor deletes that
    rewrite no file, nor Amoro's own commits."""
    summary = snapshot.summary
    if snapshot.operation not in _ADDING or RUN_ID in summary or summary.get("snapshot.producer") in _AMORO_MAINTENANCE:
        return False
    silent = not any(key in summary for key in (*_ADDED, *_TOTALS))
    return silent or any((snapshot.count(key) or 0) > 0 for key in _ADDED)


def last_write(
    snapshots: Sequence[Snapshot], head: int | None, properties: Mapping[str, str], *, now_ms: int, branch: str = MAIN
) -> LastWrite:
    """The last write in the history of `head`. Moments after `now_ms` come from a wrong clock and are passed over."""
    by_id, known = {snapshot.snapshot_id: snapshot for snapshot in snapshots}, facts(properties)
    if head not in by_id:
        return LastWrite(None, f"branch {branch} has no snapshot")
    parent: int | None = None
    for snapshot in ancestry(by_id, head):
        told = [snapshot.timestamp_ms] if adds_rows(snapshot) else []
        told += [known[snapshot.snapshot_id]] if snapshot.snapshot_id in known else []
        if believed := [moment for moment in told if moment <= now_ms]:
            return LastWrite(max(believed))
        parent = snapshot.parent_id
    cut = "older snapshots were expired by another tool" if parent is not None else "no snapshot in its history added rows"
    return LastWrite(None, f"the last write to branch {branch} is unknown: {cut}")


def facts_to_keep(history: SnapshotHistory, expired: Collection[int], *, now_ms: int) -> dict[str, str]:
    """The table property that keeps the last write of every branch known after these snapshots are gone; {} where the
    snapshots that stay tell it by themselves."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in history.snapshots}
    left = {found: snapshot for found, snapshot in by_id.items() if found not in set(expired)}
    heads = [ref.snapshot_id for ref in history.refs if ref.kind is RefKind.BRANCH]
    heads += [history.head] if history.head is not None else []
    kept = dict[str, int]()
    for head in heads:
        chain = [*ancestry(left, head)]
        if not chain or chain[-1].parent_id is None:
            continue
        oldest = chain[-1].snapshot_id
        moment = last_write(history.snapshots, oldest, history.properties, now_ms=now_ms).ms
        if moment is not None and (moment != chain[-1].timestamp_ms or not adds_rows(chain[-1])):
            kept[str(oldest)] = moment
    text = json.dumps(kept, sort_keys=True)
    return {LAST_WRITES: text} if kept and history.properties.get(LAST_WRITES) != text else {}


def facts(properties: Mapping[str, str]) -> dict[int, int]:
    """What the property says; nothing where it cannot be read."""
    try:
        found = json.loads(properties.get(LAST_WRITES, "{}"))
    except ValueError:
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {int(key): moment for key, moment in pairs if _is_id(key) and type(moment) is int}


def _is_id(key: str) -> bool:
    return key.isascii() and key.isdigit()
