"""Leases on SQLite and on PostgreSQL: one holder at a time, whoever asks, and an earlier holder is told that it lost."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from neve.commit.lease_terms import Lease
from neve.errors import StateError
from neve.state import Run, StateStore, database, leases
from tests.builders.state_databases import POSTGRES

NOW = 1_760_000_000_000
"""By the caller's clock, which counts on SQLite alone: nothing here depends on it."""
MINUTE = 60_000
ENDED = 0
"""The length of a lease that has ended as soon as it is taken."""


def take(
    store: StateStore, run_id: str, *, lease_ms: int = MINUTE, table: str = "t", owner: str = "h:1", gone: int | None = None
) -> Lease:
    return store.take_lease(table, run_id=run_id, owner=owner, now_ms=NOW, lease_ms=lease_ms, gone=gone).lease


def renew(store: StateStore, run_id: str, token: int, lease_ms: int = MINUTE) -> bool:
    return store.renew_lease("t", run_id, token, now_ms=NOW, lease_ms=lease_ms)


def held(lease: Lease) -> tuple[str, str, int]:
    return lease.run_id, lease.owner, lease.token


def test_a_free_table_is_taken_and_its_lease_is_seen(store: StateStore) -> None:
    assert store.lease("t") is None
    taken = take(store, "a")
    assert held(taken) == ("a", "h:1", 1)
    assert store.lease("t") == taken
    assert store.lease("u") is None
    assert held(take(store, "b", table="u")) == ("b", "h:1", 1)


def test_a_held_table_stays_with_its_holder_and_the_other_is_told_who_that_is(store: StateStore) -> None:
    first = take(store, "a", owner="h:1")
    assert take(store, "b", owner="h:2") == first
    assert store.lease("t") == first


def test_a_lease_that_ended_is_anyones_with_a_higher_token_and_the_taker_is_told_whose_it_was(store: StateStore) -> None:
    first = take(store, "a", lease_ms=ENDED)
    taken = store.take_lease("t", run_id="b", owner="h:2", now_ms=NOW, lease_ms=MINUTE)
    assert held(taken.lease) == ("b", "h:2", 2)
    assert taken.before == first


def test_another_process_does_not_take_the_lease_of_the_same_run(store: StateStore) -> None:
    first = take(store, "a", owner="h:1;id=one")
    assert take(store, "a", owner="h:1;id=two") == first
    assert store.lease("t") == first


def test_another_process_takes_the_lease_of_the_same_run_when_it_has_ended_and_the_first_loses_it(store: StateStore) -> None:
    first = take(store, "a", owner="h:1", lease_ms=ENDED)
    second = take(store, "a", owner="h:2")
    assert held(second) == ("a", "h:2", 2)
    assert renew(store, "a", first.token) is False
    store.release_lease("t", "a", first.token)
    assert store.lease("t") == second


def test_a_process_takes_its_own_lease_again(store: StateStore) -> None:
    take(store, "a")
    assert held(take(store, "a")) == ("a", "h:1", 2)


def test_a_lease_whose_process_has_certainly_ended_is_taken_at_its_token_and_no_other(store: StateStore) -> None:
    first = take(store, "a")
    assert take(store, "b", owner="h:2", gone=first.token + 1) == first
    assert held(take(store, "b", owner="h:2", gone=first.token)) == ("b", "h:2", 2)


def test_renewing_moves_the_end_and_nothing_else(store: StateStore) -> None:
    taken = take(store, "a", lease_ms=ENDED)
    assert renew(store, "a", 1) is True
    renewed = store.lease("t")
    assert renewed is not None
    assert held(renewed) == held(taken)
    assert renewed.until_ms >= taken.until_ms + MINUTE
    assert take(store, "b").run_id == "a"


