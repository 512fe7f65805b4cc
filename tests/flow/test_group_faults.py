"""Any exception in any stage of one group fails that group alone: the others commit, the run ends, everything is explained.

Each stage raises exceptions that nobody expects there. The table has three partitions, and the middle one is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from neve.commit import rewrite_files as commit_module
from neve.commit.failure import Failure
from neve.errors import CommitNotSentError
from neve.operations import rewrite_run as run_module
from neve.operations.resume import resume
from neve.rewrite.content import ContentProof, Fingerprint
from neve.rewrite.live_files import DataFile, LiveFile
from neve.rewrite.record import GroupRecord, GroupState, RunOutcome
from neve.rewrite.work_order import FailedOrder, WorkOrder, WorkResult
from neve.table.positions import Longs
from tests.builders.commit_scenes import tools_of
from tests.builders.delete_scenes import NESTED_SCHEMA
from tests.builders.fake_tables import Answer, FakeWriter
from tests.builders.group_faults import BAD, FAULTS, Scene, assert_clean, proving, three_partitions


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Callable[[], Exception]:
    return FAULTS[request.param]


def is_bad(file: LiveFile) -> bool:
    return "/b/" in file.path


def making_the_order(scene: Scene) -> None:
    scene.raising(scene.writer, "data_location", lambda model, _: is_bad(model))


def executing(scene: Scene) -> None:
    scene.raising(scene.engine, "_written", lambda order: order.group_id == BAD)


def starting_the_engine(scene: Scene) -> None:
    scene.raising(scene.engine, "run", lambda orders: any(order.group_id == BAD for order in orders))


def executing_after_files_were_written(scene: Scene) -> None:
    """The engine raises once it has written the files, so that nobody reports them."""
    plain = scene.engine.run

    def run(orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        for result in plain(orders):
            scene.strike(result.group_id == BAD)
            yield result

    scene.patch.setattr(scene.engine, "run", run)


def journaling_the_result(scene: Scene) -> None:
    scene.raising(scene.notes, "written", lambda _, results: any(result.group_id == BAD for result in results))


def describing_the_outputs(scene: Scene) -> None:
    scene.raising(run_module, "described_outputs", lambda result, *_: result.group_id == BAD)


def comparing_the_content(scene: Scene) -> None:
    class Content:
        def compare(self, result: WorkResult, *_: object) -> ContentProof:
            scene.strike(result.group_id == BAD)
            return ContentProof(group_id=result.group_id, before=Fingerprint(), after=Fingerprint(), engine="fake", seconds=0.0)

    scene.tools = replace(scene.tools, content=Content())


def judging(scene: Scene) -> None:
    scene.raising(commit_module, "judge", lambda inputs, *_, **__: any(map(is_bad, inputs)))


def moving_late_deletes(scene: Scene) -> None:
    bad = next(path for path in scene.table.now.data if "/b/" in path)
    scene.engine.after_last = lambda: scene.table.delete_positions(bad)
    scene.raising(scene.deletes, "positions", lambda _, path: "/b/" in path)


def writing_late_deletes(scene: Scene) -> None:
    """After the files exist, whose names nobody learns then."""
    bad = next(path for path in scene.table.now.data if "/b/" in path)
    rows = scene.table.contents[bad]
    scene.engine.after_last = lambda: scene.table.delete_positions(bad, *rows)
    plain = scene.deletes.write

    def write(rows: Iterable[tuple[str, Longs]], homes: Mapping[str, DataFile], *, vectors: bool) -> list[DataFile]:
        written = plain(rows, homes, vectors=vectors)
        scene.table.contents |= {delete["file-path"]: frozenset() for delete in written}
        scene.strike(any("/b/" in path for path in homes))
        return written

    scene.patch.setattr(scene.deletes, "write", write)


def preparing_the_whole_commit(scene: Scene) -> None:
    """Where a commit of several groups is prepared, nobody can tell which of them is at fault."""
    scene.raising(commit_module, "ours_to_drop", lambda planned, _: any(map(is_bad, planned)))


def describing_the_commit_to_iceberg(scene: Scene) -> None:
    def rewrite(removed: Sequence[DataFile], *_: object, **__: object) -> None:
        if any("/b/" in file["file-path"] for file in removed):
            try:
                raise scene.fault()
            except Exception as error:
                reason = Failure.of(error).reason
                raise CommitNotSentError(f"Cannot describe the files of the commit: {reason}") from error
        plain(removed, *_, **__)  # type: ignore[arg-type]

    plain = scene.writer.rewrite
    scene.patch.setattr(scene.writer, "rewrite", rewrite)


STAGES = [
    making_the_order,
    starting_the_engine,
    executing,
    executing_after_files_were_written,
    journaling_the_result,
    proving,
    describing_the_outputs,
    comparing_the_content,
    judging,
    moving_late_deletes,
    writing_late_deletes,
    preparing_the_whole_commit,
    describing_the_commit_to_iceberg,
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_an_exception_in_a_stage_of_one_group_fails_that_group_alone(
    stage: Callable[[Scene], None], fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    before = scene.table.visible()
    stage(scene)
    record = scene.run()
    expected = [GroupState.COMMITTED, GroupState.FAILED, GroupState.COMMITTED]
    assert [group.state for group in record.groups] == expected
    assert record.outcome is RunOutcome.PARTLY_DONE
    lost = set(before) - set(scene.table.visible())
    assert lost <= {2}  # deleted by the scene itself
    assert_explained(record.groups[BAD], fault)
    assert all(group.traceback is None for group in record.groups if group.group_id != BAD)
    assert scene.notes.states == dict(enumerate(expected))
    assert_clean(scene)
    record.model_dump_json()
    # The next run begins where this one ended: nothing is held.
    assert scene.table.properties == {}


def assert_explained(group: GroupRecord, fault: Callable[[], Exception]) -> None:
    assert type(fault()).__name__ in group.reason
    assert group.traceback is not None
    assert type(fault()).__name__ in group.traceback


def settling_in_the_journal(scene: Scene) -> None:
    scene.raising(scene.notes, "settled", lambda _, states: BAD in states)


def test_a_journal_that_does_not_take_the_end_of_a_group_stops_nothing(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    settling_in_the_journal(scene)
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.COMMITTED] * 3
    assert "the journal could not be written" in record.groups[BAD].reason
    assert record.groups[BAD].traceback is not None
    assert_clean(scene)


def test_a_file_of_a_failed_group_stays_while_the_journal_calls_it_written(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(ZeroDivisionError, monkeypatch)
    settling_in_the_journal(scene)
    proving(scene)
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.COMMITTED, GroupState.FAILED, GroupState.COMMITTED]
    # A resume of the journal would commit it: without the file, the rows would be lost.
    assert scene.engine.quarantine.paths == []


def test_files_go_once_the_journal_takes_the_end_of_their_group(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(ZeroDivisionError, monkeypatch)
    proving(scene)
    plain, calls = scene.notes.settled, list[object]()

    def once(run_id: str, states: Mapping[int, GroupState]) -> None:
        calls.append(states)
        scene.strike(BAD in states and len(calls) == 1)
        plain(run_id, states)

    monkeypatch.setattr(scene.notes, "settled", once)
    scene.run()
    assert scene.notes.states[BAD] is GroupState.FAILED
    assert_clean(scene)
    assert len(scene.engine.quarantine.paths) == 1


def test_a_quarantine_that_raises_stops_nothing(fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(fault, monkeypatch)
    proving(scene)
    scene.raising(scene.engine.quarantine, "record_candidates", lambda *_: True)
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.COMMITTED, GroupState.FAILED, GroupState.COMMITTED]


def test_progress_that_raises_stops_nothing(fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(fault, monkeypatch)
    scene.tools = replace(scene.tools, progress=lambda *_: scene.strike(on=True))
    assert scene.run().outcome is RunOutcome.DONE


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_that_raises_is_settled_by_looking_at_the_table(
    lands: bool, fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    plain, calls = scene.writer.rewrite, list[object]()

    def rewrite(*args: Any, **words: Any) -> None:
        calls.append(words)
        if lands or len(calls) > 1:
            plain(*args, **words)
        scene.strike(len(calls) == 1)

    monkeypatch.setattr(scene.writer, "rewrite", rewrite)
    record = scene.run()
    assert record.outcome is RunOutcome.DONE
    assert len(calls) == (1 if lands else 2)
    assert scene.table.visible() == [0, 1, 2, 3, 4, 5]
    assert_clean(scene)


def test_a_commit_that_always_raises_is_in_doubt_and_keeps_its_files(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    scene.raising(scene.writer, "rewrite", lambda *_, **__: True)
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT] * 3
    assert_explained(record.groups[BAD], fault)
    assert scene.engine.quarantine.paths == []
    assert scene.table.visible() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["ancestry", "snapshots_with", "head"])
def test_a_landed_commit_that_cannot_be_looked_for_is_in_doubt_and_keeps_its_files(
    name: str, fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    scene.writer.answers = [Answer.LOST_AFTER]
    scene.raising(scene.writer, name, lambda *_: bool(scene.writer.sent))
    record = scene.run()
    assert scene.table.visible() == [0, 1, 2, 3, 4, 5]
    live = set(scene.table.now.data)
    assert not live & set(scene.engine.quarantine.paths)
    states = {group.state for group in record.groups}
    assert states <= {GroupState.IN_DOUBT, GroupState.COMMITTED}
    if GroupState.IN_DOUBT in states:
        assert_explained(record.groups[BAD], fault)


def test_a_head_that_can_never_be_read_fails_every_group_and_ends_the_run(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    scene.engine.after_last = lambda: scene.raising(scene.writer, "refresh", lambda: True)
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.FAILED] * 3
    assert_explained(record.groups[BAD], fault)
    assert_clean(scene)


def test_a_run_whose_own_loop_raises_ends_with_a_record(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    scene.raising(run_module.CompactionRun, "_verified", lambda _, result: result.group_id == BAD)
    record = scene.run()
    assert {group.state for group in record.groups} == {GroupState.FAILED}
    assert len(record.groups) == 3
    assert_explained(record.groups[BAD], fault)
    assert scene.table.visible() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("stage", [proving, executing, judging, making_the_order], ids=lambda stage: stage.__name__)
def test_a_resume_isolates_groups_in_the_same_way(
    stage: Callable[[Scene], None], fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    killed(scene)
    scene.tools = replace(tools_of(scene.writer, scene.engine), journal=scene.notes, deletes=scene.deletes)
    stage(scene)
    record = resume(scene.notes.found(), scene.tools)
    assert [group.state for group in record.groups] == [GroupState.COMMITTED, GroupState.FAILED, GroupState.COMMITTED]
    assert_explained(record.groups[BAD], fault)
    assert scene.table.visible() == [0, 1, 2, 3, 4, 5]


def killed(scene: Scene) -> None:
    """The process was killed when it had executed the first group."""

    def run(orders: Sequence[WorkOrder]) -> Iterator[WorkResult | FailedOrder]:
        result = next(iter(plain(orders)))
        scene.notes.written("", [result])  # type: ignore[list-item]
        yield result
        raise KeyboardInterrupt

    plain = scene.engine.run
    with scene.patch.context() as patch:
        patch.setattr(scene.engine, "run", run)
        with pytest.raises(KeyboardInterrupt):
            scene.run()
    scene.table.properties = {}


def test_a_run_that_cannot_be_taken_up_again_ends_in_doubt_and_keeps_its_files(
    fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    killed(scene)
    scene.raising(scene.writer, "scan", lambda *_, **__: True)
    record = resume(scene.notes.found(), scene.tools)
    assert [group.state for group in record.groups] == [GroupState.IN_DOUBT] * 3
    assert record.outcome is RunOutcome.FAILED
    assert_explained(record.groups[BAD], fault)
    assert record.groups[0].outputs != ()
    assert scene.engine.quarantine.paths == []
    assert scene.table.properties == {}


@pytest.mark.parametrize("name", ["leftovers", "record_candidates"])
def test_a_resume_that_cannot_set_leftovers_aside_goes_on(
    name: str, fault: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(fault, monkeypatch)
    killed(scene)
    scene.raising(scene.engine if name == "leftovers" else scene.engine.quarantine, name, lambda *_: True)
    assert resume(scene.notes.found(), scene.tools).outcome is RunOutcome.DONE


def hidden_interrupt() -> Exception:
    """PySpark's cleaning up after Ctrl-C failed, and its error hides the interrupt."""
    error = ConnectionError("the JVM does not answer")
    error.__context__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("where", ["execute", "verify"])
