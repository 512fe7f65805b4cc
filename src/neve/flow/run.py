"""run: the whole story of one compaction, from a plan to a record: execute, verify, commit, record; and its continuation.

Called by `compose`. The only stage that catches: a group that fails is set aside with its reason while the others go on. Groups
are committed in batches as they finish and every step is journalled, so that an interrupted run keeps what it has and a crashed
one is taken up where it stopped.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.live import LiveFile
from neve.core.model import PartitionSpec
from neve.core.plan import Plan
from neve.core.plan_words import Group
from neve.core.proof import Proof
from neve.core.record import GroupRecord, GroupState, RunOutcome, RunRecord
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.core.workload import RUN_ID
from neve.flow.commit import Committer, Sleeper, WrittenGroup
from neve.flow.execute import work_orders
from neve.flow.verify import described_outputs, proof_of
from neve.ports import Clock, Engine, Journal, Progress, TableWriter

log = logging.getLogger(__name__)

BATCH_GROUPS = 200
"""Groups per commit: fewer commits mean fewer conflicts and manifests, more mean less to redo after a crash."""


def compact(
    plan: Plan,
    *,
    writer: TableWriter,
    engine: Engine,
    specs: Sequence[PartitionSpec],
    clock: Clock,
    sleep: Sleeper,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> RunRecord:
    """Carries out a plan. Raises only where nothing can be said of the groups; a group's own trouble is in the record."""
    run = _Run(uuid4().hex, plan, writer, engine, clock, sleep, progress, journal, started_ms=clock.now_ms())
    orders = work_orders(plan, plan.groups, run.planned, writer, specs)
    run.begin(orders)
    return run.carry_out((), orders)


def resume(
    journalled: JournaledRun,
    *,
    writer: TableWriter,
    engine: Engine,
    specs: Sequence[PartitionSpec],
    clock: Clock,
    sleep: Sleeper,
    progress: Progress | None = None,
    journal: Journal | None = None,
) -> RunRecord:
    """Takes a run up where it stopped: commits what was written and still holds, redoes only what was not written."""
    plan, started = journalled.plan, journalled.started_ms
    run = _Run(journalled.run_id, plan, writer, engine, clock, sleep, progress, journal, started_ms=started)
    landed = run.landed(journalled.groups)
    written = [g.result for g in journalled.groups if g.state is GroupState.WRITTEN and g.result and g.group_id not in landed]
    open_ = {g.group_id: g for g in journalled.groups if g.state is GroupState.PLANNED}
    engine.discard(engine.leftovers(group.output_prefix for group in open_.values()))
    present = [plan.groups[i] for i in open_ if all(path in run.planned for path in plan.paths(plan.groups[i]))]
    for group_id in set(open_) - {group.group_id for group in present}:
        run.note(group_id, GroupState.SUPERSEDED, "its inputs are no longer live")
    run.sent_before = {result.group_id for result in written}
    return run.carry_out(written, work_orders(plan, present, run.planned, writer, specs))


def nothing_to_do(plan: Plan, *, clock: Clock) -> RunRecord:
    """The record of a run that had nothing to do; nothing was started for it."""
    now = clock.now_ms()
    return _record(plan, {}, [], run_id=uuid4().hex, started_ms=now, finished_ms=now)


