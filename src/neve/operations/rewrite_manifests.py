"""manifests: rewrites a table's manifests: plans, writes, compares every entry, commits, checks the table. Main only.

Manifests are written once and can be committed as long as the table still has those that they replace, with the row ids that it
had given them; what others add meanwhile is not in the way. An answer that was lost is settled by the table's own list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from neve.commit.lease import leased
from neve.commit.protocol import COMMIT_ID, Change, Retry, Settled, Terms, commit_or_raise, take_back
from neve.context.table import TableContext
from neve.errors import BadRequestError, CommitConflictError, VerificationError
from neve.maintenance.manifests import ORDER, ManifestPlan, ManifestsRecord, WrittenManifests, plan_manifests, reads
from neve.maintenance.quarantine import Candidate
from neve.maintenance.record import Operation
from neve.maintenance.steps import Judgement
from neve.operations.due import judged_by
from neve.operations.requests import ManifestsRequest
from neve.ports import ManifestRewriter, TableReader
from neve.rewrite.record import RunOutcome
from neve.table.state import RUN_ID, TableState

log = logging.getLogger(__name__)


def run(context: TableContext, request: ManifestsRequest) -> ManifestsRecord:
    """Rewrites manifests where queries gain by it, sorted by partition fields. Data files stay."""
    if request.limit < 2:
        raise BadRequestError(f"Cannot rewrite at most {request.limit} manifests: at least 2 are needed")
    if request.dry_run:
        return preview(context, request)
    context.require_free()
    from neve.spark.maintenance.manifests import SparkManifests

    return context.recorded(rewrite_manifests(context, SparkManifests(context.spark, context.writer), request))


def is_due(context: TableContext) -> Judgement:
    """Whether queries would gain by a rewrite."""
    return judged_by(run(context, ManifestsRequest(dry_run=True)))


def plan(context: TableContext, request: ManifestsRequest, reader: TableReader) -> tuple[TableState, ManifestPlan]:
    """What is worth rewriting in the table as the reader has it."""
    state = reader.state()
    return state, plan_manifests(state, reader.manifests(), context.policy(), by=request.by, limit=request.limit)


def preview(context: TableContext, request: ManifestsRequest) -> ManifestsRecord:
    """What would be done. Reads the manifest list and no manifest."""
    now = context.clock.now_ms()
    return _record(*plan(context, request, context.reader()), None, now, now).model_copy(update={"dry_run": True})


def rewrite_manifests(context: TableContext, rewriter: ManifestRewriter, request: ManifestsRequest) -> ManifestsRecord:
    """Rewrites what is worth it. Raises VerificationError if an entry were lost; a commit that lost is in the record."""
    run = _Rewriting(request, context, rewriter, uuid4().hex, context.clock.now_ms())
    table = (str(context.name), context.uuid)
    with leased(*table, run.run_id, leases=context.leases, writer=context.writer, clock=context.clock) as lease:
        run.assert_held = lease.assert_held
        aside = 0
        try:
            record = run.carry_out()
        finally:
            aside = run.give_up()
        return record.model_copy(update={"set_aside": aside})


@dataclass(eq=False)
class _Rewriting(Change[WrittenManifests, ManifestsRecord]):
    request: ManifestsRequest
    context: TableContext
    rewriter: ManifestRewriter
    run_id: str
    started_ms: int
    commit_id: str = field(default_factory=lambda: uuid4().hex)
    written: list[WrittenManifests] = field(default_factory=list)
    """Every version; they differ where others replaced manifests in between."""
    heads: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The head that each was sent onto."""
    assert_held: Callable[[], None] = field(default=lambda: None)
    """Raises if another process has taken the table over (`commit.lease`)."""
    state: TableState = field(init=False)
    plan: ManifestPlan = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def carry_out(self) -> ManifestsRecord:
        """Under the lease."""
        self.state, self.plan = plan(self.context, self.request, self.context.reader())
        if not self.plan.groups:
            return self._told()
        self._write()
        context, retry = self.context, Retry.of(self.context.writer.properties())
        terms = Terms(f"rewrite of manifests of {context.name}", retry, context.clock, context.sleep, self.assert_held)
        ended = commit_or_raise(self, terms)
        if ended.settled is not None:
            return ended.settled.result
        return self._failed(ended.failure)

    def refresh(self) -> None:
        """Loads the newest metadata."""
        self.context.writer.refresh()

    def prepare(self) -> WrittenManifests | Settled[ManifestsRecord]:
        """The manifests as they were written last, written again if others replaced those that they stand for."""
        written, head = self.written[-1], self._head()
        if self._objection(written, head) is not None:
            self.state, self.plan = plan(self.context, self.request, self.context.reader())
            if not self.plan.groups:
                return Settled(self._told())
            written = self._write()
            head = self._head()
            if (wrong := self._objection(written, head)) is not None:
                raise CommitConflictError(f"Cannot commit manifests of {self.context.name}: {wrong}")
        self.context.report("commit")
        self.heads[written.added] = head
        return written

    def send(self, written: WrittenManifests) -> None:
        """Sends one attempt."""
        self.rewriter.commit(written, {RUN_ID: self.run_id, COMMIT_ID: self.commit_id, ORDER: ", ".join(self.plan.by)})

    def is_named(self) -> bool:
        """Whether a snapshot has our commit id, also one that was rolled back."""
        return bool(self.context.writer.snapshots_with(COMMIT_ID, self.commit_id))

    def landed(self) -> Settled[ManifestsRecord] | None:
        """The record, if an attempt is in the table: by its id in a snapshot, or, should that be expired, by its manifests."""
        head = self._head()
        if not self.open or not head:
            return None
        writer = self.context.writer
        ancestors = writer.ancestry(head, self.plan.snapshot_id)
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == self.commit_id), None)
        there = self.rewriter.listed(ours.snapshot_id if ours is not None else head)
        landed = next((w for w in self.open if w.added and w.added[0] in there), None)
        if landed is None:
            return None
        if ours is None or writer.snapshots_with(COMMIT_ID, self.commit_id) == [ours.snapshot_id]:
            self.open[:] = [landed]  # no other attempt can land, and none was rolled back
        if ours is not None and ours.parent_id != self.heads[landed.added]:
            # Iceberg's own retries moved it to a head that nobody had judged.
            known = ours.parent_id is not None and writer.knows(ours.parent_id)
            wrong = self._objection(landed, ours.parent_id or 0) if known else None
            if wrong is not None:
                take_back(writer, [ours], wrong, head=head, branch="main", run_id=self.run_id)
                return Settled(self._failed(f"snapshot {ours.snapshot_id} was taken back, for {wrong}"))
        return Settled(self._done(landed, () if ours is None else (ours.snapshot_id,)))

    def _write(self) -> WrittenManifests:
        self.context.report("write")
        self.context.writer.refresh()
        written = self.rewriter.write(self.plan)
        self.written.append(written)
        if written.before != written.after:
            raise VerificationError(
                f"Cannot commit manifests of {self.context.name}: they hold {written.after.files:,} files where "
                f"{written.before.files:,} were, or say other things of them",
                hint="Nothing was committed. Report this, with the snapshot that was current.",
            )
        return written

    def _head(self) -> int:
        return self.context.writer.head() or 0

    def _objection(self, written: WrittenManifests, snapshot_id: int) -> str | None:
        """Why manifests cannot take the place of those that they replace at this snapshot."""
        if self.context.writer.shape()["format version"] != written.format_version:
            return "the table's format version was changed meanwhile"
        if not written.added:
            return "others replaced the manifests meanwhile"
        there = self.rewriter.listed(snapshot_id) if snapshot_id else {}
        if gone := [path for path in written.replaced if path not in there]:
            return f"{len(gone)} of the manifests were replaced by others meanwhile"
        if any(there[path] != first for path, first in written.replaced.items()):
            return "rows in these manifests were given their ids meanwhile"
        return None

    def _done(self, landed: WrittenManifests, snapshots: tuple[int, ...]) -> ManifestsRecord:
        after = reads(self.state, self.context.reader().manifests(), self.plan.by)
        facts = {
            "snapshots": snapshots,
            "manifests_replaced": len(landed.replaced),
            "manifests_written": len(landed.added),
            "after": after,
        }
        return self._told().model_copy(update=facts)

    def give_up(self) -> int:
        """Records what was written and came to nothing, unless another process has the table by now; returns how many files."""
        kept = {path for written in self.open for path in written.added}
        loose = [p for written in self.written for p in (*written.added, *written.leftovers) if p not in kept]
        if not loose or self.context.quarantine is None:
            return 0
        try:
            self.assert_held()
        except Exception as error:  # Ctrl-C may have ended the JVM
            log.warning("files are left for orphan removal, such as %s: %s", loose[0], error)
            return 0
        doomed = [Candidate(path=path, reason="written for a rewrite of manifests and never used") for path in loose]
        self.context.quarantine.record_candidates(self.context.uuid, self.run_id, doomed, self.context.clock.now_ms())
        return len(doomed)

    def _failed(self, reason: str) -> ManifestsRecord:
        return self._told().model_copy(update={"outcome": RunOutcome.FAILED, "reason": reason})

    def _told(self) -> ManifestsRecord:
        return _record(self.state, self.plan, self.run_id, self.started_ms, self.context.clock.now_ms())


def _record(state: TableState, plan: ManifestPlan, run_id: str | None, started: int, finished: int) -> ManifestsRecord:
    return ManifestsRecord(
        run_id=run_id,
        table=str(state.name),
        table_uuid=state.uuid,
        operation=Operation.MANIFESTS,
        outcome=RunOutcome.DONE if plan.groups else RunOutcome.NOTHING_TO_DO,
        reason=plan.reason,
        not_due=plan.not_due,
        started_ms=started,
        finished_ms=finished,
        snapshot_before=plan.snapshot_id,
        by=plan.by,
        groups=plan.groups,
        files=sum(group.files for group in plan.groups),
        manifests_replaced=len(plan.replaced),
        manifests_written=sum(group.outputs for group in plan.groups),
        before=plan.before,
        after=plan.after,
    )
