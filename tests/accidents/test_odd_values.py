"""Accidents of odd values: one that nobody expected stops a whole table, or changes what a rewrite keeps."""

from __future__ import annotations

import pytest

from neve.commit import group_journal
from neve.operations.rewrite_run import CompactionRun
from neve.operations.verify import described_outputs
from neve.rewrite.group import Kernel
from neve.rewrite.live_files import LiveFile
from neve.rewrite.record import GroupState
from neve.rewrite.work_order import Metrics, OutputFile, WorkResult
from neve.table import calendar, metrics, nested_keys
from neve.table.partition import human
from tests.accidents.unguarded import accident, answering
from tests.builders.arrow_files import field, schema
from tests.builders.delete_scenes import NESTED_SCHEMA
from tests.builders.fake_tables import FakeWriter
from tests.builders.group_faults import Scene, assert_clean, proving, three_partitions

OURS = "our own trial with adversaries, issue 15"


@accident(
    "One value that cannot be decoded stops the compaction of every partition, for good",
    evidence=OURS,
    guard="Any exception in one group fails that group alone; it is in the record with its traceback, and the others commit.",
    without=[answering(CompactionRun._fails_alone, "False")],
    sees="failed.*failed.*failed",
)
def test_an_exception_in_one_group_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(lambda: UnicodeDecodeError("utf-8", b"\xc3", 0, 1, "unexpected end of data"), monkeypatch)
    proving(scene)
    states = [group.state.value for group in scene.run().groups]
    assert states == ["committed", "failed", "committed"], ", ".join(states)
    assert_clean(scene)


@accident(
    "Files of a failed group are removed, and a resume commits them",
    evidence=OURS,
    guard="A file goes only after the journal says that its group has ended.",
    without=[answering(group_journal.files_may_be_set_aside, "True")],
    sees="removed a file that the journal calls written",
)
def test_a_file_stays_for_as_long_as_the_journal_calls_it_written(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(ZeroDivisionError, monkeypatch)
    proving(scene)
    scene.raising(scene.notes, "settled", lambda _, states: 1 in states)
    scene.run()
    written = {output.path for result in scene.notes.results.values() for output in result.outputs}
    assert scene.notes.found().groups[1].state is GroupState.WRITTEN
    assert not written & set(scene.engine.quarantine.paths), "removed a file that the journal calls written"


TEXT = schema(field(1, "v", "string"))
VALUE = b"x" + b"\xc3" * 30


@accident(
    "Rows are not found any more, since a bound was decoded and is above them",
    evidence="Iceberg's Java writer puts U+FFFD in place of each byte that is not UTF-8; " + OURS,
    guard="A bound of text with U+FFFD in it is cut before that character, so that it holds for the bytes of the values.",
    without=[answering(metrics._sure_text, "None")],
    sees="is above the value",
)
def test_bounds_hold_for_bytes_that_are_not_utf_8() -> None:
    decoded = VALUE.decode("utf-8", "replace").encode()
    said = {"keys": [1], "values": [metrics.truncate_lower("string", decoded, 16).hex().upper()]}
    described = {"file-path": "/in", "file-size-in-bytes": 9, "record-count": 1, "lower-bounds": said}
    output = OutputFile(
        path="/out", size_bytes=9, records=1, row_groups=1, split_offsets=(4,), metrics={1: Metrics(size_bytes=9)}
    )
    result = WorkResult(
        order_id="o",
        group_id=0,
        inputs_digest="",
        kernel=Kernel.COPY,
        outputs=(output,),
        rows_read=1,
        kept={},
        seconds=0.1,
        cpu_seconds=0.1,
        peak_memory_bytes=1,
    )
    (new,) = described_outputs(result, [LiveFile(described)], TEXT, {})
    lower = bytes.fromhex(new["lower-bounds"]["values"][0])
    assert lower <= VALUE, f"the lower bound {lower!r} is above the value"


@accident(
    "A partition of the year 10000 stops inspect, plan and compact of its table",
    evidence=OURS,
    guard="Dates of partitions are whole numbers in a calendar of every year; Python's own ends at 9999.",
    without=[answering(calendar.day_of, "__import__('datetime').date.fromordinal(days + 719163)")],
    sees="cannot be named",
)
def test_a_partition_of_any_year_has_a_name() -> None:
    try:
        names = [human("identity", "date", 2_932_897), human("identity", "timestamp", 1_737_115_975_038_194_000)]
    except (OverflowError, ValueError) as error:
        raise AssertionError(f"a partition cannot be named: {error}") from error
    assert names == ["10000-01-01", "+57017-01-05T23:17:18.194"]


@accident(
    "Rows are dropped or revived by applying an equality delete whose key is inside a struct",
    evidence="Iceberg 1.12.0 gives two answers for such a table, by the columns of the query; " + OURS,
    guard="Files that such a delete applies to are left alone by every kernel and by the conversion of deletes.",
    without=[answering(nested_keys.compared, "[]")],
    sees="was rewritten: committed",
)
def test_files_with_deletes_on_nested_keys_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    table = three_partitions()
    table.delete_equal(2, partition="b")
    scene = Scene(ZeroDivisionError, monkeypatch, table)
    monkeypatch.setattr(FakeWriter, "schemas_json", lambda _: [NESTED_SCHEMA])
    group = scene.run().groups[1]
    assert group.state is GroupState.FAILED, f"a file with such a delete was rewritten: {group.state}"
    assert "nested column s.k" in group.reason
