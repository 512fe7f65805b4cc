"""What the observer knows of one table; the scheduler decides by it. Pure values, kept in the `fleet` table as JSON.

Everything except `inspected` comes from the metadata file alone. `inspected` comes from the manifests, and is older if no
commit since then suggested another inspection.
"""

from __future__ import annotations

from neve.table.frozen import Frozen


class Inspected(Frozen):
    """What an inspection of the table's manifests found."""

    snapshot_id: int | None
    inspected_ms: int
    health: int
    data_files: int
    data_bytes: int
    small_files: int
    small_bytes: int
    delete_files: int
    requests: int = 0
    """Requests that the inspection sent."""
    commits: int = 0
    """`Counters.commits` of the table when it was inspected."""
    own_snapshot_id: int | None = None
    """`Observation.own_snapshot_id` when it was inspected."""


class Counters(Frozen):
    """What writers other than Neve have added to the main branch since the table was first seen. They only grow.

    Compactions by other tools change no rows and are not counted. `scheduling.commit_counts` documents the bound of error.
    """

    commits: int = 0
    bytes_added: int = 0
    files_added: int = 0


class Observation(Frozen):
    """One table at the metadata file that its catalog names. Totals are None where the snapshot's summary lacks them."""

    table: str
    """The full name."""
    uuid: str
    metadata_location: str
    observed_ms: int
    snapshot_id: int | None = None
    sequence_number: int = 0
    """The last one that the table has given to a snapshot; 0 in format v1."""
    log_ms: int = 0
    """The time of the newest entry of the snapshot log. Commits are counted from there on."""
    own_snapshot_id: int | None = None
    """Neve's newest snapshot in the history of the main branch."""
    properties: dict[str, str] = {}
    data_files: int | None = None
    delete_files: int | None = None
    total_bytes: int | None = None
    last_write_ms: int | None = None
    """When anyone but Neve last committed."""
    counters: Counters = Counters()
    hinted_ms: int | None = None
    """When a writer last asked for maintenance."""
    inspected: Inspected | None = None


class LastRun(Frozen):
    """The last run of an operation on a table."""

    operation: str
    started_ms: int
    finished_ms: int | None = None
    outcome: str | None = None
    counters: Counters = Counters()
    """Of the table when the last run that succeeded began, so that what a failed run left undone still counts."""
    failures: int = 0
    """Consecutive failures."""
    paused_until_ms: int | None = None
    idle_until_ms: int | None = None
    """Until when the state of the table is no reason for another run, if this one found nothing to do."""
