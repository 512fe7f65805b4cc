"""Upkeep of deletes against writers and a catalog that fails: the rows stay as they are, nothing doubles, nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

from neve.commit.marker import PROPERTY, Marker
from neve.errors import (
    BadRequestError,
    CommitConflictError,
    CommitIncidentError,
    RunTakenOverError,
    StorageError,
    TableGoneError,
)
from neve.maintenance.delete_files import Upkeep, UpkeepRecord
from neve.operations.delete_files import maintain_deletes
from neve.operations.requests import DeletesRequest
from neve.rewrite.record import RunOutcome
from tests.builders.commit_scenes import SPECS
from tests.builders.contexts import FakeContext
from tests.builders.delete_scenes import NAME, NESTED_SCHEMA, Scene, Strike
from tests.builders.fake_tables import (
    Answer,
    FakeDeletes,
    FakeEngine,
    FakeResolver,
    FakeTable,
    FakeWriter,
    Kind,
    Still,
    plan_of,
)


def numbers(record: UpkeepRecord) -> tuple[int, ...]:
    return (record.data_files, record.rows, record.deletes_before, record.deletes_removed, record.equality_removed)


def test_equality_deletes_become_vectors_that_hold_what_the_files_had() -> None:
    scene = Scene()
    record = scene.run()
    assert (record.outcome, record.reason) == (RunOutcome.DONE, None)
    assert numbers(record) == (3, 4, 3, 3, 2)
    assert scene.kinds() == [
        (Kind.VECTOR, scene.a[0], [1, 2]),
        (Kind.VECTOR, scene.a[1], [5]),
        (Kind.VECTOR, scene.b, [8]),
    ]
    assert scene.table.visible() == scene.rows
    (snapshot,) = scene.ours()
    assert record.snapshots == (snapshot,)
    assert scene.table.history[snapshot].operation == "delete"
    assert scene.table.history[snapshot].summary["neve.run-id"] == record.run_id
    assert scene.stages == ["resolve", "write", "commit"]


def test_a_vector_that_was_found_is_committed_as_it_is_where_the_file_had_none() -> None:
    scene = Scene()
    scene.run()
    resolved = {key for key in scene.table.now.deletes if key[0].endswith(".puffin")}
    assert {scene.table.now.deletes[key].target for key in resolved} == {scene.a[1], scene.b}
    assert [scene.table.delete_contents[key].target for key in scene.deletes.written] == [scene.a[0]]
    assert scene.engine.quarantine.paths == []


def test_in_version_2_they_become_a_position_delete_of_each_file_and_the_scratch_file_goes() -> None:
    scene = Scene(2)
    record = scene.run()
    assert numbers(record) == (3, 4, 3, 3, 2)
    assert scene.kinds() == [
        (Kind.POSITION, scene.a[0], [1, 2]),
        (Kind.POSITION, scene.a[1], [5]),
        (Kind.POSITION, scene.b, [8]),
    ]
    assert scene.table.visible() == scene.rows
    assert set(scene.engine.quarantine.paths) == scene.unused()
    assert len(scene.engine.quarantine.paths) == 1


def test_an_equality_delete_that_hits_no_row_goes_without_another() -> None:
    scene = Scene()
    scene.run()
    scene.table.delete_equal(100, partition="b")
    before = scene.kinds()
    record = scene.run()
    assert numbers(record) == (0, 0, 4, 1, 1)
    assert scene.kinds() == [kind for kind in before if kind[0] is Kind.VECTOR]
    assert scene.table.now.operation == "overwrite"


@pytest.mark.parametrize("version", [2, 3])
def test_rewriting_merges_what_is_deleted_by_position_and_leaves_equality_deletes_alone(version: int) -> None:
    scene = Scene(2)
    scene.table.delete_positions(scene.a[0], 3)
    scene.table.delete_positions(scene.b, 7)
    if version == 3:
        scene.table.upgrade()
    rows = scene.table.visible()
    record = scene.run(Upkeep.REWRITE)
    by_equality = [(Kind.EQUALITY, None, [2, 5]), (Kind.EQUALITY, None, [8])]
    if version == 2:
        assert scene.kinds() == [*by_equality, (Kind.POSITION, scene.a[0], [1, 3]), (Kind.POSITION, scene.b, [7])]
        assert numbers(record) == (1, 2, 5, 2, 0)
    else:
        assert scene.kinds() == [*by_equality, (Kind.VECTOR, scene.a[0], [1, 3]), (Kind.VECTOR, scene.b, [7])]
        assert numbers(record) == (2, 3, 5, 3, 0)
    assert scene.table.visible() == rows
    assert scene.resolver.calls == 0
    assert scene.run(Upkeep.REWRITE).outcome is RunOutcome.NOTHING_TO_DO


def leave_dangling(scene: Scene) -> None:
    """Deletes of files that others have compacted since."""
    scene.table.compact(*scene.a)


def test_pruning_removes_what_concerns_no_live_file_and_nothing_else() -> None:
    scene = Scene(2)
    leave_dangling(scene)
    before = scene.kinds()
    record = scene.run(Upkeep.PRUNE)
    assert numbers(record) == (0, 0, 3, 2, 1)
    assert scene.kinds() == [(Kind.EQUALITY, None, [8])]
    assert len(before) == 3
    assert scene.table.visible() == scene.rows
    assert scene.table.now.operation == "replace"


def test_rewriting_takes_along_what_is_deleted_by_position_for_no_live_file() -> None:
    scene = Scene(2)
    leave_dangling(scene)
    scene.table.delete_positions(scene.b, 7)
    scene.table.delete_positions(scene.b, 9)
    rows = scene.table.visible()
    record = scene.run(Upkeep.REWRITE)
    assert numbers(record) == (1, 2, 5, 3, 0)
    by_equality = [(Kind.EQUALITY, None, [2, 5]), (Kind.EQUALITY, None, [8])]
    assert scene.kinds() == [*by_equality, (Kind.POSITION, scene.b, [7, 9])]
    assert scene.table.visible() == rows


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Upkeep.CONVERT, "no equality delete applies to a file that can be converted"),
        (Upkeep.REWRITE, "every data file has at most one delete by position, and that is its own"),
        (Upkeep.PRUNE, "every delete applies to a live file"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_where_there_is_nothing_to_do_nothing_is_committed(operation: Upkeep, reason: str, dry_run: bool) -> None:
    scene = Scene()
    scene.run()
    head = scene.table.head
    record = scene.run(operation, dry_run=dry_run)
    assert (record.outcome, record.reason, record.snapshots) == (RunOutcome.NOTHING_TO_DO, reason, ())
    assert record.run_id is None
    [rule] = record.not_due
    assert (rule.rule, rule.measured, rule.threshold) == (operation, 0, 1)
    assert rule.until
    assert scene.table.head == head


def test_an_empty_table_has_nothing_to_do() -> None:
    scene = Scene()
    scene.table = FakeTable(format_version=3)
    scene.writer = FakeWriter(scene.table)
    scene.table.append(1)
    scene.table.roll_back(None)  # type: ignore[arg-type]
    for operation in Upkeep:
        assert scene.run(operation).outcome is RunOutcome.NOTHING_TO_DO


def test_a_dry_run_says_what_would_go_and_touches_nothing() -> None:
    scene = Scene()
    head, properties = scene.table.head, dict(scene.table.properties)
    record = scene.run(dry_run=True)
    assert (record.outcome, record.dry_run, record.run_id) == (RunOutcome.DONE, True, None)
    assert numbers(record) == (3, 0, 3, 2, 2)
    assert (scene.table.head, scene.table.properties) == (head, properties)
    assert (scene.resolver.calls, scene.deletes.written) == (0, [])


ANSWERS = [
    ([Answer.WELL], 1),
    ([Answer.LOST_AFTER], 1),
    ([Answer.CONFLICT_AFTER], 1),
    ([Answer.CONFLICT], 2),
    ([Answer.LOST_BEFORE], 2),
    ([Answer.LOST_BEFORE, Answer.CONFLICT, Answer.LOST_AFTER], 3),
]


@pytest.mark.parametrize(("answers", "tries"), ANSWERS)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("operation", list(Upkeep))
def test_whatever_the_catalog_answers_it_lands_once(operation: Upkeep, version: int, answers: list[Answer], tries: int) -> None:
    scene = Scene(2)
    scene.table.delete_positions(scene.a[0], 3)
    scene.table.delete_positions(scene.b, 7)
    scene.table.compact(scene.b)
    if version == 3:
        scene.table.upgrade()
    rows = scene.table.visible()
    record = scene.run(operation, *answers)
    assert record.outcome is RunOutcome.DONE
    assert len(scene.writer.sent) == tries
    assert len(scene.ours()) == 1
    assert record.snapshots == tuple(scene.ours())
    assert scene.table.visible() == rows
    assert scene.resolver.calls == (operation is Upkeep.CONVERT)
    assert set(scene.engine.quarantine.paths) == scene.unused()


def test_a_commit_that_arrives_late_is_not_doubled() -> None:
    scene = Scene()
    scene.while_waiting = lambda: scene.writer.land()
    record = scene.run(Upkeep.CONVERT, Answer.HELD)
    assert (record.outcome, len(scene.ours()), len(scene.writer.sent)) == (RunOutcome.DONE, 1, 1)
    assert scene.table.visible() == scene.rows


def test_a_commit_that_arrives_while_the_next_is_sent_beats_it() -> None:
    scene = Scene()
    record = scene.run(Upkeep.CONVERT, Answer.HELD, before=[lambda: None, lambda: scene.writer.land()])
    assert (record.outcome, len(scene.ours()), len(scene.writer.sent)) == (RunOutcome.DONE, 1, 2)
    assert scene.table.visible() == scene.rows
    assert set(scene.engine.quarantine.paths) == scene.unused()


def test_a_commit_in_doubt_whose_snapshot_is_expired_is_known_by_its_files() -> None:
    scene = Scene()

    def land_and_expire() -> None:
        scene.writer.land()
        scene.table.append(10, partition="a")
        scene.table.expire()

    scene.while_waiting = land_and_expire
    record = scene.run(Upkeep.CONVERT, Answer.HELD)
    assert (record.outcome, record.snapshots) == (RunOutcome.DONE, ())
    assert len(scene.writer.sent) == 1
    assert scene.engine.quarantine.paths == []


def test_files_of_attempts_in_doubt_are_kept_when_it_is_given_up() -> None:
    scene = Scene(attempts=2)
    record = scene.run(Upkeep.CONVERT, Answer.CONFLICT, Answer.LOST_BEFORE)
    assert record.outcome is RunOutcome.FAILED
    assert record.reason == "Cannot tell whether the commit landed: 502 Bad Gateway"
    first, second = (sent["added"] for sent in scene.writer.sent)
    only_first = {file["file-path"] for file in first} - {file["file-path"] for file in second}
    assert set(scene.engine.quarantine.paths) == only_first
    assert len(only_first) == 1
    assert len(scene.waits) == 2  # between the attempts, and before a last look


def test_a_catalog_that_is_away_for_a_moment_costs_an_attempt() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table, Answer.LOST_AFTER)
    scene.writer.refreshes_that_fail = {3}  # the look after the commit
    assert scene.again().outcome is RunOutcome.DONE
    assert (len(scene.ours()), len(scene.writer.sent)) == (1, 1)


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_that_comes_while_it_is_resolved_is_taken_along(version: int) -> None:
    scene = Scene(version)
    late: list[Strike] = [lambda: scene.table.delete_positions(scene.b, 9)]
    record = scene.run(Upkeep.CONVERT, before=late)
    assert record.outcome is RunOutcome.DONE
    assert scene.table.visible() == [row for row in scene.rows if row != 9]
    assert len(scene.writer.sent) == (2 if version == 3 else 1)  # a second vector for a file is a conflict
    if version == 3:
        assert (Kind.VECTOR, scene.b, [8, 9]) in scene.kinds()
    assert {kind for kind, _, _ in scene.kinds()} == {Kind.VECTOR if version == 3 else Kind.POSITION}


@pytest.mark.parametrize("version", [2, 3])
def test_an_equality_delete_that_comes_while_it_is_resolved_stays(version: int) -> None:
    scene = Scene(version)
    late: list[Strike] = [lambda: scene.table.delete_equal(9, partition="b")]
    record = scene.run(Upkeep.CONVERT, Answer.CONFLICT, before=late)
    assert (record.outcome, record.equality_removed, record.equality_before) == (RunOutcome.DONE, 2, 3)
    assert [kind for kind in scene.kinds() if kind[0] is Kind.EQUALITY] == [(Kind.EQUALITY, None, [9])]
    assert scene.table.visible() == [row for row in scene.rows if row != 9]


@pytest.mark.parametrize("version", [2, 3])
def test_an_equality_delete_stays_where_one_of_its_files_was_compacted_meanwhile(version: int) -> None:
    scene = Scene(version)
    number = scene.table.now.data[scene.a[1]].number
    late: list[Strike] = [lambda: scene.table.compact(scene.a[1], number=number)]
    record = scene.run(Upkeep.CONVERT, before=late)
    assert (record.outcome, record.equality_removed) == (RunOutcome.DONE, 1)
    assert (Kind.EQUALITY, None, [2, 5]) in scene.kinds()
    assert not any(target == scene.a[0] and rows == [1, 2] for _, target, rows in scene.kinds())
    assert scene.table.visible() == scene.rows


@pytest.mark.parametrize("version", [2, 3])
def test_an_equality_delete_goes_if_its_other_files_were_compacted_away_from_it(version: int) -> None:
    scene = Scene(version)
    record = scene.run(Upkeep.CONVERT, before=[lambda: scene.table.compact(scene.a[1])])
    assert (record.outcome, record.equality_removed) == (RunOutcome.DONE, 2)
    assert scene.table.visible() == scene.rows


def test_where_all_files_were_compacted_meanwhile_nothing_is_left_to_do() -> None:
    scene = Scene(2)

    def compact() -> None:
        scene.table.compact(*scene.a)
        scene.table.compact(scene.b)

    record = scene.run(Upkeep.CONVERT, before=[compact])
    assert (record.outcome, record.reason) == (RunOutcome.NOTHING_TO_DO, "others changed the files or their deletes meanwhile")
    assert scene.table.visible() == scene.rows
    assert set(scene.engine.quarantine.paths) == scene.unused()
    assert record.run_id is not None  # files in the quarantine name their run, so it is recorded


def test_rows_that_a_rollback_brought_back_meanwhile_stay() -> None:
    scene = Scene()
    head, before = scene.table.head, scene.table.now.parent_id
    assert head is not None
    assert before is not None
    record = scene.run(Upkeep.CONVERT, before=[lambda: scene.table.roll_back(before)])  # the delete of row 8 is gone
    assert (record.outcome, record.equality_removed) == (RunOutcome.DONE, 1)
    assert scene.table.visible() == sorted([*scene.rows, 8])


def test_a_pruning_that_landed_after_a_rollback_is_taken_back() -> None:
    scene = Scene(2)
    before = scene.table.head
    assert before is not None
    leave_dangling(scene)
    record = scene.run(Upkeep.PRUNE, before=[lambda: scene.table.roll_back(before)])
    assert record.outcome is RunOutcome.FAILED
    assert str(record.reason).endswith(f"for it took deletes out of the table that {scene.a[0]} needs")
    assert scene.table.head == before
    assert scene.table.visible() == scene.rows


def test_where_it_cannot_be_taken_back_a_person_is_called() -> None:
    scene = Scene(2)
    before = scene.table.head
    assert before is not None
    leave_dangling(scene)
    writer: Any = FakeWriter(scene.table, before_rewrite=[lambda: scene.table.roll_back(before)])
    writer.roll_back = lambda *_: False
    scene.writer = writer
    with pytest.raises(CommitIncidentError, match="committed between our conflict check and our commit, and it took deletes"):
        scene.again(Upkeep.PRUNE)


def test_whoever_takes_the_table_over_stops_it() -> None:
    scene = Scene()
    other = Marker(run_id="other-run", owner="elsewhere:1", until_ms=10**15)

    def take() -> None:
        scene.table.properties[PROPERTY] = other.text

    with pytest.raises(RunTakenOverError, match=r"run other-ru \(elsewhere:1\) has taken the table over$"):
        scene.run(Upkeep.CONVERT, Answer.CONFLICT, before=[take])
    assert scene.ours() == []
    assert scene.engine.quarantine.paths == []
    assert scene.unused() != set()


def test_a_table_that_is_gone_stops_it_and_no_file_is_removed() -> None:
    scene = Scene()

    def drop() -> None:
        scene.table.gone = "dropped"

    with pytest.raises(TableGoneError, match="it was dropped during the run"):
        scene.run(Upkeep.CONVERT, Answer.CONFLICT, before=[drop])
    assert scene.engine.quarantine.paths == []


def test_a_failure_to_read_leaves_the_table_alone_and_no_file_behind() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table)

    class Broken(FakeDeletes):
        def each(self, deletes: Any) -> Any:  # noqa: ARG002
            raise BadRequestError("Cannot read deletes from x: they are in avro, not in Parquet")

    head = scene.table.head
    engine = FakeEngine(scene.table, plan_of(scene.table))
    context: Any = FakeContext(
        name=NAME,
        uuid="uuid",
        writer=scene.writer,
        engine=engine,
        specs=SPECS,
        clock=Still(),
        sleep=scene.wait,
        deletes=Broken(scene.table),
        resolver=FakeResolver(scene.table),
        quarantine=engine.quarantine,
    )
    with pytest.raises(BadRequestError, match="they are in avro"):
        maintain_deletes(context, DeletesRequest(Upkeep.CONVERT))
    assert scene.table.head == head
    assert PROPERTY not in scene.table.properties
    assert set(engine.quarantine.paths) == scene.unused()
    assert len(engine.quarantine.paths) == 1


def test_storage_that_fails_for_a_moment_costs_an_attempt() -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table)
    failing = [True]

    class Flaky(FakeDeletes):
        def each(self, deletes: Any) -> Any:
            if failing.pop() if failing else False:
                raise StorageError("Cannot read x: 503")
            return super().each(deletes)

    context: Any = FakeContext(
        name=NAME,
        uuid="uuid",
        writer=scene.writer,
        engine=FakeEngine(scene.table, plan_of(scene.table)),
        specs=SPECS,
        clock=Still(),
        sleep=scene.wait,
        deletes=Flaky(scene.table),
        resolver=FakeResolver(scene.table),
    )
    assert maintain_deletes(context, DeletesRequest(Upkeep.CONVERT)).outcome is RunOutcome.DONE
    assert len(scene.waits) == 1


def test_a_partition_spec_that_nobody_knew_is_a_conflict() -> None:
    scene = Scene()
    context: Any = FakeContext(
        name=NAME,
        uuid="uuid",
        writer=FakeWriter(scene.table),
        engine=FakeEngine(scene.table, plan_of(scene.table)),
        specs=(),
        clock=Still(),
        sleep=scene.wait,
        deletes=FakeDeletes(scene.table),
        resolver=FakeResolver(scene.table),
    )
    with pytest.raises(CommitConflictError, match="was given another partition spec meanwhile"):
        maintain_deletes(context, DeletesRequest(Upkeep.CONVERT))


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, RecursionError])
@pytest.mark.parametrize("name", ["write", "each"])
def test_an_exception_that_nobody_expected_is_in_the_record_and_leaves_nothing_behind(
    name: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene()

    def strike(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(FakeDeletes, name, strike)
    record = scene.run()
    assert record.outcome is RunOutcome.FAILED
    assert record.reason == error.__name__
    assert record.traceback is not None
    assert "in strike" in record.traceback
    assert scene.table.visible() == scene.rows
    assert set(scene.engine.quarantine.paths) == scene.unused()
    assert PROPERTY not in scene.table.properties


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_of_deletes_that_raises_is_looked_for_in_the_table(lands: bool) -> None:
    scene = Scene()
    scene.writer = FakeWriter(scene.table)
    plain, calls = scene.writer.row_delta, list[object]()

    def row_delta(*args: Any, **words: Any) -> None:
        calls.append(words)
        if lands or len(calls) > 1:
            plain(*args, **words)
        if len(calls) == 1:
            raise ZeroDivisionError

    scene.writer.row_delta = row_delta  # type: ignore[method-assign]
    record = scene.again()
    assert record.outcome is RunOutcome.DONE
    assert (len(calls), len(scene.ours())) == (1 if lands else 2, 1)
    assert scene.table.visible() == scene.rows


def test_equality_deletes_on_a_nested_column_are_not_converted_and_the_record_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    monkeypatch.setattr(FakeWriter, "schemas_json", lambda _: [NESTED_SCHEMA])
    before = scene.kinds()
    for record in (scene.run(dry_run=True), scene.run()):
        assert record.outcome is RunOutcome.NOTHING_TO_DO
        assert record.reason is not None
        assert record.reason.startswith("left alone are 3 data files: equality deletes compare the nested column s.k")
    assert (scene.kinds(), scene.resolver.calls, scene.writer.sent) == (before, 0, [])