def test_a_lease_that_ended_is_renewed_unless_somebody_took_it(store: StateStore) -> None:
    take(store, "a", lease_ms=ENDED)
    assert renew(store, "a", 1, lease_ms=ENDED) is True  # as late as it likes: nobody had come
    took = take(store, "b")
    assert held(took) == ("b", "h:1", 2)
    assert renew(store, "a", 1) is False
    assert store.lease("t") == took


def test_what_was_given_back_is_free_at_once_and_its_token_goes_on(store: StateStore) -> None:
    take(store, "a")
    store.release_lease("t", "a", 1)
    assert store.lease("t") is None
    assert renew(store, "a", 1) is False
    taken = store.take_lease("t", run_id="b", owner="h:1", now_ms=NOW, lease_ms=MINUTE)
    assert (held(taken.lease), taken.before) == (("b", "h:1", 2), None)


def test_giving_back_what_was_never_taken_does_nothing(store: StateStore) -> None:
    store.release_lease("t", "a", 1)
    assert store.lease("t") is None
    assert renew(store, "a", 1) is False


@pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)
def test_on_sqlite_the_callers_clock_counts(store: StateStore) -> None:
    assert take(store, "a").until_ms == NOW + MINUTE
    late = {"run_id": "b", "owner": "h:2", "lease_ms": MINUTE}
    assert store.take_lease("t", now_ms=NOW + MINUTE - 1, **late).lease.run_id == "a"  # type: ignore[arg-type]
    assert store.take_lease("t", now_ms=NOW + MINUTE, **late).lease.run_id == "b"  # type: ignore[arg-type]


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_on_postgres_a_host_whose_clock_is_wrong_neither_takes_a_valid_lease_nor_misses_an_ended_one(store: StateStore) -> None:
    first = take(store, "a")
    for now_ms in (0, 10**15):
        taken = store.take_lease("t", run_id="b", owner="h:2", now_ms=now_ms, lease_ms=MINUTE)
        assert taken.lease == first
    assert renew(store, "a", 1, lease_ms=ENDED)
    assert held(store.take_lease("t", run_id="b", owner="h:2", now_ms=0, lease_ms=MINUTE).lease) == ("b", "h:2", 2)


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_a_process_that_is_paused_while_it_writes_does_not_hold_up_the_others(
    url: str, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "STALLED_SECONDS", 1)
    engine = database.connect(url, create=True)

    def write_with_a_pause() -> None:
        with ThreadPoolExecutor(1) as others, database.writing(engine) as paused:
            leases._locked_row(paused, "t")
            assert held(others.submit(take, store, "a").result(30)) == ("a", "h:1", 1)
            paused.execute(select(1))

    with pytest.raises(OperationalError, match=r"server closed the connection|idle-in-transaction timeout"):
        write_with_a_pause()
    engine.dispose()


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_whoever_waits_too_long_for_another_is_told(url: str, store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = database.connect(url, create=True)
    with database.writing(engine) as busy:
        leases._locked_row(busy, "t")
        monkeypatch.setattr(database, "BUSY_SECONDS", 1)
        with pytest.raises(StateError, match=r"^Cannot write to state store .*: canceling statement due to lock timeout$"):
            take(store, "a")
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_threads_on_a_new_table_one_wins(store: StateStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: take(store, f"run-{n}", owner=f"h:{n}"), range(8)))
    assert len(set(answers)) == 1
    assert answers[0].token == 1


TAKER = """
import sys
from neve.state import StoredOutput, StateStore

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with StateStore.open(url) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(count):
        lease = store.take_lease(f"table-{n}", run_id=name, owner=name, now_ms=1, lease_ms=60_000).lease
        print(n, lease.run_id, lease.token)
        while store.take_lease("turns", run_id=name, owner=name, now_ms=1, lease_ms=60_000).lease.run_id != name:
            pass
        before = store.row_groups("turns").get("file", 0)
        store.add_commit(name, partitions=[], outputs=[StoredOutput("file", before + 1, 1, 1)], committed_ms=1)
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
