"""What a run leaves behind: its groups with their fate, its proof, and its numbers. `neve runs show` prints it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import SerializerFunctionWrapHandler, model_serializer

from neve.health.condition import Condition, Statistics
from neve.health.not_due import NotDue
from neve.health.queries import QueryGain
from neve.rewrite.content import ProbeResult
from neve.rewrite.elapsed import WRITTEN_IF_KNOWN, Timed
from neve.rewrite.group import Kernel, RunKind
from neve.rewrite.kernel_options import NotApplied
from neve.rewrite.proof import Proof
from neve.rewrite.work_order import OutputFile
from neve.table.frozen import Frozen
from neve.table.state import MAIN

FORMAT_VERSION = 1


class GroupState(StrEnum):
    """How far a group has come."""

    PLANNED = "planned"  # nothing is known to be written
    WRITTEN = "written"  # its files exist, nobody sees them
    COMMITTED = "committed"
    SUPERSEDED = "superseded"  # others replaced or removed some of its inputs meanwhile: not a failure
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
    committed_ms: int | None = None
    """When its commit landed; None if it did not, or if it landed in a process that was interrupted before it noted this."""
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """None if it was not measured, as with the spark kernel."""
    peak_memory_bytes: int | None = None
    requests: dict[str, int] | None = WRITTEN_IF_KNOWN
    """That its task sent to storage, by kind; None if they were not counted."""
    traceback: str | None = None
    """Of an unexpected exception, for whoever fixes its cause."""


class SnapshotExpiry(Frozen):
    """What `compact --expire-snapshots` came to after the compaction. The record of run `run_id` has the details."""

    run_id: str | None = None
    """None if no expiry was begun."""
    outcome: RunOutcome
    reason: str | None = None
    snapshots: int = 0
    """How many were expired."""
    files: int = 0
    """How many files no snapshot needs any more; they are in the quarantine."""
    size_bytes: int = 0
    files_without_size: int = 0
    not_due: tuple[NotDue, ...] = ()
    """If there was none to expire: when there will be."""


class Record(Timed):
    """What the records of all operations have in common. Read by whatever lists, shows or rolls back runs."""

    json_order: ClassVar[str] = ""
    """The fields that JSON begins with, as releases have always written them."""

    run_id: str | None
    """The id under which the state store has the run; None for a run that is not recorded."""
    table: str
    table_uuid: str
    branch: str = MAIN
    outcome: RunOutcome
    not_due: tuple[NotDue, ...] = ()
    """If nothing was to do: the rules that were checked, with thresholds, measured values and when they would be due."""
    started_ms: int
    finished_ms: int
    snapshot_before: int | None = None
    snapshots: tuple[int, ...] = ()
    """That it committed."""

    @property
    def seconds(self) -> float:
        """Wall time."""
        return (self.finished_ms - self.started_ms) / 1000

    @property
    def recorded_id(self) -> str:
        """The id of a run that is recorded. Raises ValueError for another one."""
        if self.run_id is None:
            raise ValueError(f"the run over {self.table} is not recorded")
        return self.run_id

    @property
    def leaves_traces(self) -> bool:
        """Whether the run did anything that its record explains. A run that found nothing to do is not recorded."""
        return self.outcome is not RunOutcome.NOTHING_TO_DO

    def unrecorded(self) -> Self:
        """The record of a run that the state store does not have: without an id, which nobody could look up."""
        return self.model_copy(update={"run_id": None})

    @model_serializer(mode="wrap")
    def _in_order(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dumped(self)
        return {name: values[name] for name in (*self.json_order.split(), *values) if name in values}


class RunRecord(Record):
    """One run. `before`, `after` and `stats` are None where the table could not be looked at; `incident` needs a person."""

    json_order: ClassVar[str] = (
        "format_version kind run_id table table_uuid branch outcome empty_reason not_due incident table_gone "
        "started_ms resumed_ms finished_ms"
    )

    format_version: int = FORMAT_VERSION
    kind: RunKind = RunKind.COMPACT
    empty_reason: str | None
    incident: str | None = None
    table_gone: str | None = None
    """How the table was lost, if it was dropped, renamed or replaced during the run."""
    resumed_ms: int | None = None
    """When it was last taken up again, None if it was never interrupted."""
    groups: tuple[GroupRecord, ...]
    files_compacted: int
    files_written: int
    bytes_read: int
    bytes_written: int
    rows: int
    kernels: dict[Kernel, int]
    not_applied: tuple[NotApplied, ...] = ()
    """Options that were configured and that the kernels of the run did not apply."""
    before: Condition | None = None
    after: Condition | None = None
    stats: Statistics | None = None
    probe: ProbeResult | None = None
    queries: tuple[QueryGain, ...] = ()
    expiry: SnapshotExpiry | None = None
    """If the run was asked to expire snapshots."""

    @property
    def seconds(self) -> float:
        """Wall time of the run, for a resumed one since it was resumed: how long it worked before is unknown."""
        return self._worked_ms / 1000

    @property
    def _worked_ms(self) -> int:
        return self.finished_ms - (self.started_ms if self.resumed_ms is None else self.resumed_ms)

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
            snapshots_expired=self.expiry.snapshots if self.expiry is not None else 0,
            small_files_remaining=after.small_files,
            compaction_time_ms=self._worked_ms,
        )
        return self.model_copy(update={"before": before, "after": after, "stats": stats})
