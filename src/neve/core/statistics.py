"""What a run was good for: the table before and after it, and the run in ten numbers. Pure.

Built by `compose` around a run; the command line, the Python calls and the demo show it. What the run itself did is taken from
its record, so that files which others add meanwhile are not counted as its doing.
"""

from __future__ import annotations

from typing import Literal

from neve.core.inspection import Inspection
from neve.core.model import Frozen
from neve.core.record import RunRecord

SCHEMA_VERSION: Literal[1] = 1


class Condition(Frozen):
    """A table at one moment, in the numbers that a compaction changes."""

    snapshot_id: int | None
    data_files: int
    data_bytes: int
    average_file_bytes: float
    small_files: int
    delete_files: int
    health: int

    @classmethod
    def of(cls, inspection: Inspection) -> Condition:
        """From a look at depth FILES."""
        return cls(
            snapshot_id=inspection.snapshot_id,
            data_files=inspection.data_files or 0,
            data_bytes=inspection.data_bytes or 0,
            average_file_bytes=inspection.average_file_bytes or 0.0,
            small_files=inspection.small_files or 0,
            delete_files=inspection.deletes.files if inspection.deletes else 0,
            health=inspection.health.score,
        )


class Statistics(Frozen):
    """A run in ten numbers. Before and after are the table's; compacted, removed and saved are this run's own doing."""

    files_before: int
    files_after: int
    files_compacted: int
    files_removed: int
    bytes_before: int
    bytes_after: int
    bytes_saved: int
    snapshots_expired: int
    small_files_remaining: int
    compaction_time_ms: int


class Report(Frozen):
    """A run with the table before and after it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run: RunRecord
    before: Condition
    after: Condition
    stats: Statistics

    @classmethod
    def of(cls, record: RunRecord, before: Inspection, after: Inspection) -> Report:
        """From the record and a look on either side of the run."""
        then, now = Condition.of(before), Condition.of(after)
        return cls(run=record, before=then, after=now, stats=statistics(record, then, now))


def statistics(record: RunRecord, before: Condition, after: Condition) -> Statistics:
    """The ten numbers."""
    return Statistics(
        files_before=before.data_files,
        files_after=after.data_files,
        files_compacted=record.files_compacted,
        files_removed=record.files_compacted - record.files_written,
        bytes_before=before.data_bytes,
        bytes_after=after.data_bytes,
        bytes_saved=record.bytes_read - record.bytes_written,
        snapshots_expired=0,
        small_files_remaining=after.small_files,
        compaction_time_ms=record.finished_ms - record.started_ms,
    )
