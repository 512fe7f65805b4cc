"""What the end of a job writes besides the job: the operation's last run with its failures and pause, and notices."""

from __future__ import annotations

from typing import Any

import pytest

from neve.errors import StateError
from neve.scheduling.job import Job, JobState
from neve.scheduling.observation import Counters, LastRun
from neve.state import StateStore, job_queue
from neve.state.notices import NewNotice
from tests.builders.jobs import DAY, ENDED, HOUR, MINUTE, NOW, counters, decision


def run(store: StateStore, state: JobState, *, commits: int = 0, operation: str = "compact", **values: Any) -> Job:
    """A job from the decision to its end."""
    store.jobs.enqueue([decision(operation=operation)], NOW)
    job = begun(store, commits=commits)
    assert end(store, job, state, **values)
    found = store.jobs.job(job.job_id)
    assert found is not None
    return found


def begun(store: StateStore, *, commits: int = 0, claim_ms: int = MINUTE) -> Job:
    job = store.jobs.claim("w", now_ms=NOW, claim_ms=claim_ms)
    assert job is not None
    assert store.jobs.start(job, now_ms=NOW, counters=counters(commits))
    return job


def end(store: StateStore, job: Job, state: JobState, **values: Any) -> bool:
    known: dict[str, Any] = {"outcome": state.value, "message": "", "now_ms": NOW}
    return store.jobs.finish(job, state=state, **(known | values))


def last(store: StateStore, operation: str = "compact") -> LastRun:
    return store.jobs.last_runs(["uuid-a"])["uuid-a"][operation]


def pause_of(store: StateStore) -> int | None:
    """How long the operation is paused from the end of its last run."""
    found = last(store)
    assert found.finished_ms is not None
    return None if found.paused_until_ms is None else found.paused_until_ms - found.finished_ms


def test_a_success_is_the_last_run_with_the_counters_of_its_start(store: StateStore) -> None:
    job = run(store, JobState.DONE, commits=5, outcome="committed")
    assert last(store) == LastRun(
        operation="compact",
        started_ms=job.started_ms or 0,
        finished_ms=job.finished_ms,
        outcome="committed",
        counters=counters(5),
    )


def test_failures_are_counted_and_pause_the_operation_until_a_success(store: StateStore) -> None:
    run(store, JobState.DONE, commits=2)
    run(store, JobState.FAILED, commits=5, paused_until_ms=NOW + MINUTE, outcome="conflict")
    assert (last(store).failures, pause_of(store), last(store).outcome) == (1, MINUTE, "conflict")
    run(store, JobState.FAILED, commits=7, paused_until_ms=NOW + HOUR)
    assert (last(store).failures, pause_of(store)) == (2, HOUR)
    assert last(store).counters == counters(2)  # what a failed run left undone still counts
    run(store, JobState.DONE, commits=9)
    assert (last(store).failures, pause_of(store), last(store).counters) == (0, None, counters(9))


def test_a_first_run_that_fails_has_compacted_nothing(store: StateStore) -> None:
    run(store, JobState.FAILED, commits=5)
    assert (last(store).failures, pause_of(store), last(store).counters) == (1, None, Counters())


def test_a_job_that_was_cancelled_while_it_ran_is_neither_a_failure_nor_a_success(store: StateStore) -> None:
    run(store, JobState.FAILED, paused_until_ms=NOW + HOUR, commits=1)
    paused_until_ms = last(store).paused_until_ms
    run(store, JobState.CANCELLED, commits=5)
    found = last(store)
    assert (found.failures, found.paused_until_ms, found.counters) == (1, paused_until_ms, Counters())
    assert found.outcome == "cancelled"


