"""Keeping a table's deletes few and cheap: the flow that does it, with the adapters of a place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place

if TYPE_CHECKING:
    from neve.core.maintenance import MaintenanceRecord
    from neve.core.model import TableState
    from neve.core.upkeep import UpkeepRecord
    from neve.flow.deletes import UpkeepRequest
    from neve.flow.tools import Tools
    from neve.ports import Clock, Progress
    from neve.state import StateStore

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
        from neve.core.upkeep import Upkeep
        from neve.errors import BadRequestError
        from neve.flow.deletes import UpkeepRequest

        if operation not in list(Upkeep):
            raise BadRequestError(f"Cannot {operation} deletes: there are {', '.join(Upkeep)}")
        state, place = self._looking.reader(table, branch).state(), self._place
        request = UpkeepRequest(state.name, state.uuid, Upkeep(operation), branch, dry_run)
        if dry_run:
            return self._carry_out(request, state, None, progress)
        with place.store() as store:
            return self._carry_out(request, state, store, progress)

    def _carry_out(
        self, request: UpkeepRequest, state: TableState, store: StateStore | None, progress: Progress | None
    ) -> UpkeepRecord:
        from neve.core.record import RunOutcome
        from neve.flow.deletes import keep_up

        record = keep_up(request, self._tools(state, store, progress))
        if store is not None and record.outcome is not RunOutcome.NOTHING_TO_DO:
            keep_record(store, record, KIND)
        return record

    def _tools(self, state: TableState, store: StateStore | None, progress: Progress | None) -> Tools:
        from neve.engines.spark.bridge import TableBridge
        from neve.engines.spark.resolving import Resolver
        from neve.engines.spark.rewrite import SparkEngine
        from neve.engines.spark.spark_kernel import SparkKernel
        from neve.flow.tools import Tools
        from neve.kernels.deletes.store import StoredDeletes
        from neve.storage import Storage

        place, name = self._place, state.name
        place.check_commits(name)
        spark = place.spark
        bridge = TableBridge(spark, name)
        return Tools(
            writer=bridge,
            # Rewrites nothing here: it removes files that were not used after all.
            engine=SparkEngine(spark, SparkKernel(spark, bridge, 0), lambda: place.storage(name), max_parallelism=1),
            specs=state.specs,
            clock=self._clock,
            sleep=time.sleep,
            progress=progress,
            leases=store,
            deletes=StoredDeletes(lambda: Storage(place.storage(name))),
            resolver=Resolver(spark, lambda: place.storage(name)),
        )


def keep_record(store: StateStore, record: UpkeepRecord | MaintenanceRecord, kind: str) -> None:
    """Stores an operation that has ended."""
    from neve.state.rows import Run

    store.start_run(Run(record.run_id, record.table_uuid, record.table, kind, record.started_ms))
    document = record.model_dump(mode="json")
    store.finish_run(record.run_id, finished_ms=record.finished_ms, outcome=record.outcome.value, record=document)