def owner() -> str:
    """This process, so that a later one can tell whether the run is still under way."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass
class _Run:
    run_id: str
    plan: Plan
    writer: TableWriter
    engine: Engine
    clock: Clock
    sleep: Sleeper
    progress: Progress | None
    journal: Journal | None
    started_ms: int
    records: dict[int, GroupRecord] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    sent_before: set[int] = field(default_factory=set)
    """Groups that an earlier process may have committed: a tag may hold their files where no walk from the head finds them."""

    def __post_init__(self) -> None:
        self.planned = {file.path: file for file in self._scan()}
        self.schema, self.properties = self.writer.schema_json(), self.writer.properties()
        self.committer = Committer(self.plan, self.writer, self.planned, run_id=self.run_id, sleep=self.sleep)

    def _scan(self) -> Iterable[LiveFile]:
        """The plan's snapshot; where it has been expired, the head's files, of which deletes were attached to none of ours."""
        if self.plan.snapshot_id is None or self.writer.knows(self.plan.snapshot_id):
            return self.writer.scan(self.plan.snapshot_id)
        return [file for file in self.writer.scan(self.writer.head()) if not file.deletes]

    def begin(self, orders: Sequence[WorkOrder]) -> None:
        """Writes the run down, with the beginning of every name that its orders may give to a file."""
        if self.journal:
            groups = tuple(JournaledGroup(group_id=o.group_id, output_prefix=o.output_prefix) for o in orders)
            self.journal.begin(
                JournaledRun(run_id=self.run_id, owner=owner(), started_ms=self.started_ms, plan=self.plan, groups=groups)
            )

    def carry_out(self, written: Iterable[WorkResult], orders: Sequence[WorkOrder]) -> RunRecord:
        """Commits what is written already, carries the orders out, and commits what they give."""
        batch: list[WrittenGroup] = []
        for result in self._results(written, orders):
            if (group := self._verified(result)) is not None:
                batch.append(group)
            if len(batch) >= BATCH_GROUPS:
                self._commit(batch)
                batch = []
        if batch:
            self._commit(batch)
        finished = self.clock.now_ms()
        return _record(
            self.plan, self.records, self.snapshots, run_id=self.run_id, started_ms=self.started_ms, finished_ms=finished
        )

    def landed(self, groups: Iterable[JournaledGroup]) -> set[int]:
        """Groups whose commit landed although nobody noted it: their files are in a snapshot of this run, or in the head."""
        head = self.writer.head()
        ancestors = self.writer.ancestry(head, self.plan.snapshot_id) if head is not None else []
        ours = [a.snapshot_id for a in ancestors if a.summary.get(RUN_ID) == self.run_id]
        live = {file.path: snapshot for snapshot in (*ours, head) for file in self.writer.scan(snapshot, statistics=False)}
        found: set[int] = set()
        for group in groups:
            if group.state is GroupState.COMMITTED or (
                group.result and any(output.path in live for output in group.result.outputs)
            ):
                snapshot = next((live[o.path] for o in group.result.outputs if o.path in live), None) if group.result else None
                if group.result:
                    self._note_written(group.result, None)
                self.note(
                    group.group_id, GroupState.COMMITTED, "committed before the run was interrupted", snapshot_id=snapshot
                )
                found.add(group.group_id)
            elif group.state not in (GroupState.PLANNED, GroupState.WRITTEN):
                self.note(group.group_id, group.state, "settled before the run was interrupted")
        self.snapshots += [snapshot for snapshot in reversed(ours) if snapshot not in self.snapshots]
        return found

    def note(self, group_id: int, state: GroupState, reason: str, **more: object) -> None:
        """What is known of a group now."""
        known = self.records.get(group_id) or GroupRecord(
            group_id=group_id, partition=self.plan.groups[group_id].partition, state=state, reason=reason
        )
        self.records[group_id] = known.model_copy(update={"state": state, "reason": reason, **more})

    def _results(self, written: Iterable[WorkResult], orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        yield from written
        if self.progress:
            self.progress("execute", 0, len(orders))
        for done, result in enumerate(self.engine.run(orders) if orders else (), 1):
            if self.journal and isinstance(result, WorkResult):
                self.journal.written(self.run_id, [result])
            if self.progress:
                self.progress("execute", done, len(orders))
            yield result

    def _verified(self, result: WorkResult | FailedOrder) -> WrittenGroup | None:
        if isinstance(result, FailedOrder):
            self._settle(result.group_id, GroupState.FAILED, result.reason)
            return None
        paths = self.plan.paths(self.plan.groups[result.group_id])
        if any(path not in self.planned for path in paths):
            self._note_written(result, None)
            self._settle(result.group_id, GroupState.IN_DOUBT, "its inputs are no longer live; it may have landed before")
            return None
        inputs = tuple(self.planned[path] for path in paths)
        proof = proof_of(result, inputs, self.schema, self.planned)
        self._note_written(result, proof)
        if not proof.holds:
            if result.group_id not in self.sent_before:
                self.engine.discard(output.path for output in result.outputs)
            self._settle(result.group_id, GroupState.FAILED, f"verification failed: {proof.objection}")
            return None
        outputs = tuple(described_outputs(result, inputs, self.schema, self.properties))
        return WrittenGroup(group_id=result.group_id, inputs=inputs, outputs=outputs)

    def _note_written(self, result: WorkResult, proof: Proof | None) -> None:
        self.note(
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

    def _commit(self, batch: Sequence[WrittenGroup]) -> None:
        outcome = self.committer.commit(batch)
        log.info("commit %s: %s groups in snapshot %s", self.plan.table, len(outcome.committed), outcome.snapshot_id)
        if outcome.snapshot_id is not None:
            self.snapshots.append(outcome.snapshot_id)
        reason = f"committed in snapshot {outcome.snapshot_id}"
        for group_id in outcome.committed:
            self.note(group_id, GroupState.COMMITTED, reason, snapshot_id=outcome.snapshot_id)
        written = {group.group_id: [file["file-path"] for file in group.outputs] for group in batch}
        lost = {GroupState.SUPERSEDED: outcome.superseded, GroupState.DROPPED: outcome.replan | outcome.dropped}
        for state, reasons in lost.items():
            for group_id, why in reasons.items():
                if group_id in self.sent_before:
                    self.note(group_id, GroupState.IN_DOUBT, f"{why}; it may have landed before")
                    continue
                if group_id not in outcome.in_doubt:
                    self.engine.discard(written[group_id])
                self.note(group_id, state, why)
        for group_id, why in outcome.in_doubt.items():
            self.note(group_id, GroupState.IN_DOUBT, why)
        if self.journal:
            self.journal.settled(self.run_id, {group.group_id: self.records[group.group_id].state for group in batch})

    def _settle(self, group_id: int, state: GroupState, reason: str) -> None:
        self.note(group_id, state, reason)
        if self.journal:
            self.journal.settled(self.run_id, {group_id: state})


def _record(
    plan: Plan,
    records: Mapping[int, GroupRecord],
    snapshots: Sequence[int],
    *,
    run_id: str,
    started_ms: int,
    finished_ms: int,
) -> RunRecord:
    groups = tuple(records[i] for i in sorted(records))
    committed = [group for group in groups if group.state is GroupState.COMMITTED]
    planned: list[Group] = [plan.groups[group.group_id] for group in committed]
    written = [output for group in committed for output in group.outputs]
    return RunRecord(
        run_id=run_id,
        table=str(plan.table),
        table_uuid=plan.table_uuid,
        outcome=_outcome({group.state for group in groups}),
        empty_reason=plan.empty_reason,
        started_ms=started_ms,
        finished_ms=finished_ms,
        snapshot_before=plan.snapshot_id,
        snapshots=tuple(snapshots),
        groups=groups,
        files_compacted=sum(len(group.files) for group in planned),
        files_written=len(written),
        bytes_read=sum(group.input_bytes for group in planned),
        bytes_written=sum(output.size_bytes for output in written),
        rows=sum(output.records for output in written),
        kernels=Counter(group.kernel for group in groups if group.kernel is not None),
    )


def _outcome(states: set[GroupState]) -> RunOutcome:
    good = {GroupState.COMMITTED, GroupState.SUPERSEDED}
    if not states:
        return RunOutcome.NOTHING_TO_DO
    if states <= good:
        return RunOutcome.DONE
    return RunOutcome.PARTLY_DONE if states & good else RunOutcome.FAILED
