"""Questions to the queue: lists with filters and pages, counts, the longest wait, and what a day's budgets are spent on."""

from __future__ import annotations

from typing import Any

import pytest

from neve.scheduling.job import Job, JobState, Spent
from neve.state import StateStore
from neve.state.job_reading import JobFilter, ScopeSpent
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW, decision
from tests.builders.state_databases import POSTGRES

ON_SQLITE = pytest.mark.parametrize("url", ["sqlite", "memory"], indirect=True)
SOON = Spent(bytes=2**33, core_seconds=10.0, money=1.0)


def claimed(store: StateStore, worker: str = "w", now_ms: int = NOW) -> Job:
    job = store.jobs.claim(worker, now_ms=now_ms, claim_ms=MINUTE)
    assert job is not None
    return job


def ended(
    store: StateStore, table: str, *, starts: bool = True, now_ms: int = NOW, actual: Spent | None = None, **values: Any
) -> Job:
    """A job that was decided, claimed, and ended."""
    store.jobs.enqueue([decision(table, **values)], now_ms)
    job = claimed(store, now_ms=now_ms)
    if starts:
        store.jobs.start(job, f"run-{table}", now_ms=now_ms)
    store.jobs.finish(job, state=JobState.DONE, outcome="committed", message="", now_ms=now_ms, actual=actual)
    found = store.jobs.job(job.job_id)
    assert found is not None
    return found


def listed(store: StateStore, **wanted: Any) -> set[str]:
    return {job.table.removeprefix("lake.db.") for job in store.jobs.jobs(JobFilter(**wanted))}


def test_jobs_are_found_by_each_of_their_traits(store: StateStore) -> None:
    done = ended(store, "done", policy="hot", owner="sales")
    store.jobs.enqueue([decision("running", "expire", policy="hot")], NOW)
    claimed(store, "worker-2")
    store.jobs.enqueue([decision("waits", owner="sales"), decision("Waits_2")], NOW)
    assert listed(store) == {"done", "running", "waits", "Waits_2"}
    assert listed(store, states={JobState.DONE, JobState.CLAIMED}) == {"done", "running"}
    assert listed(store, tables="lake.*.waits") == {"waits"}
    assert listed(store, tables="lake.db.Waits?2") == {"Waits_2"}
    assert listed(store, tables="lake.db.waits_") == set()
    assert listed(store, tables="lake.db.%") == set()
    assert listed(store, tables="lake.db.[w]aits") == set()
    assert listed(store, table_uuid="uuid-done") == {"done"}
    assert listed(store, operation="expire") == {"running"}
    assert listed(store, policy="hot", owner="sales") == {"done"}
    assert listed(store, worker="worker-2") == {"running"}
    assert listed(store, run_id="run-done") == {"done"}
    assert done.finished_ms is not None
    assert listed(store, finished_since_ms=done.finished_ms) == {"done"}
    assert listed(store, finished_since_ms=done.finished_ms + 1) == set()


def test_jobs_come_in_pages_the_newest_first(store: StateStore) -> None:
    for number in range(5):
        store.jobs.enqueue([decision(f"{number}-{part}") for part in "ab"], NOW + number)
    pages, after = [], None
    while page := store.jobs.jobs(limit=3, after=after):
        pages.append(page)
        after = page[-1].created_ms, page[-1].job_id
    assert [len(page) for page in pages] == [3, 3, 3, 1]
    found = [job for page in pages for job in page]
    assert len({job.job_id for job in found}) == 10
    assert [job.created_ms for job in found] == sorted((job.created_ms for job in found), reverse=True)


def test_jobs_are_counted_by_state(store: StateStore) -> None:
    ended(store, "a")
    store.jobs.enqueue([decision("b"), decision("c"), decision("d")], NOW)
    claimed(store)
    assert store.jobs.counts() == {
        JobState.WAITING: 2,
        JobState.CLAIMED: 1,
        JobState.DONE: 1,
        JobState.FAILED: 0,
        JobState.CANCELLED: 0,
    }


@ON_SQLITE
def test_the_longest_wait_is_that_of_a_job_that_may_begin(store: StateStore) -> None:
    assert store.jobs.longest_wait_ms(NOW) is None
    store.jobs.enqueue([decision("a", not_before_ms=NOW + DAY)], NOW)
    store.jobs.enqueue([decision("b")], NOW + MINUTE)
    assert store.jobs.longest_wait_ms(NOW + HOUR) == HOUR - MINUTE
    assert store.jobs.longest_wait_ms(NOW) == 0  # a clock that was set back
    assert store.jobs.longest_wait_ms(NOW + DAY) == DAY


def test_a_scope_is_charged_with_what_was_measured_and_else_with_what_was_predicted(store: StateStore) -> None:
    policy: dict[str, Any] = {"policy": "hot", "predicted": SOON}
    since_ms = ended(store, "measured", actual=Spent(bytes=2**40, core_seconds=5.5, money=0.25), **policy).finished_ms or 0
    ended(store, "unmeasured", **policy)
    ended(store, "partly", actual=Spent(money=2.0), **policy)
    ended(store, "unstarted", starts=False, **policy)
    store.jobs.enqueue([decision("running", **policy), decision("unknown", policy="hot")], NOW)
    claimed(store), claimed(store)
    store.jobs.enqueue([decision("waits", **policy)], NOW)
    assert store.jobs.spent_since({"policy hot": since_ms}) == {
        "policy hot": ScopeSpent(
            ended=Spent(bytes=2**40 + 2 * 2**33, core_seconds=25.5, money=3.25), claimed=SOON, waiting=SOON
        )
    }
    found = store.jobs.spent_since({"policy hot": since_ms})["policy hot"]
    assert found.reserved == Spent(bytes=2**40 + 3 * 2**33, core_seconds=35.5, money=4.25)


def test_a_run_counts_for_every_scope_that_it_names_and_for_no_other(store: StateStore) -> None:
    used = Spent(bytes=1, core_seconds=1.0, money=1.0)
    first = ended(store, "a", scopes=("policy hot", "team sales"), actual=used)
    ended(store, "b", policy="cold", owner="sales", actual=used)
    since_ms = first.finished_ms or 0
    found = store.jobs.spent_since(dict.fromkeys(("policy hot", "policy cold", "team sales", "team none"), since_ms))
    assert {scope: spent.ended.bytes for scope, spent in found.items()} == {
        "policy hot": 1,
        "policy cold": 1,
        "team sales": 2,
        "team none": None,
    }


@ON_SQLITE
def test_each_scope_has_a_day_of_its_own_and_a_time_of_a_wrong_clock_is_in_none(store: StateStore) -> None:
    used = Spent(bytes=1)
    for table, now_ms in (("yesterday", NOW - DAY), ("today", NOW), ("wrong", NOW + 365 * DAY)):
        ended(store, table, now_ms=now_ms, policy="hot", owner="sales", actual=used)
    found = store.jobs.spent_since({"policy hot": NOW, "team sales": NOW - DAY})
    assert (found["policy hot"].ended.bytes, found["team sales"].ended.bytes) == (1, 2)


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_amounts_beyond_32_bits_are_added_up_on_postgres(store: StateStore) -> None:
    job = ended(store, "a", policy="hot", actual=Spent(bytes=2**52))
    assert store.jobs.spent_since({"policy hot": job.finished_ms or 0})["policy hot"].ended.bytes == 2**52
