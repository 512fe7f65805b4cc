"""run: the stages of a compaction that change something, execute, verify and commit, as `operations.compact` calls them.

`operations.resume` and `operations.results` begin elsewhere in the same story. The only part that catches: a group that fails,
for whatever exception, is set aside with its reason and traceback while the others go on, and the run always ends with a
record. Groups are committed in batches as they finish and every step is journalled, so that an interrupted run keeps what it
has and a crashed one is taken up where it stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from neve.commit.access import TableView
from neve.commit.batch import BatchOutcome
from neve.commit.conflicts import changed_shape
from neve.commit.failure import Failure, was_interrupted
from neve.commit.group_journal import GroupJournal
from neve.commit.late_deletes import WrittenGroup
from neve.commit.owner import Owner
from neve.commit.process import is_certainly_gone, this_process
from neve.commit.protocol import may_pass
from neve.commit.rewrite_files import Committer
from neve.commit.takeover import leased_run
from neve.context.table import TableContext
from neve.errors import CommitIncidentError, RunTakenOverError, TableGoneError
from neve.health.condition import Condition
from neve.operations.execute import orders_or_failures
from neve.operations.verify import described_outputs, opened_outputs, proof_of, with_content
from neve.ports import Clock, TableWriter
from neve.rewrite.group import Group
from neve.rewrite.journal import JournaledGroup, JournaledRun
from neve.rewrite.live_files import LiveFile
from neve.rewrite.plan import Plan
from neve.rewrite.proof import Proof
from neve.rewrite.record import GroupRecord, GroupState, RunRecord
from neve.rewrite.remaining import RemainingGroup
from neve.rewrite.run_summary import record_of
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.table.state import PartitionSpec

log = logging.getLogger(__name__)

BATCH_GROUPS = 200
BATCH_MS = 5 * 60_000
"""Groups per commit, and how long finished ones wait for others: fewer commits mean fewer conflicts and manifests, more of them
that readers profit sooner and that less work can lose to a writer."""

PlanAgain = Callable[[], "PlannedRun"]
"""Plans from the table's current head."""


@dataclass(frozen=True)
class PlannedRun:
    """A plan, and the table that it was made from."""

    plan: Plan
    specs: Sequence[PartitionSpec]
    before: Condition | None = None

    def unchanged(self, record: RunRecord) -> RunRecord:
        """The record of a run that had nothing to do, and is not recorded."""
        record = record.unrecorded()
        return record if self.before is None else record.between(self.before, self.before)


@contextmanager
def begun(
    planned: PlannedRun, context: TableContext, *, verify: str = "metadata", plan_again: PlanAgain | None = None
) -> Iterator[CompactionRun]:
    """A run of the plan under the table's lease, written down. `run.planned` is what it carries out.

    `plan_again` is called if the table has changed since it was planned. Without it, the given plan is carried out.
    """
    run_id, started_ms = uuid4().hex, context.clock.now_ms()
    with leased_run(planned.plan, run_id, context) as held:
        if plan_again is not None and _is_outdated(planned.plan, context.writer):
            log.info("run %s: %s has changed since it was planned, and is planned again", run_id, planned.plan.table)
            planned = plan_again()
            context.writer.refresh()
        run = CompactionRun(run_id, planned, context, held.assert_held, started_ms, verify_by=verify)
        if len(planned.plan.groups):
            run.order(planned.plan.groups)
            run.begin(run.journaled())
        yield run


def _is_outdated(plan: Plan, writer: TableWriter) -> bool:
    """Whether the table's current head, or its shape, is not the one that was planned from."""
    writer.refresh()
    return writer.head(plan.branch) != plan.snapshot_id or changed_shape(plan.shape, writer.shape()) is not None


def nothing_to_do(plan: Plan, *, clock: Clock) -> RunRecord:
    """The record of a run that had nothing to do; nothing was started for it."""
    now = clock.now_ms()
    return record_of(plan, {}, [], run_id=None, started_ms=now, finished_ms=now)


def paths_of(result: WorkResult) -> set[str]:
    """The files that a result adds."""
    return {output.path for output in result.outputs}


def planned_files(plan: Plan, table: TableView) -> Iterable[LiveFile]:
    """Of the plan's snapshot; where it has been expired, the head's files, of which deletes were attached to none of ours."""
    if plan.snapshot_id is None or table.knows(plan.snapshot_id):
        return table.scan(plan.snapshot_id)
    return [file for file in table.scan(table.head(plan.branch)) if not file.deletes]


