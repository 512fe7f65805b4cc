"""Which recorded compactions count for a snapshot of a table. Pure; called by `operations.inspect` and `context.table`.

The state store records the commits of each compaction. A rollback, by us or by another tool, removes a commit from the history
of its branch, and a commit to one branch is not in the history of another. Where the snapshot has been expired, the history of
its branch decides: a commit is part of it if it is older than the oldest snapshot that is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neve.table.files import Partition
from neve.table.state import MAIN, RefKind, Snapshot, TableState, ancestry


class Compacted(NamedTuple):
    """A partition that a run compacted, and the commit that did."""

    partition: Partition
    snapshot_id: int | None
    committed_ms: int


class CompactionCommit(NamedTuple):
    """A commit of a compaction as the state store has it."""

    run_id: str
    branch: str
    snapshot_id: int | None
    """None if a release recorded it that did not keep snapshots."""
    committed_ms: int


class BranchHistory:
    """The snapshots of a table's branches that have not been expired."""

    def __init__(self, state: TableState) -> None:
        self._state = state
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in state.snapshots}
        heads = {ref.name: ref.snapshot_id for ref in state.refs if ref.kind is RefKind.BRANCH}
        # A table of format version 1 may have a current snapshot and no branch main.
        heads = heads if MAIN in heads or state.snapshot_id is None else {**heads, MAIN: state.snapshot_id}
        self._branches = {name: [*ancestry(self._by_id, head)] for name, head in heads.items()}

    def missing(self, commits: Iterable[CompactionCommit]) -> list[CompactionCommit]:
        """Commits that the state's snapshot does not have in its history."""
        history = {snapshot.snapshot_id for snapshot in ancestry(self._by_id, self._state.snapshot_id)}
        return [commit for commit in commits if not self._is_in(commit, history)]

    def withdrawn(self, commits: Iterable[CompactionCommit]) -> list[CompactionCommit]:
        """Commits that no branch has in its history: they were rolled back, or their branch was dropped."""
        history = {snapshot.snapshot_id for branch in self._branches.values() for snapshot in branch}
        return [commit for commit in commits if self._is_withdrawn(commit, history)]

    def _is_in(self, commit: CompactionCommit, history: set[int]) -> bool:
        if commit.snapshot_id in self._by_id:
            return commit.snapshot_id in history
        oldest = self._oldest(commit.branch)
        return oldest is not None and oldest.snapshot_id in history and _is_before(commit, oldest)

    def _is_withdrawn(self, commit: CompactionCommit, history: set[int]) -> bool:
        if commit.snapshot_id in self._by_id:
            return commit.snapshot_id not in history
        return commit.branch not in self._branches

    def _oldest(self, branch: str) -> Snapshot | None:
        """The oldest snapshot of a branch, if older ones have been expired."""
        chain = self._branches.get(branch)
        return chain[-1] if chain and chain[-1].parent_id is not None else None


def _is_before(commit: CompactionCommit, oldest: Snapshot) -> bool:
    # By id where that is known: the two times may come from different clocks.
    is_parent = commit.snapshot_id is not None and commit.snapshot_id == oldest.parent_id
    return is_parent or commit.committed_ms <= oldest.timestamp_ms
