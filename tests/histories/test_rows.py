"""The model of the writers: what is certain, what is open, and what a comparison says."""

from __future__ import annotations

from random import Random

import pytest

from tests.histories.rows import Change, Expected, compare, row
from tests.histories.schedule import WRITES
from tests.histories.writers import Log


def test_a_change_is_applied_as_a_whole() -> None:
    change = Change(5, "cdc", "upsert", {1: (1, 5), 2: (1, None), 3: (None, 5)})
    assert change.applied({1: 1, 2: 1, 9: 4}) == {1: 5, 3: 5, 9: 4}
    assert change.untouched({1: 1, 2: 1, 9: 4}) == {9: 4}


def test_an_acknowledged_change_is_certain_and_its_keys_are_free() -> None:
    expected = Expected()
    expected.begin(Change(1, "cdc", "upsert", {1: (None, 1)}))
    assert (expected.certain, expected.locked) == ({}, {1})
    expected.acknowledge(1)
    assert (expected.certain, expected.locked) == ({1: 1}, set())


@pytest.mark.parametrize(("committed", "certain"), [(True, {1: 1}), (False, {})])
def test_a_change_in_doubt_keeps_its_keys_until_a_check_has_seen_it(committed: bool, certain: dict[int, int]) -> None:
    expected = Expected()
    expected.begin(Change(1, "cdc", "upsert", {1: (None, 1)}))
    expected.doubt(1)
    assert expected.locked == {1}
    found = compare(expected, [row(1, 1)] if committed else [])
    assert (found.wrong, found.committed) == ((), {1: committed})
    expected.settled(1, committed=committed)
    assert (expected.certain, expected.locked) == (certain, set())


def test_a_change_on_a_branch_is_not_expected_on_main() -> None:
    expected = Expected()
    expected.begin(Change(1, "updater", "branch", {1: (None, 1)}, "side"))
    expected.acknowledge(1)
    assert compare(expected, []).wrong == ()
    assert compare(expected, [row(1, 1)]).wrong == ("1 rows are there that no writer left there: 1",)


@pytest.mark.parametrize("writer", WRITES)
def test_writers_choose_only_keys_of_their_own_that_no_open_change_touches(writer: str) -> None:
    log, random, open_keys = Log(), Random(1), set[int]()
    kinds = [kind for kind in WRITES[writer] if kind not in ("tag", "untag", "branch")]
    for step in range(300):
        change = log.draw(writer, random.choice(kinds), random)
        if change is None:
            continue
        assert not change.keys.keys() & open_keys
        assert all(before == log.expected.certain.get(key) for key, (before, _) in change.keys.items())
        assert all(before != after for before, after in change.keys.values())
        log.ended(change, certain=step % 7 != 0)
        open_keys |= set() if step % 7 else change.keys.keys()
    assert len(log.expected.certain) > 50
