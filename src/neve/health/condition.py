"""The table before and after a run, and the run in ten numbers. Pure; part of the run record.

What the run itself did is counted by the run, so that files which others add meanwhile are not taken for its doing.
"""

from __future__ import annotations

from neve.health.inspection import Inspection
from neve.health.skipping import Clustering
from neve.table.frozen import Frozen


class Condition(Frozen):
    """A table at one moment, in the numbers that a compaction changes."""

    snapshot_id: int | None
    data_files: int
    data_bytes: int
    average_file_bytes: float
    small_files: int
    delete_files: int
    health: int
    clustering: Clustering | None = None
    """How well the layout is kept, in the record of a clustering run; before it, with what its plan predicted."""

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
            clustering=inspection.clustering,
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
