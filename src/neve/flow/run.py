"""run: the whole story of one compaction, from a plan to a record: execute, verify, commit, record; and its continuation.

Called by `compose`. The only stage that catches: a group that fails is set aside with its reason while the others go on. Groups
are committed in batches as they finish and every step is journalled, so that an interrupted run keeps what it has and a crashed
one is taken up where it stopped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.journal import JournaledGroup, JournaledRun
from neve.core.live import LiveFile
from neve.core.model import RUN_ID
from neve.core.plan import Plan
from neve.core.proof import Proof
from neve.core.record import GroupRecord, GroupState, RunRecord
from neve.core.work import FailedOrder, WorkOrder, WorkResult
from neve.errors import BadRequestError, CommitIncidentError
from neve.flow.commit import Committer, Outcome
from neve.flow.execute import work_orders
from neve.flow.late import WrittenGroup
from neve.flow.lease import leased, owner
from neve.flow.record import record_of
from neve.flow.tools import Tools
from neve.flow.verify import described_outputs, proof_of, with_content
from neve.ports import Clock

log = logging.getLogger(__name__)

BATCH_GROUPS = 200
BATCH_MS = 5 * 60_000
"""Groups per commit, and how long finished ones wait for others: fewer commits mean fewer conflicts and manifests, more of them
that readers profit sooner and that less work can lose to a writer."""

JOT_MS = 500
"""How long a result may wait to be noted in the journal; it is always noted before its commit."""


def compact(plan: Plan, tools: Tools) -> RunRecord:
    """Carries out a plan. Raises only where nothing can be said of the groups; a group's own trouble is in the record."""
    run = _Run(uuid4().hex, plan, tools, started_ms=tools.clock.now_ms())
    with run.lease():
        orders = work_orders(plan, plan.groups, run.planned, tools.writer, tools.specs)
        run.begin(JournaledGroup(group_id=order.group_id, output_prefix=order.output_prefix) for order in orders)
        return run.carry_out((), orders)


def resume(journalled: JournaledRun, tools: Tools) -> RunRecord:
    """Takes a run up where it stopped: commits what was written and still holds, redoes only what was not written."""
    plan, engine = journalled.plan, tools.engine
    run = _Run(journalled.run_id, plan, tools, started_ms=journalled.started_ms)
    with run.lease():
        landed = run.landed(journalled.groups)
        written = [
            g.result for g in journalled.groups if g.state is GroupState.WRITTEN and g.result and g.group_id not in landed
        ]
        open_ = {g.group_id: g for g in journalled.groups if g.state is GroupState.PLANNED}
        live = {file.path for file in tools.writer.scan(tools.writer.head(plan.branch), statistics=False)}
        engine.discard(set(engine.leftovers(group.output_prefix for group in open_.values())) - live)
        present = [plan.groups[i] for i in open_ if all(path in run.planned for path in plan.paths(plan.groups[i]))]
        for group_id in set(open_) - {group.group_id for group in present}:
            run.note(group_id, GroupState.SUPERSEDED, "its inputs are no longer live")
        run.sent_before = {result.group_id for result in written}
        return run.carry_out(written, work_orders(plan, present, run.planned, tools.writer, tools.specs))


def commit_results(plan: Plan, results: Sequence[WorkResult], tools: Tools) -> RunRecord:
    """Verifies and commits what was written elsewhere, order by order; results without a group of this plan are refused."""
    known = {group.group_id for group in plan.groups}
    groups = [result.group_id for result in results]
    if strangers := sorted(set(groups) - known):
        raise BadRequestError(f"Cannot commit the results: the plan has no group {strangers[0]}")
    if twice := [group for group, times in Counter(groups).items() if times > 1]:
        raise BadRequestError(f"Cannot commit the results: there are several of group {twice[0]}", hint="Pass one of each.")
    run = _Run(uuid4().hex, plan, tools, started_ms=tools.clock.now_ms())
    # Whoever brings results may have brought them before, or name files that are live: nothing of theirs is ever removed here.
    run.sent_before = set(groups)
    with run.lease():
        run.begin(
            JournaledGroup(group_id=r.group_id, output_prefix=_prefix(r), state=GroupState.WRITTEN, result=r) for r in results
        )
        return run.carry_out(results, ())


