"""Accidents around a commit: its outcome is not known, it is tried twice, or the table is another one by the time it lands."""

from __future__ import annotations

from typing import Any

import pytest

from neve.commit import conflicts, protocol
from neve.commit.protocol import COMMIT_ID
from neve.commit.rewrite_files import Committer, _Replacement
from neve.errors import CommitUnknownError
from neve.rewrite.record import GroupState, RunOutcome
from neve.spark.table.bridge import TableBridge
from neve.spark.table.deltas import Exchange
from tests.accidents.unguarded import accident, answering
from tests.builders.cleanup_tables import plain
from tests.builders.id_tables import ROWS, append, filled, states, without_ids
from tests.builders.spark_tables import Bench, StrikingBridge
from tests.builders.table_integrity import assert_whole

BRIDGE = "tests.builders.spark_tables.StrikingBridge"

trusts_answers = answering(protocol.certainly_failed, "True")
never_looks = answering(Committer.landed, "False")
forgets_ids = answering(TableBridge.snapshots_with, "[]")


class Deaf(StrikingBridge):
    """Commits, and never hears the answer."""

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        super().rewrite(*args, **kwargs)
        raise CommitUnknownError("Cannot tell whether the commit landed: 504 Gateway Timeout")


class Twice(StrikingBridge):
    """Sends a commit that has landed once more, as a client does by itself when an answer is lost: that one is refused."""

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        super().rewrite(*args, **kwargs)
        self.table.refresh()
        super().rewrite(*args, **kwargs)


class Idle(StrikingBridge):
    """Says that all is well, and has done nothing."""

    def rewrite(self, *args: Any, **kwargs: Any) -> None:
        pass


def sweep(bench: Bench) -> None:
    """The worst that can come of a quarantine: all that the run recorded there is gone, without the second check."""
    for path in bench.quarantine.paths:
        plain(path).unlink()


def commits_of_ours(bench: Bench) -> list[int]:
    return [s.snapshot_id for s in bench.load().snapshots() if s.summary is not None and s.summary.get(COMMIT_ID)]


@accident(
    "Files are deleted after a commit whose outcome is unknown",
    evidence="iceberg #12792, #2317, #4673, #13443, #15050, #13352; clickhouse #115580; duckdb-iceberg #1120",
    guard="Only a definite refusal is a failure, and even then files go into the quarantine only when no snapshot of the table "
    "has the commit's id and no output is live: a commit that landed is found in the table, whatever was answered.",
    behind=[never_looks, trusts_answers],
    without=[forgets_ids],
    sees="lost files",
)
def test_no_file_is_removed_after_a_commit_whose_answer_was_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    monkeypatch.setattr(BRIDGE, Deaf)
    bench.compact(paths=bench.inputs)
    sweep(bench)
    assert len(commits_of_ours(bench)) == 1
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "A commit is sent again and conflicts with itself",
    evidence="iceberg #12818",
    guard="Each commit carries an id of its own. After a refusal, too, it is looked for; and a rewrite cannot land "
    "twice, since its inputs must be live.",
    behind=[never_looks],
    without=[forgets_ids],
    sees="lost files",
)
def test_a_commit_that_conflicts_with_itself_has_landed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    monkeypatch.setattr(BRIDGE, Twice)
    bench.compact(paths=bench.inputs)
    sweep(bench)
    assert len(commits_of_ours(bench)) == 1
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "A commit that landed is reported as a failure",
    evidence="iceberg #16971",
    guard="A run's outcome is what the table says: groups are committed if their snapshot, or their files, are in it.",
    without=[never_looks],
    sees="in-doubt",
)
def test_a_commit_that_landed_is_reported_as_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    monkeypatch.setattr(BRIDGE, Deaf)
    record = bench.compact(paths=bench.inputs)
    assert (states(record), list(record.snapshots)) == ([GroupState.COMMITTED], commits_of_ours(bench))
    assert (record.files_compacted, record.files_written) == (2, 1)
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "Success is reported, and nothing happened",
    evidence="iceberg #9611, #13783, #17202",
    guard="An answer that all is well is not believed: what is not found in the table was not committed, and is in doubt.",
    without=[
        answering(
            _Replacement.landed,
            "self._batch.outcome.committed.extend(group.group_id for group in self._batch.sent.pop().groups) or Settled(None)",
        )
    ],
    sees="done",
)
def test_a_commit_that_never_came_to_be_is_not_reported_as_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bench)
    monkeypatch.setattr(BRIDGE, Idle)
    record = bench.compact(paths=bench.inputs)
    assert record.outcome is RunOutcome.FAILED
    assert (states(record), record.files_compacted, commits_of_ours(bench)) == ([GroupState.IN_DOUBT], 0, [])
    assert_whole(bench.load(), {"main": ROWS})


