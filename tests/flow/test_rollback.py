"""Taking a run back: only its own commits go, and nothing that others did since."""

from __future__ import annotations

import pytest

from neve.errors import BadRequestError, CommitConflictError
from neve.operations.rewrite_run import compact
from neve.operations.rollback import committed, roll_back
from neve.rewrite.record import RunRecord
from neve.state.rows import Run
from tests.flow.fakes import FakeEngine, FakeTable, FakeWriter, plan_of
from tests.flow.test_commit import tools_of


def compacted(table: FakeTable) -> RunRecord:
    plan = plan_of(table)
    return compact(plan, tools_of(FakeWriter(table), FakeEngine(table, plan)))


def small_table() -> FakeTable:
    table = FakeTable()
    for i in range(4):
        table.append(i, partition="a")
    return table


def test_the_branch_moves_to_where_it_was() -> None:
    table = small_table()
    before, files = table.head, set(table.now.data)
    record = compacted(table)
    done = roll_back(record, FakeWriter(table))
    assert (done.from_snapshot, done.to_snapshot) == (record.snapshots[0], before)
    assert table.head == before
    assert set(table.now.data) == files


def test_commits_of_others_before_the_run_s_own_are_kept() -> None:
    table = small_table()
    plan = plan_of(table)
    table.append(9, partition="a")
    appended = table.head
    record = compact(plan, tools_of(FakeWriter(table), FakeEngine(table, plan)))
    roll_back(record, FakeWriter(table))
    assert table.head == appended
    assert table.visible() == [0, 1, 2, 3, 9]


def test_commits_of_others_after_it_are_never_lost() -> None:
    table = small_table()
    before = table.head
    record = compacted(table)
    table.append(9, partition="a")
    head = table.head
    message = f"1 later commit would be lost, the newest being snapshot {head}"
    with pytest.raises(BadRequestError, match=message) as refused:
        roll_back(record, FakeWriter(table))
    assert f"VERSION AS OF {before}" in str(refused.value.hint)
    assert table.head == head


def test_a_commit_at_the_same_moment_is_not_lost_either() -> None:
    table = small_table()
    record = compacted(table)
    writer = FakeWriter(table)

    def append_then(snapshot_id: int, to: int, branch: str = "main") -> bool:
        table.append(9, partition="a")
        return FakeWriter.roll_back(writer, snapshot_id, to, branch)

    writer.roll_back = append_then  # type: ignore[method-assign]
    with pytest.raises(CommitConflictError, match="somebody committed"):
        roll_back(record, writer)
    assert table.visible() == [0, 1, 2, 3, 9]


def test_a_run_is_taken_back_once() -> None:
    table = small_table()
    record = compacted(table)
    roll_back(record, FakeWriter(table))
    with pytest.raises(BadRequestError, match="is not on branch main any more"):
        roll_back(record, FakeWriter(table))


def test_a_run_that_committed_nothing_has_nothing_to_take_back() -> None:
    table = small_table()
    record = compacted(table).model_copy(update={"snapshots": ()})
    with pytest.raises(BadRequestError, match="it committed nothing"):
        roll_back(record, FakeWriter(table))


def test_an_expired_snapshot_is_nowhere_to_go_to() -> None:
    table = small_table()
    record = compacted(table)
    table.expire()
    with pytest.raises(BadRequestError, match="has been expired"):
        roll_back(record, FakeWriter(table))


@pytest.mark.parametrize(
    ("kind", "reason", "hint"),
    [
        ("expire", "a run of kind expire leaves no snapshot behind", "neve restore RUN"),
        ("maintain", "it is made of steps", "neve runs"),
        ("compact", "it has no record of commits", "neve resume"),
    ],
)
def test_a_run_that_cannot_be_rolled_back_says_what_to_do_instead(kind: str, reason: str, hint: str) -> None:
    with pytest.raises(BadRequestError, match=reason) as refused:
        committed(Run("a" * 32, "uuid", "local.db.t", kind, 0))
    assert hint in str(refused.value.hint)
