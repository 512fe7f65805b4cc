"""commit: makes written groups visible, one commit at a time, and gives up only the groups that lost.

Called by `operations.rewrite_run`. Before each attempt the head is compared with the plan by state (`commit.conflicts`); after
it, the parent of what landed is. An answer that was lost is settled by looking at the table, and files are removed only when it
is certain that nothing refers to them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from uuid import uuid4

from neve.commit.access import Sleeper
from neve.commit.batch import Batch, BatchOutcome, Sent, fail_alone
from neve.commit.conflicts import (
    GroupFate,
    GroupVerdict,
    LateEquality,
    came_late,
    changed_shape,
    judge,
    keeps_sequence_number,
    late_equality,
    lost_deletes,
    ours_to_drop,
)
from neve.commit.gaps import wait_for_gap
from neve.commit.late_deletes import WrittenGroup, moves
from neve.commit.protocol import COMMIT_ID, FINAL, Change, Retry, Settled, Terms, commit_until_settled, may_pass, take_back
from neve.errors import NeveError
from neve.ports import Clock, DeleteFiles, TableWriter
from neve.rewrite.live_files import Ancestor, DataFile, DeleteKey, LiveFile
from neve.rewrite.plan import Plan
from neve.table.layout import WRITTEN_IN
from neve.table.positions import Longs
from neve.table.state import RUN_ID

log = logging.getLogger(__name__)


class _Replacement(Change[Sent, None]):
    """A batch of groups whose outputs take the place of their inputs."""

    def __init__(self, committer: Committer, batch: Batch) -> None:
        super().__init__()
        self._committer, self._batch = committer, batch
        self.open = batch.sent

    def refresh(self) -> None:
        self._committer.writer.refresh()

    def prepare(self) -> Sent | Settled[None]:
        return self._committer.prepare(self._batch) or Settled(None)

    def send(self, sent: Sent) -> None:
        committer = self._committer
        plan, commit_id = committer.plan, str(self._batch.outcome.commit_id)
        committer.writer.rewrite(
            [file.data_file for file in sent.inputs],
            [file for group in sent.groups for file in group.outputs],
            removed_deletes=list(sent.dropped.values()),
            added_deletes=sent.moved,
            head=sent.head or 0,
            sequence_number=plan.sequence_number if sent.keeps_number else None,
            summary={RUN_ID: committer.run_id, COMMIT_ID: commit_id} | committer.layout_of(sent.groups),
            branch=plan.branch,
        )

    def landed(self) -> Settled[None] | None:
        return Settled(None) if self._committer.landed(self._batch) else None

    def is_named(self) -> bool:
        return bool(self._committer.writer.snapshots_with(COMMIT_ID, str(self._batch.outcome.commit_id)))

    def forget(self, sent: Sent) -> None:
        self._batch.forget(sent)


class Committer:
    """Commits batches of one run."""

    def __init__(
        self,
        plan: Plan,
        writer: TableWriter,
        planned: Mapping[str, LiveFile],
        *,
        run_id: str,
        clock: Clock,
        sleep: Sleeper,
        deletes: DeleteFiles | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.assert_held: Callable[[], None] = lambda: None
        """Raises if the run was taken over (`commit.lease`); asked directly before each commit is sent."""
        self.plan, self.writer, self.planned = plan, writer, planned
        self.run_id, self._clock, self._sleep, self._jitter = run_id, clock, sleep, jitter
        self._branch, self._deletes = plan.branch, deletes
        self.in_flight: set[int] = set()
        """Groups whose commit was sent before the run or its table was lost: nobody can look any more whether it landed."""
        self.interrupted = False
        """Whether Ctrl-C came during a commit: what was sent is settled first, then the run stops."""

    def commit(self, groups: Sequence[WrittenGroup]) -> BatchOutcome:
        """Commits what may be committed of these groups."""
        batch = Batch(BatchOutcome(commit_id=uuid4().hex), list(groups))
        limit = self.plan.policy.gap_wait_seconds
        wait_for_gap(self.writer, self._branch, clock=self._clock, sleep=self._sleep, limit_seconds=limit)
        terms = Terms(
            f"run {self.run_id}",
            Retry.of(self.writer.properties()),
            self._clock,
            self._sleep,
            assert_held=lambda: self.assert_held(),
            jitter=self._jitter,
        )
        try:
            ended = commit_until_settled(_Replacement(self, batch), terms)
        except FINAL:
            self.in_flight |= {group.group_id for sent in batch.sent for group in sent.groups}
            raise
        self.interrupted |= ended.interrupted
        batch.failure = batch.failure or ended.failure
        if ended.settled is None and not ended.interrupted:
            batch.give_up(ended.error)
        return batch.ended()

    def prepare(self, batch: Batch) -> Sent | None:
        """What may be sent onto the newest head; None if no group is left to be sent."""
        if barred := changed_shape(self.plan.shape, self.writer.shape()):
            batch.outcome.replan |= {group.group_id: barred for group in batch.waiting}
            batch.waiting.clear()
            return None
        head = self.writer.head(self._branch)
        live = self._live(head)
        try:
            return self._prepared(batch, head, live)
        except Exception as error:
            if may_pass(error):
                raise
            batch.unprepared(error)
            return None

    def layout_of(self, groups: Iterable[WrittenGroup]) -> dict[str, str]:
        """How all files of a commit are laid out, for later plans: these leave alone what was brought in order together."""
        layout, ordered = self.plan.layout, self.plan.groups.ordered
        if layout is None or not all(ordered[group.group_id] for group in groups):
            return {}
        return {WRITTEN_IN: str(layout)}

    def _live(self, head: int | None) -> Mapping[str, LiveFile]:
        if head == self.plan.snapshot_id:
            return self.planned
        return {file.path: file for file in self.writer.scan(head, statistics=False)}

    def _with_survivor(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], outcome: BatchOutcome
    ) -> Sequence[WrittenGroup]:
        """Where nothing old would stay to keep late equality deletes alive, the smallest group stays out and does."""
        inputs = [file for group in groups for file in group.inputs]
        if len(groups) < 2 or self._late_equality(inputs, head, live) is not LateEquality.VANISHES:
            return groups
        concerned = [group for group in groups if any(came_late(file, live) for file in group.inputs)]
        spare = min(concerned, key=lambda group: group.input_bytes)
        outcome.replan[spare.group_id] = "left out, so that late equality deletes stay alive"
        return [group for group in groups if group is not spare]

    def _verdicts(
        self, batch: Batch, head: int | None, live: Mapping[str, LiveFile]
    ) -> Iterator[tuple[WrittenGroup, GroupVerdict, dict[str, Longs] | None, str]]:
        """What becomes of each group, with the rows of its outputs that were deleted meanwhile, and why."""
        groups = self._with_survivor(batch.waiting, head, live, batch.outcome)
        late = self._late_equality([file for group in groups for file in group.inputs], head, live)
        if any(group.changes_spec for group in groups):
            late = LateEquality.OTHER_SPEC  # no file of such a commit has the plan's number (docs/adr/0007)
        for group in groups:
            try:
                verdict = judge(group.inputs, live, late_equality=late)
                found, reason = self._moves(group, live, verdict)
            except Exception as error:
                fail_alone(batch.outcome, group, error)
            else:
                yield group, verdict, found, reason

    def _late_equality(self, inputs: Sequence[LiveFile], head: int | None, live: Mapping[str, LiveFile]) -> LateEquality:
        return late_equality(
            inputs,
            live,
            plan_number=self.plan.sequence_number,
            numbers=lambda: self.writer.sequence_numbers(head) if head is not None else {},
        )

    def _prepared(self, batch: Batch, head: int | None, live: Mapping[str, LiveFile]) -> Sent | None:
        """What may be sent onto this head, deletes that came late moved to the outputs; groups that lost are noted with their
        reason. None if no group is left."""
        rows, kept = dict[int, dict[str, Longs]](), list[WrittenGroup]()
        for group, verdict, found, reason in self._verdicts(batch, head, live):
            if found is not None:
                kept.append(group)
                rows[group.group_id] = found
            else:
                lost = batch.outcome.superseded if verdict.fate is GroupFate.SUPERSEDED else batch.outcome.replan
                lost[group.group_id] = reason
        moved = self._moved(kept, rows, batch.outcome)
        kept = [group for group in kept if group.group_id in moved]
        batch.waiting = kept
        if not kept:
            return None
        try:
            return self._to_send(kept, head, live, [file for files in moved.values() for file in files])
        except Exception:
            batch.outcome.unused += [file["file-path"] for files in moved.values() for file in files]
            raise

    def _to_send(
        self, kept: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], moved: Sequence[DataFile]
    ) -> Sent:
        planned = [file for group in kept for file in group.inputs]
        inputs = tuple(live[file.path] for file in planned)
        dropped = ours_to_drop(planned, live)
        known: dict[DeleteKey, DataFile] = {}
        for file in inputs:
            if new := file.deletes & (dropped - known.keys()):
                described = file.described_deletes
                known |= {key: described[key] for key in new}
        return Sent(tuple(kept), head, inputs, self._keeps_number(kept, live), known, tuple(moved))

    def _moved(
        self, groups: Iterable[WrittenGroup], rows: Mapping[int, Mapping[str, Longs]], outcome: BatchOutcome
    ) -> dict[int, list[DataFile]]:
        """By group the deletes that came late, written for its outputs; a group whose deletes cannot be written is failed."""
        vectors = self.plan.table_format_version >= 3
        written: dict[int, list[DataFile]] = {}
        for group in groups:
            found, homes = rows[group.group_id], {file["file-path"]: file for file in group.outputs}
            try:
                made = self._deletes.write(found.items(), homes, vectors=vectors) if self._deletes and found else []
            except Exception as error:
                if may_pass(error):
                    outcome.unused += [file["file-path"] for files in written.values() for file in files]
                fail_alone(outcome, group, error)
            else:
                written[group.group_id] = list(made)
        return written

    def _moves(
        self, group: WrittenGroup, live: Mapping[str, LiveFile], verdict: GroupVerdict
    ) -> tuple[dict[str, Longs] | None, str]:
        """Rows of the outputs that were deleted meanwhile; None, with the reason, if the group cannot be committed."""
        if verdict.fate is not GroupFate.MOVE or self._deletes is None:
            return ({} if verdict.fate is GroupFate.COMMIT else None), verdict.reason
        try:
            return moves(group, live, verdict.touched, self._deletes), verdict.reason
        except NeveError as error:
            if error.retryable:
                raise
            return None, str(error)  # such as a late delete that is damaged, or in no format that is read here

    def _keeps_number(self, groups: Sequence[WrittenGroup], live: Mapping[str, LiveFile]) -> bool:
        inputs = [file for group in groups for file in group.inputs]
        if any(group.changes_spec for group in groups):
            return False  # of the plan's age, late deletes of the partitions that they come to would reach them
        if any(came_late(file, live) for file in inputs):
            return True  # they apply only to outputs of the plan's age; that they stay alive has been seen to
        planned, version = self.plan.snapshot_id, self.plan.table_format_version
        if planned is None or not self.writer.knows(planned):
            return False  # which files are as old as the plan can no longer be told
        return keeps_sequence_number(self.planned, [file.path for file in inputs], live, format_version=version)

    def landed(self, batch: Batch) -> bool:
        """Whether a commit of this batch is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        outcome, now = batch.outcome, self.writer.head(self._branch)
        ancestors = self.writer.ancestry(now, self.plan.snapshot_id) if now is not None else []
        ours = [a for a in ancestors if a.summary.get(COMMIT_ID) == outcome.commit_id]
        sent = self._which(batch.sent, ours[0].snapshot_id if ours else None, now)
        if sent is None:
            return False
        ids = [group.group_id for group in sent.groups]
        for lost in (outcome.superseded, outcome.replan, outcome.failed, outcome.unprepared):
            for group_id in ids:
                lost.pop(group_id, None)
        batch.waiting.clear()
        if ours and (wrong := self._violation(ours, sent) or self._vanished(sent)) is not None:
            take_back(self.writer, ours, wrong, head=now, branch=self._branch, run_id=self.run_id)
            batch.failure = f"rolled back, for {wrong}"  # its inputs are live again: another try may still be under way
            return True
        # The inputs are gone, so that no other try of this batch can land any more. One that somebody rolled back still names
        # its delete files.
        named = set(self.writer.snapshots_with(COMMIT_ID, str(outcome.commit_id))) - {a.snapshot_id for a in ours}
        if not named:
            batch.forget(*(other for other in batch.sent if other is not sent))
        batch.sent.clear()
        if not ours:
            log.warning("run %s: a commit is known by its files alone, its snapshot is expired: it was not judged", self.run_id)
        outcome.snapshot_id = ours[0].snapshot_id if ours else None
        outcome.committed += ids
        return True

    def _which(self, sent: Sequence[Sent], ours: int | None, head: int | None) -> Sent | None:
        """The try that landed: the same id goes with each, so where they differ the files tell."""
        if ours is not None and len(sent) == 1:
            return sent[0]
        files = self.writer.scan(ours or head, statistics=False)
        live = {file.path for file in files} | {path for file in files for path, _ in file.deletes}
        found = [(len(each.new_paths & live), i) for i, each in enumerate(sent)]
        count, best = max(found, default=(0, 0))
        return sent[best] if count or ours is not None else None

    def _violation(self, ours: Sequence[Ancestor], sent: Sent) -> str | None:
        """What is wrong with a commit that landed, in words; it may be of two snapshots, the newest first.

        Iceberg's own retries move a commit to a newer head without asking us: then that head is judged afterwards.
        """
        lost = set[DeleteKey]()
        for snapshot in ours:
            if snapshot.summary.get("removed-delete-files", "0") != "0":
                lost |= lost_deletes(snapshot.removed_deletes(), self.plan.sequence_number, sent.dropped)
        base = ours[-1].parent_id
        upgraded = self._is_upgraded()
        if base == sent.head and not upgraded and not lost:
            return None
        if base is None or not self.writer.knows(base):
            return "the snapshot that it was committed on is expired, so that it cannot be judged any more"
        live = {file.path: file for file in self.writer.scan(base, statistics=False)}
        if needed := lost and {key for file in live.values() for key in file.deletes & lost}:
            return f"it took {len(needed)} deletes out of the table that are newer than its plan, such as {min(needed)[0]}"
        if upgraded and any("first-row-id" in live[file.path].data_file for file in sent.inputs if file.path in live):
            return "rows that had an id by then were rewritten without it"
        return self._objection(sent, base, live)

    def _is_upgraded(self) -> bool:
        """Whether the table has another format version than it was planned with."""
        return self.writer.shape()["format version"] != self.plan.table_format_version

    def _vanished(self, sent: Sent) -> str | None:
        """What is missing of files that an earlier process wrote, now that all can see that they are needed.

        A process that was paused on its way to the trash with them knows no lease. If it moved them before the commit landed,
        this finds out; if after, it does itself (`operations.quarantine_moves`).
        """
        written = [path for group in sent.groups if group.written_before for path in group.output_paths]
        gone = self.writer.missing(written) if written else ()
        return f"{min(gone)} does not exist any more" if gone else None

    def _objection(self, sent: Sent, base: int, live: Mapping[str, LiveFile]) -> str | None:
        """What is not as it was on the head that was judged, for a commit that landed on another."""
        late = self._late_equality(sent.inputs, base, live) if sent.keeps_number else LateEquality.VANISHES
        verdict = judge(sent.inputs, live, late_equality=late)
        if verdict.fate is not GroupFate.COMMIT:
            return verdict.reason
        removed = {file.path for file in sent.inputs}
        needed = [path for path, file in live.items() if path not in removed and file.deletes & sent.dropped.keys()]
        return f"it took deletes out of the table that {needed[0]} needs" if needed else None
