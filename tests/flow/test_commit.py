"""The commit against a catalog that fails in every way and writers that strike at every moment: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neve.commit.late_deletes import WrittenGroup
from neve.commit.protocol import COMMIT_ID, Retry
from neve.commit.rewrite_files import Committer
from neve.errors import AccessDeniedError, CommitIncidentError, StorageError
from neve.rewrite.live_files import DataFile
from neve.rewrite.plan import Plan
from neve.rewrite.record import GroupState, RunOutcome
from tests.builders.commit_scenes import ALL_ROWS, Scene, tools_of
from tests.builders.contexts import compact
from tests.builders.fake_tables import (
    Answer,
    FakeDeletes,
    FakeEngine,
    FakeTable,
    FakeWriter,
    Kind,
    Still,
    plan_of,
    write_groups,
)


@pytest.mark.parametrize(
    ("answers", "tries"),
    [
        ([Answer.WELL], 1),
        ([Answer.LOST_AFTER], 1),
        ([Answer.CONFLICT_AFTER], 1),
        ([Answer.CONFLICT], 2),
        ([Answer.LOST_BEFORE], 2),
        ([Answer.LOST_BEFORE, Answer.CONFLICT, Answer.LOST_BEFORE, Answer.LOST_AFTER], 4),
        ([Answer.LOST_BEFORE, Answer.LOST_BEFORE, Answer.CONFLICT, Answer.CONFLICT_AFTER], 4),
    ],
)
def test_ends_committed_once_whatever_the_catalog_answers(answers: list[Answer], tries: int) -> None:
    scene = Scene()
    outcome = scene.commit(*answers)

    assert outcome.committed == [0, 1]
    assert (outcome.superseded, outcome.replan, outcome.dropped, outcome.in_doubt) == ({}, {}, {}, {})
    assert outcome.snapshot_id == scene.table.head
    assert scene.table.visible() == ALL_ROWS
    assert scene.live == {*scene.outputs(0), *scene.outputs(1), scene.other}
    assert len(scene.writer.sent) == tries
    ids = {sent["summary"][COMMIT_ID] for sent in scene.writer.sent}
    assert ids == {outcome.commit_id}


def test_a_commit_that_lands_while_we_wait_is_found_and_not_taken_for_somebody_elses() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.HELD)
    scene.while_waiting = scene.writer.land
    outcome = scene.run()

    assert (outcome.committed, outcome.superseded, outcome.in_doubt) == ([0, 1], {}, {})
    assert outcome.snapshot_id == scene.table.head
    assert len(scene.writer.sent) == 1
    assert scene.table.visible() == ALL_ROWS


def test_a_second_try_that_loses_to_the_first_in_flight_is_no_conflict() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.HELD)
    scene.writer.before_rewrite = [lambda: None, scene.writer.land]
    outcome = scene.run()

    assert (outcome.committed, outcome.dropped, outcome.in_doubt) == ([0, 1], {}, {})
    assert len(scene.writer.sent) == 2
    assert scene.table.visible() == ALL_ROWS


def test_the_snapshot_tells_which_of_two_tries_landed_where_they_differ() -> None:
    """The first try, with both groups, is in flight while the second goes out with one; both bear the same id."""
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.HELD, Answer.LOST_BEFORE, Answer.LOST_BEFORE)
    before = scene.table.head
    assert before is not None
    strikes = [
        lambda: scene.table.delete_positions(scene.first[0], 1),
        lambda: scene.table.roll_back(before),
        scene.writer.land,
    ]
    scene.while_waiting = lambda: strikes.pop(0)()
    outcome = scene.run()

    assert outcome.committed == [0, 1]
    assert (outcome.replan, outcome.in_doubt) == ({}, {})
    assert scene.table.visible() == ALL_ROWS


def test_gives_up_after_five_refusals_and_is_certain_that_nothing_landed() -> None:
    scene = Scene()
    outcome = scene.commit(*[Answer.CONFLICT] * 5)

    reason = "Cannot commit the rewrite: the table changed"
    assert (outcome.dropped, outcome.in_doubt, outcome.committed) == ({0: reason, 1: reason}, {}, [])
    assert scene.table.visible() == ALL_ROWS


def test_one_lost_answer_leaves_the_files_in_doubt_even_if_all_later_ones_were_refusals() -> None:
    scene = Scene()
    outcome = scene.commit(Answer.CONFLICT, Answer.LOST_BEFORE, *[Answer.CONFLICT] * 3)

    assert sorted(outcome.in_doubt) == [0, 1]
    assert outcome.committed == []


def test_waits_grow_and_do_not_follow_the_last_attempt() -> None:
    scene = Scene()
    scene.commit(*[Answer.CONFLICT] * 5)
    assert scene.waits == [0.1, 0.2, 0.4, 0.8]


def test_the_tables_own_retry_properties_win() -> None:
    table = FakeTable(
        properties={
            "commit.retry.num-retries": "6",
            "commit.retry.min-wait-ms": "1000",
            "commit.retry.max-wait-ms": "5000",
        }
    )
    scene = Scene(table)
    scene.commit(*[Answer.CONFLICT] * 7)
    assert scene.waits == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert len(scene.writer.sent) == 7


def test_a_table_that_wants_no_retry_gets_none() -> None:
    scene = Scene(FakeTable(properties={"commit.retry.num-retries": "0"}))
    outcome = scene.commit(Answer.CONFLICT)
    assert (scene.waits, sorted(outcome.dropped)) == ([], [0, 1])


def test_a_retry_property_that_is_no_number_is_as_if_unset() -> None:
    assert Retry.of({"commit.retry.num-retries": "many", "commit.retry.min-wait-ms": "-1"}) == Retry()


def test_chance_takes_at_most_half_of_a_wait_so_that_each_is_longer_than_the_last() -> None:
    retry = Retry()
    assert [retry.wait_seconds(n, 0.0) for n in range(4)] == [0.05, 0.1, 0.2, 0.4]
    assert all(retry.wait_seconds(n, 1.0) <= retry.wait_seconds(n + 1, 0.0) for n in range(8))
    assert retry.wait_seconds(30, 1.0) == 60.0


def test_a_catalog_that_is_down_before_anything_was_sent_drops_with_certainty() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table)
    scene.writer.refreshes_that_fail = set(range(1, 100))
    outcome = scene.run()

    assert sorted(outcome.dropped) == [0, 1]
    assert outcome.in_doubt == {}
    assert scene.writer.sent == []


def test_a_catalog_that_goes_down_after_a_lost_answer_leaves_the_files_in_doubt() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.LOST_AFTER)
    scene.writer.refreshes_that_fail = set(range(2, 100))
    outcome = scene.run()

    assert outcome.in_doubt == dict.fromkeys([0, 1], "Cannot refresh the table: 503 Service Unavailable")
    assert scene.table.visible() == ALL_ROWS
    assert scene.outputs(0) <= scene.live


def test_a_refusal_that_cannot_be_checked_is_no_certainty() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.CONFLICT_AFTER)
    scene.writer.refreshes_that_fail = set(range(2, 100))
    assert sorted(scene.run().in_doubt) == [0, 1]


def test_a_catalog_that_comes_back_settles_the_doubt() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.LOST_AFTER)
    scene.writer.refreshes_that_fail = {2, 3}
    outcome = scene.run()
    assert (outcome.committed, outcome.in_doubt, len(scene.writer.sent)) == ([0, 1], {}, 1)


def test_a_commit_whose_snapshot_was_expired_is_known_by_its_files() -> None:
    scene = Scene()

    def bury() -> None:
        scene.table.append(10, partition="c")
        scene.table.expire()

    scene.writer = FakeWriter(scene.table, Answer.LOST_AFTER)
    scene.writer.refreshes_that_fail = {2}
    scene.while_waiting = bury
    outcome = scene.run()

    assert (outcome.committed, outcome.snapshot_id, outcome.in_doubt) == ([0, 1], None, {})
    assert scene.table.visible() == [*ALL_ROWS, 10]


def test_an_append_between_check_and_commit_does_not_matter() -> None:
    scene = Scene()
    outcome = scene.commit(before_rewrite=[lambda: scene.table.append(10, partition="a")])

    assert outcome.committed == [0, 1]
    assert scene.table.visible() == [*ALL_ROWS, 10]


def test_an_overwrite_of_an_input_supersedes_its_group_alone() -> None:
    scene = Scene()
    scene.table.overwrite(scene.first[0])
    outcome = scene.commit()

    assert outcome.superseded == {0: f"1 of 2 inputs are no longer live, such as {scene.first[0]}"}
    assert (outcome.committed, outcome.dropped) == ([1], {})
    assert scene.table.visible() == [3, 4, 5, 6, 7, 8, 9]


def test_a_compaction_by_others_between_check_and_commit_supersedes_at_the_second_try() -> None:
    scene = Scene()
    outcome = scene.commit(before_rewrite=[lambda: scene.table.compact(*scene.first)])

    assert list(outcome.superseded) == [0]
    assert (outcome.committed, outcome.in_doubt) == ([1], {})
    assert scene.table.visible() == ALL_ROWS


def test_a_position_delete_on_an_input_drops_its_group_and_the_row_stays_deleted() -> None:
    scene = Scene()
    scene.table.delete_positions(scene.first[0], 1)
    outcome = scene.commit()

    assert outcome.replan == {0: f"deletes of {scene.first[0]} changed meanwhile"}
    assert outcome.committed == [1]
    assert scene.table.visible() == ALL_ROWS[1:]


def test_a_position_delete_between_check_and_commit_is_refused_and_drops_its_group() -> None:
    scene = Scene()
    outcome = scene.commit(before_rewrite=[lambda: scene.table.delete_positions(scene.first[0], 1)])

    assert (list(outcome.replan), outcome.committed) == ([0], [1])
    assert scene.table.visible() == ALL_ROWS[1:]


def test_a_position_delete_on_another_file_of_the_partition_does_not_matter() -> None:
    scene = Scene()
    assert scene.other is not None
    scene.table.delete_positions(scene.other, 9)
    outcome = scene.commit()

    assert outcome.committed == [0, 1]
    assert scene.table.visible() == ALL_ROWS[:-1]


def test_a_late_equality_delete_still_applies_where_an_old_file_survives() -> None:
    scene = Scene()
    scene.table.delete_equal(3, partition="a")
    scene.table.append(10, partition="a")
    outcome = scene.commit()

    assert outcome.committed == [0, 1]
    assert scene.writer.sent[0]["sequence_number"] == scene.plan.sequence_number
    assert scene.table.visible() == [1, 2, 4, 5, 6, 7, 8, 9, 10]


def test_a_late_equality_delete_drops_the_group_where_no_old_file_survives() -> None:
    scene = Scene(spare=False)
    scene.table.delete_equal(3, partition="a")
    scene.table.append(10, partition="a")
    outcome = scene.commit()

    reason = "left out, so that late equality deletes stay alive"
    assert (outcome.replan, outcome.committed) == ({0: reason}, [1])
    assert scene.table.visible() == [1, 2, 4, 5, 6, 7, 8, 10]


def test_outputs_get_a_new_number_where_no_old_file_survives() -> None:
    scene = Scene(spare=False)
    assert scene.commit().committed == [0, 1]
    assert scene.writer.sent[0]["sequence_number"] is None


def test_the_oldest_file_leaving_between_check_and_commit_takes_the_late_delete_with_it_and_is_rolled_back() -> None:
    scene = Scene()
    assert scene.other is not None
    other = scene.other
    scene.table.delete_equal(3, partition="a")
    scene.table.append(10, partition="c")
    before = [row for row in [*ALL_ROWS[:-1], 10] if row != 3]
    outcome = scene.commit(before_rewrite=[lambda: scene.table.overwrite(other)])

    assert outcome.committed == []
    assert sorted(outcome.in_doubt) == [0, 1]
    assert "it took 1 deletes out of the table that are newer than its plan" in outcome.in_doubt[0]
    assert scene.table.visible() == before


def test_a_catalog_that_is_silent_after_the_last_attempt_is_asked_until_what_landed_was_judged() -> None:
    scene = Scene()
    assert scene.other is not None
    other = scene.other
    scene.table.properties["commit.retry.num-retries"] = "0"
    scene.table.delete_equal(3, partition="a")
    scene.table.append(10, partition="c")
    scene.writer = FakeWriter(scene.table, before_rewrite=[lambda: scene.table.overwrite(other)])
    scene.writer.refreshes_that_fail = {2, 3, 4}
    outcome = scene.run()

    assert (outcome.committed, sorted(outcome.in_doubt)) == ([], [0, 1])
    assert scene.table.visible() == [1, 2, 4, 5, 6, 7, 8, 10]
    assert len(scene.waits) == 3


def test_a_table_may_say_how_often_it_is_asked_after_the_last_attempt() -> None:
    scene = Scene()
    scene.table.properties |= {"commit.retry.num-retries": "0", "commit.status-check.num-retries": "1"}
    scene.writer = FakeWriter(scene.table)
    scene.writer.refreshes_that_fail = {2, 3}
    assert sorted(scene.run().in_doubt) == [0, 1]
    assert len(scene.waits) == 1


def test_a_late_delete_of_a_file_that_is_gone_may_go_as_well() -> None:
    scene = Scene(spare=False)
    scene.table.delete_positions(scene.first[0], 1)
    for path in scene.first:
        scene.table.overwrite(path)
    scene.table.append(10, partition="c")
    dangling = list(scene.table.now.deletes)
    outcome = scene.commit()

    assert (outcome.committed, list(outcome.superseded), outcome.in_doubt) == ([1], [0], {})
    assert scene.table.visible() == [5, 6, 7, 8, 10]
    assert dangling
    assert not scene.table.now.deletes


def test_while_a_commit_is_taken_back_another_try_under_way_keeps_its_files() -> None:
    scene = Scene()
    scene.table.delete_positions(scene.second[0], 5)
    table, deletes = scene.table, FakeDeletes(scene.table)
    strike = lambda: table.delete_positions(scene.first[0], 1, operation="replace")  # noqa: E731
    scene.writer = FakeWriter(table, Answer.HELD, before_rewrite=[lambda: None, strike])
    committer = Committer(scene.plan, scene.writer, scene.planned, run_id="r", clock=Still(), sleep=scene.wait, deletes=deletes)
    outcome = committer.commit(scene.groups)

    assert (outcome.committed, sorted(outcome.in_doubt)) == ([], [0, 1])
    assert len(deletes.written) == 2
    assert outcome.unused == []  # the first try may land yet


def test_a_violation_under_somebody_elses_commit_is_an_incident() -> None:
    scene = Scene()
    assert scene.other is not None
    other = scene.other
    scene.table.delete_equal(3, partition="a")
    scene.table.append(10, partition="c")
    scene.writer = FakeWriter(scene.table, before_rewrite=[lambda: scene.table.overwrite(other)])
    refresh = scene.writer.refresh

    def refresh_after_an_append() -> None:
        if scene.writer.sent:
            scene.table.append(11, partition="c")
        refresh()

    scene.writer.refresh = refresh_after_an_append  # type: ignore[method-assign]
    with pytest.raises(CommitIncidentError, match=r"Cannot confirm snapshot .* newer than its plan") as caught:
        scene.run()
    assert caught.value.hint is not None
    assert "Roll the table back to snapshot" in caught.value.hint


def test_a_commit_on_a_snapshot_that_was_expired_before_it_could_be_judged_is_an_incident() -> None:
    scene = Scene()

    def bury() -> None:
        scene.table.history = {key: scene.table.history[key] for key in list(scene.table.history)[-1:]}

    scene.writer = FakeWriter(scene.table, before_rewrite=[lambda: scene.table.append(10, partition="c")])
    scene.writer.refreshes_that_fail = {2}
    scene.while_waiting = bury
    with pytest.raises(CommitIncidentError, match="is expired, so that it cannot be judged any more"):
        scene.run()


def test_a_delete_added_by_a_replace_commit_between_check_and_commit_is_rolled_back() -> None:
    scene = Scene()

    outcome = scene.commit(before_rewrite=[lambda: scene.table.delete_positions(scene.first[0], 1, operation="replace")])
    assert outcome.committed == []
    assert outcome.in_doubt[0] == f"rolled back, for deletes of {scene.first[0]} changed meanwhile"
    assert scene.table.visible() == ALL_ROWS[1:]


def test_equality_deletes_that_a_replace_commit_added_are_never_taken_for_new() -> None:
    scene = Scene()
    scene.table.delete_equal(3, partition="a", operation="replace", number=scene.plan.sequence_number)
    outcome = scene.commit()

    assert outcome.replan == {0: f"equality deletes were rewritten meanwhile: {scene.first[0]}"}
    assert 3 not in scene.table.visible()


@pytest.mark.parametrize("operation", ["replace", "delete"])
def test_an_expired_way_from_the_plan_to_the_head_is_taken_for_the_worst(operation: str) -> None:
    scene = Scene()
    scene.table.delete_equal(3, partition="a", operation=operation, number=scene.plan.sequence_number)
    scene.table.append(10, partition="c")
    scene.table.expire()
    outcome = scene.commit()

    assert (list(outcome.replan), outcome.committed) == ([0], [1])
    assert 3 not in scene.table.visible()


def test_the_plans_snapshot_being_expired_does_not_matter_where_no_delete_came() -> None:
    scene = Scene()
    scene.table.append(10, partition="c")
    scene.table.expire()
    outcome = scene.commit()
    assert outcome.committed == [0, 1]
    assert scene.table.visible() == [*ALL_ROWS, 10]


def test_deletes_that_were_undone_meanwhile_drop_the_group_that_had_applied_them() -> None:
    table = FakeTable()
    path = table.append(1, 2)
    table.append(3)
    before = table.head
    table.delete_positions(path, 1)
    plan = plan_of(table)
    writer = FakeWriter(table)
    planned = {file.path: file for file in writer.scan(writer.head())}
    groups = write_groups(table, plan, {0: [path]})
    assert before is not None
    table.roll_back(before)
    outcome = Committer(plan, writer, planned, run_id="r", clock=Still(), sleep=lambda _: None).commit(groups)

    assert outcome.replan == {0: f"deletes of {path} changed meanwhile"}
    assert table.visible() == [1, 2, 3]


def test_deletes_that_were_rewritten_meanwhile_drop_the_group() -> None:
    table = FakeTable()
    path = table.append(1, 2)
    table.delete_positions(path, 1)
    plan = plan_of(table)
    writer = FakeWriter(table)
    planned = {file.path: file for file in writer.scan(writer.head())}
    groups = write_groups(table, plan, {0: [path]})
    table.rewrite_position_deletes(path)
    outcome = Committer(plan, writer, planned, run_id="r", clock=Still(), sleep=lambda _: None).commit(groups)
    assert list(outcome.replan) == [0]
    assert table.visible() == [2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda table: table.upgrade(), "format version 2 became 3"),
        (lambda table: setattr(table, "schema_id", 1), "schema 0 became 1"),
    ],
)
def test_a_change_of_the_tables_shape_drops_everything_before_the_commit(
    change: Callable[[FakeTable], object], reason: str
) -> None:
    scene = Scene()
    change(scene.table)
    outcome = scene.commit()
    assert outcome.replan == {0: reason, 1: reason}
    assert scene.writer.sent == []


def test_an_upgrade_between_check_and_commit_is_rolled_back_if_rows_had_ids_by_then() -> None:
    scene = Scene()

    def strike() -> None:
        scene.table.upgrade()
        scene.table.append(10, partition="c")

    outcome = scene.commit(before_rewrite=[strike])
    assert outcome.committed == []
    assert outcome.in_doubt[0] == "rolled back, for rows that had an id by then were rewritten without it"
    assert scene.table.visible() == [*ALL_ROWS, 10]
    assert scene.live >= {*scene.first, *scene.second}


def test_an_upgrade_between_check_and_commit_is_fine_while_no_row_has_an_id() -> None:
    scene = Scene()
    outcome = scene.commit(before_rewrite=[lambda: scene.table.upgrade()])
    assert outcome.committed == [0, 1]


def test_a_group_whose_rows_are_all_deleted_leaves_no_file() -> None:
    table = FakeTable()
    path = table.append(1)
    table.append(2)
    table.delete_positions(path, 1)
    plan = plan_of(table)
    writer = FakeWriter(table)
    planned = {file.path: file for file in writer.scan(writer.head())}
    groups = write_groups(table, plan, {0: [path]})
    assert groups[0].outputs == ()
    outcome = Committer(plan, writer, planned, run_id="r", clock=Still(), sleep=lambda _: None).commit(groups)
    assert outcome.committed == [0]
    assert table.visible() == [2]


def test_a_group_that_was_in_doubt_and_lost_to_a_delete_is_certain_once_the_others_landed() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.LOST_BEFORE)
    scene.while_waiting = lambda: scene.table.delete_positions(scene.first[0], 1)
    outcome = scene.run()

    assert (outcome.committed, list(outcome.replan), outcome.in_doubt) == ([1], [0], {})
    assert scene.table.visible() == ALL_ROWS[1:]


def test_quarantines_what_certainly_lost_and_nothing_else() -> None:
    table = FakeTable()
    for partition, rows in {"a": (1, 2), "b": (3, 4), "c": (5, 6)}.items():
        for row in rows:
            table.append(row, partition=partition)
    paths = {file.partition: file.path for file in table.now.data.values()}
    plan = plan_of(table)
    assert len(plan.groups) == 3
    engine = FakeEngine(table, plan)

    def strike() -> None:
        table.overwrite(paths["a"])
        table.delete_positions(paths["b"], 4)

    engine.after_last = strike
    record = compact(plan, tools_of(FakeWriter(table), engine))

    states = {plan.groups[g.group_id].partition: g.state for g in record.groups}
    assert states == {"a": GroupState.SUPERSEDED, "b": GroupState.DROPPED, "c": GroupState.COMMITTED}
    assert record.outcome is RunOutcome.PARTLY_DONE
    assert len(engine.quarantine.paths) == 2
    assert not set(engine.quarantine.paths) & set(table.now.data)
    assert table.visible() == [1, 3, 5, 6]


def test_files_in_doubt_are_not_quarantined() -> None:
    table = FakeTable()
    table.append(1)
    table.append(2)
    plan = plan_of(table)
    engine = FakeEngine(table, plan)
    writer = FakeWriter(table, *[Answer.LOST_BEFORE] * 5)
    record = compact(plan, tools_of(writer, engine))

    assert [g.state for g in record.groups] == [GroupState.IN_DOUBT]
    assert engine.quarantine.paths == []


def test_a_kernel_that_loses_a_row_and_calls_it_deleted_is_caught_before_the_commit() -> None:
    table = FakeTable()
    table.append(1)
    table.append(2)
    plan = plan_of(table)
    engine = FakeEngine(table, plan, losing=[0])
    writer = FakeWriter(table)
    record = compact(plan, tools_of(writer, engine))

    assert record.groups[0].reason == "verification failed: rows dropped: 1, expected none: no delete is attached to any input"
    assert record.groups[0].state is GroupState.FAILED
    assert writer.sent == []
    assert len(engine.quarantine.paths) == 1


def moving(table: FakeTable, *answers: Answer, deletes: FakeDeletes, partitions: int) -> tuple[Plan, list[WrittenGroup], Any]:
    """A group of two files in each of so many partitions, and someone who commits them when called."""
    plan, writer = plan_of(table), FakeWriter(table, *answers)
    planned = {file.path: file for file in writer.scan(writer.head())}
    paths = {n: sorted(p for p, f in table.now.data.items() if f.partition == f"p{n}") for n in range(partitions)}
    groups = write_groups(table, plan, paths)
    committer = Committer(plan, writer, planned, run_id="r", clock=Still(), sleep=lambda _: None, deletes=deletes)
    return plan, groups, lambda: committer.commit(groups)


@pytest.mark.parametrize("version", [2, 3])
def test_late_deletes_on_every_group_of_a_plan_are_moved_and_no_group_is_redone(version: int) -> None:
    table = FakeTable(format_version=version)
    for n in range(12):
        table.append(n * 10, n * 10 + 1, n * 10 + 2, partition=f"p{n}")
        table.append(n * 10 + 5, n * 10 + 6, partition=f"p{n}")
    hit = sorted(table.now.data)
    table.delete_positions(hit[0], min(table.contents[hit[0]]))
    deletes = FakeDeletes(table)
    _, groups, commit = moving(table, deletes=deletes, partitions=12)
    for path in hit:
        table.delete_positions(path, max(table.contents[path]))
    left = table.visible()

    outcome = commit()
    assert (sorted(outcome.committed), outcome.replan, outcome.unused) == (list(range(12)), {}, [])
    assert table.visible() == left
    assert set(table.now.data) == {path for group in groups for path in group.output_paths}
    assert {delete.target for delete in table.now.deletes.values()} == set(table.now.data)  # nothing dangles
    assert len(deletes.written) == 12


def test_a_conversion_by_others_is_known_by_its_rows() -> None:
    table = FakeTable()
    path = table.append(1, 2, 3, partition="p0")
    table.append(4, partition="p0")
    table.delete_equal(2, partition="p0")
    _, _, commit = moving(table, deletes=FakeDeletes(table), partitions=1)
    (equality,) = table.now.deletes
    table._delete(Kind.POSITION, "p0", [2, 3], target=path, replaces=[equality])

    assert commit().committed == [0]
    assert table.visible() == [1, 4]


def test_a_row_that_is_brought_back_costs_the_group() -> None:
    table = FakeTable(format_version=3)
    path = table.append(1, 2, 3, partition="p0")
    table.append(4, partition="p0")
    table.delete_positions(path, 2)
    _, _, commit = moving(table, deletes=FakeDeletes(table), partitions=1)
    (vector,) = table.now.deletes
    table._delete(Kind.VECTOR, "p0", [3], target=path, replaces=[vector])

    assert commit().replan == {0: f"deletes of {path} changed meanwhile"}
    assert table.visible() == [1, 2, 4]


def test_moved_deletes_of_a_try_that_was_refused_are_given_up_and_those_of_one_that_is_lost_are_not() -> None:
    table = FakeTable()
    path = table.append(1, 2, 3, partition="p0")
    table.append(4, partition="p0")
    deletes = FakeDeletes(table)
    _, _, commit = moving(table, Answer.CONFLICT, Answer.LOST_AFTER, deletes=deletes, partitions=1)
    table.delete_positions(path, 1)

    outcome = commit()
    assert outcome.committed == [0]
    assert outcome.unused == [deletes.written[0][0]]
    assert list(table.now.deletes) == [deletes.written[1]]
    assert table.visible() == [2, 3, 4]


def test_equality_deletes_of_a_writer_that_also_appends_never_hold_a_compaction_up() -> None:
    """The files that it adds are as old as its deletes, and keep them alive although every old file is rewritten."""
    table = FakeTable()
    table.append(1, 2, partition="p0")
    table.append(3, partition="p0")
    _, _, commit = moving(table, deletes=FakeDeletes(table), partitions=1)
    table.upsert(2, 20, partition="p0")
    table.upsert(3, 30, partition="p0")

    assert commit().committed == [0]
    assert table.visible() == [1, 20, 30]


def test_a_group_that_failed_in_one_attempt_and_landed_in_the_next_is_committed_and_nothing_else() -> None:
    scene = Scene()
    for path, row in ((scene.first[0], 1), (scene.second[0], 5)):
        scene.table.delete_positions(path, row)
    scene.writer = FakeWriter(scene.table)

    class Failing(FakeDeletes):
        calls = 0

        def write(self, *args: Any, **words: Any) -> list[DataFile]:
            type(self).calls += 1
            if self.calls == 1:
                raise AccessDeniedError("Cannot write: the token has expired")
            if self.calls == 2:
                raise StorageError("Cannot write: it does not answer")
            return super().write(*args, **words)

    committer = Committer(
        scene.plan, scene.writer, scene.planned, run_id="r", clock=Still(), sleep=scene.wait, deletes=Failing(scene.table)
    )
    outcome = committer.commit(scene.groups)
    assert sorted(outcome.committed) == [0, 1]
    assert (outcome.failed, outcome.unprepared, outcome.in_doubt) == ({}, {}, {})
    assert scene.table.visible() == [2, 3, 4, 6, 7, 8, 9]
