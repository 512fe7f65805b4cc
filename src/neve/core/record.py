"""What a run leaves behind: its groups with their fate, its proof, and its numbers. `neve runs show` prints it."""

from __future__ import annotations

from enum import StrEnum

from neve.core.content import ProbeResult
from neve.core.model import MAIN, Frozen
from neve.core.plan_words import Kernel
from neve.core.proof import Proof
from neve.core.queries import QueryGain
from neve.core.statistics import Condition, Statistics
from neve.core.work import OutputFile

FORMAT_VERSION = 1


class GroupState(StrEnum):
    """How far a group has come."""

    PLANNED = "planned"  # nothing is known to be written
    WRITTEN = "written"  # its files exist, nobody sees them
    COMMITTED = "committed"
    SUPERSEDED = "superseded"  # others compacted its inputs meanwhile: not a failure
    DROPPED = "dropped"  # it lost to a writer; the next run plans it again
    FAILED = "failed"
    IN_DOUBT = "in-doubt"  # nobody knows whether its commit landed


class RunOutcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    NOTHING_TO_DO = "nothing-to-do"
    PARTLY_DONE = "partly-done"
    FAILED = "failed"


class GroupRecord(Frozen):
    """One group of a run."""

    group_id: int
    partition: str = ""
    state: GroupState
    reason: str
    kernel: Kernel | None = None
    refusals: tuple[str, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    proof: Proof | None = None
    snapshot_id: int | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class RunRecord(Frozen):
    """One run. `before`, `after` and `stats` are None where the table could not be looked at; `incident` needs a person."""

    format_version: int = FORMAT_VERSION
    run_id: str
    table: str
    table_uuid: str
    branch: str = MAIN
    outcome: RunOutcome
    empty_reason: str | None
    incident: str | None = None
    started_ms: int
    finished_ms: int
    snapshot_before: int | None
    snapshots: tuple[int, ...]
    groups: tuple[GroupRecord, ...]
    files_compacted: int
    files_written: int
    bytes_read: int
    bytes_written: int
    rows: int
    kernels: dict[Kernel, int]
    before: Condition | None = None
    after: Condition | None = None
    stats: Statistics | None = None
    probe: ProbeResult | None = None
    queries: tuple[QueryGain, ...] = ()

    @property
    def seconds(self) -> float:
        """Wall time of the run."""
        return (self.finished_ms - self.started_ms) / 1000

    def between(self, before: Condition, after: Condition) -> RunRecord:
        """The record with the table on either side of the run."""
        stats = Statistics(
            files_before=before.data_files,
            files_after=after.data_files,
            files_compacted=self.files_compacted,
            files_removed=self.files_compacted - self.files_written,
            bytes_before=before.data_bytes,
            bytes_after=after.data_bytes,
            bytes_saved=self.bytes_read - self.bytes_written,
            snapshots_expired=0,
            small_files_remaining=after.small_files,
            compaction_time_ms=self.finished_ms - self.started_ms,
        )
        return self.model_copy(update={"before": before, "after": after, "stats": stats})
