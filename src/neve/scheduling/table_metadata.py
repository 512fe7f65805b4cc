"""From a table's metadata file to its `Observation`. Pure; called by `service.observer` for each file that is new.

Nothing of the document is kept but totals, properties and counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from neve.errors import CorruptMetadataError
from neve.maintenance.last_write import facts
from neve.scheduling.commit_counts import NewCommits, SnapshotLog, commits_since
from neve.scheduling.observation import Observation
from neve.table.document import KNOWN_VERSIONS, newer_version
from neve.table.state import RUN_ID
from neve.table.units import whole_number

_TOTALS = ("total-data-files", "total-delete-files", "total-files-size")


def observation_of(
    table: str, document: Mapping[str, Any], metadata_location: str, *, before: Observation | None, now_ms: int
) -> Observation:
    """Returns the table as its metadata file has it.

    `before` is the last observation of the same name, or of the same table under another name. It is ignored if it is of
    another table. Raises CorruptMetadataError or NotUnderstoodError.
    """
    try:
        if (version := document["format-version"]) not in KNOWN_VERSIONS:
            if not isinstance(version, int):
                raise TypeError(f"{version!r} is not a format version")
            raise newer_version(table, document)
        return _observation(table, document, metadata_location, before, now_ms)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise CorruptMetadataError(
            f"Cannot observe table {table}: its metadata file {metadata_location} is malformed ({reason})",
            hint="Register the newest undamaged metadata file of the table, or drop the table's entry.",
        ) from error


def uuid_of(document: Mapping[str, Any], metadata_location: str) -> str:
    """The table's identity, derived for tables of format v1 without one as `table.document_state` derives it."""
    return str(document.get("table-uuid") or uuid5(NAMESPACE_URL, metadata_location))


def _observation(
    table: str, document: Mapping[str, Any], location: str, before: Observation | None, now_ms: int
) -> Observation:
    uuid, log = uuid_of(document, location), SnapshotLog.of(document)
    if before is not None and document.get("table-uuid") is not None and before.uuid != uuid:
        before = None
    totals = _totals(log)
    new = commits_since(log, before) if before is not None else NewCommits()
    values: dict[str, Any] = (
        {}
        if before is None
        else {
            "counters": new.added_to(before, totals),
            "hinted_ms": before.hinted_ms,
            "inspected": before.inspected,
        }
    )
    properties = {key: str(value) for key, value in (document.get("properties") or {}).items() if value is not None}
    return Observation(
        table=table,
        uuid=uuid,
        metadata_location=location,
        observed_ms=now_ms,
        snapshot_id=log.head,
        sequence_number=log.sequence_number,
        log_ms=log.newest_ms,
        own_snapshot_id=_own_snapshot(log, new, before),
        properties=properties,
        data_files=totals["total-data-files"],
        delete_files=totals["total-delete-files"],
        total_bytes=totals["total-files-size"],
        last_write_ms=_last_write(log, new, before, properties, now_ms),
        **values,
    )


def _totals(log: SnapshotLog) -> dict[str, int | None]:
    """Of the current snapshot; 0 for a table without one, None where the summary lacks a number or has a negative one."""
    if log.head is None:
        return dict.fromkeys(_TOTALS, 0)
    summary = log.by_id[log.head].get("summary") or {}
    return {key: whole_number(str(summary.get(key, ""))) for key in _TOTALS}


def _own_snapshot(log: SnapshotLog, new: NewCommits, before: Observation | None) -> int | None:
    if before is None:
        own = (one["snapshot-id"] for one in log.chain(log.head) if RUN_ID in (one.get("summary") or {}))
        return next(own, None)
    return next((one.snapshot_id for one in reversed(new.snapshots) if RUN_ID in one.summary), before.own_snapshot_id)


def _last_write(
    log: SnapshotLog, new: NewCommits, before: Observation | None, properties: Mapping[str, str], now_ms: int
) -> int | None:
    """When anyone but Neve last committed to main. A time in the future comes from a wrong clock, and counts as now."""
    if before is None:
        return _last_write_in_history(log, properties, now_ms)
    moments = [snapshot.timestamp_ms for snapshot in new.of_others]
    if new.expired and not moments:
        moments = [log.newest_ms]  # too late rather than too early: it only delays work
    return min(max(moments), now_ms) if moments else before.last_write_ms


def _last_write_in_history(log: SnapshotLog, properties: Mapping[str, str], now_ms: int) -> int | None:
    kept = facts(properties)
    for snapshot in log.chain(log.head):
        if RUN_ID not in (snapshot.get("summary") or {}):
            return min(int(snapshot["timestamp-ms"]), now_ms)
        if snapshot["snapshot-id"] in kept:
            return min(kept[snapshot["snapshot-id"]], now_ms)
    return None
