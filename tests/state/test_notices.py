"""Notices: each is sent once, tried again after a failure, given up, and never sent by two processes at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from neve.state import StateStore
from neve.state.notices import HOLD_MS, StoredNotice
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW
from tests.builders.state_databases import POSTGRES

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)


def add(store: StateStore, *names: str, now_ms: int = NOW) -> None:
    for place, name in enumerate(names):
        assert store.notices.add(name, kind="failure", owner="sales", content={"n": place}, now_ms=now_ms + place)


def due(store: StateStore, now_ms: int = NOW, limit: int = 100) -> list[str]:
    return [notice.notice_id for notice in store.notices.due(now_ms, limit)]


def only(store: StateStore) -> StoredNotice:
    (notice,) = store.notices.notices()
    return notice


def test_notices_are_due_immediately_and_the_oldest_comes_first(store: StateStore) -> None:
    add(store, "b", "a", "c")
    first, second = store.notices.due(NOW, 2)
    assert (first.notice_id, second.notice_id) == ("b", "a")
    assert (first.kind, first.owner, first.content, first.attempts) == ("failure", "sales", {"n": 0}, 0)
    assert due(store) == ["c"]
    assert due(store) == []


def test_a_second_notice_of_the_same_name_is_dropped(store: StateStore) -> None:
    add(store, "digest-1")
    assert not store.notices.add("digest-1", kind="digest", owner="", content={}, now_ms=NOW)
    assert only(store).kind == "failure"


def test_a_notice_that_was_sent_never_comes_again(store: StateStore) -> None:
    add(store, "a")
    (notice,) = store.notices.due(NOW)
    store.notices.failed(notice, "status 500", NOW - 1)
    (again,) = store.notices.due(NOW)
    store.notices.sent(again)
    assert due(store, NOW + DAY) == []
    assert (only(store).sent, only(store).next_ms, only(store).trouble) == (True, None, None)
    assert store.notices.notices(unsent=True) == ()


def test_a_failure_is_counted_and_the_notice_comes_again_at_its_time(store: StateStore) -> None:
    add(store, "a")
    (notice,) = store.notices.due(NOW)
    next_ms = store.clock_ms(NOW) + MINUTE
    store.notices.failed(notice, "status 500\0", next_ms)
    assert (only(store).attempts, only(store).trouble, only(store).next_ms) == (1, "status 500", next_ms)
    assert due(store) == []
    store.notices.failed(only(store), "status 500", store.clock_ms(NOW) - 1)
    assert [(one.notice_id, one.attempts) for one in store.notices.due(NOW)] == [("a", 2)]


def test_a_notice_that_is_given_up_never_comes_again_and_is_still_listed(store: StateStore) -> None:
    add(store, "a")
    (notice,) = store.notices.due(NOW)
    store.notices.failed(notice, "status 404", None)
    assert due(store, NOW + DAY) == []
    (left,) = store.notices.notices(unsent=True)
    assert (left.sent, left.attempts, left.next_ms, left.trouble) == (False, 1, None, "status 404")


@ON_SQLITE
def test_a_notice_whose_process_died_is_due_again(store: StateStore) -> None:
    add(store, "a")
    assert due(store) == ["a"]
    assert due(store, NOW + HOLD_MS - 1) == []
    assert due(store, NOW + HOLD_MS) == ["a"]


@ON_SQLITE
def test_a_time_that_a_wrong_clock_wrote_holds_nothing(store: StateStore) -> None:
    add(store, "a")
    assert due(store, NOW + 365 * DAY) == ["a"]
    assert due(store, NOW) == ["a"]


@ON_SQLITE
def test_the_longest_wait_of_a_channel_is_waited(store: StateStore) -> None:
    add(store, "a")
    (notice,) = store.notices.due(NOW)
    store.notices.failed(notice, "status 429", NOW + HOUR)
    assert due(store, NOW + HOUR - 1) == []
    assert due(store, NOW + HOUR) == ["a"]


def test_a_process_that_was_slow_takes_back_neither_a_success_nor_an_attempt(store: StateStore) -> None:
    add(store, "a")
    (slow,) = store.notices.due(NOW)
    store.notices.failed(slow, "first", store.clock_ms(NOW) - 1)
    (quick,) = store.notices.due(NOW)
    store.notices.failed(slow, "late", None)
    assert (only(store).attempts, only(store).trouble) == (1, "first")
    store.notices.sent(quick)
    store.notices.failed(quick, "later", None)
    assert (only(store).sent, only(store).trouble) == (True, None)


def test_old_notices_are_forgotten(store: StateStore) -> None:
    add(store, "a")
    created_ms = only(store).created_ms
    assert store.notices.prune(created_ms) == 0
    assert store.notices.prune(created_ms + 1) == 1
    assert store.notices.notices() == ()


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_processes_one_gets_each_notice(store: StateStore) -> None:
    names = [f"n{number:02}" for number in range(40)]
    add(store, *names)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: due(store, NOW + HOUR, limit=10), range(16)))
    assert sorted(name for part in parts for name in part) == names
