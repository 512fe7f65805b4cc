"""Rows past their time against writers and a catalog that fails: only they go, once, and as many as were previewed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.commit.marker import PROPERTY, Marker
from neve.commit.protocol import COMMIT_ID
from neve.errors import BadRequestError, LeaseHeldError, StorageError, VerificationError
from neve.maintenance.ttl import Tally, TtlCounts, TtlTarget, UnprovedFile
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn
from neve.operations.ttl_terms import TtlTerms
from neve.rewrite.record import RunOutcome
from tests.builders.fake_tables import Answer
from tests.builders.ttl_scenes import LIMIT, NAME, RULE, FakeRows, Scene

COUNTS = TtlCounts(files_dropped=1, rows_dropped=3, bytes_dropped=1000, files_touched=1, rows_deleted=1)


def test_a_cutoff_that_counts_from_an_older_head_is_counted_again_under_the_lease() -> None:
    """The last write was rolled back while Spark was starting: by the one before, nothing is past its time."""
    scene = Scene()
    before = scene.table.head
    scene.table.append(900)
    assert before is not None
    scene.table.roll_back(before)
    record = scene.run(terms_again=lambda: TtlTerms(NAME, "uuid", RULE, 0, max_files=100))
    assert (record.outcome, record.cutoff_ms) == (RunOutcome.NOTHING_TO_DO, 0)
    assert (scene.table.head, scene.table.properties) == (before, {})


def test_a_limit_that_was_changed_before_the_lease_is_not_enforced() -> None:
    """Somebody set a longer limit while Spark was starting. That changes a property, and makes no snapshot."""
    scene = Scene()
    head = scene.table.head
    record = scene.run(terms_again=lambda: TtlTerms(NAME, "uuid", RULE, 0, max_files=100))
    assert (record.outcome, record.cutoff_ms) == (RunOutcome.NOTHING_TO_DO, 0)
    assert scene.table.head == head


def test_a_limit_whose_start_became_unknown_before_the_lease_removes_nothing() -> None:
    scene = Scene()
    head = scene.table.head
    unknown = TtlTerms(NAME, "uuid", RULE, None, max_files=100, unknown="the last write is unknown")
    record = scene.run(terms_again=lambda: unknown)
    assert record.outcome is RunOutcome.NOTHING_TO_DO
    assert scene.table.head == head


def test_a_preview_tells_and_changes_nothing() -> None:
    scene = Scene()
    head = scene.table.head
    record = scene.run(dry_run=True)
    assert (record.outcome, record.counts, record.snapshots) == (RunOutcome.DONE, COUNTS, ())
    assert (scene.table.head, scene.writer.sent, scene.table.properties) == (head, [], {})


@pytest.mark.parametrize("answer", list(Answer))
@pytest.mark.parametrize("at", [0, 1])
def test_whatever_the_catalog_answers_the_rows_go_once_and_are_counted(answer: Answer, at: int) -> None:
    scene = Scene()
    record = scene.run(*[Answer.WELL] * at, answer)
    assert (record.outcome, record.counts) == (RunOutcome.DONE, COUNTS)
    assert scene.table.visible() == [150, 200, 201]
    ours = [i for i, version in scene.table.history.items() if COMMIT_ID in version.summary]
    assert list(record.snapshots) == ours
    assert bool(scene.waits) is (answer in (Answer.CONFLICT, Answer.LOST_BEFORE, Answer.HELD))
    assert PROPERTY not in scene.table.properties


def test_a_catalog_that_never_takes_it_leaves_the_table_as_it_was() -> None:
    scene = Scene()
    record = scene.run(*[Answer.CONFLICT] * 20)
    assert (record.outcome, record.counts.nothing) == (RunOutcome.FAILED, True)
    assert record.reason == "Cannot commit the rewrite: the table changed"
    assert scene.table.visible() == [1, 2, 3, 50, 150, 200, 201]


def test_what_was_done_before_a_failure_is_told() -> None:
    scene = Scene()
    record = scene.run(Answer.WELL, *[Answer.CONFLICT] * 20)
    assert (record.outcome, record.counts.rows_dropped, record.counts.rows_deleted) == (RunOutcome.PARTLY_DONE, 3, 0)
    assert scene.table.visible() == [50, 150, 200, 201]


def test_of_rows_that_others_add_meanwhile_no_young_one_is_touched() -> None:
    scene = Scene()
    record = scene.run(before=[lambda: scene.table.append(60, 300, 301), lambda: scene.table.append(61, 302)])
    assert (record.outcome, record.counts.rows_dropped, record.counts.rows_deleted) == (RunOutcome.DONE, 3, 2)
    assert scene.table.visible() == [61, 150, 200, 201, 300, 301, 302]  # 61 came after the delete had looked
    assert scene.run().counts.rows_deleted == 1
    assert scene.table.visible() == [150, 200, 201, 300, 301, 302]


def test_a_file_that_others_merge_with_a_young_one_is_not_dropped() -> None:
    scene = Scene(rows=((1, 2, 3), (200, 201)))
    record = scene.run(before=[lambda: scene.table.compact(*scene.table.now.data)])
    assert (record.outcome, len(scene.writer.sent)) == (RunOutcome.DONE, 1)
    assert scene.table.visible() == [1, 2, 3, 200, 201]  # the next run finds them in the merged file
    assert record.counts.nothing
    assert scene.run().counts.rows_deleted == 3
    assert scene.table.visible() == [200, 201]


def test_no_more_files_than_one_run_may_drop_and_no_row_before_the_files_are_gone() -> None:
    scene = Scene(rows=((1,), (2,), (3,), (4, 150)), request={"max_files": 2})
    first = scene.run()
    assert (first.counts.files_dropped, first.counts.rows_deleted, first.counts.files_left) == (2, 0, 2)
    assert first.reason == "one run drops 2 files at most (max-files)"
    assert scene.run().counts.rows_deleted == 1
    assert scene.table.visible() == [150]


def test_files_that_would_have_to_be_opened_are_left_where_there_are_too_many_or_they_shall_stay_whole() -> None:
    scene = Scene(rows=((4, 150), (5, 150)))
    too_many = scene.run(max_files=1)
    assert (too_many.outcome, too_many.counts) == (RunOutcome.NOTHING_TO_DO, TtlCounts(files_left=2))
    assert [(rule.knob, rule.measured, rule.threshold) for rule in too_many.not_due] == [("max-files", 2, 1)]
    assert too_many.reason == "one run opens 1 file at most (max-files)"
    whole = scene.run(rule=RULE.model_copy(update={"by": "file"}))
    assert (whole.counts, whole.reason) == (TtlCounts(files_left=2), "files that may hold younger rows stay whole (ttl-by)")


def test_on_the_snapshot_of_a_preview_other_counts_are_refused() -> None:
    scene = Scene()
    head = scene.table.head
    with pytest.raises(VerificationError, match="of the snapshot that was previewed, other counts came out"):
        scene.run(previewed=(head, COUNTS.model_copy(update={"rows_deleted": 2})))
    assert scene.table.head == head
    scene.table.append(7)
    assert scene.run(previewed=(head, COUNTS)).counts.rows_dropped == 4


def test_files_that_were_dropped_before_spark_refused_the_delete_are_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object) -> None:
        raise BadRequestError("Cannot delete rows: the table takes no deletes")

    monkeypatch.setattr(FakeRows, "delete", refusing)
    record = Scene().run()
    assert (record.outcome, record.counts.rows_dropped, len(record.snapshots)) == (RunOutcome.PARTLY_DONE, 3, 1)
    assert record.reason == "Cannot delete rows: the table takes no deletes"
    with pytest.raises(BadRequestError, match="takes no deletes"):
        Scene(rows=((50, 150),)).run()  # nothing was committed: a refusal


def test_a_delete_that_took_other_rows_along_is_taken_back() -> None:
    scene = Scene(takes_along=1)
    record = scene.run()
    assert record.outcome is RunOutcome.PARTLY_DONE
    assert str(record.reason).endswith("was rolled back: 2 rows left the table and 1 of them were past their time")
    assert scene.table.visible() == [50, 150, 200, 201]
    assert len(record.snapshots) == 1


def test_a_row_that_two_deletes_name_is_counted_once() -> None:
    """As two writers under snapshot isolation leave it: the summary of the delete would count it twice."""
    scene = Scene(rows=((50, 60, 150, 151),))
    (path,) = scene.table.now.data
    scene.table.delete_positions(path, 60, 150)
    scene.table.delete_positions(path, 60, 150)
    record = scene.run()
    assert (record.outcome, record.reason, record.counts.rows_deleted) == (RunOutcome.DONE, None, 1)
    assert scene.table.visible() == [151]


def test_young_rows_that_leave_with_files_that_have_deletes_are_seen_too() -> None:
    scene = Scene(rows=((50, 60, 150, 151),), takes_along=1)
    (path,) = scene.table.now.data
    scene.table.delete_positions(path, 60)
    record = scene.run()
    assert str(record.reason).endswith("was rolled back: 2 rows left the table and 1 of them were past their time")
    assert scene.table.visible() == [50, 150, 151]


def test_a_delete_whose_rows_cannot_be_counted_afterwards_is_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, real = Scene(), FakeRows.tallies

    def failing(self: FakeRows, snapshot_id: int, *args: Any) -> Mapping[str, Tally]:
        if any(path.endswith("-kept") for path in self.table.history[snapshot_id].data):
            raise StorageError("Cannot count rows past their time: 503")
        return real(self, snapshot_id, *args)

    monkeypatch.setattr(FakeRows, "tallies", failing)
    record = scene.run()
    assert (record.outcome, len(record.snapshots)) == (RunOutcome.PARTLY_DONE, 1)
    assert str(record.reason).endswith("rolled back: its rows could not be counted: Cannot count rows past their time: 503")
    assert scene.table.visible() == [50, 150, 200, 201]


def test_every_destructive_statement_names_the_table_s_uuid_branch_and_field_id() -> None:
    scene = Scene()
    scene.run()
    assert scene.past.targets == [TtlTarget("uuid", "main", 1, "day", "date")] * 2


def test_a_table_that_is_not_the_planned_one_loses_nothing() -> None:
    scene = Scene(uuid="another")
    record = scene.run()
    assert (record.outcome, record.snapshots, scene.waits) == (RunOutcome.FAILED, (), [])
    assert record.reason == "Cannot delete rows by day: the table was replaced by another one"
    assert scene.table.visible() == [1, 2, 3, 50, 150, 200, 201]


def test_where_the_cutoff_is_unknown_nothing_is_looked_for_and_everything_is_kept() -> None:
    scene = Scene()
    record = scene.run(cutoff_ms=None, unknown="the last write to branch main is unknown: others cut the history")
    assert (record.outcome, record.counts, record.cutoff_ms) == (RunOutcome.NOTHING_TO_DO, TtlCounts(), None)
    assert [(rule.knob, rule.until) for rule in record.not_due] == [("ttl-since", "the last write is known")]
    assert record.reason == "every row is kept: the last write to branch main is unknown: others cut the history"
    assert scene.table.visible() == [1, 2, 3, 50, 150, 200, 201]


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("at", [0, 1])
def test_a_run_that_was_killed_is_finished_by_the_next(monkeypatch: pytest.MonkeyPatch, at: int, landed: bool) -> None:
    scene, real, sent = Scene(), FakeRows._send, list[int]()

    def killed(self: FakeRows, *args: Any) -> None:
        sent.append(len(sent))
        if len(sent) == at + 1 and not landed:
            raise KeyboardInterrupt
        real(self, *args)
        if len(sent) == at + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeRows, "_send", killed)
    with pytest.raises(KeyboardInterrupt):
        scene.run()
    assert set(scene.table.visible()) >= {150, 200, 201}
    assert scene.run().outcome is (RunOutcome.NOTHING_TO_DO if (at, landed) == (1, True) else RunOutcome.DONE)
    assert scene.table.visible() == [150, 200, 201]


def test_a_table_that_another_run_holds_is_left_alone() -> None:
    scene = Scene()
    scene.table.properties[PROPERTY] = Marker(run_id="other", owner="elsewhere:1", until_ms=10**14).text
    with pytest.raises(LeaseHeldError, match="run other"):
        scene.run()
    assert scene.run(dry_run=True).counts == COUNTS


MISREAD = FooterFinding(StoredColumn("timestamp in milliseconds", 0, 1, 3))
BROKEN = FooterFinding(unknown="Cannot read it", is_damaged=True)


def test_a_file_whose_footer_does_not_confirm_its_bounds_is_read_row_by_row() -> None:
    scene = Scene()
    first = next(iter(scene.table.now.data))
    scene.footers[first] = MISREAD
    preview = scene.run(dry_run=True)
    assert preview.counts == TtlCounts(files_touched=2, rows_deleted=4)
    reason = "it has day as timestamp in milliseconds, the table as date, so its bounds may be wrong"
    assert preview.unproved == (UnprovedFile(path=first, reason=reason, left=False),)
    record = scene.run(previewed=(scene.table.head, preview.counts))
    assert (record.counts, record.unproved, scene.table.visible()) == (preview.counts, preview.unproved, [150, 200, 201])


def test_only_footers_of_files_that_would_be_dropped_are_opened() -> None:
    scene = Scene(rows=((1,), (2,), (3,), (50, 150), (200,)))
    scene.run(dry_run=True, max_files=2)
    assert scene.past.opened == list(scene.table.now.data)[:2]


def test_files_that_are_not_confirmed_do_not_keep_a_run_from_dropping_others() -> None:
    scene = Scene(rows=((1,), (2,), (3,), (4,)))
    first, second, *_ = scene.table.now.data
    scene.footers = {first: MISREAD, second: MISREAD}
    record = scene.run(max_files=2)
    assert (record.counts.files_dropped, record.counts.files_touched) == (2, 2)
    assert scene.table.visible() == []


def test_a_file_that_cannot_be_read_stays_and_no_row_is_deleted_until_it_can() -> None:
    """The delete would read it too, and fail."""
    scene = Scene(rows=((1,), (2,), (50, 150)))
    first, *_ = scene.table.now.data
    scene.footers[first] = BROKEN
    preview = scene.run(dry_run=True)
    assert (preview.counts.files_dropped, preview.counts.rows_deleted, preview.counts.files_left) == (1, 0, 2)
    assert preview.reason == "no rows are deleted while a file cannot be read: Cannot read it"
    assert scene.run(previewed=(scene.table.head, preview.counts)).counts == preview.counts
    assert scene.table.visible() == [1, 50, 150]
    again = scene.run()
    assert (again.outcome, [rule.until for rule in again.not_due]) == (RunOutcome.NOTHING_TO_DO, ["the file is restored"])


def test_a_file_that_is_left_alone_is_told_with_the_reason() -> None:
    scene = Scene(rows=((1,), (200,)))
    scene.footers[next(iter(scene.table.now.data))] = BROKEN
    record = scene.run()
    assert (record.outcome, record.counts) == (RunOutcome.NOTHING_TO_DO, TtlCounts(files_left=1))
    assert record.reason == "not dropped by metadata alone: 1 file, the first since Cannot read it"
    assert [rule.what for rule in record.not_due] == [record.reason]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=5), max_size=6))
def test_exactly_the_rows_past_their_time_go_and_as_many_as_were_previewed(rows: list[list[int]]) -> None:
    scene = Scene(rows=rows)
    preview = scene.run(dry_run=True)
    kept = [row for row in scene.table.visible() if row >= LIMIT]
    record = scene.run(previewed=(scene.table.head, preview.counts))
    assert record.counts == preview.counts
    assert scene.table.visible() == kept
    assert scene.run().outcome is RunOutcome.NOTHING_TO_DO
