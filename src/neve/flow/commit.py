"""commit: makes written groups visible, one commit at a time, and gives up only the groups that lost.

Called by `flow.run`. Before each attempt the head is compared with the plan by state (`core.conflicts`); after it, the parent
of what landed is. An answer that was lost is settled by looking at the table, and files are removed only when it is certain
that nothing refers to them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.conflicts import (
    Fate,
    LateEquality,
    Verdict,
    came_late,
    changed_shape,
    judge,
    keeps_sequence_number,
    late_equality,
    lost_deletes,
    ours_to_drop,
)
from neve.core.layout import WRITTEN_IN
from neve.core.live import Ancestor, DataFile, DeleteKey, LiveFile
from neve.core.marker import Marker
from neve.core.model import RUN_ID
from neve.core.plan import Plan
from neve.core.positions import Longs
from neve.errors import (
    CatalogUnreachableError,
    CommitConflictError,
    CommitIncidentError,
    CommitUnknownError,
    NeveError,
    StorageError,
)
from neve.flow.late import WrittenGroup, moves
from neve.flow.tools import Sleeper
from neve.ports import Clock, DeleteFiles, TableWriter

log = logging.getLogger(__name__)

COMMIT_ID = "neve.commit-id"


@dataclass
class Outcome:
    """What became of each group of a batch."""

    committed: list[int] = field(default_factory=list)
    snapshot_id: int | None = None
    commit_id: str | None = None
    superseded: dict[int, str] = field(default_factory=dict)
    replan: dict[int, str] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)
    """These certainly did not land: their files may go."""
    in_doubt: dict[int, str] = field(default_factory=dict)
    """Nobody knows whether these landed: their files stay, for a later look or for orphan removal. They may also be named
    above, by what the table said of them since."""
    unused: list[str] = field(default_factory=list)
    """Delete files that were written for an attempt that certainly did not land."""


@dataclass(frozen=True)
class Retry:
    """How often a commit is tried, and how long to wait in between: by the table's own properties, where it has them."""

    attempts: int = 5
    first_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_ms: int = 30 * 60_000
    checks: int = 3
    """How often a catalog that does not answer is asked, after the last attempt, what became of it."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Retry:
        """The table's `commit.retry.*`; what it does not say, or says in no number, is as Iceberg has it."""

        def number(name: str, otherwise: int) -> int:
            text = properties.get(f"commit.{name}", "")
            return int(text) if text.isdigit() else otherwise

        return cls(
            attempts=number("retry.num-retries", cls.attempts - 1) + 1,
            first_wait_ms=number("retry.min-wait-ms", cls.first_wait_ms),
            max_wait_ms=number("retry.max-wait-ms", cls.max_wait_ms),
            total_ms=number("retry.total-timeout-ms", cls.total_ms),
            checks=number("status-check.num-retries", cls.checks),
        )

    def wait_seconds(self, attempt: int, jitter: float) -> float:
        """After this attempt, from 0 on. Doubles each time; half of it is left to chance, so that no two march in step."""
        whole = min(self.max_wait_ms, self.first_wait_ms << attempt) / 1000
        return whole / 2 + whole / 2 * jitter


@dataclass(frozen=True)
class _Sent:
    """A try whose fate is open."""

    groups: tuple[WrittenGroup, ...]
    head: int | None
    inputs: tuple[LiveFile, ...]
    """As they are live at the head."""
    keeps_number: bool
    dropped: Mapping[DeleteKey, DataFile] = field(default_factory=dict)
    """Deletes that go with the inputs."""
    moved: tuple[DataFile, ...] = ()
    """Deletes that came late, for the outputs."""

    @property
    def new_paths(self) -> set[str]:
        """What tells this try from others: the same outputs may be sent again with other deletes."""
        outputs = {path for group in self.groups for path in group.output_paths}
        return outputs | {file["file-path"] for file in self.moved}


