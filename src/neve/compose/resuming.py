"""Finishing what began elsewhere: results of work orders, and runs that were interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from neve.compose.looking import Looking
from neve.compose.place import Place
from neve.compose.rewriting import Rewriting
from neve.errors import TableGoneError, TableNotFoundError

if TYPE_CHECKING:
    from neve.ports import Clock, Progress
    from neve.rewrite.journal import JournaledRun
    from neve.rewrite.plan import Plan
    from neve.rewrite.record import RunRecord
    from neve.rewrite.remaining import Remaining
    from neve.rewrite.work_order import WorkOrder, WorkResult
    from neve.table.state import TableState


class Resuming:
    """Calls the flow that goes on with a plan."""

    def __init__(self, rewriting: Rewriting, place: Place, looking: Looking, clock: Clock) -> None:
        self._rewriting, self._place, self._looking, self._clock = rewriting, place, looking, clock

    def work_orders(self, plan: Plan) -> list[WorkOrder]:
        """The plan as orders."""
        from neve.operations.execute import work_orders

        bridge = self._rewriting.writer(plan)
        live = {file.path: file for file in bridge.scan(plan.snapshot_id)}
        specs = self._looking.reader(str(plan.table)).state().specs
        return work_orders(plan, plan.groups, live, bridge, specs)

    def commit(self, plan: Plan, results: Sequence[WorkResult], progress: Progress | None) -> RunRecord:
        """Verifies and commits what orders of this plan wrote; what an earlier call committed is not committed again."""
        from neve.operations.results import commit_results

        state = self._free(plan)
        if (begun := self._interrupted_commit(plan, results)) is not None:
            return self.resume(begun, progress)
        writer = self._rewriting.writer(plan)
        with self._rewriting.store() as store:
            record = commit_results(plan, results, self._rewriting.tools(plan, state.specs, writer, store, progress))
            known = store.run(record.run_id)
            is_earlier = known is not None and known.finished_ms is not None
            return record if is_earlier else self._rewriting.ended(store, record, plan)

    def _interrupted_commit(self, plan: Plan, results: Sequence[WorkResult]) -> JournaledRun | None:
        """An earlier commit of these results that has not ended."""
        from neve.operations.results import prefix_of

        records, wanted = self._place.records(), {prefix_of(result) for result in results}
        runs = records.unfinished() if records is not None and wanted else ()
        ours = (run for run in runs if run.plan.table_uuid == plan.table_uuid)
        return next((run for run in ours if wanted <= {group.output_prefix for group in run.groups}), None)

    def require_resumable(self, journalled: JournaledRun) -> None:
        """Raises LeaseHeldError while the owner of an interrupted run is at work on it, or may be. Starts no Spark."""
        from neve.commit.lease import is_over
        from neve.commit.process import this_process

        before = journalled.owner
        gone = before if is_over(before, journalled.run_id) else None
        with self._rewriting.store() as store:
            owner, now = this_process().text, self._clock.now_ms()
            store.require_resumable(journalled.run_id, owner=owner, gone=gone, now_ms=now)

    def resume(self, journalled: JournaledRun, progress: Progress | None) -> RunRecord:
        """Takes a run over and finishes it.

        A table that is not found may be in another catalog of the same name, so that the run is kept then.
        """
        from neve.operations.resume import resume

        plan = journalled.plan
        with self._rewriting.store() as store:
            with _table_of(journalled):
                state = self._free(plan)
                tools = self._rewriting.tools(plan, state.specs, self._rewriting.writer(plan), store, progress)
                record = resume(journalled, tools)
            return self._rewriting.ended(store, record, plan)

    def preview(self, journalled: JournaledRun) -> Remaining:
        """What `resume` would do now. Starts no Spark."""
        from neve.operations.resume import preview

        with _table_of(journalled):
            state = self._free(journalled.plan)
            if state.uuid != journalled.plan.table_uuid:
                raise TableGoneError(f"Cannot work on {state.name}: it was replaced by another table")
            return preview(journalled, self._looking.view(str(journalled.plan.table)))

    def _free(self, plan: Plan) -> TableState:
        """The table. Raises LeaseHeldError, before Spark is started, while another run holds it."""
        state = self._looking.reader(str(plan.table)).state()
        self._looking.require_free(state)
        return state

    def abandon(self, journalled: JournaledRun) -> RunRecord:
        """Ends an interrupted run without committing anything of it; its files stay. Starts no Spark."""
        from neve.commit import takeover
        from neve.rewrite.run_summary import keep

        with self._rewriting.store() as store:
            record = takeover.abandon(journalled, store, self._clock, "given up by request; its files were not removed")
            keep(store, record, journalled.plan)
            return record


@contextmanager
def _table_of(journalled: JournaledRun) -> Iterator[None]:
    """Says how to end the run if its table is gone."""
    try:
        yield
    except (TableNotFoundError, TableGoneError) as error:
        name = journalled.run_id[:8]
        hint = f"If the table was dropped, renamed or replaced, end the run: `neve resume {name} --abandon`."
        raise type(error)(f"Cannot resume run {name}: {error}", hint=hint) from error
