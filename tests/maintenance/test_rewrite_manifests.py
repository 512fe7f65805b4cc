"""A rewrite of manifests against a table that moves: what is committed, what is written again, what is left and recorded."""

from __future__ import annotations

from itertools import product

import pytest

from neve.errors import CommitIncidentError, LeaseHeldError, VerificationError
from neve.maintenance.manifests import ORDER
from neve.operations.rewrite_manifests import preview, rewrite_manifests
from neve.rewrite.record import RunOutcome
from tests.builders.fake_maintenance_tables import Answer, FakeTable
from tests.builders.manifest_scenes import POLICY, REQUEST, many_manifests, rewrite


def listed(table: FakeTable) -> set[str]:
    return set(table.versions[-1].manifests)


def test_the_snapshot_says_who_made_it_and_in_which_order() -> None:
    table = many_manifests()
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, record.snapshots, record.snapshot_before) == (RunOutcome.DONE, (6,), 5)
    assert (record.manifests_replaced, record.manifests_written, listed(table)) == (5, 1, {"new0"})
    summary = table.versions[-1].snapshot.summary
    assert (summary["neve.run-id"], summary[ORDER]) == (record.run_id, "day")
    assert [doomed.path for doomed in table.doomed] == ["list0"]
    assert record.set_aside == 1
    assert "neve.lease" not in table.properties_


def test_what_is_foretold_changes_nothing() -> None:
    table = many_manifests()
    record = preview(table.context(POLICY), REQUEST)
    assert (record.dry_run, record.outcome, record.manifests_replaced, record.manifests_written) == (
        True,
        RunOutcome.DONE,
        5,
        1,
    )
    assert (len(table.versions), table.on_disk, table.properties_) == (5, set(), {})


def test_nothing_is_written_where_it_is_not_worth_it() -> None:
    table = many_manifests(commits=3)
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, record.leaves_traces, table.on_disk) == (RunOutcome.NOTHING_TO_DO, False, set())


@pytest.mark.parametrize("answers", list(product(Answer, repeat=2)))
def test_however_commits_are_answered_exactly_one_lands_and_its_files_are_not_recorded(answers: tuple[Answer, Answer]) -> None:
    table = many_manifests()
    table.answers = list(answers)
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, record.snapshots, listed(table)) == (RunOutcome.DONE, (6,), {"new0"})
    assert [doomed.path for doomed in table.doomed] == ["list0"]


def test_a_commit_that_is_refused_for_good_leaves_the_table_and_records_the_files() -> None:
    table = many_manifests()
    table.answers = [Answer.REFUSED] * 9
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, record.reason) == (RunOutcome.FAILED, "Cannot commit the rewrite: refused")
    assert len(table.versions) == 5
    assert {doomed.path for doomed in table.doomed} == {"new0", "list0"}
    assert record.set_aside == 2


def test_files_of_a_commit_that_may_still_land_are_not_recorded() -> None:
    table = many_manifests()
    table.answers = [Answer.SILENT] * 9
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert record.outcome is RunOutcome.FAILED
    assert [doomed.path for doomed in table.doomed] == ["list0"]


def test_appends_meanwhile_are_kept_and_nothing_is_written_again() -> None:
    table = many_manifests()
    table.before_commit = [table.append, table.append]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, table.sent) == (RunOutcome.DONE, 3)
    assert listed(table) == {"new0", "m6", "m7"}


def test_manifests_that_others_replace_meanwhile_are_planned_and_written_again() -> None:
    table = many_manifests()

    def replaced() -> None:
        table.commit_list({"theirs": None}, "replace", {})
        for _ in range(5):
            table.append()

    table.before_commit = [replaced]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, table.sent, len(listed(table))) == (RunOutcome.DONE, 2, 1)
    assert {doomed.path for doomed in table.doomed} == {"new0", "list0", "list2"}


def test_where_others_have_done_it_nothing_is_left_to_do() -> None:
    table = many_manifests()
    table.before_commit = [lambda: table.commit_list({"theirs": None}, "replace", {})]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, listed(table)) == (RunOutcome.NOTHING_TO_DO, {"theirs"})
    assert {doomed.path for doomed in table.doomed} == {"new0", "list0"}
    assert (record.set_aside, record.leaves_traces) == (2, True)


def test_where_others_have_done_it_before_anything_was_written_nothing_is_committed() -> None:
    table = many_manifests()
    table.before_write = [lambda: table.commit_list({"theirs": None}, "replace", {})]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, table.sent, listed(table)) == (RunOutcome.NOTHING_TO_DO, 0, {"theirs"})


def upgrade(table: FakeTable) -> None:
    table.format_version = 3
    table.append()


def test_row_ids_that_were_given_meanwhile_make_it_write_again() -> None:
    table = many_manifests(2)
    table.format_version = 3  # no commit yet: no row has an id
    table.before_commit = [table.append]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert (record.outcome, table.sent) == (RunOutcome.DONE, 2)
    assert "new0" not in listed(table)


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_that_iceberg_moved_past_an_upgrade_is_taken_back(version: int) -> None:
    table = many_manifests(2)
    table.format_version, table.retries = version, True
    table.before_commit = [lambda: upgrade(table)]
    record = rewrite_manifests(table.context(POLICY), table, REQUEST)
    assert record.outcome is RunOutcome.FAILED
    why = (
        "the table's format version was changed meanwhile"
        if version == 2
        else "rows in these manifests were given their ids meanwhile"
    )
    assert record.reason == f"snapshot 7 was taken back, for {why}"
    assert listed(table) == {f"m{i}" for i in range(1, 7)}


def test_a_commit_that_cannot_be_taken_back_is_an_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    table = many_manifests(2)
    table.format_version, table.retries = 3, True
    table.before_commit = [table.append]
    monkeypatch.setattr(table, "roll_back", lambda *_: False, raising=False)
    with pytest.raises(CommitIncidentError, match="Cannot confirm snapshot 7"):
        rewrite(table)


def test_manifests_that_do_not_hold_the_same_are_recorded_and_never_committed() -> None:
    table = many_manifests()
    table.wrong_entries = True
    with pytest.raises(VerificationError, match=r"Cannot commit manifests of c\.db\.t: they hold 4 files where 5 were"):
        rewrite(table)
    assert (table.sent, len(table.versions)) == (0, 5)
    assert {doomed.path for doomed in table.doomed} == {"new0", "list0"}
    assert "neve.lease" not in table.properties_


def test_a_table_that_another_run_holds_is_left_alone() -> None:
    from neve.commit.marker import PROPERTY, Marker

    table = many_manifests()
    table.properties_[PROPERTY] = Marker(run_id="other", owner="elsewhere:1", until_ms=table.clock.now + 10**9).text
    with pytest.raises(LeaseHeldError, match=r"Cannot take c\.db\.t: run other"):
        rewrite(table)
    assert table.on_disk == set()
