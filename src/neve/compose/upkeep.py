"""Keeping a table's deletes few and cheap: the flow that does it, with the adapters of a place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place

if TYPE_CHECKING:
    from neve.commit.tools import Tools
    from neve.maintenance.delete_files import UpkeepRecord
    from neve.maintenance.record import MaintenanceRecord
    from neve.operations.delete_files import UpkeepRequest
    from neve.ports import Clock, Progress
    from neve.state import StateStore
    from neve.table.state import TableState

KIND = "deletes"
"""What such a run is called in the state store."""


class DeleteUpkeep:
    """Calls the flow that changes deletes."""

    def __init__(self, place: Place, looking: Looking, clock: Clock) -> None:
        self._place, self._looking, self._clock = place, looking, clock

    def run(
        self, table: str, operation: str, *, branch: str, dry_run: bool = False, progress: Progress | None = None
    ) -> UpkeepRecord:
        """Converts, rewrites or prunes, or tells what that would do; remembered unless there was nothing to do."""
        from neve.errors import BadRequestError
        from neve.maintenance.delete_files import Upkeep
        from neve.operations.delete_files import UpkeepRequest

        if operation not in list(Upkeep):
            raise BadRequestError(f"Cannot {operation} deletes: there are {', '.join(Upkeep)}")
        state, place = self._looking.reader(table, branch).state(), self._place
        wait = self._looking.policy(state).gap_wait_seconds
        request = UpkeepRequest(state.name, state.uuid, Upkeep(operation), branch, dry_run, wait)
        if dry_run:
            return self._carry_out(request, state, None, progress)
        self._looking.require_free(state)
        with place.store() as store:
            return self._carry_out(request, state, store, progress)

    def _carry_out(
        self, request: UpkeepRequest, state: TableState, store: StateStore | None, progress: Progress | None
    ) -> UpkeepRecord:
        from neve.operations.delete_files import keep_up
        from neve.rewrite.record import RunOutcome

        record = keep_up(request, self._tools(state, store, progress))
        if store is not None and record.outcome is not RunOutcome.NOTHING_TO_DO:
            keep_record(store, record, KIND)
        return record

    def _tools(self, state: TableState, store: StateStore | None, progress: Progress | None) -> Tools:
        from neve.commit.tools import Tools
        from neve.kernels.deletes.store import StoredDeletes
        from neve.spark.table.bridge import TableBridge
        from neve.spark.tasks.resolving import Resolver
        from neve.spark.tasks.rewrite import SparkEngine
        from neve.spark.tasks.spark_kernel import SparkKernel
        from neve.storage.files import Storage

        place, name = self._place, state.name
        place.check_commits(name)
        spark = place.spark
        bridge = TableBridge(spark, name)
        return Tools(
            writer=bridge,
            # Rewrites nothing here.
            engine=SparkEngine(spark, SparkKernel(spark, bridge, 0), lambda: place.storage(name), max_parallelism=1),
            specs=state.specs,
            clock=self._clock,
            sleep=time.sleep,
            progress=progress,
            leases=store,
            deletes=StoredDeletes(lambda: Storage(place.storage(name))),
            resolver=Resolver(spark, lambda: place.storage(name)),
            quarantine=store,
        )


def keep_record(store: StateStore, record: UpkeepRecord | MaintenanceRecord, kind: str) -> None:
    """Stores an operation that has ended."""
    from neve.state.rows import Run

    store.start_run(Run(record.run_id, record.table_uuid, record.table, kind, record.started_ms))
    document = record.model_dump(mode="json")
    store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)
