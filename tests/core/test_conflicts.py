"""The verdict on a written group, case by case: what was planned, what is live, and what follows."""

from __future__ import annotations

import pytest

from neve.commit.conflicts import (
    GroupFate,
    LateEquality,
    changed_shape,
    judge,
    keeps_sequence_number,
    late_equality,
    lost_deletes,
    ours_to_drop,
)
from neve.rewrite.live_files import DataFile, DeleteKey, LiveFile

POSITION: DeleteKey = ("/t/pos", 0)
LATE_POSITION: DeleteKey = ("/t/pos-2", 0)
VECTOR: DeleteKey = ("/t/v.puffin", 4)
NEXT_VECTOR: DeleteKey = ("/t/v.puffin", 90)
EQUALITY: DeleteKey = ("/t/eq", 0)
LATE_EQUALITY: DeleteKey = ("/t/eq-2", 0)


def live(path: str, *deletes: DeleteKey) -> LiveFile:
    return LiveFile({"file-path": path}, tuple(described(*key) for key in deletes))


def described(path: str, offset: int) -> DataFile:
    return {"file-path": path, "content-offset": offset, "content": "equality-deletes" if "eq" in path else "position-deletes"}


def verdict(
    planned: list[DeleteKey], now: list[DeleteKey] | None, *, late: LateEquality = LateEquality.STAYS
) -> tuple[GroupFate, str]:
    """On a group of the file /t/a, whose deletes were `planned` and are `now`, and of /t/b, which nobody touched."""
    files = [live("/t/b"), *([live("/t/a", *now)] if now is not None else [])]
    found = judge([live("/t/b"), live("/t/a", *planned)], {f.path: f for f in files}, late_equality=late)
    assert found.touched == (("/t/a",) if found.fate is GroupFate.MOVE else ())
    return found.fate, found.reason


AS_PLANNED = (GroupFate.COMMIT, "every input is live, with the deletes that were applied")
TOUCHED = (GroupFate.MOVE, "deletes of /t/a changed meanwhile")


@pytest.mark.parametrize(
    ("planned", "now", "expected"),
    [
        ([], [], AS_PLANNED),
        ([POSITION, EQUALITY, VECTOR], [VECTOR, EQUALITY, POSITION], AS_PLANNED),
        ([], None, (GroupFate.SUPERSEDED, "1 of 2 inputs are no longer live, such as /t/a")),
        ([], [POSITION], TOUCHED),
        ([POSITION], [POSITION, LATE_POSITION], TOUCHED),
        ([], [VECTOR], TOUCHED),
        ([VECTOR], [NEXT_VECTOR], TOUCHED),  # the new vector of a file takes the place of the old, in the same Puffin file even
        ([POSITION], [], TOUCHED),
        ([POSITION], [LATE_POSITION], TOUCHED),
        ([EQUALITY], [LATE_EQUALITY], TOUCHED),
        ([EQUALITY], [POSITION], TOUCHED),  # converted
        ([EQUALITY], [], TOUCHED),
        ([], [LATE_EQUALITY], AS_PLANNED),
        ([EQUALITY], [EQUALITY, LATE_EQUALITY], AS_PLANNED),
        ([], [LATE_EQUALITY, POSITION], TOUCHED),
    ],
)
def test_deletes_must_be_those_that_were_applied_save_late_equality_deletes(
    planned: list[DeleteKey], now: list[DeleteKey] | None, expected: tuple[GroupFate, str]
) -> None:
    assert verdict(planned, now) == expected


