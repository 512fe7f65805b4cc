"""From metadata files to observations: totals, and what others committed in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neve.errors import CorruptMetadataError, NotUnderstoodError
from neve.scheduling.observation import Counters, Observation
from neve.scheduling.table_metadata import observation_of, uuid_of
from tests.builders.metadata_history import FILE_BYTES, MetadataHistory
from tests.builders.scheduling import HOUR, MINUTE, NOW, inspected

TABLE = "lake.sales.orders"


def observed(
    history: MetadataHistory, before: Observation | None = None, *, table: str = TABLE, location: str = "m1", now_ms: int = 0
) -> Observation:
    return observation_of(table, history.copy(), location, before=before, now_ms=now_ms or history.now_ms)


def test_a_table_is_observed_by_its_current_snapshot() -> None:
    history = MetadataHistory()
    history.append(3)
    own = history.compact()
    history.append(2)
    found = observed(history)
    assert (found.table, found.uuid, found.metadata_location, found.observed_ms) == (TABLE, "u", "m1", history.now_ms)
    assert (found.snapshot_id, found.sequence_number, found.own_snapshot_id) == (3, 3, own)
    assert (found.data_files, found.total_bytes, found.delete_files) == (3, 3 * FILE_BYTES, 0)
    assert (found.last_write_ms, found.counters) == (history.now_ms, Counters())


def test_a_table_without_snapshots_has_no_files() -> None:
    found = observed(MetadataHistory())
    assert (found.snapshot_id, found.data_files, found.total_bytes, found.last_write_ms, found.log_ms) == (None, 0, 0, None, 0)


def test_totals_that_the_summary_lacks_are_unknown() -> None:
    history = MetadataHistory()
    history.append(1)
    del history.document["snapshots"][0]["summary"]["total-data-files"]
    history.document["snapshots"][0]["summary"]["total-files-size"] = "-5"
    found = observed(history)
    assert (found.data_files, found.total_bytes, found.delete_files) == (None, None, 0)
    del history.document["snapshots"][0]["summary"]
    assert observed(history).data_files is None


def test_commits_of_others_are_counted_from_the_first_observation() -> None:
    history = MetadataHistory()
    history.append(5)
    before = observed(history)
    history.append(2)
    history.compact()
    history.append(1)
    found = observed(history, before)
    assert found.counters == Counters(commits=2, bytes_added=3 * FILE_BYTES, files_added=3)
    assert observed(history, found).counters == found.counters


def test_compactions_of_other_tools_are_no_writes_but_the_time_of_the_last_commit() -> None:
    history = MetadataHistory()
    history.append(5)
    before = observed(history)
    history.compact(neve=False)
    found = observed(history, before)
    assert (found.counters, found.last_write_ms, found.own_snapshot_id) == (Counters(), history.now_ms, None)


def test_neves_own_commits_leave_the_time_of_the_last_write() -> None:
    history = MetadataHistory()
    history.append(5)
    before = observed(history)
    own = history.compact()
    found = observed(history, before)
    assert (found.last_write_ms, found.own_snapshot_id) == (before.last_write_ms, own)
    assert observed(history).last_write_ms == before.last_write_ms


def test_a_write_in_the_future_counts_as_now() -> None:
    history = MetadataHistory()
    history.append(1)
    assert observed(history, now_ms=NOW - HOUR).last_write_ms == NOW - HOUR
    before = observed(history, now_ms=NOW - HOUR)
    history.append(1)
    assert observed(history, before, now_ms=NOW - MINUTE).last_write_ms == NOW - MINUTE


def test_a_snapshot_of_another_branch_counts_when_it_is_published() -> None:
    history = MetadataHistory()
    history.append(1)
    staged = history.stage(4)
    before = observed(history)
    assert before.counters == Counters()
    history.publish(staged)
    assert observed(history, before).counters == Counters(commits=1, bytes_added=4 * FILE_BYTES, files_added=4)


def test_a_rollback_takes_nothing_back_and_adds_nothing() -> None:
    history = MetadataHistory()
    first = history.append(1)
    before = observed(history)
    history.append(2)
    middle = observed(history, before)
    history.move(first)
    rolled_back = observed(history, middle)
    assert rolled_back.counters == middle.counters == Counters(commits=1, bytes_added=2 * FILE_BYTES, files_added=2)
    history.append(1)
    assert observed(history, rolled_back).counters.commits == 2


def test_a_write_that_was_rolled_back_between_two_observations_counts() -> None:
    history = MetadataHistory()
    first = history.append(1)
    before = observed(history)
    history.append(2)
    history.move(first)
    assert observed(history, before).counters.commits == 1


def test_commits_that_were_expired_unseen_are_known_by_their_numbers() -> None:
    history = MetadataHistory()
    history.append(5)
    before = observed(history)
    lost = [history.append(2) for _ in range(3)]
    history.append(1)
    history.expire(1, *lost)
    found = observed(history, before)
    assert (
        found.counters
        == Counters(commits=4, bytes_added=7 * FILE_BYTES, files_added=7)
        == history.truth.model_copy(update={"commits": 4, "bytes_added": 7 * FILE_BYTES, "files_added": 7})
    )


def test_if_all_that_others_did_was_expired_the_last_write_is_taken_for_late() -> None:
    history = MetadataHistory()
    history.append(5)
    before = observed(history)
    lost = history.append(2)
    history.compact()
    history.expire(1, lost)
    found = observed(history, before)
    assert (found.counters.commits, found.last_write_ms) == (1, history.now_ms)


def test_format_v1_counts_one_commit_for_all_that_were_expired() -> None:
    history = MetadataHistory(version=1)
    history.append(5)
    before = observed(history)
    lost = [history.append(2) for _ in range(3)]
    history.append(1)
    history.expire(1, *lost)
    found = observed(history, before)
    assert (found.sequence_number, found.counters.commits) == (0, 2)
    assert found.counters.files_added == 7


def test_a_table_that_was_registered_again_from_an_older_file_counts_only_what_is_new() -> None:
    history = MetadataHistory()
    history.append(5)
    older = history.copy()
    history.append(2)
    before = observed(history)
    history.document = older
    registered = observed(history, before, location="m0")
    assert (registered.counters, registered.snapshot_id) == (before.counters, 1)
    history.append(3)
    assert observed(history, registered).counters == Counters(commits=1, bytes_added=3 * FILE_BYTES, files_added=3)


def test_a_table_under_a_new_name_keeps_its_counters_hints_and_inspection() -> None:
    history = MetadataHistory()
    history.append(1)
    before = observed(history).model_copy(update={"hinted_ms": NOW, "inspected": inspected(), "counters": Counters(commits=7)})
    history.append(1)
    found = observed(history, before, table="lake.sales.purchases")
    assert (found.table, found.counters.commits, found.hinted_ms, found.inspected) == (
        "lake.sales.purchases",
        8,
        NOW,
        before.inspected,
    )


def test_another_table_under_the_same_name_starts_from_scratch() -> None:
    history = MetadataHistory()
    history.append(1)
    before = observed(history).model_copy(update={"counters": Counters(commits=7), "hinted_ms": NOW})
    other = MetadataHistory(uuid="another")
    other.append(2)
    found = observed(other, before)
    assert (found.uuid, found.counters, found.hinted_ms, found.inspected) == ("another", Counters(), None, None)


def test_a_table_of_format_v1_without_a_uuid_is_identified_by_where_its_metadata_is() -> None:
    history = MetadataHistory(version=1, uuid=None)
    assert observed(history, location="m1").uuid == uuid_of({}, "m1") != uuid_of({}, "m2")
    assert uuid_of({"table-uuid": "u"}, "m1") == "u"


@pytest.mark.parametrize(
    "damage",
    [
        {"format-version": None},
        {"format-version": "2"},
        {"current-snapshot-id": 99},
        {"snapshots": 5},
        {"snapshots": [{}]},
        {"snapshot-log": [{}]},
        {"properties": 5},
    ],
)
def test_a_malformed_file_is_reported_with_its_place(damage: Any) -> None:
    history = MetadataHistory()
    history.append(1)
    history.document |= damage
    with pytest.raises(
        CorruptMetadataError, match=r"^Cannot observe table lake.sales.orders: its metadata file m1 is malformed"
    ):
        observed(history)


def test_a_newer_format_is_not_taken_for_damage() -> None:
    history = MetadataHistory()
    history.document["format-version"] = 9
    with pytest.raises(NotUnderstoodError, match="format version 9 is newer than this Neve"):
        observed(history)


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(
            st.sampled_from(["compact", "other tool", "stage", "publish", "roll back", "observe", "expire"]), st.integers(0, 9)
        ),
    ),
    max_size=30,
)


def apply(history: MetadataHistory, action: str, number: int) -> None:
    """Carries one action out, if it is possible now."""
    snapshots = [one["snapshot-id"] for one in history.document["snapshots"]]
    of_main = [one["snapshot-id"] for one in history.document["snapshot-log"]]
    if action == "append":
        history.append(number)
    elif action in ("compact", "other tool") and history.head is not None:
        history.compact(neve=action == "compact")
    elif action == "stage":
        history.stage(number)
    elif action == "roll back" and of_main:
        history.move(of_main[number % len(of_main)])
    elif action == "expire":
        history.expire(*[one for one in snapshots if one != history.head][: 1 + number])


@settings(deadline=None, max_examples=6000)
@given(st.sampled_from([1, 2, 3]), actions)
def test_without_expiry_every_commit_of_others_counts_once(version: int, steps: list[tuple[str, int]]) -> None:
    history = MetadataHistory(version=version)
    seen = observed(history)
    staged: list[int] = []
    for action, number in steps:
        if action == "stage":
            staged.append(history.stage(number))
        elif action == "publish" and staged and history.head is not None:
            _publish_next(history, staged.pop())
        elif action == "observe":
            seen = observed(history, seen)
        elif action not in ("publish", "expire"):
            apply(history, action, number)
    seen = observed(history, seen)
    assert seen.counters == history.truth


def _publish_next(history: MetadataHistory, staged: int) -> None:
    """Publishes a snapshot if it is a child of the present head, so that nothing else becomes part of main with it."""
    found = next(one for one in history.document["snapshots"] if one["snapshot-id"] == staged)
    if found.get("parent-snapshot-id") == history.head:
        history.publish(staged)


@settings(deadline=None, max_examples=6000)
@given(actions)
@example([("append", 1), ("append", 1), ("roll back", 0), ("append", 1), ("expire", 0)])
@example(
    [
        *[("append", 1), ("append", 1), ("observe", 0), ("roll back", 0)],
        *[("append", 1), ("append", 1), ("roll back", 0), ("append", 1), ("expire", 0)],
    ]
)
@example([("append", 1), ("append", 1), ("append", 1), ("observe", 0), ("roll back", 0), ("expire", 0)])
def test_with_expiry_no_commit_of_others_is_missed_and_the_excess_has_a_bound(steps: list[tuple[str, int]]) -> None:
    """A commit that was observed, rolled back and expired may count once more: an operation is due that much earlier."""
    history = MetadataHistory(version=2)
    seen, others, rolled_back = observed(history), 0, 0
    for action, number in steps:
        if action == "observe":
            seen = observed(history, seen)
        elif action != "publish":
            others += action in ("compact", "other tool", "stage")
            rolled_back += action == "roll back"
            apply(history, action, number)
    seen = observed(history, seen)
    assert history.truth.commits <= seen.counters.commits <= history.truth.commits + others + rolled_back
    assert seen.counters.commits <= history.document["last-sequence-number"] + rolled_back


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([1, 2]), actions)
def test_counters_only_grow_and_an_observation_twice_changes_nothing(version: int, steps: list[tuple[str, int]]) -> None:
    history = MetadataHistory(version=version)
    seen = observed(history)
    for action, number in steps:
        apply(history, action, number)
        found = observed(history, seen)
        assert found.counters.commits >= seen.counters.commits
        assert found.counters.bytes_added >= seen.counters.bytes_added
        assert observed(history, found).counters == found.counters
        seen = found
