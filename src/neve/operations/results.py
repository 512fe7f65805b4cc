"""results: verifies and commits what work orders wrote elsewhere.

Whoever brings results may have brought them before. What landed then is not committed again, by the records of earlier runs and
by the table itself, and no file that a result names is ever removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from neve.commit.takeover import leased_run
from neve.context.runs import pausing
from neve.context.table import TableContext
from neve.errors import BadRequestError
from neve.operations import resume
from neve.operations.compact import ended
from neve.operations.execute import work_orders
from neve.operations.resume import look
from neve.operations.rewrite_run import CompactionRun, PlannedRun, no_file
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupState, RunRecord
from neve.rewrite.remaining import NextStep, RemainingGroup, TableNow, remaining
from neve.rewrite.work_order import WorkOrder, WorkResult
from neve.table.state import RUN_ID


def orders_of(context: TableContext, plan: Plan) -> list[WorkOrder]:
    """The plan as orders. `context` is of the plan's table."""
    live = {file.path: file for file in context.writer.scan(plan.snapshot_id)}
    return work_orders(plan, plan.groups, live, context.writer, context.specs)


def run(context: TableContext, plan: Plan, results: Sequence[WorkResult]) -> RunRecord:
    """Verifies, commits and records what orders of this plan wrote; what an earlier call committed is not committed again."""
    context.require_free()
    if (begun := _interrupted_commit(context, plan, results)) is not None:
        return resume.finish(context, begun)
    _ = context.writer  # refuses and starts before the state store is opened
    with pausing(context.store):
        record = commit_results(plan, results, context)
        known = context.store.run(record.recorded_id)
        is_earlier = known is not None and known.finished_ms is not None
        return record if is_earlier else ended(context, record, plan)


def _interrupted_commit(context: TableContext, plan: Plan, results: Sequence[WorkResult]) -> JournaledRun | None:
    """An earlier commit of these results that has not ended."""
    wanted = {prefix_of(result) for result in results}
    runs = context.records.unfinished() if context.records is not None and wanted else ()
    ours = (run for run in runs if run.plan.table_uuid == plan.table_uuid)
    return next((run for run in ours if wanted <= {group.output_prefix for group in run.groups}), None)


def commit_results(plan: Plan, results: Sequence[WorkResult], context: TableContext) -> RunRecord:
    """Verifies and commits results, order by order. Raises BadRequestError for results without a group of this plan.

    If an earlier run has settled all of these results and the table agrees, nothing is done and its record is returned.
    """
    _require_results_of(plan, results)
    run_id, started_ms = uuid4().hex, context.clock.now_ms()
    with leased_run(plan, run_id, context) as held:
        context.writer.refresh()
        run = CompactionRun(run_id, PlannedRun(plan, context.specs), context, held.assert_held, started_ms)
        run.sent_before = {result.group_id for result in results}
        return _committed(run, results)


def _require_results_of(plan: Plan, results: Sequence[WorkResult]) -> None:
    """Raises BadRequestError unless each result is that of one group of the plan."""
    known = {group.group_id for group in plan.groups}
    groups = [result.group_id for result in results]
    if strangers := sorted(set(groups) - known):
        raise BadRequestError(f"Cannot commit the results: the plan has no group {strangers[0]}")
    if twice := [group for group, times in Counter(groups).items() if times > 1]:
        raise BadRequestError(f"Cannot commit the results: there are several of group {twice[0]}", hint="Pass one of each.")


def prefix_of(result: WorkResult) -> str:
    """The beginning of a result's own files and of no others; of one without files, a name that no file has."""
    return result.outputs[0].path.rpartition("-")[0] if result.outputs else no_file(result.order_id)


def _committed(run: CompactionRun, results: Sequence[WorkResult]) -> RunRecord:
    by_group = {result.group_id: result for result in results}
    written = run.journaled(
        JournaledGroup(group_id=r.group_id, output_prefix=prefix_of(r), state=GroupState.WRITTEN, result=r) for r in results
    )
    now = _look(run, written)
    left, before = remaining(written, now), _settled_before(run, results)
    if len(left.of(NextStep.NONE)) == len(results) and (record := _one_record(results, before)) is not None:
        return record
    run.begin(written)
    for group in left.of(NextStep.NONE):
        run.note_ended(_as_before(group, before.get(group.group_id)), by_group[group.group_id])
    for group in left.of(NextStep.REWRITE):
        run.fail_without_files(by_group[group.group_id], now.missing)
    run.written = [by_group[group.group_id] for group in left.of(NextStep.COMMIT)]
    with run.settling():
        run.commit(run.verify(run.execute()))
    return run.record()


def _look(run: CompactionRun, written: JournaledRun) -> TableNow:
    """The table as it is now. Results may have been brought to any run, and may name files that they did not write."""
    now, _ = look(run.context.writer, written, run.inputs.keys(), lambda ancestor: RUN_ID in ancestor.summary)
    planned_at = run.plan.snapshot_id
    if planned_at is None or not run.context.writer.knows(planned_at):
        return now
    return replace(now, landed={path: found for path, found in now.landed.items() if path not in run.inputs})


def _settled_before(run: CompactionRun, results: Sequence[WorkResult]) -> dict[int, RunRecord]:
    """By group, the earlier run that committed its result or found it superseded."""
    groups, journal = {prefix_of(result): result.group_id for result in results}, run.context.journal
    found = journal.landed_before(run.plan.table_uuid, groups.keys()) if journal else {}
    return {groups[prefix]: record for prefix, record in found.items()}


def _one_record(results: Sequence[WorkResult], before: Mapping[int, RunRecord]) -> RunRecord | None:
    """The record of the run that settled all of these results, if one did."""
    records = {record.run_id: record for record in before.values()}
    return next(iter(records.values())) if len(before) == len(results) and len(records) == 1 else None


def _as_before(group: RemainingGroup, record: RunRecord | None) -> RemainingGroup:
    """The group as an earlier run settled it, which knows more than the table where snapshots have been expired."""
    known = next((one for one in record.groups if one.group_id == group.group_id), None) if record is not None else None
    if record is not None and known is not None:
        reason = f"{known.reason}, by run {record.recorded_id[:8]}"
        return group.model_copy(update={"state": known.state, "reason": reason, "snapshot_id": known.snapshot_id})
    is_there = group.state is GroupState.COMMITTED
    return group.model_copy(update={"reason": "its files are in the table already"}) if is_there else group
