"""Taking a run back: only its own commits go, and nothing that others did since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neve.errors import BadRequestError, CommitConflictError
from neve.operations.rollback import committed, preview, roll_back
from neve.rewrite.record import RunRecord
from neve.state.rows import Run
from neve.table.state import RUN_ID
from tests.builders.commit_scenes import tools_of
from tests.builders.compaction_runs import compacted, small_table
from tests.builders.contexts import compact
from tests.builders.fake_tables import FakeEngine, FakeTable, FakeWriter, plan_of


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


def manifests_run(table: FakeTable, number: int) -> Run:
    """A rewrite of manifests that came later, as the state store knows it."""
    run_id = f"{number:08x}" * 4
    table._commit("replace", summary={RUN_ID: run_id})
    record = {"run_id": run_id, "snapshots": [table.head]}
    return Run(run_id, "u", "c.db.t", "manifests", 0, 1, "done", record)


def refusal(record: RunRecord, table: FakeTable, *runs: Run) -> tuple[str, str]:
    known = {run.run_id: run for run in runs}
    with pytest.raises(BadRequestError) as refused:
        roll_back(record, FakeWriter(table), find_run=known.get)
    with pytest.raises(BadRequestError) as previewed:
        preview(record, FakeWriter(table), find_run=known.get)
    assert (str(refused.value), refused.value.hint) == (str(previewed.value), previewed.value.hint)
    return str(refused.value), str(refused.value.hint)


def test_a_later_run_of_neve_is_named_with_the_command_that_rolls_it_back() -> None:
    table = small_table()
    record = compacted(table)
    later = manifests_run(table, 0xAB)
    message, hint = refusal(record, table, later)
    this = record.recorded_id[:8]
    assert message == (
        f"Cannot roll back run {this}: 1 later commit would be lost, the newest being snapshot {table.head} "
        "(replace, by the manifests run 000000ab)"
    )
    assert hint == f"Roll back the later run first: `neve rollback 000000ab`, then `neve rollback {this}`."


def test_several_later_runs_are_rolled_back_newest_first() -> None:
    table = small_table()
    record = compacted(table)
    first, second = manifests_run(table, 0xAB), manifests_run(table, 0xCD)
    _, hint = refusal(record, table, first, second)
    assert hint == (
        "Roll back the later runs first, the newest first: `neve rollback 000000cd`, `neve rollback 000000ab`, "
        f"then `neve rollback {record.recorded_id[:8]}`."
    )


def test_the_commands_that_are_named_work_one_after_another() -> None:
    table = small_table()
    before = table.head
    record, later = compacted(table), manifests_run(table, 0xAB)
    refusal(record, table, later)
    roll_back(record.model_copy(update=later.record | {"snapshots": tuple(later.record["snapshots"])}), FakeWriter(table))
    assert roll_back(record, FakeWriter(table)).to_snapshot == before


def test_no_command_is_named_where_none_works() -> None:
    table = small_table()
    before = table.head
    record = compacted(table)
    ours = manifests_run(table, 0xAB)
    message, hint = refusal(record, table)
    assert message.endswith("(replace, by run 000000ab, which this state store does not know)")
    assert "neve rollback" not in hint
    ttl = replace(ours, kind="ttl")
    message, hint = refusal(record, table, ttl)
    assert message.endswith("(replace, by the ttl run 000000ab)")
    assert "neve rollback" not in hint
    table.append(9, partition="a")
    message, hint = refusal(record, table, ours)
    assert f"2 later commits would be lost, the newest being snapshot {table.head} (append)" in message
    assert "neve rollback" not in hint
    assert f"VERSION AS OF {before}" in hint


def test_later_runs_are_not_blamed_where_the_snapshot_before_the_run_is_expired() -> None:
    table = small_table()
    before = table.head
    record, later = compacted(table), manifests_run(table, 0xAB)
    assert before is not None
    del table.history[before]
    message, _ = refusal(record, table, later)
    assert message.endswith(f": snapshot {before}, the one before it, has been expired")


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


def test_rows_that_a_ttl_deleted_are_not_brought_back() -> None:
    enforced = Run("a" * 32, "uuid", "local.db.t", "ttl", 0, 1, "done", {"snapshots": [7], "snapshot_before": 6})
    with pytest.raises(BadRequestError, match=r": the rows that it deleted would come back$") as refused:
        committed(enforced)
    assert "VERSION AS OF 6" in str(refused.value.hint)
    with pytest.raises(BadRequestError, match=r": it committed nothing$"):
        committed(replace(enforced, record={"snapshots": []}))
