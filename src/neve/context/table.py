"""What an operation may need of one table: its metadata and policy, and the adapters that read and change it.

Everything is opened at its first use, so that a request starts no Spark and opens no state store that it does not need. Made by
the surfaces for one request; `run(context, request)` of every operation takes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from shlex import quote
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from neve.context.meter import Meter
from neve.context.runs import end_run, keep_record, unended
from neve.context.sources import MetadataSources
from neve.errors import BadRequestError
from neve.table.state import MAIN, RefKind

if TYPE_CHECKING:
    from neve.context.connection import Connection
    from neve.context.metadata_view import MetadataView
    from neve.maintenance.record import MaintenanceRecord
    from neve.policy.document import Document
    from neve.policy.model import Policy
    from neve.ports import ContentVerifier, DeleteFiles, Engine, EqualityResolver, Progress, TableEntry, TableReader
    from neve.rewrite.plan import Plan
    from neve.settings import Loaded, Origin
    from neve.spark.table.bridge import TableBridge
    from neve.state import StateStore
    from neve.state.rows import Run
    from neve.storage.files import Storage
    from neve.table.state import PartitionSpec, TableName, TableState

Recorded = TypeVar("Recorded", bound="MaintenanceRecord")
Ended = TypeVar("Ended")


class TableContext:
    """One table, for one request. `state` is the table when the request began; `reader` loads it again."""

    def __init__(self, connection: Connection, table: str, progress: Progress | None = None, *, branch: str = MAIN) -> None:
        self.connection, self.table, self.progress, self.branch = connection, table, progress, branch
        self.clock = connection.clock
        self.sleep: Callable[[float], None] = time.sleep
        self._begun, self._planning_seconds = time.monotonic(), 0.0
        self._meter = Meter(connection)
        self._part_of_another = False
        if progress is not None:
            connection.progress = progress
        self._resources = ExitStack()
        self._sources = MetadataSources()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._resources.__exit__(kind, error, trace)

    def fresh(self, branch: str | None = None, *, part_of_another: bool = False) -> TableContext:
        """The same table for another request, at the head of this branch or another one.

        It is `part_of_another` if the record of a run under way includes what that request uses.
        """
        other = TableContext(self.connection, self.table, self.progress, branch=branch or self.branch)
        other._sources, other._part_of_another = self._sources, part_of_another
        return other

    def report(self, stage: str, done: int = 0, total: int | None = None) -> None:
        """Shows progress to whoever listens."""
        if self.progress:
            self.progress(stage, done, total)

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Around reading and planning: its time is in the record, without Spark's start, which has its own."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._planning_seconds += time.monotonic() - begun - (self._session_start_seconds(begun) or 0.0)

    def timed(self, record: Ended, *, predicted_money: float | None = None) -> Ended:
        """The record with how long the request took so far, the parts of that, and what it used.

        Plans and stored records stay.
        """
        from neve.rewrite.elapsed import Timed
        from neve.rewrite.record import RunRecord

        if not isinstance(record, Timed) or getattr(record, "interrupted", False):
            return record  # if interrupted, of another process, whose time nobody knows
        if record.elapsed_seconds is not None:
            return record  # it was stored with its time
        parts = {
            "elapsed_seconds": time.monotonic() - self._begun,
            "session_start_seconds": self._session_start_seconds(self._begun),
            "planning_seconds": self._planning_seconds or None,
        }
        times = {key: None if value is None else round(value, 3) for key, value in parts.items()}
        catalog = getattr(record, "table", "").partition(".")[0]
        used = self._meter.used(catalog, record.groups if isinstance(record, RunRecord) else ())
        told = {"predicted_money": predicted_money, "part_of_another": self._part_of_another}
        return record.model_copy(update={**times, "used": used.model_copy(update=told)})

    def sourced(self, result: Ended) -> Ended:
        """The result of a dry run with whether it rests on cached metadata alone. The record of a run that changed something
        stays."""
        from neve.rewrite.preview import Preview

        if not isinstance(result, Preview) or not getattr(result, "dry_run", True):
            return result
        return result.model_copy(update={"metadata_from_cache": self._sources.from_cache})

    def _session_start_seconds(self, since: float) -> float | None:
        """How long Spark took to start, if that was since then."""
        begun, ended = self.connection.session_start or (0.0, 0.0)
        return ended - begun if self.connection.session_start and begun >= since else None

    @cached_property
    def name(self) -> TableName:
        """The table's full name."""
        return self.connection.name(self.table)

    def reader(self) -> TableReader:
        """The table at the head of the branch, loaded again."""
        reader, branch = self._sources.opened(self.connection.reader(self.name)), self.branch
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
        """The knobs in force, by settings, policies and the table's own properties."""
        return self.policy_origins(state)[0]

    def policy_origins(self, state: TableState | None = None) -> tuple[Policy, dict[str, Origin]]:
        """The knobs in force, and the origin of each by its key."""
        from neve.settings.policy_layer import limited

        state = state or self.state
        return limited(*self.loaded(state).policy(state.properties), self.connection.limits)

    def loaded(self, state: TableState | None = None) -> Loaded:
        """The settings with the knobs of the policies that match the table."""
        return self.connection.loaded_for(self.name, state or self.state, self._policy_documents)

    @cached_property
    def _policy_documents(self) -> Sequence[Document]:
        """Read once, so that one request goes by one version of them."""
        return self.connection.policy_documents()

    def stated(self, state: TableState) -> set[str]:
        """The knobs that somebody has set, elsewhere than in the properties that writers go by."""
        from neve.settings.origins import OriginKind

        _, origins = self.policy_origins(state)
        return {key for key, o in origins.items() if o.kind is not OriginKind.DEFAULT and not o.name.startswith("write.")}

    def require_free(self, state: TableState | None = None) -> None:
        """Raises LeaseHeldError if another process is at work on the table. Called before anything is planned or started."""
        from neve.commit.lease import require_free

        state = state or self.state
        require_free(str(state.name), state.uuid, state.properties, leases=self.records, clock=self.clock)

    def pinned(self, table_uuid: str, after_run: str | None = None) -> dict[int, str]:
        """Returns the snapshots in use by unfinished runs, each with the reason; not those of `after_run`, which has ended."""
        planned = self.records.planned_snapshots(table_uuid) if self.records is not None else {}
        return {
            snapshot_id: f"run {run_id[:8]} was planned from it and has not ended"
            for run_id, snapshot_id in planned.items()
            if run_id != after_run
        }

    @property
    def spark(self) -> Any:
        """The connection's Spark session."""
        self._sources.open_storage()
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

    @cached_property
    def entry(self) -> TableEntry:
        """The table's entry in its catalog, for leases and properties. Refuses as `writer` does, and starts Spark only where
        Iceberg's Java alone may change the table."""
        self.connection.check_commits(self.name)
        return self.connection.entry(self.name) or self.bridge

    def view(self) -> MetadataView:
        """The table's snapshots and files for a dry run. Starts no Spark."""
        from neve.context.metadata_view import MetadataView

        return MetadataView(self.reader(), self.storage)

    def storage(self) -> Storage:
        """The table's storage, for reading and for new files."""
        from neve.storage.files import Storage

        return Storage(self.storage_properties())

    def storage_properties(self) -> dict[str, str]:
        """What tasks need to reach the table's storage, secrets included: sent to them, never written down."""
        self._sources.open_storage()
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

    def engine_of(self, plan: Plan) -> Engine:
        """Carries out work orders of this plan on Spark."""
        from neve.rewrite.group import Kernel
        from neve.rewrite.kernel_options import declines
        from neve.spark.tasks.rewrite import SparkEngine
        from neve.spark.tasks.spark_kernel import SparkKernel

        return SparkEngine(
            self.spark,
            SparkKernel(self.spark, self.writer, plan.snapshot_id or 0),
            self.storage_properties,
            max_parallelism=plan.policy.max_parallelism,
            inline_bytes=plan.policy.inline_delete_bytes,
            spark_declines=declines(plan.options).get(Kernel.SPARK),
        )

    def content_of(self, plan: Plan) -> ContentVerifier:
        """Reads every row that the plan rewrites once more."""
        from neve.spark.tasks.content import ContentCheck

        return ContentCheck(self.spark, self.writer, plan.snapshot_id or 0, self.storage_properties)

    @property
    def records(self) -> StateStore | None:
        """The state store for reading; None if there is none yet."""
        return vars(self).get("store") or self.connection.records()

    @cached_property
    def store(self) -> StateStore:
        """The state store for writing, made if there is none."""
        return self._resources.enter_context(self.connection.store())

    @property
    def journal(self) -> StateStore:
        """Where runs are written down."""
        return self.store

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
        end_run(self.store, self.timed(record))

    def recorded(self, record: Recorded, kind: str | None = None) -> Recorded:
        """The record of an operation that has ended, stored unless there was nothing to do; then it has no id."""
        record = self.timed(record)
        if not record.leaves_traces:
            return record.unrecorded()
        keep_record(self.store, record, kind or record.operation.value)
        return record
