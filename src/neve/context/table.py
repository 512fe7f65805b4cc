"""What an operation may need of one table: its metadata and policy, and the adapters that read and change it.

Everything is opened at its first use, so that a request starts no Spark and opens no state store that it does not need. Made by
the surfaces for one request; `run(context, request)` of every operation takes it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from neve.context.runs import end_run, keep_record, unended
from neve.errors import BadRequestError
from neve.table.state import MAIN, RefKind

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.context.metadata_view import MetadataView
    from neve.maintenance.record import MaintenanceRecord
    from neve.policy.model import Policy
    from neve.ports import DeleteFiles, EqualityResolver, Progress, TableReader
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore
    from neve.state.rows import Run
    from neve.storage.files import Storage
    from neve.table.state import PartitionSpec, TableName, TableState

Recorded = TypeVar("Recorded", bound="MaintenanceRecord")


class TableContext:
    """One table, for one request. `state` is the table when the request began; `reader` loads it again."""

    def __init__(self, connection: Connection, table: str, progress: Progress | None = None, *, branch: str = MAIN) -> None:
        self.connection, self.table, self.progress, self.branch = connection, table, progress, branch
        self.clock, self.sleep = connection.clock, time.sleep
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._resources.__exit__(kind, error, trace)

    def fresh(self, branch: str | None = None) -> TableContext:
        """The same table for another request, at the head of this branch or another one."""
        return TableContext(self.connection, self.table, self.progress, branch=branch or self.branch)

    def report(self, stage: str, done: int = 0, total: int | None = None) -> None:
        """Shows progress to whoever listens."""
        if self.progress:
            self.progress(stage, done, total)

    @cached_property
    def name(self) -> TableName:
        """The table's full name."""
        return self.connection.name(self.table)

    def reader(self) -> TableReader:
        """The table at the head of the branch, loaded again."""
        reader, branch = self.connection.reader(self.name), self.branch
        if branch == MAIN:
            return reader
        refs = {ref.name: ref for ref in reader.state().refs if ref.kind is RefKind.BRANCH}
        if branch not in refs:
            known = ", ".join(sorted(refs)) or "none"
            hint = f"`neve inspect {quote(self.table)}` lists all refs."
            raise BadRequestError(f"Cannot find branch {branch}: the table has {known}", hint=hint)
        return reader.at(refs[branch].snapshot_id)

    @cached_property
    def state(self) -> TableState:
        """The head of the branch when it was first asked for."""
        return self.reader().state()

    @property
    def uuid(self) -> str:
        """The table's identity."""
        return self.state.uuid

    @property
    def specs(self) -> Sequence[PartitionSpec]:
        """The table's partition specs when the request began."""
        return self.state.specs

    def policy(self, state: TableState | None = None) -> Policy:
        """The settings' policy with the table's own properties."""
        return self.connection.loaded.policy((state or self.state).properties)[0]

    def stated(self, state: TableState) -> set[str]:
        """The knobs that somebody has set, elsewhere than in the properties that writers go by."""
        from neve.settings.origins import OriginKind

        _, origins = self.connection.loaded.policy(state.properties)
        return {key for key, o in origins.items() if o.kind is not OriginKind.DEFAULT and not o.name.startswith("write.")}

    def require_free(self, state: TableState | None = None) -> None:
        """Raises LeaseHeldError if another process is at work on the table. Called before anything is planned or started."""
        from neve.commit.lease import require_free

        state = state or self.state
        require_free(str(state.name), state.uuid, state.properties, leases=self.records, clock=self.clock)

    def pinned(self, table_uuid: str, after_run: str | None = None) -> dict[int, str]:
        """Returns the snapshots in use by unfinished runs, each with the reason; not those of `after_run`, which has ended."""
        runs = self.records.unfinished() if self.records is not None else ()
        return {
            run.plan.snapshot_id: f"run {run.run_id[:8]} was planned from it and has not ended"
            for run in runs
            if run.plan.table_uuid == table_uuid and run.plan.snapshot_id is not None and run.run_id != after_run
        }

    @property
    def spark(self) -> Any:
        """The connection's Spark session."""
        return self.connection.spark

    @cached_property
    def bridge(self) -> TableBridge:
        """The table in Iceberg's Java. Starts Spark."""
        from neve.spark.table.bridge import TableBridge

        return TableBridge(self.spark, self.name)

    @cached_property
    def writer(self) -> TableBridge:
        """The table where it is committed to. Refuses a table where commits could be lost before it starts Spark."""
        self.connection.check_commits(self.name)
        return self.bridge

    def view(self) -> MetadataView:
        """The table's snapshots and files for a dry run. Starts no Spark."""
        from neve.context.metadata_view import MetadataView

        return MetadataView(self.reader(), self.storage())

    def storage(self) -> Storage:
        """The table's storage, for reading and for new files."""
        from neve.storage.files import Storage

        return Storage(self.storage_properties())

    def storage_properties(self) -> dict[str, str]:
        """What tasks need to reach the table's storage, secrets included: sent to them, never written down."""
        return self.connection.storage(self.name)

    @property
    def deletes(self) -> DeleteFiles:
        """Reads and writes the table's delete files."""
        from neve.kernels.deletes.store import StoredDeletes

        return StoredDeletes(self.storage)

    @cached_property
    def resolver(self) -> EqualityResolver:
        """Finds rows that equality deletes remove. Starts Spark."""
        from neve.spark.tasks.resolving import Resolver

        return Resolver(self.spark, self.storage_properties)

    @property
    def records(self) -> StateStore | None:
        """The state store for reading; None if there is none yet."""
        return vars(self).get("store") or self.connection.records()

    @cached_property
    def store(self) -> StateStore:
        """The state store for writing, made if there is none."""
        return self._resources.enter_context(self.connection.store())

    @property
    def leases(self) -> StateStore:
        """Where leases are taken."""
        return self.store

    @property
    def quarantine(self) -> StateStore:
        """Where files are recorded for removal."""
        return self.store

    def withdraw_compactions(self, state: TableState) -> None:
        """Removes compactions from the state store that another tool rolled back, or whose branch was dropped."""
        from neve.rewrite.compactions import BranchHistory

        self.store.withdraw_compactions(BranchHistory(state).withdrawn(self.store.compaction_commits(state.uuid)))

    def begin(self, run_id: str, kind: str, record: Mapping[str, Any] | None = None) -> None:
        """Stores that a run began, so that it is found if it is killed; `record` is for the run that goes on with it."""
        from neve.state.rows import Run

        self.store.start_run(Run(run_id, self.uuid, str(self.name), kind, self.clock.now_ms(), record=dict(record or {})))

    def unended(self, kind: str) -> list[Run]:
        """Runs of this kind that began and never ended, oldest first."""
        return unended(self.records, self.uuid, kind) if self.records is not None else []

    def end(self, record: MaintenanceRecord) -> None:
        """Stores how a run ended that `begin` has stored."""
        end_run(self.store, record)

    def recorded(self, record: Recorded, kind: str | None = None) -> Recorded:
        """The record of an operation that has ended, stored unless there was nothing to do."""
        from neve.rewrite.record import RunOutcome

        if record.outcome is not RunOutcome.NOTHING_TO_DO:
            keep_record(self.store, record, kind or record.operation.value)
        return record