@pytest.mark.parametrize("late", [LateEquality.TOO_OLD, LateEquality.VANISHES])
def test_a_late_equality_delete_that_would_be_lost_costs_the_group(late: LateEquality) -> None:
    assert verdict([], [LATE_EQUALITY], late=late) == (GroupFate.REPLAN, f"{late}: /t/a")
    assert verdict([EQUALITY], [EQUALITY], late=late) == AS_PLANNED


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"/t/eq-2": 9, "/t/c": 9}, LateEquality.STAYS),  # a file of the same commit stays, and is as old as the delete
        ({"/t/eq-2": 9, "/t/c": 3}, LateEquality.STAYS),
        ({"/t/eq-2": 9, "/t/c": 10}, LateEquality.VANISHES),  # only younger files stay
        ({"/t/eq-2": 9, "/t/a": 1}, LateEquality.VANISHES),  # the file that is old is replaced
        ({"/t/eq-2": 5, "/t/c": 1}, LateEquality.TOO_OLD),  # a replace commit gave it a number of the past
        ({"/t/c": 1}, LateEquality.TOO_OLD),  # nobody knows its age
    ],
)
def test_a_late_equality_delete_needs_an_old_file_that_keeps_it_alive(numbers: dict[str, int], expected: LateEquality) -> None:
    now = {"/t/a": live("/t/a", LATE_EQUALITY), "/t/c": live("/t/c")}
    assert late_equality([live("/t/a")], now, plan_number=5, numbers=lambda: numbers) is expected


def test_nobody_asks_for_numbers_where_no_equality_delete_came_late() -> None:
    now = {"/t/a": live("/t/a", EQUALITY, LATE_POSITION)}
    assert late_equality([live("/t/a", EQUALITY)], now, plan_number=5, numbers=dict) is LateEquality.STAYS


@pytest.mark.parametrize(
    ("planned", "now", "others", "expected"),
    [
        ([POSITION], [POSITION], [], {POSITION}),
        ([VECTOR], [NEXT_VECTOR], [], {NEXT_VECTOR}),
        ([POSITION], [POSITION], [POSITION], set()),  # names rows of a file that stays, too
        ([EQUALITY], [EQUALITY], [], {EQUALITY}),
        ([EQUALITY], [EQUALITY], [EQUALITY], set()),
        ([EQUALITY], [EQUALITY, LATE_EQUALITY], [], {EQUALITY}),  # the late one applies to the outputs
        ([], [LATE_POSITION], [], {LATE_POSITION}),
    ],
)
def test_deletes_go_with_the_files_that_they_concern(
    planned: list[DeleteKey], now: list[DeleteKey], others: list[DeleteKey], expected: set[DeleteKey]
) -> None:
    files = {"/t/a": live("/t/a", *now), "/t/c": live("/t/c", *others)}
    assert ours_to_drop([live("/t/a", *planned)], files) == expected


@pytest.mark.parametrize(
    ("planned", "removed", "live", "version", "expected"),
    [
        ("abc", "ab", "abc", 2, True),
        ("abc", "ab", "abc", 3, True),
        ("abc", "ab", "abc", 1, False),
        ("abc", "abc", "abc", 2, False),
        ("abc", "ab", "abd", 2, False),  # the old file left, and a new one does not count
        ("abc", "ab", "abcd", 2, True),
        ("", "", "", 2, False),
    ],
)
def test_outputs_keep_the_plans_number_only_beside_a_file_as_old(
    planned: str, removed: str, live: str, version: int, expected: bool
) -> None:
    assert keeps_sequence_number(planned, removed, live, format_version=version) is expected


def test_deletes_as_old_as_the_plan_may_go_and_newer_ones_may_not() -> None:
    assert lost_deletes({}, 5) == set()
    assert lost_deletes({POSITION: 5, VECTOR: 1}, 5) == set()
    assert lost_deletes({POSITION: 6, LATE_EQUALITY: 9, EQUALITY: 5}, 5) == {POSITION, LATE_EQUALITY}
    assert lost_deletes({NEXT_VECTOR: 6}, 5, {NEXT_VECTOR}) == set()


def test_a_changed_shape_is_told_in_words() -> None:
    planned = {"format version": 2, "schema": 0, "sort order": 0}
    assert changed_shape(planned, dict(planned)) is None
    assert changed_shape(planned, {**planned, "schema": 3}) == "schema 0 became 3"
    assert (
        changed_shape(planned, {"format version": 3, "schema": 0, "sort order": 1})
        == "format version 2 became 3; sort order 0 became 1"
    )
