"""commit: makes written groups visible, one commit at a time, and gives up only the groups that lost.

Called by `flow.run`. Before each attempt the head is compared with the plan by state (`core.conflicts`); after it, the parent
of what landed is. An answer that was lost is settled by looking at the table, and files are removed only when it is certain
that nothing refers to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from neve.core.conflicts import Fate, Verdict, changed_shape, judge, keeps_sequence_number
from neve.core.live import Ancestor, DataFile, LiveFile
from neve.core.plan import Plan
from neve.core.workload import RUN_ID
from neve.errors import CommitConflictError, CommitIncidentError, CommitUnknownError
from neve.ports import TableWriter

log = logging.getLogger(__name__)

COMMIT_ID = "neve.commit-id"
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.1


Sleeper = Callable[[float], None]
"""Waits so many seconds; handed in, so that tests need not wait."""


@dataclass(frozen=True)
class WrittenGroup:
    """A group whose files exist and whose proof holds."""

    group_id: int
    inputs: tuple[LiveFile, ...]
    outputs: tuple[DataFile, ...]


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
    """Nobody knows whether these landed: their files stay, for a later look or for orphan removal."""


class Committer:
    """Commits batches of one run."""

    def __init__(
        self,
        plan: Plan,
        writer: TableWriter,
        planned: Mapping[str, LiveFile],
        *,
        run_id: str,
        sleep: Sleeper,
        branch: str = "main",
    ) -> None:
        self._plan, self._writer, self._planned = plan, writer, planned
        self._run_id, self._sleep, self._branch = run_id, sleep, branch
        self._shape = {
            "format version": plan.table_format_version,
            "schema": plan.schema_id,
            "partition spec": plan.default_spec_id,
            "sort order": plan.sort_order_id,
        }

    def commit(self, groups: Sequence[WrittenGroup]) -> Outcome:
        """Commits what may be committed of these groups."""
        outcome = Outcome(commit_id=uuid4().hex)
        waiting, failure = list(groups), ""
        for attempt in range(ATTEMPTS):
            self._writer.refresh()
            if changed := changed_shape(self._shape, self._writer.shape()):
                outcome.replan |= {group.group_id: changed for group in waiting}
                return outcome
            head = self._writer.head(self._branch)
            live = self._live(head)
            waiting = self._sort_out(waiting, head, live, outcome)
            if not waiting:
                return outcome
            certain, failure = self._attempt(waiting, head, live, str(outcome.commit_id))
            if self._landed(outcome, waiting, head):
                return outcome
            if not failure:
                failure, certain = "the commit answered, but is not to be found", False
            log.warning("run %s, attempt %s to commit: %s", self._run_id, attempt + 1, failure)
            if not certain:
                outcome.in_doubt |= {group.group_id: failure for group in waiting}
            self._sleep(FIRST_WAIT_SECONDS * 2**attempt)
        doubtful = outcome.in_doubt
        outcome.dropped |= {group.group_id: failure for group in waiting if group.group_id not in doubtful}
        return outcome

    def _live(self, head: int | None) -> Mapping[str, LiveFile]:
        if head == self._plan.snapshot_id:
            return self._planned
        return {file.path: file for file in self._writer.scan(head, statistics=False)}

    def _sort_out(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], outcome: Outcome
    ) -> list[WrittenGroup]:
        """The groups that may be committed on this head; the others are noted with their reason."""
        kept = []
        for group, verdict in self._verdicts(groups, head, live):
            if verdict.fate is Fate.COMMIT:
                kept.append(group)
            else:
                lost = outcome.superseded if verdict.fate is Fate.SUPERSEDED else outcome.replan
                lost[group.group_id] = verdict.reason
        return kept

    def _verdicts(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile]
    ) -> Iterator[tuple[WrittenGroup, Verdict]]:
        ancestors = self._writer.ancestry(head, self._plan.snapshot_id) if head is not None else []
        by_replace = any(a.operation == "replace" and int(a.summary.get("added-delete-files", "0")) > 0 for a in ancestors)
        keeps = self._keeps_number(groups, live)
        for group in groups:
            inputs = {file.path: file.deletes for file in group.inputs}
            yield group, judge(inputs, live, keeps_sequence_number=keeps, deletes_by_replace=by_replace)

    def _keeps_number(self, groups: Sequence[WrittenGroup], live: Mapping[str, LiveFile]) -> bool:
        removed = (file.path for group in groups for file in group.inputs)
        return keeps_sequence_number(self._planned, removed, live, format_version=self._plan.table_format_version)

    def _attempt(
        self, groups: Sequence[WrittenGroup], head: int | None, live: Mapping[str, LiveFile], commit_id: str
    ) -> tuple[bool, str]:
        """One try: whether its failure is certain, and the reason; an empty reason means that it answered well."""
        try:
            self._writer.rewrite(
                [file.data_file for group in groups for file in group.inputs],
                [file for group in groups for file in group.outputs],
                head=head or 0,
                sequence_number=self._plan.sequence_number if self._keeps_number(groups, live) else None,
                summary={RUN_ID: self._run_id, COMMIT_ID: commit_id},
                branch=self._branch,
            )
        except CommitConflictError as error:
            return True, str(error)
        except CommitUnknownError as error:
            return False, str(error)
        return True, ""

    def _landed(self, outcome: Outcome, groups: Sequence[WrittenGroup], head: int | None) -> bool:
        """Whether the commit is in the table: by its id in a snapshot, or, should that be expired, by its files."""
        self._writer.refresh()
        now = self._writer.head(self._branch)
        ancestors = self._writer.ancestry(now, self._plan.snapshot_id) if now is not None else []
        ours = next((a for a in ancestors if a.summary.get(COMMIT_ID) == outcome.commit_id), None)
        if ours is None and not self._outputs_are_live(groups, now):
            return False
        outcome.snapshot_id = ours.snapshot_id if ours else None
        outcome.committed += [group.group_id for group in groups]
        outcome.in_doubt.clear()
        if ours is not None:
            self._check_parent(ours, head, groups)
        return True

    def _outputs_are_live(self, groups: Sequence[WrittenGroup], head: int | None) -> bool:
        outputs = {file["file-path"] for group in groups for file in group.outputs}
        return any(file.path in outputs for file in self._writer.scan(head, statistics=False))

    def _check_parent(self, ours: Ancestor, head: int | None, groups: Sequence[WrittenGroup]) -> None:
        """Iceberg's own retries move a commit to a newer head without asking us: then that head is judged afterwards."""
        if ours.parent_id == head:
            return
        live = {file.path: file for file in self._writer.scan(ours.parent_id, statistics=False)}
        wrong = [v.reason for _, v in self._verdicts(groups, ours.parent_id, live) if v.fate is not Fate.COMMIT]
        if wrong:
            raise CommitIncidentError(
                f"Cannot stand by snapshot {ours.snapshot_id}: committed on a head that was not judged, and {wrong[0]}",
                hint=f"Roll the table back to snapshot {ours.parent_id} before anyone writes to it, and report this.",
            )