def test_a_job_that_never_started_leaves_no_last_run_when_it_is_cancelled(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = store.jobs.claim("w", now_ms=NOW, claim_ms=MINUTE)
    assert job is not None
    assert end(store, job, JobState.CANCELLED)
    assert store.jobs.last_runs() == {}


def test_operations_and_tables_have_last_runs_of_their_own(store: StateStore) -> None:
    run(store, JobState.DONE)
    run(store, JobState.FAILED, operation="expire")
    store.jobs.enqueue([decision("b")], NOW)
    end(store, begun(store), JobState.DONE)
    found = store.jobs.last_runs()
    assert {(table, name): one.failures for table, by in found.items() for name, one in by.items()} == {
        ("uuid-a", "compact"): 0,
        ("uuid-a", "expire"): 1,
        ("uuid-b", "compact"): 0,
    }
    assert set(store.jobs.last_runs(["uuid-b", "uuid-c"])) == {"uuid-b"}
    assert store.jobs.last_runs([]) == {}


def test_notices_are_written_with_the_end_of_the_job(store: StateStore) -> None:
    news = [NewNotice(kind="failure", owner="sales", content={"reason": "a\0b\udc80"}), NewNotice(kind="pause")]
    run(store, JobState.FAILED, notices=news)
    found = {notice.kind: (notice.owner, notice.content, notice.sent) for notice in store.notices.notices()}
    assert found == {"failure": ("sales", {"reason": "ab?"}, False), "pause": ("", {}, False)}


def test_a_worker_that_lost_its_claim_adds_no_notice_and_no_failure(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    lost = begun(store, claim_ms=ENDED)
    assert store.jobs.claim("other", now_ms=NOW, claim_ms=MINUTE) is not None
    assert not end(store, lost, JobState.FAILED, notices=[NewNotice(kind="failure")], paused_until_ms=NOW + HOUR)
    assert store.notices.notices() == ()
    assert store.jobs.last_runs() == {}


def test_an_end_that_cannot_be_written_wholly_is_not_written(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = begun(store)

    def fail(*_: object) -> None:
        raise StateError("Cannot write")

    monkeypatch.setattr(job_queue, "add_notices", fail)
    with pytest.raises(StateError, match=r"^Cannot write$"):
        end(store, job, JobState.DONE, notices=[NewNotice(kind="failure")])
    assert [one.job_id for one in store.jobs.claimed()] == [job.job_id]
    assert store.jobs.last_runs() == {}
    monkeypatch.undo()
    assert end(store, job, JobState.DONE)


@pytest.mark.parametrize("state", [JobState.DONE, JobState.FAILED, JobState.CANCELLED])
def test_a_pause_by_hand_outlasts_the_run_that_was_under_way(store: StateStore, state: JobState) -> None:
    run(store, JobState.FAILED, paused_until_ms=NOW + MINUTE)
    store.jobs.enqueue([decision()], NOW)
    job = begun(store)
    until_ms = store.clock_ms(NOW) + DAY
    store.pauses.pause("uuid-a", "compact", until_ms=until_ms, table="lake.db.a", by="anna")
    assert end(store, job, state, paused_until_ms=NOW + HOUR)
    assert last(store).paused_until_ms == until_ms


def test_a_pause_by_hand_that_is_over_does_not_keep_a_failure_from_pausing(store: StateStore) -> None:
    store.pauses.pause("uuid-a", "compact", until_ms=NOW // 2, table="lake.db.a", by="anna")
    run(store, JobState.FAILED, paused_until_ms=NOW + HOUR)
    assert pause_of(store) == HOUR
    run(store, JobState.DONE)
    assert pause_of(store) is None


def test_an_operation_that_never_ran_can_be_paused(store: StateStore) -> None:
    store.pauses.pause("uuid-a", "expire", until_ms=NOW, table="lake.db.a", by="anna")
    assert last(store, "expire") == LastRun(operation="expire", started_ms=0, paused_until_ms=NOW)


def test_a_pause_is_ended_for_one_operation_or_for_all_and_failures_are_forgotten(store: StateStore) -> None:
    for operation in ("compact", "expire", "orphans"):
        run(store, JobState.FAILED, operation=operation, paused_until_ms=NOW + HOUR)
    run(store, JobState.FAILED, operation="tags")
    assert store.pauses.end("uuid-a", "expire") == 1
    assert store.pauses.end("uuid-a", "expire") == 0
    assert (last(store, "expire").failures, last(store, "expire").paused_until_ms) == (0, None)
    assert last(store, "compact").failures == 1
    assert store.pauses.end("uuid-a") == 2
    assert store.pauses.end("uuid-b") == 0
    assert {name: one.failures for name, one in store.jobs.last_runs()["uuid-a"].items()} == {
        "compact": 0,
        "expire": 0,
        "orphans": 0,
        "tags": 1,
    }
