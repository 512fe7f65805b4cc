"""Which recorded compactions count for a snapshot: by the history of branches, after rollbacks, fast-forwards and expiry."""

from __future__ import annotations

import pytest

from neve.rewrite.compactions import BranchHistory, CompactionCommit
from neve.table.state import Ref, RefKind, Snapshot, TableState
from tests.builders.table_states import make_state

# 1 - 2 - 3 - 4 is main, 2 - 5 is the branch audit; 6 was committed on 3 and rolled back.
PARENTS = {1: None, 2: 1, 3: 2, 4: 3, 5: 2, 6: 3}


def state(at: int | None = 4, *, gone: tuple[int, ...] = (), audit: int | None = 5, main: int | None = 4) -> TableState:
    """The table at a snapshot; a snapshot is committed at 100 times its id, and those in `gone` have been expired."""
    snapshots = tuple(
        Snapshot(snapshot_id=n, parent_id=parent, sequence_number=n, timestamp_ms=100 * n, operation="replace", summary={})
        for n, parent in PARENTS.items()
        if n not in gone
    )
    heads = {"main": main, "audit": audit}
    refs = tuple(Ref(name=name, kind=RefKind.BRANCH, snapshot_id=n) for name, n in heads.items() if n is not None)
    return make_state(snapshot_id=at, snapshots=snapshots, refs=refs)


def commit(snapshot_id: int | None, branch: str = "main", committed_ms: int | None = None) -> CompactionCommit:
    return CompactionCommit(f"run-{snapshot_id}", branch, snapshot_id, committed_ms or 100 * (snapshot_id or 0) + 1)


def counts(found: TableState, one: CompactionCommit) -> bool:
    return BranchHistory(found).missing([one]) == []


@pytest.mark.parametrize(
    ("at", "snapshot_id", "branch", "expected"),
    [
        pytest.param(4, 3, "main", True, id="on main"),
        pytest.param(4, 4, "main", True, id="at the head"),
        pytest.param(3, 4, "main", False, id="after the snapshot that is read"),
        pytest.param(4, 6, "main", False, id="rolled back"),
        pytest.param(4, 5, "audit", False, id="on another branch"),
        pytest.param(5, 5, "audit", True, id="on the branch"),
        pytest.param(5, 2, "main", True, id="on main before the branch was made"),
        pytest.param(5, 3, "main", False, id="on main after the branch was made"),
        pytest.param(None, 4, "main", False, id="no snapshot"),
    ],
)
def test_a_commit_counts_if_the_snapshot_descends_from_it(
    at: int | None, snapshot_id: int, branch: str, expected: bool
) -> None:
    assert counts(state(at), commit(snapshot_id, branch)) is expected


def test_a_branch_that_main_was_fast_forwarded_to_counts_for_main_even_after_it_was_dropped() -> None:
    assert counts(state(5, main=5), commit(5, "audit"))
    assert counts(state(5, main=5, audit=None), commit(5, "audit"))


@pytest.mark.parametrize(
    ("at", "one", "expected"),
    [
        pytest.param(4, commit(2), True, id="expired from the branch"),
        pytest.param(4, commit(1, committed_ms=150), True, id="expired before that"),
        pytest.param(4, commit(2, committed_ms=350), True, id="the parent of the oldest, whatever the clocks say"),
        pytest.param(4, commit(6, committed_ms=601), False, id="rolled back and expired, younger than the oldest"),
        pytest.param(4, commit(1, "audit"), False, id="expired from another branch whose oldest main does not have"),
        pytest.param(5, commit(1, "audit"), True, id="expired from that branch"),
        pytest.param(4, commit(None, committed_ms=250), True, id="recorded without its snapshot"),
        pytest.param(4, commit(None, committed_ms=350), False, id="recorded without its snapshot, younger than the oldest"),
        pytest.param(4, commit(1, "dropped"), False, id="expired from a branch that is not there"),
    ],
)
def test_an_expired_commit_counts_if_it_is_older_than_the_oldest_snapshot_of_its_branch(
    at: int, one: CompactionCommit, expected: bool
) -> None:
    assert counts(state(at, gone=(1, 2, 6)), one) is expected


def test_an_expired_commit_counts_for_a_branch_that_shares_the_oldest_snapshot() -> None:
    assert counts(state(5, gone=(1,)), commit(1, "main", committed_ms=150))


def test_an_unknown_commit_does_not_count_where_nothing_was_expired_from_the_branch() -> None:
    assert not counts(state(4), commit(99, committed_ms=50))
    assert not counts(state(4), commit(None, committed_ms=50))


def test_a_table_without_refs_has_the_history_of_its_current_snapshot() -> None:
    found = state(4, gone=(1,), main=None, audit=None)
    assert counts(found, commit(3))
    assert counts(found, commit(1))


def test_commits_that_no_branch_has_are_withdrawn() -> None:
    rolled_back, dropped = commit(6), commit(99, "dropped", committed_ms=1)
    kept = [commit(3), commit(5, "audit"), commit(98), commit(None)]
    assert BranchHistory(state(4)).withdrawn([rolled_back, dropped, *kept]) == [rolled_back, dropped]
