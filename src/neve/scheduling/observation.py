"""What the observer saw of one table, as the scheduler decides by it. Pure values, kept in the `fleet` table as JSON.

Everything but `looked` comes from the metadata file alone. `looked` is what a look at the manifests told; it is older where
nothing suggested to look again.
"""

from __future__ import annotations

from neve.table.frozen import Frozen


class Looked(Frozen):
    """What a look at the table's manifests told."""

    snapshot_id: int | None
    looked_ms: int
    health: int
    data_files: int
    data_bytes: int
    small_files: int
    small_bytes: int
    delete_files: int
    requests: int = 0
    """What it took."""


class Counters(Frozen):
    """What writers other than Neve have done since the table was first seen. They only grow."""

    commits: int = 0
    bytes_added: int = 0
    files_added: int = 0


class Observation(Frozen):
    """One table at the metadata file that its catalog names. Totals are None where the snapshot's summary lacks them."""

    table: str
    """Its full name."""
    uuid: str
    metadata_location: str
    observed_ms: int
    snapshot_id: int | None = None
    sequence_number: int = 0
    properties: dict[str, str] = {}
    data_files: int | None = None
    delete_files: int | None = None
    total_bytes: int | None = None
    last_write_ms: int | None = None
    """When anyone but Neve last committed."""
    counters: Counters = Counters()
    hinted_ms: int | None = None
    """When a writer last asked for attention."""
    looked: Looked | None = None


class LastRun(Frozen):
    """How an operation last went on a table."""

    operation: str
    started_ms: int
    finished_ms: int | None = None
    outcome: str | None = None
    counters: Counters = Counters()
    """When it began."""
    failures: int = 0
    """In a row."""
    paused_until_ms: int | None = None
