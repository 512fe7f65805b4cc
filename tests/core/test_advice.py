"""When a pipeline's question is answered with a look at the files, and what it is told."""

from __future__ import annotations

from typing import Any

import pytest

from neve.policy.model import Policy
from neve.rewrite.advice import advise, between_looks, commits, is_due, not_looked
from neve.rewrite.planner import plan
from neve.table.state import Snapshot, TableState
from tests.builders.files import make_files
from tests.builders.table_states import make_state

NOW = 1000 * 86_400_000


def state(sequence_number: int, *, left: int = 1, **changes: Any) -> TableState:
    """A table after so many commits, of which so many snapshots are left."""
    snapshots = tuple(
        Snapshot(
            snapshot_id=10 - i,
            parent_id=None,
            sequence_number=max(sequence_number - i, 0),
            timestamp_ms=NOW - i * 1000,
            operation="append",
            summary={},
        )
        for i in reversed(range(left))
    )
    return make_state(snapshot_id=10, snapshots=snapshots, refs=(), default_sort_order_id=0, **changes)


@pytest.mark.parametrize(("sequence_number", "every", "due"), [(5, 5, True), (6, 5, False), (10, 5, True), (7, 1, True)])
def test_files_are_looked_at_after_every_so_many_commits(sequence_number: int, every: int, due: bool) -> None:
    assert is_due(state(sequence_number), every) is due


def test_expired_snapshots_do_not_disturb_the_count() -> None:
    assert commits(state(40, left=2)) == commits(state(40, left=7)) == 40


def test_snapshots_are_counted_where_there_are_no_sequence_numbers() -> None:
    assert commits(state(0, left=3)) == 3


def test_a_table_that_was_never_written_is_never_due() -> None:
    empty = make_state(snapshot_id=None, snapshots=(), refs=())
    assert commits(empty) == 0
    assert not is_due(empty, 1)


def test_a_compaction_is_recommended_exactly_if_it_would_do_something() -> None:
    crumbs = state(5, files=make_files([{"path": f"f{i}"} for i in range(20)]))
    told = advise(plan(crumbs, Policy(), now_ms=NOW), 20)
    assert (told.looked, told.compaction_recommended, told.small_files_count) == (True, True, 20)
    assert told.reason == "20 files would become 1"
    lonely = state(5, files=make_files([{"path": "f"}]))
    told = advise(plan(lonely, Policy(), now_ms=NOW), 1)
    assert (told.looked, told.compaction_recommended, told.small_files_count) == (True, False, 1)
    assert told.reason == "no tier is due"
    assert [str(rule) for rule in told.not_due] == ["files below 16 MB: 1, due from 5 (min-input-files), with 4 more files"]


def test_between_two_looks_the_answer_says_how_many_commits_are_missing() -> None:
    rule = between_looks(state(7), 5)
    assert str(rule) == ("commits since the files were last inspected: 2, due from 5 (check-interval), with 3 more commits")
    assert not_looked("db.t", "looked at every 5 commits", rule=rule).not_due == (rule,)


def test_the_cheap_answer_recommends_nothing_and_has_counted_nothing() -> None:
    told = not_looked("db.t", "looked at every 5 commits")
    assert (told.looked, told.compaction_recommended, told.small_files_count, told.error) == (False, False, None, None)