def test_an_interrupt_behind_another_error_stops_the_run_and_no_group_is_tried_again(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(hidden_interrupt, monkeypatch)
    if where == "execute":
        scene.raising(scene.engine, "run", lambda *_: True)
    else:
        proving(scene)
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert caplog.messages == []
    assert scene.engine.quarantine.paths == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_whoever_stops_the_process_is_obeyed(stop: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(stop, monkeypatch)  # type: ignore[arg-type]
    proving(scene)
    with pytest.raises(stop):
        scene.run()
    assert scene.table.properties == {}


def test_a_group_with_equality_deletes_on_a_nested_column_is_left_alone_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan leaves such partitions out; should a delete be unknown to it, no order of any kernel is made."""
    table = three_partitions()
    table.delete_equal(2, partition="b")
    scene = Scene(ZeroDivisionError, monkeypatch, table)
    monkeypatch.setattr(FakeWriter, "schemas_json", lambda _: [NESTED_SCHEMA])
    record = scene.run()
    assert [group.state for group in record.groups] == [GroupState.COMMITTED, GroupState.FAILED, GroupState.COMMITTED]
    assert record.groups[BAD].reason.startswith("Cannot rewrite these files: equality deletes compare the nested column s.k")
    assert scene.table.visible() == [0, 1, 3, 4, 5]
