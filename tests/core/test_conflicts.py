"""The verdict on a written group, case by case: what was planned, what is live, and what follows."""

from __future__ import annotations

import pytest

from neve.core.conflicts import Fate, changed_shape, judge, keeps_sequence_number, lost_deletes
from neve.core.live import DeleteKey, LiveFile

POSITION: DeleteKey = ("/t/pos", 0)
LATE_POSITION: DeleteKey = ("/t/pos-2", 0)
VECTOR: DeleteKey = ("/t/v.puffin", 4)
NEXT_VECTOR: DeleteKey = ("/t/v.puffin", 90)
EQUALITY: DeleteKey = ("/t/eq", 0)
LATE_EQUALITY: DeleteKey = ("/t/eq-2", 0)


def live(path: str, *deletes: DeleteKey) -> LiveFile:
    equality = frozenset(key for key in deletes if "eq" in key[0])
    return LiveFile({"file-path": path}, frozenset(deletes), equality)


def verdict(
    planned: list[DeleteKey], now: list[DeleteKey] | None, *, keeps: bool = True, by_replace: bool = False
) -> tuple[Fate, str]:
    """On a group of the file /t/a, whose deletes were `planned` and are `now`, and of /t/b, which nobody touched."""
    inputs = {"/t/b": frozenset[DeleteKey](), "/t/a": frozenset(planned)}
    files = [live("/t/b"), *([live("/t/a", *now)] if now is not None else [])]
    found = judge(inputs, {f.path: f for f in files}, keeps_sequence_number=keeps, deletes_by_replace=by_replace)
    return found.fate, found.reason


AS_PLANNED = (Fate.COMMIT, "every input is live, with the deletes that were applied")
DELETED = (Fate.REPLAN, "rows of /t/a were deleted meanwhile")
UNDONE = (Fate.REPLAN, "deletes of /t/a were rewritten or undone meanwhile")


@pytest.mark.parametrize(
    ("planned", "now", "expected"),
    [
        ([], [], AS_PLANNED),
        ([POSITION, EQUALITY, VECTOR], [VECTOR, EQUALITY, POSITION], AS_PLANNED),
        ([], None, (Fate.SUPERSEDED, "1 of 2 inputs are no longer live, such as /t/a")),
        ([], [POSITION], DELETED),
        ([POSITION], [POSITION, LATE_POSITION], DELETED),
        ([], [VECTOR], DELETED),
        ([VECTOR], [NEXT_VECTOR], UNDONE),  # the new vector of a file takes the place of the old, in the same Puffin file even
        ([POSITION], [], UNDONE),
        ([POSITION], [LATE_POSITION], UNDONE),
        ([EQUALITY], [LATE_EQUALITY], UNDONE),
        ([EQUALITY], [POSITION], UNDONE),  # converted
        ([EQUALITY], [], UNDONE),
        ([], [LATE_EQUALITY], AS_PLANNED),
        ([EQUALITY], [EQUALITY, LATE_EQUALITY], AS_PLANNED),
        ([], [LATE_EQUALITY, POSITION], DELETED),
    ],
)
def test_deletes_must_be_those_that_were_applied_save_late_equality_deletes(
    planned: list[DeleteKey], now: list[DeleteKey] | None, expected: tuple[Fate, str]
) -> None:
    assert verdict(planned, now) == expected


def test_a_late_equality_delete_needs_an_old_file_that_keeps_it_alive() -> None:
    reason = "a late equality delete applies to /t/a, and no older file would keep it alive"
    assert verdict([], [LATE_EQUALITY], keeps=False) == (Fate.REPLAN, reason)
    assert verdict([EQUALITY], [EQUALITY], keeps=False) == AS_PLANNED


def test_a_late_equality_delete_may_not_be_as_old_as_the_plan() -> None:
    reason = "equality deletes of /t/a were rewritten meanwhile"
    assert verdict([], [LATE_EQUALITY], by_replace=True) == (Fate.REPLAN, reason)
    assert verdict([EQUALITY], [EQUALITY], by_replace=True) == AS_PLANNED


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
    assert lost_deletes({}, 5) is None
    assert lost_deletes({POSITION: 5, VECTOR: 1}, 5) is None
    expected = "it took 2 deletes out of the table that are newer than its plan, such as /t/eq-2"
    assert lost_deletes({POSITION: 6, LATE_EQUALITY: 9, EQUALITY: 5}, 5) == expected


def test_a_changed_shape_is_told_in_words() -> None:
    planned = {"format version": 2, "schema": 0, "sort order": 0}
    assert changed_shape(planned, dict(planned)) is None
    assert changed_shape(planned, {**planned, "schema": 3}) == "schema 0 became 3"
    assert (
        changed_shape(planned, {"format version": 3, "schema": 0, "sort order": 1})
        == "format version 2 became 3; sort order 0 became 1"
    )
