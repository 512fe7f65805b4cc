"""run: the whole story of one compaction, from a plan to a record: execute, verify, commit, record.

Called by `compose`. The only stage that catches: a group that fails is set aside with its reason while the others go on. Groups
are committed in batches as they finish, so that an interrupted run keeps what it has.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.model import PartitionSpec
from neve.core.plan import Plan
from neve.core.plan_words import Group
from neve.core.proof import Proof
from neve.core.record import GroupRecord, GroupState, RunOutcome, RunRecord
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.flow.commit import Committer, Sleeper, WrittenGroup
from neve.flow.execute import work_orders
from neve.flow.verify import described_outputs, proof_of
from neve.ports import Clock, Engine, Progress, TableWriter

log = logging.getLogger(__name__)

BATCH_GROUPS = 200
"""Groups per commit: fewer commits mean fewer conflicts and manifests, more mean less to redo after a crash."""


@dataclass
class _Run:
    plan: Plan
    groups: Mapping[int, Group]
    records: dict[int, GroupRecord] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)

    def note(self, group_id: int, state: GroupState, reason: str, **more: object) -> None:
        known = self.records.get(group_id) or GroupRecord(group_id=group_id, state=state, reason=reason)
        self.records[group_id] = known.model_copy(update={"state": state, "reason": reason, **more})


def compact(
    plan: Plan,
    *,
    writer: TableWriter,
    engine: Engine,
    specs: Sequence[PartitionSpec],
    clock: Clock,
    sleep: Sleeper,
    progress: Progress | None = None,
) -> RunRecord:
    """Carries out a plan. Raises only where nothing can be said of the groups; a group's own trouble is in the record."""
    run_id, started = uuid4().hex, clock.now_ms()
    run = _Run(plan, {group.group_id: group for group in plan.groups})
    planned = {file.path: file for file in writer.scan(plan.snapshot_id)}
    committer = Committer(plan, writer, planned, run_id=run_id, sleep=sleep)
    schema, properties = writer.schema_json(), writer.properties()
    orders = work_orders(plan, run.groups.values(), planned, writer, specs)
    batch: list[WrittenGroup] = []
    for done, result in enumerate(_results(engine, orders), 1):
        if progress:
            progress("execute", done, len(orders))
        if isinstance(result, FailedOrder):
            run.note(result.group_id, GroupState.FAILED, result.reason)
            continue
        inputs = tuple(planned[path] for path in plan.paths(run.groups[result.group_id]))
        proof = proof_of(result, inputs, schema, planned)
        _note_written(run, result, proof)
        if not proof.holds:
            engine.discard(output.path for output in result.outputs)
            run.note(result.group_id, GroupState.FAILED, f"verification failed: {proof.objection}")
            continue
        outputs = tuple(described_outputs(result, inputs, schema, properties))
        batch.append(WrittenGroup(group_id=result.group_id, inputs=inputs, outputs=outputs))
        if len(batch) >= BATCH_GROUPS:
            _commit(run, committer, engine, batch)
            batch = []
    if batch:
        _commit(run, committer, engine, batch)
    return _record(run, run_id=run_id, started_ms=started, finished_ms=clock.now_ms())


def nothing_to_do(plan: Plan, *, clock: Clock) -> RunRecord:
    """The record of a run that had nothing to do; nothing was started for it."""
    now = clock.now_ms()
    return _record(_Run(plan, {}), run_id=uuid4().hex, started_ms=now, finished_ms=now)


def _results(engine: Engine, orders: Sequence[WorkOrder]) -> Iterable[WorkResult | FailedOrder]:
    return engine.run(orders) if orders else ()


def _note_written(run: _Run, result: WorkResult, proof: Proof) -> None:
    run.note(
        result.group_id,
        GroupState.WRITTEN,
        "written",
        kernel=result.kernel,
        refusals=result.refusals,
        outputs=result.outputs,
        proof=proof,
        seconds=result.seconds,
        cpu_seconds=result.cpu_seconds,
        peak_memory_bytes=result.peak_memory_bytes,
    )


def _commit(run: _Run, committer: Committer, engine: Engine, batch: Sequence[WrittenGroup]) -> None:
    outcome = committer.commit(batch)
    log.info("commit %s: %s groups in snapshot %s", run.plan.table, len(outcome.committed), outcome.snapshot_id)
    if outcome.snapshot_id is not None:
        run.snapshots.append(outcome.snapshot_id)
    for group_id in outcome.committed:
        run.note(
            group_id, GroupState.COMMITTED, f"committed in snapshot {outcome.snapshot_id}", snapshot_id=outcome.snapshot_id
        )
    written = {group.group_id: [file["file-path"] for file in group.outputs] for group in batch}
    for state, lost in (
        (GroupState.SUPERSEDED, outcome.superseded),
        (GroupState.DROPPED, outcome.replan | outcome.dropped),
    ):
        for group_id, reason in lost.items():
            if group_id not in outcome.in_doubt:
                engine.discard(written[group_id])
            run.note(group_id, state, reason)
    for group_id, reason in outcome.in_doubt.items():
        run.note(group_id, GroupState.IN_DOUBT, reason)


def _record(run: _Run, *, run_id: str, started_ms: int, finished_ms: int) -> RunRecord:
    groups = tuple(run.records[i] for i in sorted(run.records))
    states = {group.state for group in groups}
    done = states & {GroupState.COMMITTED, GroupState.SUPERSEDED}
    trouble = states - {GroupState.COMMITTED, GroupState.SUPERSEDED}
    outcome = RunOutcome.NOTHING_TO_DO
    if groups:
        outcome = RunOutcome.DONE if not trouble else RunOutcome.PARTLY_DONE if done else RunOutcome.FAILED
    committed = [run.groups[g.group_id] for g in groups if g.state is GroupState.COMMITTED]
    written = [output for g in groups if g.state is GroupState.COMMITTED for output in g.outputs]
    return RunRecord(
        run_id=run_id,
        table=str(run.plan.table),
        table_uuid=run.plan.table_uuid,
        outcome=outcome,
        empty_reason=run.plan.empty_reason,
        started_ms=started_ms,
        finished_ms=finished_ms,
        snapshot_before=run.plan.snapshot_id,
        snapshots=tuple(run.snapshots),
        groups=groups,
        files_compacted=sum(len(group.files) for group in committed),
        files_written=len(written),
        bytes_read=sum(group.input_bytes for group in committed),
        bytes_written=sum(output.size_bytes for output in written),
        rows=sum(output.records for output in written),
        kernels=Counter(group.kernel for group in groups if group.kernel is not None),
    )
