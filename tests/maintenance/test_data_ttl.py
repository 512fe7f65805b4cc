"""Rows past their time against writers and a catalog that fails: only they go, once, and as many as were previewed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.commit.marker import PROPERTY, Marker
from neve.commit.protocol import COMMIT_ID
from neve.errors import BadRequestError, CommitConflictError, LeaseHeldError, StorageError, VerificationError
from neve.maintenance.ttl import Tally, TtlCounts, TtlLimits, TtlRecord, TtlRule, TtlTarget
from neve.operations.ttl import expire_rows
from neve.operations.ttl_terms import TtlTerms
from neve.rewrite.live_files import DataFile, LiveFile, describe_metrics
from neve.rewrite.record import RunOutcome
from neve.table.metrics import ColumnMetrics, to_bytes
from neve.table.state import TableName
from tests.contexts import FakeContext
from tests.flow.fakes import Answer, Data, FakeTable, FakeWriter, Still
from tests.flow.test_commit import SPECS

NAME = TableName(catalog="local", namespace=("db",), name="t")
RULE = TtlRule(column="day", field_id=1, type="date", keep_seconds=86_400)
LIMIT = 100
"""The day that the cutoff lies in; a row of the fake table is its own day."""


@dataclass
class FakeRows:
    """Rows below a number are past. Deletes rewrite the files, as copy-on-write does, and may take young rows along."""

    table: FakeTable
    writer: FakeWriter
    takes_along: int = 0
    uuid: str = "uuid"
    targets: list[TtlTarget] = field(default_factory=list)

    def candidates(self, snapshot_id: int, rule: TtlRule, limits: TtlLimits) -> list[LiveFile]:  # noqa: ARG002
        rows = {path: self.table.contents[path] for path in self.table.history[snapshot_id].data}
        chosen = [file for file in self.writer.scan(snapshot_id) if min(rows[file.path]) < limits.high]
        return [LiveFile(file.data_file | _bounds(sorted(rows[file.path]))) for file in chosen]

    def tallies(self, snapshot_id: int, paths: Sequence[str], rule: TtlRule, limits: TtlLimits) -> Mapping[str, Tally]:  # noqa: ARG002
        version, found = self.table.history[snapshot_id], {}
        for path in paths:
            gone = {row for delete in version.deletes_of(version.data[path]) for row in delete.rows}
            rows = self.table.contents[path] - gone
            found[path] = Tally(sum(row < limits.high for row in rows), sum(row >= limits.high for row in rows))
        return {path: tally for path, tally in found.items() if sum(tally)}

    def drop(self, files: Sequence[DataFile], summary: Mapping[str, str], target: TtlTarget) -> None:
        self._confirm(target)
        self._send([file["file-path"] for file in files], [], summary)

    def delete(self, rule: TtlRule, limits: TtlLimits, summary: Mapping[str, str], target: TtlTarget) -> None:  # noqa: ARG002
        self._confirm(target)
        mixed = [path for path in self.table.now.data if min(self.table.contents[path]) < limits.high]
        added = []
        for path in mixed:
            gone = {row for delete in self.table.now.deletes_of(self.table.now.data[path]) for row in delete.rows}
            kept = sorted(row for row in self.table.contents[path] - gone if row >= limits.high)[self.takes_along :]
            new = f"{path}-kept"
            self.table.contents[new] = frozenset(kept)
            added += [Data(new, "p", 1)] if kept else []
        self._send(mixed, added, summary)

    def _confirm(self, target: TtlTarget) -> None:
        self.targets.append(target)
        if target.table_uuid != self.uuid:
            raise VerificationError(f"Cannot delete rows by {target.column}: the table was replaced by another one")

    def _send(self, gone: list[str], added: list[Data], summary: Mapping[str, str]) -> None:
        self.writer.sent.append({"gone": gone})
        if self.writer.before_rewrite:
            self.writer.before_rewrite.pop(0)()
        self.writer._answer(self.writer.head() or 0, lambda: self._land(gone, added, summary))

    def _land(self, gone: list[str], added: list[Data], summary: Mapping[str, str]) -> None:
        if missing := [path for path in gone if path not in self.table.now.data]:
            raise CommitConflictError(f"Cannot commit: Missing required files to delete: {missing[0]}")
        removed = sum(len(self.table.contents[path]) for path in gone)
        told = {
            "deleted-data-files": str(len(gone)),
            "deleted-records": str(removed),
            "added-records": str(sum(len(self.table.contents[file.path]) for file in added)),
            "removed-files-size": str(1000 * len(gone)),
        }
        self.table._commit("delete", added=added, removed=gone, summary={**told, **summary})


def _bounds(rows: list[int]) -> DataFile:
    column = ColumnMetrics(values=len(rows), nulls=0, lower=to_bytes("date", rows[0]), upper=to_bytes("date", rows[-1]))
    return describe_metrics({1: column})


@dataclass
class Scene:
    """One file past as a whole, one with a past row and a young one, one that is young."""

    rows: Sequence[Sequence[int]] = ((1, 2, 3), (50, 150), (200, 201))
    request: dict[str, Any] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    takes_along: int = 0
    uuid: str = "uuid"

    def __post_init__(self) -> None:
        self.table = FakeTable()
        for rows in self.rows:
            self.table.append(*rows)

    def run(
        self,
        *answers: Answer,
        before: Sequence[Callable[[], Any]] = (),
        terms_again: Callable[[], TtlTerms] | None = None,
        **request: Any,
    ) -> TtlRecord:
        self.writer = FakeWriter(self.table, *answers, before_rewrite=before)
        context = FakeContext(writer=self.writer, specs=SPECS, clock=Still(), sleep=self.wait, name=NAME, uuid="uuid")
        asked = TtlTerms(NAME, "uuid", RULE, LIMIT * 86_400_000, max_files=100)
        self.past = FakeRows(self.table, self.writer, self.takes_along, self.uuid)
        return expire_rows(replace(asked, **{**self.request, **request}), context, self.past, terms_again=terms_again)

    def wait(self, seconds: float) -> None:
        """Requests that are in flight arrive meanwhile."""
        self.waits.append(seconds)
        self.writer.land()


COUNTS = TtlCounts(files_dropped=1, rows_dropped=3, bytes_dropped=1000, files_touched=1, rows_deleted=1)


def test_a_cutoff_that_counts_from_an_older_head_is_counted_again_under_the_lease() -> None:
    """The last write was rolled back while Spark was starting: by the one before, nothing is past its time."""
    scene = Scene()
    before = scene.table.head
    scene.table.append(900)
    written = scene.table.head
    scene.table.roll_back(before)
    earlier = TtlTerms(NAME, "uuid", RULE, 0, max_files=100, requested_at=before)
    record = scene.run(requested_at=written, terms_again=lambda: earlier)
    assert (record.outcome, record.cutoff_ms) == (RunOutcome.NOTHING_TO_DO, 0)
    assert (scene.table.head, scene.table.properties) == (before, {})


@pytest.mark.parametrize("moved", [False, True])
def test_a_limit_whose_start_became_unknown_before_the_lease_removes_nothing(moved: bool) -> None:
    scene = Scene()
    head = scene.table.head
    unknown = TtlTerms(NAME, "uuid", RULE, None, max_files=100, requested_at=head, unknown="the last write is unknown")
    record = scene.run(requested_at=7 if moved else head, terms_again=lambda: unknown)
    assert record.outcome is (RunOutcome.NOTHING_TO_DO if moved else RunOutcome.DONE)
    assert (scene.table.head == head) is moved


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