@accident(
    "Deleted rows come back: a delete landed while files were rewritten",
    evidence="iceberg #2308",
    guard="Before each commit the deletes of every input are compared with those that were applied, by the state of the head "
    "and not by its history; what came since is moved to the new files, or the group is planned again.",
    without=[answering(conflicts.has_other_deletes, "False")],
    sees="other rows",
)
def test_rows_deleted_while_files_are_rewritten_stay_deleted(bench: Bench) -> None:
    filled(bench).moves_deletes = True
    bench.compact(paths=bench.inputs, strike=lambda: bench.sql("DELETE FROM {} WHERE id IN (3, 25)"))
    assert_whole(bench.load(), {"main": without_ids(3, 25)})


@accident(
    "Deleted rows come back: new files are younger than the equality deletes of a stream",
    evidence="iceberg #2308; trino #25584",
    guard="Where an equality delete came after the plan, the new files take the plan's sequence number, so that it applies to "
    "them as to the files they replace.",
    without=[answering(Committer._keeps_number, "False")],
    sees="other rows",
)
def test_an_equality_delete_that_comes_late_still_applies_to_the_new_files(bench: Bench) -> None:
    filled(bench)
    record = bench.compact(paths=bench.inputs, strike=lambda: bench.delete_equal(3, 25))
    assert states(record) == [GroupState.COMMITTED]
    assert_whole(bench.load(), {"main": without_ids(3, 25)})


@accident(
    "Deleted rows come back: the equality delete itself is dropped with the last file as old as it",
    evidence="iceberg #10312",
    guard="Where no file stays that keeps a late equality delete alive, the group is planned again; and a commit that took a "
    "delete newer than its plan out of the table is rolled back.",
    behind=[answering(conflicts.late_equality, "LateEquality.STAYS")],
    without=[answering(conflicts.lost_deletes, "set()")],
    sees="other rows",
)
def test_an_equality_delete_outlives_the_files_that_it_was_for(bench: Bench) -> None:
    filled(bench)

    def strike() -> None:
        bench.delete_equal(3)
        append(bench, 30, 1)

    bench.compact(strike=strike)
    assert_whole(bench.load(), {"main": [*without_ids(3), 30]})


WITH_THE_INPUTS_THAT_ARE_LEFT = """Sent(
    tuple(kept),
    head,
    tuple(live[file.path] for group in kept for file in group.inputs if file.path in live),
    self._keeps_number(kept, live),
)"""
AS_AN_OVERWRITE = """(
    (operation := table.newOverwrite()),
    [operation.addFile(file) for file in self.added],
    [operation.deleteFile(file) for file in self.removed],
    onto.apply(operation),
)[-1]"""


@accident(
    "Rows are there twice: a writer replaced a file while it was rewritten",
    evidence="trino #18393, #18412; risingwave #26926",
    guard="All inputs of a group must be live at the head; a group that lost one is given up as a whole. And files are "
    "exchanged by Iceberg's own replacement, which refuses more rows than it takes out, and never by an overwrite.",
    behind=[
        answering(conflicts.no_longer_live, "[]"),
        answering(Committer._to_send, WITH_THE_INPUTS_THAT_ARE_LEFT),
    ],
    without=[answering(Exchange.operation, AS_AN_OVERWRITE)],
    sees=r"other rows: \{'main': \[0, 0, ",
)
def test_rows_of_a_file_that_was_replaced_meanwhile_are_not_there_twice(bench: Bench) -> None:
    filled(bench)
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')")
    bench.compact(paths=bench.inputs, strike=lambda: bench.sql("UPDATE {} SET id = 100 WHERE id = 3"))
    assert_whole(bench.load(), {"main": [*without_ids(3), 100]})


@accident(
    "The table is upgraded to another format while a job runs",
    evidence="iceberg #16146",
    guard="Format version, schema, partition spec and sort order are compared with the plan's before the commit, and the "
    "version again after it: a commit that took ids from rows is rolled back.",
    behind=[answering(conflicts.changed_shape, "None")],
    without=[answering(Committer._is_upgraded, "False")],
    sees="other row ids",
)
def test_rows_keep_the_ids_that_an_upgrade_gave_them_meanwhile(bench: Bench) -> None:
    filled(bench)
    ids: list[str] = []

    def strike() -> None:
        bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
        append(bench, 30, 1)
        ids.extend(bench.rows("_row_id, id"))

    bench.compact(paths=bench.inputs, strike=strike)
    assert bench.rows("_row_id, id") == ids, "other row ids"
    assert_whole(bench.load(), {"main": [*ROWS, 30]})