def nothing_to_do(plan: Plan, *, clock: Clock) -> RunRecord:
    """The record of a run that had nothing to do; nothing was started for it."""
    now = clock.now_ms()
    return record_of(plan, {}, [], run_id=uuid4().hex, started_ms=now, finished_ms=now)


def _prefix(result: WorkResult) -> str:
    """The beginning of a result's own files and of no others; of one without files, a name that no file has."""
    return result.outputs[0].path.rpartition("-")[0] if result.outputs else f"neve-{result.order_id}-none"


@dataclass
class _Run:
    run_id: str
    plan: Plan
    tools: Tools
    started_ms: int
    records: dict[int, GroupRecord] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    incident: str | None = None
    sent_before: set[int] = field(default_factory=set)
    """Groups that an earlier process may have committed: a tag may hold their files where no walk from the head finds them."""

    def __post_init__(self) -> None:
        writer = self.tools.writer
        self._jotted: list[WorkResult] = []
        self._jotted_ms = self._now_ms()
        self.planned = {file.path: file for file in self._scan()}
        self.schema, self.properties = writer.schema_json(), writer.properties()
        self.committer = Committer(
            self.plan,
            writer,
            self.planned,
            run_id=self.run_id,
            clock=self.tools.clock,
            sleep=self.tools.sleep,
            deletes=self.tools.deletes,
        )

    def _scan(self) -> Iterable[LiveFile]:
        """The plan's snapshot; where it has been expired, the head's files, of which deletes were attached to none of ours."""
        writer = self.tools.writer
        if self.plan.snapshot_id is None or writer.knows(self.plan.snapshot_id):
            return writer.scan(self.plan.snapshot_id)
        return [file for file in writer.scan(writer.head(self.plan.branch)) if not file.deletes]

    def lease(self) -> AbstractContextManager[None]:
        """The table, for as long as the run lasts."""
        tools = self.tools
        return leased(
            str(self.plan.table),
            self.plan.table_uuid,
            self.run_id,
            leases=tools.leases,
            writer=tools.writer,
            clock=tools.clock,
        )

    def begin(self, groups: Iterable[JournaledGroup]) -> None:
        """Writes the run down, with the beginning of every name that its orders may give to a file."""
        if self.tools.journal:
            run_id, started = self.run_id, self.started_ms
            self.tools.journal.begin(
                JournaledRun(run_id=run_id, owner=owner(), started_ms=started, plan=self.plan, groups=tuple(groups))
            )

    def carry_out(self, written: Iterable[WorkResult], orders: Sequence[WorkOrder]) -> RunRecord:
        """Commits what is written already, carries the orders out, and commits what they give."""
        batch: list[WrittenGroup] = []
        since_ms = self._now_ms()
        for result in self._results(written, orders):
            if (group := self._verified(result)) is not None:
                batch.append(group)
            if len(batch) >= BATCH_GROUPS or (batch and self._now_ms() - since_ms >= BATCH_MS):
                self._commit_by_kind(batch)
                batch, since_ms = [], self._now_ms()
            if self.incident is not None:
                break
        self._commit_by_kind(batch)
        record = record_of(
            self.plan,
            self.records,
            self.snapshots,
            run_id=self.run_id,
            started_ms=self.started_ms,
            finished_ms=self._now_ms(),
        )
        return record.model_copy(update={"incident": self.incident})

    def _now_ms(self) -> int:
        return self.tools.clock.now_ms()

    def landed(self, groups: Iterable[JournaledGroup]) -> set[int]:
        """Groups whose commit landed although nobody noted it: their files are in a snapshot of this run, or in the head."""
        writer = self.tools.writer
        head = writer.head(self.plan.branch)
        ancestors = writer.ancestry(head, self.plan.snapshot_id) if head is not None else []
        ours = [a.snapshot_id for a in ancestors if a.summary.get(RUN_ID) == self.run_id]
        live = {file.path: snapshot for snapshot in (*ours, head) for file in writer.scan(snapshot, statistics=False)}
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
        tools = self.tools
        sizes = {order.group_id: sum(file.size_bytes for file in order.inputs) for order in orders}
        done, total = 0, sum(sizes.values())
        if tools.progress:
            tools.progress("execute", 0, total, "bytes")
        for result in tools.engine.run(orders) if orders else ():
            if isinstance(result, WorkResult):
                self._jot(result)
            done += sizes[result.group_id]
            if tools.progress:
                tools.progress("execute", done, total, "bytes")
            yield result

    def _jot(self, result: WorkResult) -> None:
        """Notes a result, together with others that finish at about the same time: each note is a write to disk."""
        self._jotted.append(result)
        if self._now_ms() - self._jotted_ms >= JOT_MS:
            self._write_down()

    def _write_down(self) -> None:
        if self.tools.journal and self._jotted:
            self.tools.journal.written(self.run_id, self._jotted)
        self._jotted, self._jotted_ms = [], self._now_ms()

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
        outputs = tuple(described_outputs(result, inputs, self.schema, self.properties)) if proof.holds else ()
        if proof.holds and self.tools.content is not None:
            proof = with_content(proof, self.tools.content, result, inputs, outputs)
        self._note_written(result, proof)
        if not proof.holds:
            if result.group_id not in self.sent_before:
                self.tools.engine.discard(output.path for output in result.outputs)
            self._settle(result.group_id, GroupState.FAILED, f"verification failed: {proof.objection}")
            return None
        return WrittenGroup(result.group_id, inputs, outputs, result.positions)

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

    def _commit_by_kind(self, batch: Sequence[WrittenGroup]) -> None:
        """Files in the plan's layout and others in commits of their own: a snapshot tells the layout of all of its files. So
        are groups that change their spec: no file of their commit may have the plan's number (docs/adr/0007)."""
        kinds = {group.group_id: (bool(self.plan.groups.ordered[group.group_id]), group.changes_spec) for group in batch}
        for kind in sorted(set(kinds.values())):
            if self.incident is None:
                self._commit([group for group in batch if kinds[group.group_id] == kind])

    def _commit(self, batch: Sequence[WrittenGroup]) -> None:
        self._write_down()  # what is not known to be written must never be live
        try:
            outcome = self.committer.commit(batch)
        except CommitIncidentError as error:
            self.incident = f"{error}. {error.hint}"
            for group in batch:
                self._settle(group.group_id, GroupState.IN_DOUBT, str(error))
            return
        log.info("commit %s: %s groups in snapshot %s", self.plan.table, len(outcome.committed), outcome.snapshot_id)
        self._note_outcome(outcome, {group.group_id: [file["file-path"] for file in group.outputs] for group in batch})
        # Interrupted, what is in doubt stays written in the journal: a resume finds out what became of it.
        open_ = outcome.in_doubt.keys() if self.committer.interrupted else ()
        if self.tools.journal:
            ended = [group.group_id for group in batch if group.group_id not in open_]
            self.tools.journal.settled(self.run_id, {group_id: self.records[group_id].state for group_id in ended})
        if self.committer.interrupted:
            raise KeyboardInterrupt

    def _note_outcome(self, outcome: Outcome, written: Mapping[int, list[str]]) -> None:
        """What became of each group of a batch; files that certainly nobody refers to go."""
        self.tools.engine.discard(outcome.unused)
        if outcome.snapshot_id is not None:
            self.snapshots.append(outcome.snapshot_id)
        reason = f"committed in snapshot {outcome.snapshot_id}"
        for group_id in outcome.committed:
            self.note(group_id, GroupState.COMMITTED, reason, snapshot_id=outcome.snapshot_id)
        lost = {GroupState.SUPERSEDED: outcome.superseded, GroupState.DROPPED: outcome.replan | outcome.dropped}
        for state, reasons in lost.items():
            for group_id, why in reasons.items():
                if group_id in self.sent_before:
                    self.note(group_id, GroupState.IN_DOUBT, f"{why}; it may have landed before")
                    continue
                if group_id not in outcome.in_doubt:
                    self.tools.engine.discard(written[group_id])
                self.note(group_id, state, why)
        for group_id, why in outcome.in_doubt.items():
            self.note(group_id, GroupState.IN_DOUBT, why)

    def _settle(self, group_id: int, state: GroupState, reason: str) -> None:
        self.note(group_id, state, reason)
        self._write_down()  # a note that came late would call the group written again
        if self.tools.journal:
            self.tools.journal.settled(self.run_id, {group_id: state})
