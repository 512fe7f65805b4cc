"""Rewrites a table's manifests: plans, writes, compares every entry, commits, looks again. Called by `compose`; main only.

Manifests are written once and can be committed as long as the table still has those that they replace, with the row ids that it
had given them; what others add meanwhile is not in the way. An answer that was lost is settled by the table's own list.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.maintenance import Operation
from neve.core.manifest_plan import LIMIT, ORDER, ManifestPlan, ManifestsRecord, WrittenManifests, plan_manifests, reads
from neve.core.model import RUN_ID, TableState
from neve.core.policy import Policy
from neve.core.quarantine import Doomed
from neve.core.record import RunOutcome
from neve.errors import CatalogUnreachableError, CommitConflictError, CommitUnknownError, StorageError, VerificationError
from neve.flow.commit import COMMIT_ID, Retry, take_back, taken_over
from neve.flow.lease import leased
from neve.maintenance.means import Means
from neve.ports import Clock, ManifestRewriter, TableReader

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ManifestsRequest:
    """What is asked for; `by` are partition fields to sort by, and `limit` is the most manifests that a run takes."""

    policy: Policy
    by: Sequence[str] = ()
    limit: int = LIMIT

    def plan(self, reader: TableReader) -> tuple[TableState, ManifestPlan]:
        """What is worth rewriting in the table as the reader has it."""
        state = reader.state()
        return state, plan_manifests(state, reader.manifests(), self.policy, by=self.by, limit=self.limit)


def foretell(request: ManifestsRequest, reader: TableReader, clock: Clock) -> ManifestsRecord:
    """What would be done. Reads the manifest list and no manifest."""
    now = clock.now_ms()
    state, plan = request.plan(reader)
    return _record(state, plan, uuid4().hex, now, now).model_copy(update={"dry_run": True})


def rewrite_manifests(request: ManifestsRequest, means: Means, rewriter: ManifestRewriter) -> ManifestsRecord:
    """Rewrites what is worth it. Raises VerificationError if an entry were lost; a commit that lost is in the record."""
    run = _Rewriting(request, means, rewriter, uuid4().hex, means.clock.now_ms())
    table = (str(means.table), means.table_uuid)
    with leased(*table, run.run_id, leases=means.leases, writer=means.writer, clock=means.clock):
        try:
            return run.carry_out()
        finally:
            run.give_up()


@dataclass
class _Rewriting:
    request: ManifestsRequest
    means: Means
    rewriter: ManifestRewriter
    run_id: str
    started_ms: int
    commit_id: str = field(default_factory=lambda: uuid4().hex)
    written: list[WrittenManifests] = field(default_factory=list)
    """Every try; they differ where others replaced manifests in between."""
    open: dict[tuple[str, ...], WrittenManifests] = field(default_factory=dict)
    """Tries that landed or may have: their files stay."""
    heads: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The head that each was sent onto."""
    failure: str = ""

    def carry_out(self) -> ManifestsRecord:
        """Under the lease."""
        state, plan = self.request.plan(self.means.look())
        if not plan.groups:
            return self._told(state, plan)
        written = self._write(plan)
        retry = Retry.of(self.means.writer.properties())
        for attempt in range(retry.attempts):
            if attempt:
                self.means.sleep(retry.wait_seconds(attempt - 1, random.random()))  # noqa: S311
            try:
                if (record := self._attempt(state, plan, written)) is not None:
                    return record
                if (wrong := self._objection(written, self._head())) is not None:
                    self.failure = wrong
                    state, plan = self.request.plan(self.means.look())
                    if not plan.groups:
                        return self._told(state, plan)
                    written = self._write(plan)
            except (CatalogUnreachableError, StorageError) as error:
                self.failure = str(error)
            log.warning("rewrite of manifests, attempt %s: %s", attempt + 1, self.failure)
        return self._found_late(state, plan, retry) or self._failed(state, plan, self.failure)

    def _found_late(self, state: TableState, plan: ManifestPlan, retry: Retry) -> ManifestsRecord | None:
        """What became of the tries, should the catalog not have answered after the last."""
        for check in range(retry.checks if self.open else 0):
            self.means.sleep(retry.wait_seconds(retry.attempts - 1 + check, random.random()))  # noqa: S311
            with suppress(CatalogUnreachableError, StorageError):
                self.means.writer.refresh()
                return self._settled(state, plan)
        return None

    def _write(self, plan: ManifestPlan) -> WrittenManifests:
        self.means.tell("write")
        self.means.writer.refresh()
        written = self.rewriter.write(plan)
        self.written.append(written)
        if written.before != written.after:
            raise VerificationError(
                f"Cannot commit manifests of {self.means.table}: they hold {written.after.files:,} files where "
                f"{written.before.files:,} were, or say other things of them",
                hint="Nothing was committed. Report this, with the snapshot that was current.",
            )
        return written

    def _attempt(self, state: TableState, plan: ManifestPlan, written: WrittenManifests) -> ManifestsRecord | None:
        """None if it is to be tried again."""
        writer = self.means.writer
        writer.refresh()
        if (record := self._settled(state, plan)) is not None:
            return record
        if (other := taken_over(writer, self.run_id, self.means.clock)) is not None:
            return self._failed(state, plan, other)
        if (wrong := self._objection(written, head := self._head())) is not None:
            self.failure = wrong
            return None
        self.means.tell("commit")
        self.open[written.added], self.heads[written.added] = written, head
        certain = self._send(plan, written)
        writer.refresh()
        record = self._settled(state, plan)
        if record is None and certain:
            self.open.pop(written.added)
        return record

    def _send(self, plan: ManifestPlan, written: WrittenManifests) -> bool:
        """Whether it certainly did not land."""
        self.failure = "the commit answered, but is not to be found"
        summary = {RUN_ID: self.run_id, COMMIT_ID: self.commit_id, ORDER: ", ".join(plan.by)}
        try:
            self.rewriter.commit(written, summary)
        except CommitConflictError as error:
            self.failure = str(error)
            return True
        except CommitUnknownError as error:
            self.failure = str(error)
        return False

    def _head(self) -> int:
        return self.means.writer.head() or 0

    def _objection(self, written: WrittenManifests, snapshot_id: int) -> str | None:
        """Why manifests cannot take the place of those that they replace at this snapshot."""
        if self.means.writer.shape()["format version"] != written.format_version:
            return "the table's format version was changed meanwhile"
        if not written.added:
            return "others replaced the manifests meanwhile"
        there = self.rewriter.listed(snapshot_id) if snapshot_id else {}
        if gone := [path for path in written.replaced if path not in there]:
            return f"{len(gone)} of the manifests were replaced by others meanwhile"
        if any(there[path] != first for path, first in written.replaced.items()):
            return "rows in these manifests were given their ids meanwhile"
        return None

    def _settled(self, state: TableState, plan: ManifestPlan) -> ManifestsRecord | None:
        """The record, if a try is in the table: by its id in a snapshot, or, should that be expired, by its manifests."""
        head = self._head()
        if not self.open or not head:
            return None
        writer = self.means.writer
        ancestors = writer.ancestry(head, plan.snapshot_id)
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == self.commit_id), None)
        there = self.rewriter.listed(ours.snapshot_id if ours is not None else head)
        landed = next((w for w in self.open.values() if w.added and w.added[0] in there), None)
        if landed is None:
            return None
        self.open = {landed.added: landed}
        if ours is not None and ours.parent_id != self.heads[landed.added]:
            # Iceberg's own retries moved it to a head that nobody had judged.
            known = ours.parent_id is not None and writer.knows(ours.parent_id)
            wrong = self._objection(landed, ours.parent_id or 0) if known else None
            if wrong is not None:
                take_back(writer, [ours], wrong, head=head, branch="main", run_id=self.run_id)
                reason = f"snapshot {ours.snapshot_id} was taken back, for {wrong}"
                return self._failed(state, plan, reason)
        return self._done(state, plan, landed, () if ours is None else (ours.snapshot_id,))

    def _done(
        self, state: TableState, plan: ManifestPlan, landed: WrittenManifests, snapshots: tuple[int, ...]
    ) -> ManifestsRecord:
        reader = self.means.look()
        after = reads(state, reader.manifests(), plan.by)
        facts = {
            "snapshots": snapshots,
            "manifests_replaced": len(landed.replaced),
            "manifests_written": len(landed.added),
            "after": after,
        }
        return self._told(state, plan).model_copy(update=facts)

    def give_up(self) -> None:
        """Records what was written and came to nothing."""
        kept = {path for written in self.open.values() for path in written.added}
        loose = [p for written in self.written for p in (*written.added, *written.leftovers) if p not in kept]
        if loose and self.means.quarantine is not None:
            doomed = [Doomed(path=path, reason="written for a rewrite of manifests and never used") for path in loose]
            self.means.quarantine.record_doomed(self.means.table_uuid, self.run_id, doomed, self.means.clock.now_ms())

    def _failed(self, state: TableState, plan: ManifestPlan, reason: str) -> ManifestsRecord:
        return self._told(state, plan).model_copy(update={"outcome": RunOutcome.FAILED, "reason": reason})

    def _told(self, state: TableState, plan: ManifestPlan) -> ManifestsRecord:
        return _record(state, plan, self.run_id, self.started_ms, self.means.clock.now_ms())


def _record(state: TableState, plan: ManifestPlan, run_id: str, started: int, finished: int) -> ManifestsRecord:
    return ManifestsRecord(
        run_id=run_id,
        table=str(state.name),
        table_uuid=state.uuid,
        operation=Operation.MANIFESTS,
        outcome=RunOutcome.DONE if plan.groups else RunOutcome.NOTHING_TO_DO,
        reason=plan.reason,
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
