"""Roles and workers: one holder at a time, whoever asks, and only workers with a heartbeat count as alive."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from neve.state import StateStore
from neve.state.roles import SCHEDULER
from tests.builders.jobs import DAY, ENDED, HOUR, MINUTE, NOW
from tests.builders.state_databases import POSTGRES

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)


def take(store: StateStore, holder: str, hold_ms: int = MINUTE, now_ms: int = NOW) -> bool:
    return store.roles.take(SCHEDULER, holder, now_ms=now_ms, hold_ms=hold_ms)


def renew(store: StateStore, holder: str, hold_ms: int = MINUTE) -> bool:
    return store.roles.renew(SCHEDULER, holder, now_ms=NOW, hold_ms=hold_ms)


def beat(store: StateStore, worker: str, hold_ms: int = MINUTE, **values: object) -> None:
    store.roles.beat(worker, now_ms=NOW, hold_ms=hold_ms, **values)  # type: ignore[arg-type]


def alive(store: StateStore, now_ms: int = NOW) -> list[str]:
    return [worker.worker for worker in store.roles.live_workers(now_ms)]


def test_one_process_has_a_role_and_keeps_it(store: StateStore) -> None:
    assert store.roles.holder(SCHEDULER, NOW) is None
    assert take(store, "one")
    assert not take(store, "two")
    assert take(store, "one")
    assert store.roles.holder(SCHEDULER, NOW) == "one"
    assert store.roles.take("other role", "two", now_ms=NOW, hold_ms=MINUTE)


def test_a_role_that_has_ended_is_taken_and_its_holder_can_no_longer_renew_it(store: StateStore) -> None:
    assert take(store, "one", ENDED)
    assert store.roles.holder(SCHEDULER, NOW) is None
    assert renew(store, "one", ENDED)  # nobody has come
    assert take(store, "two")
    assert not renew(store, "one")
    assert not take(store, "one")
    assert not store.roles.release(SCHEDULER, "one")
    assert store.roles.holder(SCHEDULER, NOW) == "two"


def test_a_role_that_was_released_is_free_immediately(store: StateStore) -> None:
    assert not store.roles.release(SCHEDULER, "one")
    assert take(store, "one")
    assert store.roles.release(SCHEDULER, "one")
    assert store.roles.holder(SCHEDULER, NOW) is None
    assert not renew(store, "one")
    assert take(store, "two")


@ON_SQLITE
def test_a_role_that_a_clock_far_ahead_wrote_is_free(store: StateStore) -> None:
    assert take(store, "one", now_ms=NOW + 365 * DAY)
    assert store.roles.holder(SCHEDULER, NOW) is None
    assert take(store, "two")


@ON_SQLITE
def test_a_role_ends_by_the_callers_clock_on_sqlite_and_after_an_hour_at_most(store: StateStore) -> None:
    assert take(store, "one", hold_ms=DAY)
    assert not take(store, "two", now_ms=NOW + HOUR - 1)
    assert take(store, "two", now_ms=NOW + HOUR)


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_on_postgres_a_process_whose_clock_is_wrong_does_not_take_a_role_that_is_held(store: StateStore) -> None:
    assert take(store, "one")
    assert not take(store, "two", now_ms=0)
    assert not take(store, "two", now_ms=10**15)
    assert store.roles.holder(SCHEDULER, 10**15) == "one"


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_processes_one_gets_a_role(store: StateStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: take(store, f"p{number}"), range(16)))
    assert answers.count(True) == 1
    assert store.roles.holder(SCHEDULER, NOW) == f"p{answers.index(True)}"


def test_a_worker_is_alive_while_its_heartbeat_is_valid(store: StateStore) -> None:
    store.roles.register("a", now_ms=NOW, hold_ms=MINUTE, figures={"jobs": 0})
    beat(store, "b", doing="compact lake.db.a\0")
    beat(store, "c", ENDED)
    assert alive(store) == ["a", "b"]
    first, second = store.roles.live_workers(NOW)
    assert (first.doing, first.figures, second.doing, second.figures) == (None, {"jobs": 0}, "compact lake.db.a", {})
    store.roles.leave("b")
    store.roles.leave("b")
    assert alive(store) == ["a"]


def test_a_heartbeat_changes_what_a_worker_does_and_keeps_its_figures_unless_there_are_new_ones(store: StateStore) -> None:
    store.roles.register("a", now_ms=NOW, hold_ms=MINUTE, figures={"jobs": 1})
    (registered,) = store.roles.live_workers(NOW)
    beat(store, "a", doing="compact lake.db.a")
    (busy,) = store.roles.live_workers(NOW)
    assert (busy.doing, busy.figures, busy.started_ms) == ("compact lake.db.a", {"jobs": 1}, registered.started_ms)
    beat(store, "a", figures={"jobs": 2})
    (idle,) = store.roles.live_workers(NOW)
    assert (idle.doing, idle.figures) == (None, {"jobs": 2})
    store.roles.register("a", now_ms=NOW, hold_ms=MINUTE)
    (again,) = store.roles.live_workers(NOW)
    assert (again.doing, again.figures) == (None, {})


@ON_SQLITE
def test_a_worker_that_is_gone_for_a_day_is_forgotten_and_comes_back_with_its_next_heartbeat(store: StateStore) -> None:
    store.roles.register("a", now_ms=NOW, hold_ms=MINUTE, figures={"jobs": 1})
    store.roles.register("b", now_ms=NOW + MINUTE + DAY, hold_ms=MINUTE)
    assert alive(store) == ["a"]
    store.roles.register("b", now_ms=NOW + MINUTE + DAY + 1, hold_ms=MINUTE)
    assert alive(store) == []
    beat(store, "a")
    assert [(worker.worker, worker.figures) for worker in store.roles.live_workers(NOW)] == [("a", {})]


@ON_SQLITE
def test_a_worker_whose_heartbeat_a_clock_far_ahead_wrote_is_not_alive(store: StateStore) -> None:
    store.roles.register("a", now_ms=NOW + 365 * DAY, hold_ms=MINUTE)
    assert alive(store) == []