@dataclass
class _Batch:
    """A batch under way: what still waits, and what was sent and may yet land."""

    outcome: Outcome
    waiting: list[WrittenGroup]
    sent: list[_Sent] = field(default_factory=list)
    failure: str = ""

    def forget(self, *tries: _Sent) -> None:
        """These certainly did not land."""
        self.sent = [sent for sent in self.sent if not any(sent is other for other in tries)]  # equal ones are other tries
        self.outcome.unused += [file["file-path"] for sent in tries for file in sent.moved]

    def ended(self) -> Outcome:
        """The outcome; whoever was sent and never settled is in doubt."""
        self.outcome.in_doubt |= {group.group_id: self.failure for sent in self.sent for group in sent.groups}
        return self.outcome


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
        self._plan, self._writer, self._planned = plan, writer, planned
        self._run_id, self._clock, self._sleep, self._jitter = run_id, clock, sleep, jitter
        self._branch, self._deletes = plan.branch, deletes
        self.interrupted = False
        """Whether Ctrl-C came during a commit: what was sent is settled first, then the run stops."""
        self._shape = {
            "format version": plan.table_format_version,
            "schema": plan.schema_id,
            "partition spec": plan.default_spec_id,
            "sort order": plan.sort_order_id,
        }

    def commit(self, groups: Sequence[WrittenGroup]) -> Outcome:
        """Commits what may be committed of these groups."""
        batch = _Batch(Outcome(commit_id=uuid4().hex), list(groups))
        retry, began = Retry.of(self._writer.properties()), self._clock.now_ms()
        for attempt in range(retry.attempts):
            if attempt:
                if self._clock.now_ms() - began > retry.total_ms:
                    break
                self._sleep(retry.wait_seconds(attempt - 1, self._jitter()))
            try:
                if self._settled(batch):
                    return batch.ended()
            except (CatalogUnreachableError, StorageError) as error:
                batch.failure = str(error)
            log.warning("run %s, attempt %s to commit: %s", self._run_id, attempt + 1, batch.failure)
        if batch.sent and self._found_late(batch, retry):
            return batch.ended()
        batch.outcome.dropped |= {group.group_id: batch.failure for group in batch.waiting}
        return batch.ended()

    def _settled(self, batch: _Batch) -> bool:
        """One attempt: whether nothing is left to try. What an earlier one sent may have landed since."""
        self._writer.refresh()
        if batch.sent and self._landed(batch):
            return True
        if barred := self._barred():
            batch.outcome.replan |= {group.group_id: barred for group in batch.waiting}
            batch.waiting.clear()
            return True
        head = self._writer.head(self._branch)
        live = self._live(head)
        sent = self._prepared(batch, head, live)
        return sent is None or self._attempt(batch, sent)

    def _found_late(self, batch: _Batch, retry: Retry) -> bool:
        """Asks what became of the tries, should the catalog not have answered after the last: what landed must be judged."""
        for check in range(retry.checks):
            self._sleep(retry.wait_seconds(retry.attempts - 1 + check, self._jitter()))
            with suppress(CatalogUnreachableError, StorageError):
                self._writer.refresh()
                return self._landed(batch)
        return False

    def _barred(self) -> str | None:
        """Why nothing of this run may be committed any more, in words."""
        other = taken_over(self._writer, self._run_id, self._clock)
        return other or changed_shape(self._shape, self._writer.shape())

    def _attempt(self, batch: _Batch, sent: _Sent) -> bool:
        """Sends the commit and looks whether it landed, whatever the answer was."""
        batch.sent.append(sent)
        certain, batch.failure = self._send(sent, str(batch.outcome.commit_id))
        self._writer.refresh()
        if self._landed(batch):
            return True
        # A snapshot of ours that is on no way to the head, since somebody rolled it back, still names the files.
        if certain and not self._writer.snapshots_with(COMMIT_ID, str(batch.outcome.commit_id)):
            batch.forget(sent)
        return self.interrupted

    def _send(self, sent: _Sent, commit_id: str) -> tuple[bool, str]:
        """Whether the commit certainly failed, should it not be found in the table; and what was answered."""
        try:
            self._writer.rewrite(
                [file.data_file for file in sent.inputs],
                [file for group in sent.groups for file in group.outputs],
                removed_deletes=list(sent.dropped.values()),
                added_deletes=sent.moved,
                head=sent.head or 0,
                sequence_number=self._plan.sequence_number if sent.keeps_number else None,
                summary={RUN_ID: self._run_id, COMMIT_ID: commit_id} | self._layout(sent.groups),
                branch=self._branch,
            )
        except CommitConflictError as error:
            return True, str(error)
        except CommitUnknownError as error:
            return False, str(error)
        except KeyboardInterrupt:
            self.interrupted = True
            return False, "interrupted while the commit was under way"
        return False, "the commit answered, but is not to be found"

    def _layout(self, groups: Iterable[WrittenGroup]) -> dict[str, str]:
        """How all files of a commit are laid out, for later plans: these leave alone what was brought in order together."""
        layout, ordered = self._plan.layout, self._plan.groups.ordered
        if layout is None or not all(ordered[group.group_id] for group in groups):
            return {}
        return {WRITTEN_IN: str(layout)}

    def _live(self, head: int | None) -> Mapping[str, LiveFile]:
        if head == self._plan.snapshot_id:
            return self._planned
        return {file.path: file for file in self._writer.scan(head, statistics=False)}

    def _with_survivor(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], outcome: Outcome
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
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile]
    ) -> Iterator[tuple[WrittenGroup, Verdict]]:
        late = self._late_equality([file for group in groups for file in group.inputs], head, live)
        if any(group.changes_spec for group in groups):
            late = LateEquality.OTHER_SPEC  # no file of such a commit has the plan's number (docs/adr/0007)
        for group in groups:
            yield group, judge(group.inputs, live, late_equality=late)

    def _late_equality(self, inputs: Sequence[LiveFile], head: int | None, live: Mapping[str, LiveFile]) -> LateEquality:
        return late_equality(
            inputs,
            live,
            plan_number=self._plan.sequence_number,
            numbers=lambda: self._writer.sequence_numbers(head) if head is not None else {},
        )

    def _prepared(self, batch: _Batch, head: int | None, live: Mapping[str, LiveFile]) -> _Sent | None:
        """What may be sent onto this head, deletes that came late moved to the outputs; groups that lost are noted with their
        reason. None if no group is left."""
        rows, kept = dict[str, Longs](), list[WrittenGroup]()
        for group, verdict in self._verdicts(self._with_survivor(batch.waiting, head, live, batch.outcome), head, live):
            found, reason = self._moves(group, live, verdict)
            if found is not None:
                kept.append(group)
                rows |= found
            else:
                lost = batch.outcome.superseded if verdict.fate is Fate.SUPERSEDED else batch.outcome.replan
                lost[group.group_id] = reason
        batch.waiting = kept
        if not kept:
            return None
        planned = [file for group in kept for file in group.inputs]
        inputs = tuple(live[file.path] for file in planned)
        dropped = ours_to_drop(planned, live)
        known: dict[DeleteKey, DataFile] = {}
        for file in inputs:
            if new := file.deletes & (dropped - known.keys()):
                described = file.described_deletes
                known |= {key: described[key] for key in new}
        homes = {file["file-path"]: file for group in kept for file in group.outputs}
        moved = self._deletes.write(rows.items(), homes, vectors=self._plan.table_format_version >= 3) if self._deletes else ()
        return _Sent(tuple(kept), head, inputs, self._keeps_number(kept, live), known, tuple(moved))

    def _moves(
        self, group: WrittenGroup, live: Mapping[str, LiveFile], verdict: Verdict
    ) -> tuple[dict[str, Longs] | None, str]:
        """Rows of the outputs that were deleted meanwhile; None, with the reason, if the group cannot be committed."""
        if verdict.fate is not Fate.MOVE or self._deletes is None:
            return ({} if verdict.fate is Fate.COMMIT else None), verdict.reason
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
        planned, version = self._plan.snapshot_id, self._plan.table_format_version
        if planned is None or not self._writer.knows(planned):
            return False  # which files are as old as the plan can no longer be told
        return keeps_sequence_number(self._planned, [file.path for file in inputs], live, format_version=version)

    def _landed(self, batch: _Batch) -> bool:
        """Whether a commit of this batch is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        outcome, now = batch.outcome, self._writer.head(self._branch)
        ancestors = self._writer.ancestry(now, self._plan.snapshot_id) if now is not None else []
        ours = [a for a in ancestors if a.summary.get(COMMIT_ID) == outcome.commit_id]
        sent = self._which(batch.sent, ours[0].snapshot_id if ours else None, now)
        if sent is None:
            return False
        ids = [group.group_id for group in sent.groups]
        for lost in (outcome.superseded, outcome.replan):
            for group_id in ids:
                lost.pop(group_id, None)
        batch.waiting.clear()
        if ours and (wrong := self._violation(ours, sent)) is not None:
            take_back(self._writer, ours, wrong, head=now, branch=self._branch, run_id=self._run_id)
            batch.failure = f"rolled back, for {wrong}"  # its inputs are live again: another try may still be under way
            return True
        # The inputs are gone, so that no other try of this batch can land any more.
        batch.forget(*(other for other in batch.sent if other is not sent))
        batch.sent.clear()
        if not ours:
            log.warning(
                "run %s: a commit is known by its files alone, its snapshot is expired: it was not judged", self._run_id
            )
        outcome.snapshot_id = ours[0].snapshot_id if ours else None
        outcome.committed += ids
        return True

    def _which(self, sent: Sequence[_Sent], ours: int | None, head: int | None) -> _Sent | None:
        """The try that landed: the same id goes with each, so where they differ the files tell."""
        if ours is not None and len(sent) == 1:
            return sent[0]
        files = self._writer.scan(ours or head, statistics=False)
        live = {file.path for file in files} | {path for file in files for path, _ in file.deletes}
        found = [(len(each.new_paths & live), i) for i, each in enumerate(sent)]
        count, best = max(found, default=(0, 0))
        return sent[best] if count or ours is not None else None

    def _violation(self, ours: Sequence[Ancestor], sent: _Sent) -> str | None:
        """What is wrong with a commit that landed, in words; it may be of two snapshots, the newest first.

        Iceberg's own retries move a commit to a newer head without asking us: then that head is judged afterwards.
        """
        lost = set[DeleteKey]()
        for snapshot in ours:
            if snapshot.summary.get("removed-delete-files", "0") != "0":
                lost |= lost_deletes(snapshot.removed_deletes(), self._plan.sequence_number, sent.dropped)
        base = ours[-1].parent_id
        upgraded = self._writer.shape()["format version"] != self._plan.table_format_version
        if base == sent.head and not upgraded and not lost:
            return None
        if base is None or not self._writer.knows(base):
            return "the snapshot that it was committed on is expired, so that it cannot be judged any more"
        live = {file.path: file for file in self._writer.scan(base, statistics=False)}
        if needed := lost and {key for file in live.values() for key in file.deletes & lost}:
            return f"it took {len(needed)} deletes out of the table that are newer than its plan, such as {min(needed)[0]}"
        if upgraded and any("first-row-id" in live[file.path].data_file for file in sent.inputs if file.path in live):
            return "rows that had an id by then were rewritten without it"
        return self._objection(sent, base, live)

    def _objection(self, sent: _Sent, base: int, live: Mapping[str, LiveFile]) -> str | None:
        """What is not as it was on the head that was judged, for a commit that landed on another."""
        late = self._late_equality(sent.inputs, base, live) if sent.keeps_number else LateEquality.VANISHES
        verdict = judge(sent.inputs, live, late_equality=late)
        if verdict.fate is not Fate.COMMIT:
            return verdict.reason
        removed = {file.path for file in sent.inputs}
        needed = [path for path, file in live.items() if path not in removed and file.deletes & sent.dropped.keys()]
        return f"it took deletes out of the table that {needed[0]} needs" if needed else None


def taken_over(writer: TableWriter, run_id: str, clock: Clock) -> str | None:
    """Which run has marked the table in place of this one, in words."""
    other = Marker.of(writer.properties())
    if other is None or not other.bars(run_id, clock.now_ms()):
        return None
    return f"run {other.run_id[:8]} ({other.owner}) has taken the table over"


def take_back(writer: TableWriter, ours: Sequence[Ancestor], wrong: str, *, head: int | None, branch: str, run_id: str) -> None:
    """Takes a commit of these snapshots, the newest first, back while nothing stands on it; otherwise a person must look."""
    newest, before = ours[0].snapshot_id, ours[-1].parent_id
    if newest == head and before is not None and writer.knows(before):
        log.error("run %s: snapshot %s is taken back, for %s", run_id, newest, wrong)
        if writer.roll_back(newest, before, branch):
            return
    raise CommitIncidentError(
        f"Cannot stand by snapshot {newest}: committed on a head that was not judged, and {wrong}",
        hint=f"Roll the table back to snapshot {before} before anyone writes to it, and report this.",
    )
