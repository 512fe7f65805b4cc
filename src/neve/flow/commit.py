"""commit: makes written groups visible, one commit at a time, and gives up only the groups that lost.

Called by `flow.run`. Before each attempt the head is compared with the plan by state (`core.conflicts`); after it, the parent
of what landed is. An answer that was lost is settled by looking at the table, and files are removed only when it is certain
that nothing refers to them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.conflicts import Fate, Verdict, changed_shape, judge, keeps_sequence_number, lost_deletes
from neve.core.live import Ancestor, DataFile, LiveFile
from neve.core.marker import Marker
from neve.core.plan import Plan
from neve.core.workload import RUN_ID
from neve.errors import CatalogUnreachableError, CommitConflictError, CommitIncidentError, CommitUnknownError, StorageError
from neve.flow.tools import Sleeper
from neve.ports import Clock, TableWriter

log = logging.getLogger(__name__)

COMMIT_ID = "neve.commit-id"


@dataclass(frozen=True)
class WrittenGroup:
    """A group whose files exist and whose proof holds."""

    group_id: int
    inputs: tuple[LiveFile, ...]
    outputs: tuple[DataFile, ...]

    @property
    def output_paths(self) -> set[str]:
        """Where its files are."""
        return {file["file-path"] for file in self.outputs}


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


@dataclass(frozen=True)
class Retry:
    """How often a commit is tried, and how long to wait in between: by the table's own properties, where it has them."""

    attempts: int = 5
    first_wait_ms: int = 100
    max_wait_ms: int = 60_000
    total_ms: int = 30 * 60_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Retry:
        """The table's `commit.retry.*`; what it does not say, or says in no number, is as Iceberg has it."""

        def number(name: str, otherwise: int) -> int:
            text = properties.get(f"commit.retry.{name}", "")
            return int(text) if text.isdigit() else otherwise

        return cls(
            attempts=number("num-retries", cls.attempts - 1) + 1,
            first_wait_ms=number("min-wait-ms", cls.first_wait_ms),
            max_wait_ms=number("max-wait-ms", cls.max_wait_ms),
            total_ms=number("total-timeout-ms", cls.total_ms),
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
    keeps_number: bool

    @property
    def output_paths(self) -> set[str]:
        return {path for group in self.groups for path in group.output_paths}


@dataclass
class _Batch:
    """A batch under way: what still waits, and what was sent and may yet land."""

    outcome: Outcome
    waiting: list[WrittenGroup]
    sent: list[_Sent] = field(default_factory=list)
    failure: str = ""

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
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._plan, self._writer, self._planned = plan, writer, planned
        self._run_id, self._clock, self._sleep, self._jitter = run_id, clock, sleep, jitter
        self._branch = plan.branch
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
        batch.waiting = self._sort_out(batch.waiting, head, live, batch.outcome)
        return not batch.waiting or self._attempt(batch, head, live)

    def _barred(self) -> str | None:
        """Why nothing of this run may be committed any more, in words."""
        other = Marker.of(self._writer.properties())
        if other is not None and other.bars(self._run_id, self._clock.now_ms()):
            return f"run {other.run_id[:8]} ({other.owner}) has taken the table over"
        return changed_shape(self._shape, self._writer.shape())

    def _attempt(self, batch: _Batch, head: int | None, live: Mapping[str, LiveFile]) -> bool:
        """Sends the commit and looks whether it landed, whatever the answer was."""
        sent = _Sent(tuple(batch.waiting), head, self._keeps_number(batch.waiting, live))
        batch.sent.append(sent)
        certain, batch.failure = self._send(sent, str(batch.outcome.commit_id))
        self._writer.refresh()
        if self._landed(batch):
            return True
        # A snapshot of ours that is on no way to the head, since somebody rolled it back, still names the files.
        if certain and not self._writer.snapshots_with(COMMIT_ID, str(batch.outcome.commit_id)):
            batch.sent.remove(sent)
        return self.interrupted

    def _send(self, sent: _Sent, commit_id: str) -> tuple[bool, str]:
        """Whether the commit certainly failed, should it not be found in the table; and what was answered."""
        try:
            self._writer.rewrite(
                [file.data_file for group in sent.groups for file in group.inputs],
                [file for group in sent.groups for file in group.outputs],
                head=sent.head or 0,
                sequence_number=self._plan.sequence_number if sent.keeps_number else None,
                summary={RUN_ID: self._run_id, COMMIT_ID: commit_id},
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

    def _live(self, head: int | None) -> Mapping[str, LiveFile]:
        if head == self._plan.snapshot_id:
            return self._planned
        return {file.path: file for file in self._writer.scan(head, statistics=False)}

    def _sort_out(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], outcome: Outcome
    ) -> list[WrittenGroup]:
        """The groups that may be committed on this head; the others are noted with their reason."""
        kept = []
        keeps = self._keeps_number(groups, live)
        for group, verdict in self._verdicts(groups, head, live, keeps_number=keeps):
            if verdict.fate is Fate.COMMIT:
                kept.append(group)
            else:
                lost = outcome.superseded if verdict.fate is Fate.SUPERSEDED else outcome.replan
                lost[group.group_id] = verdict.reason
        return kept

    def _verdicts(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], *, keeps_number: bool
    ) -> Iterator[tuple[WrittenGroup, Verdict]]:
        by_replace = self._deletes_may_be_old(head)
        for group in groups:
            inputs = {file.path: file.deletes for file in group.inputs}
            yield group, judge(inputs, live, keeps_sequence_number=keeps_number, deletes_by_replace=by_replace)

    def _deletes_may_be_old(self, head: int | None) -> bool:
        """Whether a delete that the plan did not see may have a number as old as the plan.

        A replace commit can add such deletes, and may have been expired since: where the way from the plan to the head cannot
        be walked, the answer is yes.
        """
        if head is None or head == self._plan.snapshot_id:
            return False
        ancestors = self._writer.ancestry(head, self._plan.snapshot_id)
        unbroken = bool(ancestors) and ancestors[-1].parent_id == self._plan.snapshot_id
        added = (a.summary.get("added-delete-files", "0") for a in ancestors if a.operation == "replace")
        return not unbroken or any(number != "0" for number in added)

    def _keeps_number(self, groups: Sequence[WrittenGroup], live: Mapping[str, LiveFile]) -> bool:
        planned = self._plan.snapshot_id
        if planned is None or not self._writer.knows(planned):
            return False  # which files are as old as the plan can no longer be told
        removed = (file.path for group in groups for file in group.inputs)
        return keeps_sequence_number(self._planned, removed, live, format_version=self._plan.table_format_version)

    def _landed(self, batch: _Batch) -> bool:
        """Whether a commit of this batch is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        outcome, now = batch.outcome, self._writer.head(self._branch)
        ancestors = self._writer.ancestry(now, self._plan.snapshot_id) if now is not None else []
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == outcome.commit_id), None)
        sent = self._which(batch.sent, ours, now)
        if sent is None:
            return False
        ids = [group.group_id for group in sent.groups]
        for lost in (outcome.superseded, outcome.replan):
            for group_id in ids:
                lost.pop(group_id, None)
        batch.sent.clear()  # the inputs are gone, so that no other try of this batch can land any more
        batch.waiting.clear()
        if ours is not None and (wrong := self._violation(ours, sent)) is not None:
            self._undo(ours, wrong, now)
            outcome.in_doubt |= dict.fromkeys(ids, f"rolled back, for {wrong}")
            return True
        if ours is None:
            log.warning(
                "run %s: a commit is known by its files alone, its snapshot is expired: it was not judged", self._run_id
            )
        outcome.snapshot_id = ours.snapshot_id if ours else None
        outcome.committed += ids
        return True

    def _which(self, sent: Sequence[_Sent], ours: Ancestor | None, head: int | None) -> _Sent | None:
        """The try that landed: the same id goes with each, so where they differ the files tell."""
        if ours is not None and len(sent) == 1:
            return sent[0]
        live = {file.path for file in self._writer.scan(ours.snapshot_id if ours else head, statistics=False)}
        found = [(len(each.output_paths & live), i) for i, each in enumerate(sent)]
        count, best = max(found, default=(0, 0))
        return sent[best] if count or ours is not None else None

    def _violation(self, ours: Ancestor, sent: _Sent) -> str | None:
        """What is wrong with a commit that landed, in words.

        Iceberg's own retries move a commit to a newer head without asking us: then that head is judged afterwards.
        """
        if ours.summary.get("removed-delete-files", "0") != "0":
            lost = lost_deletes(ours.removed_deletes(), self._plan.sequence_number)
            if lost is not None:
                return lost
        upgraded = self._writer.shape()["format version"] != self._plan.table_format_version
        if ours.parent_id == sent.head and not upgraded:
            return None
        if ours.parent_id is None or not self._writer.knows(ours.parent_id):
            return "the snapshot that it was committed on is expired, so that it cannot be judged any more"
        live = {file.path: file for file in self._writer.scan(ours.parent_id, statistics=False)}
        if upgraded and any("first-row-id" in live[f.path].data_file for g in sent.groups for f in g.inputs if f.path in live):
            return "rows that had an id by then were rewritten without it"
        keeps = sent.keeps_number and self._keeps_number(sent.groups, live)
        verdicts = self._verdicts(sent.groups, ours.parent_id, live, keeps_number=keeps)
        return next((v.reason for _, v in verdicts if v.fate is not Fate.COMMIT), None)

    def _undo(self, ours: Ancestor, wrong: str, head: int | None) -> None:
        """Takes the commit back while nothing stands on it; otherwise a person must look."""
        parent = ours.parent_id if ours.parent_id is not None and self._writer.knows(ours.parent_id) else None
        if ours.snapshot_id == head and parent is not None:
            log.error("run %s: snapshot %s is taken back, for %s", self._run_id, ours.snapshot_id, wrong)
            if self._writer.roll_back(ours.snapshot_id, parent, self._branch):
                return
        raise CommitIncidentError(
            f"Cannot stand by snapshot {ours.snapshot_id}: committed on a head that was not judged, and {wrong}",
            hint=f"Roll the table back to snapshot {ours.parent_id} before anyone writes to it, and report this.",
        )