def no_file(name: str) -> str:
    """The beginning of no file's name."""
    return f"neve-{name}-none"


@dataclass
class CompactionRun:
    """A run under way, under its table's lease. Its stages are `execute`, `verify` and `commit`, inside of `settling`."""

    run_id: str
    planned: PlannedRun
    context: TableContext
    assert_held: Callable[[], None]
    """Raises if the run or its table was taken over (`commit.lease`)."""
    started_ms: int
    resumed_ms: int | None = None
    verify_by: str = "metadata"
    written: Sequence[WorkResult] = ()
    """Results that an earlier process, or another one, has brought."""
    orders: Sequence[WorkOrder] = ()
    failed: Sequence[FailedOrder] = ()
    """Groups that no order could be made for."""
    records: dict[int, GroupRecord] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    incident: str | None = None
    gone: str | None = None
    """How the table was lost, if it was."""
    sent_before: set[int] = field(default_factory=set)
    """Groups that an earlier process may have committed: a tag may hold their files where no walk from the head finds them."""

    def __post_init__(self) -> None:
        context, writer = self.context, self.context.writer
        self.plan = self.planned.plan
        self.engine = context.engine_of(self.plan)
        self.content = context.content_of(self.plan) if self.verify_by == "content" else None
        self.journal = GroupJournal(self.run_id, self.plan.table_uuid, context, self.engine)
        self._silent = self._is_lost = False
        self.inputs = {file.path: file for file in planned_files(self.plan, writer)}
        self.schema, self.properties = writer.schema_json(), writer.properties()
        terms = {"run_id": self.run_id, "clock": context.clock, "sleep": context.sleep, "deletes": context.deletes}
        self.committer = Committer(self.plan, writer, self.inputs, **terms)  # type: ignore[arg-type]
        self.committer.assert_held = self.assert_held

    def order(self, groups: Iterable[Group]) -> None:
        """Cuts groups into work orders."""
        found = orders_or_failures(self.plan, groups, self.inputs, self.context.writer, self.planned.specs)
        self.orders, self.failed = found

    def set_leftovers_aside(self, groups: Iterable[JournaledGroup], owner: str) -> None:
        """Records in the quarantine what the owner before wrote and never reported, if that process has certainly ended.

        Otherwise it may yet commit these files: they stay, and are orphan files if it does not. A file that is not live may
        still be needed by another ref or snapshot: the quarantine checks that.
        """
        if not is_certainly_gone(owner) and not Owner.parse(owner).is_same_process(this_process()):
            return
        writer = self.context.writer
        live = {file.path for file in writer.scan(writer.head(self.plan.branch), statistics=False)}
        self.journal.set_leftovers_aside([group.output_prefix for group in groups], live)

    def journaled(self, groups: Iterable[JournaledGroup] = ()) -> JournaledRun:
        """The run as its journal has it at the beginning: with the beginning of every name that its orders may give a file."""
        run_id, owner, started = self.run_id, this_process().text, self.started_ms
        ordered = [JournaledGroup(group_id=order.group_id, output_prefix=order.output_prefix) for order in self.orders]
        unordered = [JournaledGroup(group_id=one.group_id, output_prefix=no_file(run_id)) for one in self.failed]
        every = (*groups, *ordered, *unordered)
        return JournaledRun(run_id=run_id, owner=owner, started_ms=started, plan=self.plan, groups=every)

    def begin(self, run: JournaledRun) -> None:
        """Writes the run down."""
        if self.context.journal:
            self.context.journal.begin(run)

    @contextmanager
    def settling(self) -> Iterator[None]:
        """Around the stages: whatever one of them raises, every group ends, and is written down."""
        started: list[WorkResult | WorkOrder] = [*self.written, *self.orders]
        try:
            yield
        except RunTakenOverError:
            self._is_lost = True  # another process has the run now: nothing more is written down, and nothing is removed
            raise
        except TableGoneError as error:
            self.gone = str(error)
            self._end_without_table(self.gone, started)
        except Exception as error:  # no stage of a group is left to raise, but a run must end whatever happens
            if may_pass(error) and self.sent_before:
                raise  # what was written before cannot be read now: another resume may find out more
            log.exception("run %s ends early", self.run_id)
            self._fail_the_rest(started, Failure.of(error))
        finally:
            if not (self._is_lost or self.journal.is_lost):
                self.journal.settle_the_rest()
                self.journal.set_aside(self.engine.unused(), "left by a lost task attempt, or a scratch file")

    def record(self) -> RunRecord:
        """What the run came to."""
        times = {"started_ms": self.started_ms, "resumed_ms": self.resumed_ms, "finished_ms": self._now_ms()}
        found = record_of(self.plan, self.records, self.snapshots, run_id=self.run_id, **times)  # type: ignore[arg-type]
        return found.model_copy(update={"incident": self.incident, "table_gone": self.gone})

    def _end_without_table(self, why: str, begun: Iterable[WorkResult | WorkOrder]) -> None:
        """Settles every group that is still open. No file is removed: the table may live on under another name."""
        for group_id in [each.group_id for each in begun]:
            known = self.records.get(group_id)
            if group_id in self.committer.in_flight:
                self._settle(group_id, GroupState.IN_DOUBT, why)
            elif known is None or known.state in (GroupState.PLANNED, GroupState.WRITTEN):
                self._settle(group_id, self._failed_or_in_doubt(group_id), why)

    def _failed_or_in_doubt(self, group_id: int) -> GroupState:
        """What an earlier process may have sent can still land, so that it is in doubt."""
        return GroupState.IN_DOUBT if group_id in self.sent_before else GroupState.FAILED

    def _fail_the_rest(self, begun: Iterable[WorkResult | WorkOrder], failure: Failure) -> None:
        """Ends every group that has not ended. What may have been sent is in doubt already, and stays so."""
        for each in begun:
            known = self.records.get(each.group_id)
            if known is None or known.state is GroupState.WRITTEN:
                paths = [output.path for output in known.outputs] if known else ()
                state = self._failed_or_in_doubt(each.group_id)
                self._settle(each.group_id, state, failure.reason, traceback=failure.traceback, unused=paths)

    def _now_ms(self) -> int:
        return self.context.clock.now_ms()

    def note(self, group_id: int, state: GroupState, reason: str, **more: object) -> None:
        """What is known of a group now."""
        known = self.records.get(group_id) or GroupRecord(
            group_id=group_id, partition=self.plan.groups[group_id].partition, state=state, reason=reason
        )
        self.records[group_id] = known.model_copy(update={"state": state, "reason": reason, **more})

    def note_ended(self, group: RemainingGroup, result: WorkResult | None) -> None:
        """What became of a group that needs no more work."""
        if result is not None:
            self.note_written(result)
        self.note(group.group_id, group.state, group.reason, snapshot_id=group.snapshot_id)

    def execute(self) -> Iterator[WorkResult | FailedOrder]:
        """Carries the orders out; yields what is written already, then each result as it comes."""
        yield from self.failed
        yield from self.written
        sizes = {order.group_id: sum(file.size_bytes for file in order.inputs) for order in self.orders}
        done, total = 0, sum(sizes.values())
        self._progress(0, total)
        for result in self._executed(self.orders) if self.orders else ():
            if isinstance(result, WorkResult):
                self.journal.jot(result)
            done += sizes[result.group_id]
            self._progress(done, total)
            yield result

    def _executed(self, orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        """The engine's results. Should it raise, the orders that it has not reported run one by one, so that only those to
        blame fail."""
        waiting = {order.group_id: order for order in orders}
        try:
            for result in self.engine.run(orders):
                waiting.pop(result.group_id, None)
                yield result
            return
        except (RunTakenOverError, TableGoneError):
            raise
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            log.warning("the engine raised with %s groups to go", len(waiting), exc_info=error)
            failure = Failure.of(error)
        for order in waiting.values():
            self.journal.set_leftovers_aside([order.output_prefix])
            if len(orders) > 1:
                yield from self._executed([order])
            else:
                yield FailedOrder(group_id=order.group_id, reason=failure.reason, traceback=failure.traceback)

    def _progress(self, done: int, total: int) -> None:
        """Shows how far the run is; a listener that raises is not told anything more."""
        if self.context.progress and not self._silent:
            try:
                self.context.progress("execute", done, total, "bytes")
            except Exception as error:
                log.warning("progress is not shown any more", exc_info=error)
                self._silent = True

    def verify(self, results: Iterable[WorkResult | FailedOrder]) -> Iterator[WrittenGroup | None]:
        """Proves each result; yields the group as it may be committed, None if it failed."""
        return map(self._verified, results)

    def _verified(self, result: WorkResult | FailedOrder) -> WrittenGroup | None:
        """The group as it may be committed, None if it failed: an exception fails this group alone."""
        if isinstance(result, FailedOrder):
            self._settle(result.group_id, GroupState.FAILED, result.reason, traceback=result.traceback)
            return None
        try:
            return self._proved(result)
        except (RunTakenOverError, TableGoneError):
            raise
        except Exception as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            if not self._fails_alone(result.group_id, error):
                raise
            log.warning("group %s could not be verified", result.group_id, exc_info=error)
            self.note_written(result, None)
            self._fail(result.group_id, Failure.of(error), [output.path for output in result.outputs])
            return None

    def _fails_alone(self, group_id: int, error: Exception) -> bool:
        """Whether an exception ends its group and not the run. Another resume may yet read what was sent before."""
        return not (may_pass(error) and group_id in self.sent_before)

    def _proved(self, result: WorkResult) -> WrittenGroup | None:
        paths = self.plan.paths(self.plan.groups[result.group_id])
        if any(path not in self.inputs for path in paths):
            self.note_written(result, None)
            self._settle(result.group_id, GroupState.IN_DOUBT, "its inputs are no longer live; it may have landed before")
            return None
        inputs = tuple(self.inputs[path] for path in paths)
        result = opened_outputs(result, self.engine, again=result.group_id in self.sent_before)
        proof = proof_of(result, inputs, self.schema, self.inputs)
        outputs = tuple(described_outputs(result, inputs, self.schema, self.properties)) if proof.holds else ()
        if proof.holds and self.content is not None:
            proof = with_content(proof, self.content, result, inputs, outputs)
        self.note_written(result, proof)
        if not proof.holds:
            paths = [output.path for output in result.outputs]
            reason = f"verification failed: {proof.objection}{proof.hint}"
            self._settle(result.group_id, GroupState.FAILED, reason, unused=paths)
            return None
        return WrittenGroup(result.group_id, inputs, outputs, result.positions, result.group_id in self.sent_before)

    def fail_without_files(self, result: WorkResult, missing: Set[str]) -> None:
        """Ends a group whose files do not exist any more: nobody could read what it adds."""
        self.note_written(result)
        lost = min(paths_of(result) & missing)
        self._settle(result.group_id, GroupState.FAILED, f"{lost} does not exist; run its order again")

    def note_written(self, result: WorkResult, proof: Proof | None = None) -> None:
        """Notes what a group wrote."""
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
            requests=result.requests,
        )

    def commit(self, groups: Iterable[WrittenGroup | None]) -> None:
        """Commits groups in batches as they come."""
        for batch in self._batches(groups):
            self._commit(batch)

    def _batches(self, groups: Iterable[WrittenGroup | None]) -> Iterator[list[WrittenGroup]]:
        batch: list[WrittenGroup] = []
        since_ms = self._now_ms()
        for group in groups:
            if group is not None:
                batch.append(group)
            if len(batch) >= BATCH_GROUPS or (batch and self._now_ms() - since_ms >= BATCH_MS):
                yield from self._by_kind(batch)
                batch, since_ms = [], self._now_ms()
            if self.incident is not None:
                break
        yield from self._by_kind(batch)

    def _by_kind(self, batch: Sequence[WrittenGroup]) -> Iterator[list[WrittenGroup]]:
        """Files in the plan's layout and others in commits of their own: a snapshot tells the layout of all of its files. So
        are groups that change their spec: no file of their commit may have the plan's number (docs/adr/0007)."""
        self.journal.write_down()  # what is not known to be written must never be live
        refused = self.journal.refused
        for group in batch:
            if group.group_id in refused:
                self._fail(group.group_id, refused[group.group_id], sorted(group.output_paths))
        batch = [group for group in batch if group.group_id not in refused]
        kinds = {group.group_id: (bool(self.plan.groups.ordered[group.group_id]), group.changes_spec) for group in batch}
        for kind in sorted(set(kinds.values())):
            yield [group for group in batch if kinds[group.group_id] == kind]

    def _commit(self, batch: Sequence[WrittenGroup]) -> None:
        if self.incident is not None or not batch:
            return
        for group in batch:
            self.note(group.group_id, GroupState.IN_DOUBT, "the outcome of its commit is unknown", traceback=None)
        try:
            outcome = self.committer.commit(batch)
        except Exception as error:
            self._commit_raised(batch, error)
            return
        log.info("commit %s: %s groups in snapshot %s", self.plan.table, len(outcome.committed), outcome.snapshot_id)
        again = [group for group in batch if group.group_id in outcome.unprepared] if len(batch) > 1 else []
        unused = self._note_outcome(outcome, {group.group_id: sorted(group.output_paths) for group in batch})
        # Interrupted, what is in doubt stays written in the journal: a resume finds out what became of it.
        open_ = {*outcome.in_doubt} if self.committer.interrupted else set()
        open_ |= {group.group_id for group in again}
        self._journal([group.group_id for group in batch if group.group_id not in open_], unused)
        self.journal.set_aside(outcome.unused, "deletes of a commit attempt that did not land")
        if self.committer.interrupted:
            raise KeyboardInterrupt
        for half in (again[: len(again) // 2], again[len(again) // 2 :]):
            self._commit(half)

    def _commit_raised(self, batch: Sequence[WrittenGroup], error: Exception) -> None:
        """Nobody knows what became of a commit that raised: its groups are in doubt. Raises what ends the run."""
        if isinstance(error, RunTakenOverError | TableGoneError):
            for group_id in {group.group_id for group in batch} - self.committer.in_flight:
                self.note(group_id, GroupState.WRITTEN, "written")
            raise error
        if isinstance(error, CommitIncidentError):
            self.incident = f"{error}. {error.hint}"
            for group in batch:
                self._settle(group.group_id, GroupState.IN_DOUBT, str(error))
            return
        log.error("a commit of %s groups raised", len(batch), exc_info=error)
        failure = Failure.of(error)
        for group in batch:
            self._settle(group.group_id, GroupState.IN_DOUBT, failure.reason, traceback=failure.traceback)

    def _note_outcome(self, outcome: BatchOutcome, written: Mapping[int, list[str]]) -> dict[int, list[str]]:
        """What became of each group of a batch; gives back by group the files that certainly nobody refers to."""
        unused = dict[int, list[str]]()
        if outcome.snapshot_id is not None:
            self.snapshots.append(outcome.snapshot_id)
        reason = f"committed in snapshot {outcome.snapshot_id}"
        for group_id in outcome.committed:
            self.note(group_id, GroupState.COMMITTED, reason, snapshot_id=outcome.snapshot_id, committed_ms=self._now_ms())
        lost = {GroupState.SUPERSEDED: outcome.superseded, GroupState.DROPPED: outcome.replan | outcome.dropped}
        for state, reasons in lost.items():
            for group_id, why in reasons.items():
                if group_id in self.sent_before:
                    self.note(group_id, GroupState.IN_DOUBT, f"{why}; it may have landed before")
                    continue
                if group_id not in outcome.in_doubt:
                    unused[group_id] = written[group_id]
                self.note(group_id, state, why)
        for group_id, failure in (outcome.failed | outcome.unprepared).items():
            if group_id not in outcome.in_doubt:
                unused[group_id] = written[group_id] + self.journal.late_deletes(written[group_id])
            self.note(group_id, self._failed_or_in_doubt(group_id), failure.reason, traceback=failure.traceback)
        for group_id, why in outcome.in_doubt.items():
            explained = {"traceback": outcome.crash.traceback} if outcome.crash is not None else {}
            self.note(group_id, GroupState.IN_DOUBT, why, **explained)
        return unused

    def _fail(self, group_id: int, failure: Failure, paths: Sequence[str]) -> None:
        """Ends a group of which nothing was sent."""
        self._settle(group_id, GroupState.FAILED, failure.reason, traceback=failure.traceback, unused=paths)

    def _settle(
        self, group_id: int, state: GroupState, reason: str, *, traceback: str | None = None, unused: Sequence[str] = ()
    ) -> None:
        """Ends a group. Files of one that an earlier process may have committed stay."""
        self.note(group_id, state, reason, traceback=traceback)
        self._journal([group_id], {group_id: unused})

    def _journal(self, ended: Iterable[int], unused: Mapping[int, Sequence[str]]) -> None:
        """Writes down how these groups ended; what is unused goes, save files that an earlier process may have committed."""
        states = {group_id: self.records[group_id].state for group_id in ended}
        kept = {group_id: paths for group_id, paths in unused.items() if group_id not in self.sent_before}
        if (failure := self.journal.settle(states, kept)) is not None:
            for known in [self.records[group_id] for group_id in states]:
                told = f"{known.reason}; the journal could not be written: {failure.reason}"
                self.note(known.group_id, known.state, told, traceback=known.traceback or failure.traceback)
