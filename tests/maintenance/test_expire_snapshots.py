"""The expiry's stages on a table in memory: every way in which a commit can go wrong, and what is written down then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from neve.commit.marker import PROPERTY, Marker
from neve.errors import (
    BadRequestError,
    CatalogUnreachableError,
    CommitIncidentError,
    LeaseHeldError,
    RunTakenOverError,
    StorageError,
)
from neve.maintenance.quarantine import Candidate, Fate
from neve.maintenance.retention import Keep
from neve.operations.expire_snapshots import ExpiryTerms
from neve.rewrite.record import RunOutcome
from neve.table.properties import LAST_WRITES
from neve.table.state import RUN_ID
from tests.builders.expiry_scenes import DAY, NOW, RULES, UNKNOWN, Bench, Table, snapshot


@pytest.fixture
def bench() -> Bench:
    return Bench()


GONE = ["own-6", "own-8", "own-9", "shared-6", "shared-9"]


def test_what_goes_is_written_down_and_what_any_ref_shares_is_not(bench: Bench) -> None:
    record = bench.expire()
    assert (record.outcome, record.expired, record.snapshots_after) == (RunOutcome.DONE, (6, 8, 9), 2)
    assert (sorted(bench.quarantine.recorded), record.recorded, record.files) == (GONE, 5, {"lost": 5})
    assert record.kept == {Keep.HEAD: 1, Keep.TAG: 1}
    assert bench.begun == [(record.run_id, "v1")]
    assert PROPERTY not in bench.writer.properties()


def test_what_can_be_reclaimed_is_counted_in_a_dry_run_and_in_the_run(bench: Bench) -> None:
    told, record = bench.expire(dry_run=True), bench.expire()
    for found in (told, record):
        assert (found.files, found.size_bytes, found.files_without_size) == ({"lost": 5}, 300, 2)
    sizes = {path: row.size_bytes for path, row in bench.quarantine.files.items()}
    assert sizes == {"own-6": 100, "own-8": 100, "own-9": 100, "shared-6": None, "shared-9": None}


def test_a_second_run_has_nothing_to_do_and_begins_nothing(bench: Bench) -> None:
    bench.expire()
    record = bench.expire()
    assert (record.outcome, record.reason) == (RunOutcome.NOTHING_TO_DO, "every snapshot is kept")
    assert [str(rule) for rule in record.not_due] == [
        "snapshots kept: 1 head of a branch, 1 tag, due once commits are added, or what keeps them ends"
    ]
    assert (len(bench.begun), record.run_id) == (1, None)


def test_a_dry_run_tells_files_and_touches_nothing(bench: Bench) -> None:
    record = bench.expire(dry_run=True, tools={"quarantine": None})
    assert (record.dry_run, record.expired, list(record.listed)) == (True, (6, 8, 9), GONE)
    assert (bench.table.commits, bench.begun, bench.quarantine.files, record.run_id) == (0, [], {}, None)


def test_metadata_alone_leaves_files_unnamed(bench: Bench) -> None:
    record = bench.expire(metadata_only=True)
    assert (record.expired, record.metadata_only, bench.quarantine.files) == ((6, 8, 9), "as was asked for", {})


@pytest.mark.parametrize("value", ["FALSE", "no"])
def test_a_table_without_garbage_collection_is_left_its_files(bench: Bench, value: str) -> None:
    bench.table.properties["gc.enabled"] = value
    record = bench.expire()
    assert (record.outcome, record.expired, bench.quarantine.files) == (RunOutcome.DONE, (6, 8, 9), {})


def test_a_change_in_between_is_planned_anew(bench: Bench) -> None:
    bench.table.strikes = [lambda: bench.table.tag("late", 8)]
    record = bench.expire()
    assert (record.outcome, record.expired, record.kept) == (RunOutcome.DONE, (6, 9), {Keep.HEAD: 1, Keep.TAG: 2})
    assert (bench.table.commits, len(bench.waits)) == (2, 1)
    assert not {path for path in bench.quarantine.recorded if path.endswith("-8")}


def test_a_retention_that_was_changed_before_the_lease_counts(bench: Bench) -> None:
    """Somebody set a longer one while Spark was starting."""
    longer = ExpiryTerms(replace(RULES, keep_ms=1_000 * DAY))
    record = bench.expire(terms_again=lambda: longer)
    assert (record.outcome, record.expired, bench.table.commits) == (RunOutcome.NOTHING_TO_DO, (), 0)


def test_a_table_that_changes_each_time_is_left_as_it_is(bench: Bench) -> None:
    bench.table.strikes = [lambda i=i: bench.table.tag(f"late{i}", 8) for i in range(9)]  # type: ignore[misc]
    record = bench.expire()
    assert (record.outcome, record.expired) == (RunOutcome.FAILED, ())
    assert record.reason == "another writer changed the table at the same moment"
    assert (bench.table.commits, bench.quarantine.files) == (5, {})


@pytest.mark.parametrize("answers", [["lost"], ["unsent"], ["unsent", "lost"]])
def test_an_answer_that_is_lost_is_settled_by_looking(bench: Bench, answers: list[str | Exception]) -> None:
    bench.table.answers = answers
    record = bench.expire(replace(RULES, limit=2))
    assert (record.outcome, record.expired, sorted(bench.table.snapshots)) == (RunOutcome.DONE, (6, 8), [7, 9, 10])
    assert sorted(bench.quarantine.recorded) == ["own-6", "own-8", "shared-6"]


def test_what_never_lands_fails_and_names_no_file(bench: Bench) -> None:
    bench.table.answers = ["unsent"] * 5
    record = bench.expire()
    assert (record.outcome, record.expired, record.reason) == (RunOutcome.FAILED, (), str(UNKNOWN))
    assert bench.quarantine.files == {}


def test_a_catalog_that_is_away_for_a_moment_is_asked_again(bench: Bench) -> None:
    away = CatalogUnreachableError("Cannot read the table's history: 503")
    bench.table.strikes = [lambda: bench.table.answers.extend(["unsent", away])]
    record = bench.expire()
    assert (record.outcome, record.expired) == (RunOutcome.DONE, (6, 8, 9))


def test_files_are_not_named_when_a_ref_went_meanwhile(bench: Bench) -> None:
    bench.table.strikes = [lambda: bench.table.drop("v1")]
    record = bench.expire()
    assert (record.outcome, record.reason) == (
        RunOutcome.PARTLY_DONE,
        "v1 went meanwhile, so files are left for orphan removal",
    )
    assert (record.expired, bench.quarantine.files) == ((6, 8, 9), {})


def test_a_person_must_look_when_main_is_gone(bench: Bench) -> None:
    bench.table.strikes = [lambda: bench.table.drop("main")]
    with pytest.raises(CommitIncidentError, match=r"Cannot stand by the expiry of c\.db\.t: branch main is gone") as raised:
        bench.expire()
    assert raised.value.hint == "Set it again: the table was at snapshot 10 in v1. No file was touched."
    assert bench.quarantine.files == {}


def test_a_run_that_was_killed_before_it_wrote_files_down_is_gone_on_with(bench: Bench) -> None:
    class Killed(BaseException):
        pass

    def kill(_: str) -> Iterator[Candidate]:
        raise Killed

    before, bench.table.lost_since = bench.table.lost_since, kill  # type: ignore[assignment,method-assign]
    with pytest.raises(Killed):
        bench.expire()
    assert (sorted(bench.table.snapshots), bench.quarantine.files) == ([7, 10], {})
    bench.table.lost_since = before  # type: ignore[method-assign]
    bench.table.snapshots[5] = snapshot(5)  # which the killed run did not know of
    record = bench.expire(tools={"killed": lambda: [{"metadata_before": location} for _, location in bench.begun]})
    assert (record.outcome, record.expired, record.recorded) == (RunOutcome.DONE, (5,), 7)
    assert sorted(bench.quarantine.recorded) == sorted([*GONE, "own-5", "shared-5"])


def test_versions_that_cannot_be_read_any_more_are_told(bench: Bench) -> None:
    record = bench.expire(tools={"killed": lambda: [{"metadata_before": "v0"}]})
    assert (record.outcome, sorted(bench.quarantine.recorded)) == (RunOutcome.PARTLY_DONE, GONE)
    why = "what v0 named could not be found out, and is left for orphan removal: Cannot read v0: it is gone"
    assert record.reason == why


def test_a_version_whose_manifests_went_meanwhile_does_not_stop_every_later_expiry(bench: Bench) -> None:
    """As when the files of a killed expiry were found as orphans and purged before the next one looked for them."""

    def lost_since(location: str) -> Iterator[Candidate]:
        if location == "v0":
            yield Candidate(path="read before the fault", reason="lost")
            raise StorageError("Cannot find what nothing needs any more: snap-6.avro is not there")
        yield from known(location)

    known, bench.table.lost_since = bench.table.lost_since, lost_since  # type: ignore[assignment,method-assign]
    record = bench.expire(tools={"killed": lambda: [{"metadata_before": "v0"}]})
    assert (record.outcome, sorted(bench.quarantine.recorded)) == (RunOutcome.PARTLY_DONE, GONE)
    assert record.files == {"lost": len(GONE)}
    assert str(record.reason).endswith(
        "left for orphan removal: Cannot find what nothing needs any more: snap-6.avro is not there"
    )


def test_a_file_in_use_again_is_struck_off(bench: Bench) -> None:
    bench.table.used_again = {"own-8"}
    record = bench.expire()
    assert (record.recorded, record.reason) == (4, "1 file came into use again meanwhile and stay")
    assert bench.quarantine.files["own-8"].fate is Fate.NEEDED


def test_pinned_snapshots_stay_and_what_comes_after_them(bench: Bench) -> None:
    record = bench.expire(tools={"pins": {8: "run 3f9c was planned from it"}})
    assert (record.expired, record.kept) == ((6,), {Keep.HEAD: 1, Keep.TAG: 1, Keep.RUN: 2})


def test_the_log_of_metadata_is_set_in_the_same_commit(bench: Bench) -> None:
    record = bench.expire(metadata_keep=20)
    assert (record.metadata_keep, bench.table.commits) == (20, 1)
    assert bench.table.properties == {"write.metadata.previous-versions-max": "20"}
    assert bench.expire(metadata_keep=20).outcome is RunOutcome.NOTHING_TO_DO


def test_ids_are_refused_that_are_held_or_not_there(bench: Bench) -> None:
    with pytest.raises(BadRequestError, match=r"Cannot expire snapshot 7 of c\.db\.t: tag v1"):
        bench.expire(snapshots=(6, 7))
    with pytest.raises(BadRequestError, match=r"Cannot expire snapshot 1, 2 of c\.db\.t: there is no such"):
        bench.expire(snapshots=(1, 6, 2))
    assert bench.table.commits == 0
    assert bench.expire(snapshots=(9,)).expired == (9,)


def test_a_table_that_another_run_holds_is_left_alone(bench: Bench) -> None:
    other = Marker(run_id="other", owner="elsewhere:1", until_ms=NOW + DAY)
    bench.writer.table.properties[PROPERTY] = other.text
    with pytest.raises(LeaseHeldError, match=r"Cannot take c\.db\.t: run other"):
        bench.expire()
    assert bench.table.commits == 0


def test_an_expiry_under_the_lease_of_a_caller_takes_none_and_asks_whether_that_is_held(bench: Bench) -> None:
    marker = Marker(run_id="compaction", owner="here:1", until_ms=NOW + DAY).text
    bench.writer.table.properties[PROPERTY] = marker
    asked: list[str] = []
    record = bench.expire(assert_held=lambda: asked.append(bench.writer.table.properties[PROPERTY]))
    assert (record.outcome, record.expired) == (RunOutcome.DONE, (6, 8, 9))
    assert asked == [marker, marker]  # before the commit, and before files are recorded
    assert bench.writer.table.properties[PROPERTY] == marker


def test_a_run_that_lost_its_lease_commits_nothing_more(bench: Bench) -> None:
    other = Marker(run_id="other", owner="elsewhere:1", until_ms=NOW + DAY)

    def take_over() -> None:
        bench.table.tag("late", 8)
        bench.writer.table.properties[PROPERTY] = other.text

    bench.table.strikes = [take_over]
    with pytest.raises(RunTakenOverError, match=r"over c\.db\.t: run other \(elsewhere:1\) has taken the table over$"):
        bench.expire()
    assert (sorted(bench.table.snapshots), bench.quarantine.files) == ([6, 7, 8, 9, 10], {})


def _head_is_ours(table: Table) -> None:
    """The newest write is snapshot 9; what came after it is a compaction of ours."""
    table.snapshots[10] = table.snapshots[10].model_copy(update={"operation": "replace", "summary": {RUN_ID: "r"}})


def test_the_last_write_is_written_into_the_table_by_the_commit_that_removes_its_snapshot(bench: Bench) -> None:
    _head_is_ours(bench.table)
    written = bench.table.snapshots[9].timestamp_ms
    assert bench.expire().expired == (6, 8, 9)
    assert bench.table.properties == {LAST_WRITES: f'{{"10": {written}}}'}
    assert bench.table.commits == 1
    assert bench.expire().outcome is RunOutcome.NOTHING_TO_DO


def test_a_last_write_of_which_no_answer_came_is_there_if_the_snapshots_are_gone(bench: Bench) -> None:
    _head_is_ours(bench.table)
    bench.table.answers = ["unsent", "lost"]
    assert bench.expire().expired == (6, 8, 9)
    assert list(bench.table.properties) == [LAST_WRITES]


def test_a_dry_run_writes_no_last_write(bench: Bench) -> None:
    _head_is_ours(bench.table)
    bench.expire(dry_run=True)
    assert bench.table.properties == {}
