"""Leases on SQLite and on PostgreSQL: one holder at a time, whoever asks, and an earlier holder is told that it lost."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from neve.core.lease import Lease
from neve.state import Run, StateStore
from tests.state.conftest import POSTGRES

MINUTE = 60_000


def take(store: StateStore, run_id: str, *, now_ms: int, table: str = "t", owner: str = "h:1") -> Lease:
    return store.take_lease(table, run_id=run_id, owner=owner, now_ms=now_ms, until_ms=now_ms + MINUTE)


def test_a_free_table_is_taken_and_its_lease_is_seen(store: StateStore) -> None:
    assert store.lease("t") is None
    assert take(store, "a", now_ms=1_760_000_000_000) == Lease("a", "h:1", 1, 1_760_000_060_000)
    assert store.lease("t") == Lease("a", "h:1", 1, 1_760_000_060_000)
    assert store.lease("u") is None
    assert take(store, "b", now_ms=5, table="u") == Lease("b", "h:1", 1, 60_005)


def test_a_held_table_stays_with_its_holder_and_the_other_is_told_who_that_is(store: StateStore) -> None:
    held = take(store, "a", now_ms=1, owner="h:1")
    assert take(store, "b", now_ms=60_000, owner="h:2") == held
    assert store.lease("t") == held


def test_a_lease_that_ended_is_anyones_with_a_higher_token(store: StateStore) -> None:
    take(store, "a", now_ms=1)
    assert take(store, "b", now_ms=60_001, owner="h:2") == Lease("b", "h:2", 2, 120_001)


def test_a_run_takes_its_own_lease_again_and_its_earlier_process_loses_it(store: StateStore) -> None:
    first = take(store, "a", now_ms=1, owner="h:1")
    second = take(store, "a", now_ms=2, owner="h:2")
    assert second == Lease("a", "h:2", 2, 60_002)
    assert store.renew_lease("t", "a", first.token, 99_999) is False
    store.release_lease("t", "a", first.token)
    assert store.lease("t") == second


def test_renewing_moves_the_end_and_nothing_else(store: StateStore) -> None:
    take(store, "a", now_ms=1)
    assert store.renew_lease("t", "a", 1, 90_000) is True
    assert store.lease("t") == Lease("a", "h:1", 1, 90_000)
    assert take(store, "b", now_ms=89_999).run_id == "a"


def test_a_lease_that_ended_is_renewed_unless_somebody_took_it(store: StateStore) -> None:
    take(store, "a", now_ms=1)
    assert store.renew_lease("t", "a", 1, 200_000) is True  # as late as it likes: nobody had come
    took = take(store, "b", now_ms=200_000)
    assert took == Lease("b", "h:1", 2, 260_000)
    assert store.renew_lease("t", "a", 1, 300_000) is False
    assert store.lease("t") == took


def test_what_was_given_back_is_free_at_once_and_its_token_goes_on(store: StateStore) -> None:
    take(store, "a", now_ms=1)
    store.release_lease("t", "a", 1)
    assert store.lease("t") is None
    assert store.renew_lease("t", "a", 1, 99_999) is False
    assert take(store, "b", now_ms=2) == Lease("b", "h:1", 2, 60_002)


def test_giving_back_what_was_never_taken_does_nothing(store: StateStore) -> None:
    store.release_lease("t", "a", 1)
    assert store.lease("t") is None
    assert store.renew_lease("t", "a", 1, 5) is False


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_threads_on_a_new_table_one_wins(store: StateStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: take(store, f"run-{n}", now_ms=1), range(8)))
    assert len(set(answers)) == 1
    assert answers[0].token == 1


TAKER = """
import sys
from neve.state import Output, StateStore

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with StateStore.open(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(count):
        lease = store.take_lease(f"table-{n}", run_id=name, owner=name, now_ms=1, until_ms=2)
        print(n, lease.run_id, lease.token)
        while store.take_lease("turns", run_id=name, owner=name, now_ms=1, until_ms=2).run_id != name:
            pass
        before = store.row_groups("turns").get("file", 0)
        store.add_commit(name, partitions=[], outputs=[Output("file", before + 1, 1, 1)], committed_ms=1)
        store.release_lease("turns", name, store.lease("turns").token)
"""


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_two_processes_one_wins_each_table_and_they_take_turns(url: str) -> None:
    """Each reads a number and writes it back one higher while it holds a lease: none is lost if only one does at a time."""
    names, tables = ("a", "b"), 8
    with StateStore.open(url) as store:
        for name in names:
            store.start_run(Run(name, "turns", "db.turns", "compact", 1))
    command = [sys.executable, "-c", TAKER, url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    takers = [subprocess.Popen([*command, name, str(tables)], text=True, **pipes) for name in names]  # type: ignore[call-overload]
    try:
        for taker in takers:
            assert taker.stdout.readline() == "ready\n"
        for taker in takers:
            taker.stdin.write("go\n")
            taker.stdin.flush()
        told = [taker.communicate(timeout=120) for taker in takers]
    finally:
        for taker in takers:
            taker.kill()
            taker.wait()
    assert [error for _, error in told] == ["", ""]
    assert len(told[0][0].splitlines()) == tables
    assert told[0][0] == told[1][0]  # both were told the same holder and token of every table
    with StateStore.open(url) as store:
        assert store.row_groups("turns") == {"file": 2 * tables}
