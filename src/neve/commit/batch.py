"""A batch of groups on its way into the table: what waits, what was sent and may yet land, and what became of each group.

Used by `commit.rewrite_files`. An exception that nobody expected fails as few groups as possible: the one whose preparation
raised, or those that could not be prepared together, which the run then tries in smaller commits.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from neve.commit.failure import Failure
from neve.commit.late_deletes import WrittenGroup
from neve.commit.protocol import may_pass
from neve.errors import CommitNotSentError
from neve.rewrite.live_files import DataFile, DeleteKey, LiveFile

log = logging.getLogger(__name__)


@dataclass
class BatchOutcome:
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
    failed: dict[int, Failure] = field(default_factory=dict)
    """Groups for which an exception was raised that nobody expected; nothing of them was sent."""
    unprepared: dict[int, Failure] = field(default_factory=dict)
    """Groups that could not be prepared together; nothing of them was sent. In smaller commits some of them may pass."""
    crash: Failure | None = None
    """The last exception that nobody expected, which explains what is in doubt."""


@dataclass(frozen=True)
class Sent:
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
class Batch:
    """A batch under way: what still waits, and what was sent and may yet land."""

    outcome: BatchOutcome
    waiting: list[WrittenGroup]
    sent: list[Sent] = field(default_factory=list)
    failure: str = ""

    def forget(self, *tries: Sent) -> None:
        """These certainly did not land."""
        self.sent[:] = [sent for sent in self.sent if not any(sent is other for other in tries)]  # equal ones are other tries
        self.outcome.unused += [file["file-path"] for sent in tries for file in sent.moved]

    def unprepared(self, error: Exception) -> None:
        """No commit of the waiting groups can be prepared. What an earlier try sent is in doubt instead."""
        log.warning("a commit of %s groups could not be prepared", len(self.waiting), exc_info=error)
        sent = {group.group_id for sent in self.sent for group in sent.groups}
        failure = Failure.of(error)
        self.failure = failure.reason
        self.outcome.unprepared |= {group.group_id: failure for group in self.waiting if group.group_id not in sent}
        self.waiting.clear()

    def give_up(self, error: Exception | None) -> None:
        """No attempt is left; `error` is what the last one raised."""
        if isinstance(error, CommitNotSentError):
            return self.unprepared(error)
        waiting, outcome = [group.group_id for group in self.waiting], self.outcome
        if error is not None and not may_pass(error):
            outcome.crash = Failure.of(error)
        if outcome.crash is not None and not self.sent:
            outcome.failed |= dict.fromkeys(waiting, outcome.crash)
        else:
            outcome.dropped |= dict.fromkeys(waiting, self.failure)
        return None

    def ended(self) -> BatchOutcome:
        """The outcome; whoever was sent and never settled is in doubt."""
        self.outcome.in_doubt |= {group.group_id: self.failure for sent in self.sent for group in sent.groups}
        return self.outcome


def fail_alone(outcome: BatchOutcome, group: WrittenGroup, error: Exception) -> None:
    """Sets one group aside for an exception that nobody expected. What may pass is raised again: the attempt is repeated."""
    if may_pass(error):
        raise error
    log.warning("group %s is left out of the commit", group.group_id, exc_info=error)
    outcome.failed[group.group_id] = Failure.of(error)
