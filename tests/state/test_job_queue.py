"""The queue on SQLite and on PostgreSQL: what is added, who gets it, and how a claim is kept, lost, given back or cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from neve.scheduling.job import Decision, Job, JobState, Spent
from neve.state import StateStore
from neve.state.roles import SCHEDULER, RoleLostError
from tests.builders.jobs import DAY, ENDED, HOUR, MINUTE, NOW, counters, decision
from tests.builders.state_databases import POSTGRES

ON_SQLITE = pytest.mark.parametrize("url", ["memory"], indirect=True)
ON_POSTGRES = pytest.mark.parametrize("url", [POSTGRES], indirect=True)


def enqueue(store: StateStore, *decisions: Decision) -> list[Job]:
    """Adds decisions of which the first has the highest rank."""
    ranked = [one.model_copy(update={"rank": float(-place)}) for place, one in enumerate(decisions)]
    return store.jobs.enqueue(ranked, NOW)


def claim(store: StateStore, worker: str = "w", *, claim_ms: int = MINUTE, now_ms: int = NOW, **terms: Any) -> Job | None:
    return store.jobs.claim(worker, now_ms=now_ms, claim_ms=claim_ms, **terms)


def claimed(store: StateStore, worker: str = "w", *, claim_ms: int = MINUTE, **terms: Any) -> Job:
    job = claim(store, worker, claim_ms=claim_ms, **terms)
    assert job is not None
    return job


def claimed_tables(store: StateStore, **terms: Any) -> list[str]:
    """The tables of all jobs that can be claimed one after the other."""
    found = []
    while (job := claim(store, **terms)) is not None:
        found.append(job.table.rpartition(".")[2])
    return found


def finish(store: StateStore, job: Job, state: JobState = JobState.DONE, **values: Any) -> bool:
    known: dict[str, Any] = {"outcome": "committed", "message": "compacted 9 files", "now_ms": NOW}
    return store.jobs.finish(job, state=state, **(known | values))


def stored(store: StateStore, job: Job) -> Job:
    found = store.jobs.job(job.job_id)
    assert found is not None
    return found


def test_a_decision_is_a_waiting_job_with_all_of_its_values(store: StateStore) -> None:
    wanted = decision(
        options={"where": "day > 1", "partitions": ["p=1"]},
        policy="hot",
        owner="sales",
        rank=2.5,
        target="cluster",
        target_reason="large",
        scopes=("policy hot", "policy cold", "team sales"),
        predicted=Spent(bytes=2**40, core_seconds=1.5, money=0.25, requests={"read": 3}, prices="2026"),
        counters=counters(3),
    )
    (job,) = store.jobs.enqueue([wanted], NOW)
    assert {name: getattr(job, name) for name in type(wanted).model_fields} == wanted.model_dump(mode="python") | {
        "predicted": wanted.predicted,
        "counters": wanted.counters,
    }
    assert (job.state, job.attempts, job.token, job.claimed_by) == (JobState.WAITING, 0, 0, None)
    assert store.jobs.waiting() == (job,)


def test_a_decision_counts_against_its_policy_and_its_team_unless_it_says_otherwise(store: StateStore) -> None:
    (job,) = store.jobs.enqueue([decision(policy="hot", owner="sales")], NOW)
    assert job.scopes == ("policy hot", "team sales")


def test_texts_that_a_database_refuses_are_stored_without_what_it_refuses(store: StateStore) -> None:
    store.jobs.enqueue([decision(reason="a\0b\udc80", options={"where": "x\0"}, policy="hot")], NOW)
    (job,) = store.jobs.waiting()
    assert (job.reason, job.options) == ("ab?", {"where": "x"})
    assert "policy hot" in store.jobs.spent_since({"policy hot": NOW})  # reads within the document


def test_a_newer_decision_updates_the_job_that_waits(store: StateStore) -> None:
    (first,) = store.jobs.enqueue([decision(rank=1.0, reason="old", not_before_ms=NOW + HOUR)], NOW)
    (second,) = store.jobs.enqueue([decision(rank=9.0, reason="new", target="cluster", options={"tier": "full"})], NOW + MINUTE)
    assert (second.job_id, second.created_ms) == (first.job_id, first.created_ms)
    assert (second.rank, second.reason, second.target, second.options) == (9.0, "new", "cluster", {"tier": "full"})
    assert claimed(store).job_id == first.job_id  # the newer one may begin


def test_of_two_decisions_about_the_same_the_last_counts_and_the_jobs_come_back_in_order(store: StateStore) -> None:
    jobs = store.jobs.enqueue(
        [decision("b"), decision("a", reason="1"), decision("a", "expire"), decision("a", reason="2")], NOW
    )
    assert [(job.table_uuid, job.operation, job.reason) for job in jobs] == [
        ("uuid-a", "compact", "2"),
        ("uuid-a", "expire", "212 small files"),
        ("uuid-b", "compact", "212 small files"),
    ]
    assert store.jobs.enqueue([], NOW) == []


def test_more_decisions_than_a_statement_can_name_come_back_all(store: StateStore) -> None:
    wanted = [decision(f"t{number:04}") for number in range(1_201)]
    assert [job.table for job in store.jobs.enqueue(wanted, NOW)] == [one.table for one in wanted]
    assert store.jobs.withdraw([job.job_id for job in store.jobs.waiting()], message="", now_ms=NOW) == 1_201


def test_a_decision_while_a_job_runs_waits_behind_it(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    running = claimed(store)
    (later,) = store.jobs.enqueue([decision(reason="more")], NOW)
    assert later.job_id != running.job_id
    assert claim(store) is None
    assert finish(store, running)
    assert claimed(store).job_id == later.job_id


def test_the_highest_rank_goes_first_and_then_the_oldest(store: StateStore) -> None:
    for number, (table, rank) in enumerate([("a", 1.0), ("b", 5.0), ("c", 1.0), ("d", 3.0)]):
        store.jobs.enqueue([decision(table, rank=rank)], NOW + number)
    assert claimed_tables(store) == ["b", "d", "a", "c"]


def test_one_job_of_a_table_is_claimed_at_a_time(store: StateStore) -> None:
    enqueue(store, decision("a"), decision("a", "expire"), decision("b"))
    first = claimed(store)
    assert (first.table_uuid, first.operation) == ("uuid-a", "compact")
    assert claimed_tables(store) == ["b"]
    assert finish(store, first)
    assert claimed(store).operation == "expire"


def test_a_job_that_may_not_begin_yet_is_not_claimed(store: StateStore) -> None:
    enqueue(store, decision("a", not_before_ms=NOW + HOUR), decision("b", not_before_ms=NOW - 1))
    assert claimed_tables(store) == ["b"]


def test_a_worker_takes_the_jobs_of_its_targets(store: StateStore) -> None:
    enqueue(store, decision("a", target="local"), decision("b", target="cluster"), decision("c", target="other"))
    assert claimed_tables(store, targets=["cluster"]) == ["b"]
    assert claimed_tables(store, targets=[]) == []
    assert claimed_tables(store, targets=["local", "cluster"]) == ["a"]
    assert claimed_tables(store) == ["c"]


@pytest.mark.parametrize(("field", "bounds"), [("owner", "per_owner"), ("target", "per_target")])
def test_an_owner_and_a_target_have_no_more_valid_claims_than_their_bound(store: StateStore, field: str, bounds: str) -> None:
    names = {"a": "x", "b": "x", "c": "x", "d": "y"}
    enqueue(store, *(decision(table, **{field: name}) for table, name in names.items()))
    assert claimed_tables(store, **{bounds: {"x": 2, "z": 0}}) == ["a", "b", "d"]
    assert finish(store, next(job for job in store.jobs.claimed() if job.table == "lake.db.a"))
    assert claimed_tables(store, **{bounds: {"x": 2}}) == ["c"]


def test_an_owner_that_may_have_none_gets_none(store: StateStore) -> None:
    store.jobs.enqueue([decision("a", owner="x")], NOW)
    assert claimed_tables(store, per_owner={"x": 0}) == []


def test_a_claim_that_has_ended_does_not_count_for_the_bound(store: StateStore) -> None:
    enqueue(store, decision("a", owner="x", target="gone"), decision("b", owner="x"))
    claimed(store, claim_ms=ENDED, targets=["gone"])
    assert claimed_tables(store, targets=["local"], per_owner={"x": 1}) == ["b"]


def test_a_claim_that_has_ended_is_taken_over_before_anything_else_and_the_first_worker_can_write_nothing(
    store: StateStore,
) -> None:
    store.jobs.enqueue([decision("a")], NOW)
    first = claimed(store, "one", claim_ms=ENDED)
    store.jobs.enqueue([decision("b", rank=100.0)], NOW)
    second = claimed(store, "two")
    assert (second.job_id, second.token, second.attempts, second.claimed_by) == (first.job_id, 2, 2, "two")
    assert store.jobs.beat(first, now_ms=NOW, claim_ms=MINUTE) is None
    assert not store.jobs.start(first, "run-1", now_ms=NOW, counters=counters(9))
    assert not finish(store, first)
    assert not store.jobs.release(first, now_ms=NOW)
    assert stored(store, first) == second
    assert store.jobs.last_runs() == {}
    assert finish(store, second)


def test_a_job_is_not_claimed_after_its_window_has_closed(store: StateStore) -> None:
    enqueue(store, decision("a", not_after_ms=NOW + HOUR), decision("b"), decision("c", not_after_ms=NOW))
    assert claimed_tables(store) == ["a", "b"]


@ON_SQLITE
def test_a_job_whose_worker_died_is_not_taken_over_after_its_window_has_closed(store: StateStore) -> None:
    store.jobs.enqueue([decision("a", not_after_ms=NOW + HOUR)], NOW)
    claimed(store)
    assert claim(store, now_ms=NOW + HOUR) is None
    assert store.jobs.give_back_abandoned(since_ms=NOW + HOUR, now_ms=NOW + HOUR) == 1
    assert claim(store, now_ms=NOW + HOUR) is None
    store.jobs.enqueue([decision("a", not_after_ms=NOW + DAY)], NOW + HOUR)
    assert claim(store, now_ms=NOW + HOUR) is not None


def test_deaths_of_workers_are_counted_and_jobs_that_are_given_back_have_none(store: StateStore) -> None:
    store.jobs.enqueue([decision("a")], NOW)
    assert claimed(store, claim_ms=ENDED).deaths == 0
    assert claimed(store, claim_ms=ENDED).deaths == 1
    third = claimed(store)
    assert third.deaths == 2
    store.jobs.release(third, now_ms=NOW)
    assert claimed(store).deaths == 2


@pytest.mark.parametrize("is_wanted_again", [False, True])
def test_a_job_that_nobody_takes_over_goes_back_and_frees_its_table(store: StateStore, is_wanted_again: bool) -> None:
    (job,) = store.jobs.enqueue([decision("a", target="gone", reason="old")], NOW)
    lost = claimed(store, claim_ms=ENDED, targets=["gone"])
    store.jobs.enqueue([decision("a", operation="expire")], NOW)
    if is_wanted_again:
        store.jobs.enqueue([decision("a", target="local", reason="new")], NOW)
    assert claim(store, targets=["local"]) is None, "the table is taken by a job that nobody carries out"
    assert store.jobs.give_back_abandoned(since_ms=NOW - HOUR, now_ms=NOW) == 0, "its workers may come back"
    assert store.jobs.give_back_abandoned(since_ms=NOW, now_ms=NOW) == 1
    back = stored(store, job)
    wanted = ("new", "local") if is_wanted_again else ("old", "gone")
    assert (back.state, back.deaths, back.reason, back.target) == (JobState.WAITING, 1, *wanted)
    assert not finish(store, lost)
    found = claim(store, targets=["local"])
    assert found is not None
    assert found.operation == ("compact" if is_wanted_again else "expire")


def test_a_claim_that_has_ended_is_renewed_if_nobody_took_it(store: StateStore) -> None:
    enqueue(store, decision("a"), decision("b"))
    first = claimed(store, claim_ms=ENDED)
    renewed = store.jobs.beat(first, now_ms=NOW, claim_ms=MINUTE)
    assert renewed is not None
    assert (renewed.token, renewed.claimed_by) == (1, "w")
    assert claimed_tables(store) == ["b"]


def test_a_job_ends_once(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    used = Spent(bytes=5, core_seconds=2.0, money=0.5, requests={"read": 1}, prices="2026")
    assert finish(store, job, run_id="run-1", actual=used)
    ended = stored(store, job)
    assert (ended.state, ended.outcome, ended.message) == (JobState.DONE, "committed", "compacted 9 files")
    assert (ended.run_id, ended.actual, ended.until_ms) == ("run-1", used, None)
    assert ended.finished_ms is not None
    assert not finish(store, job, JobState.FAILED)
    assert store.jobs.beat(job, now_ms=NOW, claim_ms=MINUTE) is None
    assert not store.jobs.release(job, now_ms=NOW)
    assert stored(store, job) == ended


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.CLAIMED])
def test_waiting_is_no_end(store: StateStore, state: JobState) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    with pytest.raises(ValueError, match=f"^{state} is not the end of a job$"):
        finish(store, job, state)


def test_a_start_notes_the_run_and_the_counters_of_the_table(store: StateStore) -> None:
    store.jobs.enqueue([decision(counters=counters(1), policy="hot")], NOW)
    job = claimed(store)
    assert store.jobs.start(job, "run-1", now_ms=NOW, counters=counters(4))
    begun = stored(store, job)
    assert (begun.run_id, begun.counters, begun.reason, begun.policy) == ("run-1", counters(4), "212 small files", "hot")
    assert begun.started_ms is not None
    assert store.jobs.start(job, now_ms=NOW)
    assert (stored(store, job).run_id, stored(store, job).counters) == ("run-1", counters(4))


def test_a_job_that_is_given_back_waits_and_is_claimed_with_a_new_token(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    assert store.jobs.release(job, now_ms=NOW, wait_ms=HOUR, message="the table is held by another run")
    back = stored(store, job)
    assert (back.state, back.message, back.claimed_by, back.until_ms) == (
        JobState.WAITING,
        "the table is held by another run",
        None,
        None,
    )
    assert not finish(store, job)
    assert claim(store) is None
    other = store.jobs.enqueue([decision(reason="newer")], NOW)
    assert (other[0].not_before_ms, other[0].reason) == (back.not_before_ms, "newer")  # it waits all the same
    assert claim(store) is None


def test_a_job_that_is_given_back_without_a_wait_can_be_claimed_again(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    assert store.jobs.release(job, now_ms=NOW)
    again = claimed(store)
    assert (again.job_id, again.token, again.attempts) == (job.job_id, 2, 2)


def test_a_wait_that_a_wrong_clock_wrote_ends_with_the_next_decision(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    assert store.jobs.release(claimed(store), now_ms=NOW, wait_ms=365 * DAY)
    assert claim(store) is None
    store.jobs.enqueue([decision()], NOW)
    assert claim(store) is not None


def test_a_job_that_is_given_back_takes_over_the_decision_that_came_meanwhile(store: StateStore) -> None:
    store.jobs.enqueue([decision(reason="old")], NOW)
    job = claimed(store)
    (other,) = store.jobs.enqueue([decision(reason="new", rank=7.0, options={"tier": "full"})], NOW)
    assert store.jobs.release(job, now_ms=NOW)
    (left,) = store.jobs.waiting()
    assert (left.job_id, left.reason, left.rank, left.options) == (job.job_id, "new", 7.0, {"tier": "full"})
    merged = stored(store, other)
    assert (merged.state, merged.outcome, merged.message) == (JobState.CANCELLED, "merged", f"merged into job {job.job_id}")


def test_a_waiting_job_is_cancelled(store: StateStore) -> None:
    (job,) = store.jobs.enqueue([decision()], NOW)
    cancelled = store.jobs.cancel(job.job_id, now_ms=NOW, message="by anna")
    assert cancelled == stored(store, job)
    assert (cancelled.state, cancelled.outcome, cancelled.message) == (JobState.CANCELLED, "cancelled", "by anna")
    assert claim(store) is None
    assert store.jobs.last_runs() == {}


def test_the_worker_of_a_cancelled_job_sees_it_at_its_next_heartbeat(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    asked = store.jobs.cancel(job.job_id, now_ms=NOW)
    assert asked is not None
    assert (asked.state, asked.cancel_requested_ms is None) == (JobState.CLAIMED, False)
    assert store.jobs.cancel(job.job_id, now_ms=NOW + 1) == asked
    assert store.jobs.beat(job, now_ms=NOW, claim_ms=MINUTE) is not None
    assert stored(store, job).cancel_requested_ms == asked.cancel_requested_ms
    assert store.jobs.release(job, now_ms=NOW)
    assert (stored(store, job).state, stored(store, job).outcome) == (JobState.CANCELLED, "cancelled")


def test_a_job_whose_worker_died_is_cancelled_immediately(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store, claim_ms=ENDED)
    cancelled = store.jobs.cancel(job.job_id, now_ms=NOW)
    assert cancelled is not None
    assert cancelled.state is JobState.CANCELLED
    assert not finish(store, job)
    assert store.jobs.beat(job, now_ms=NOW, claim_ms=MINUTE) is None


def test_nobody_takes_over_a_job_that_was_cancelled_before_its_worker_died(store: StateStore) -> None:
    enqueue(store, decision("a"), decision("b"))
    job = claimed(store)
    store.jobs.cancel(job.job_id, now_ms=NOW)
    assert store.jobs.beat(job, now_ms=NOW, claim_ms=ENDED) is not None
    assert claimed_tables(store) == ["b"]
    assert (stored(store, job).state, stored(store, job).message) == (
        JobState.CANCELLED,
        "cancelled after its worker had died",
    )


def test_a_cancellation_comes_too_late_for_a_job_that_has_ended_or_never_was(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claimed(store)
    finish(store, job)
    assert store.jobs.cancel(job.job_id, now_ms=NOW) == stored(store, job)
    assert stored(store, job).state is JobState.DONE
    assert store.jobs.cancel("nothing", now_ms=NOW) is None


def test_only_waiting_jobs_are_withdrawn(store: StateStore) -> None:
    jobs = enqueue(store, decision("a"), decision("b"), decision("c"))
    running = claimed(store)
    assert store.jobs.withdraw([jobs[0].job_id, jobs[1].job_id, "nothing"], message="the policy is gone", now_ms=NOW) == 1
    assert stored(store, running) == running
    assert (stored(store, jobs[1]).outcome, stored(store, jobs[1]).message) == ("withdrawn", "the policy is gone")
    assert claimed_tables(store) == ["c"]


def test_jobs_that_ended_long_ago_are_forgotten(store: StateStore) -> None:
    enqueue(store, decision("a"), decision("b"), decision("c"))
    done, running = claimed(store), claimed(store)
    finish(store, done)
    ended_ms = stored(store, done).finished_ms
    assert ended_ms is not None
    assert store.jobs.prune(ended_ms) == 0
    assert store.jobs.prune(ended_ms + 1) == 1
    assert store.jobs.job(done.job_id) is None
    assert stored(store, running) == running
    assert len(store.jobs.waiting()) == 1


def test_a_process_that_is_no_longer_the_scheduler_changes_nothing(store: StateStore) -> None:
    (job,) = store.jobs.enqueue([decision("a")], NOW)
    assert store.roles.take(SCHEDULER, "one", now_ms=NOW, hold_ms=ENDED)
    assert len(store.jobs.enqueue([decision("b")], NOW, scheduler="one")) == 1  # it has ended, and nobody took it
    assert store.roles.take(SCHEDULER, "two", now_ms=NOW, hold_ms=MINUTE)
    for change in (
        lambda: store.jobs.enqueue([decision("c")], NOW, scheduler="one"),
        lambda: store.jobs.withdraw([job.job_id], message="", now_ms=NOW, scheduler="one"),
    ):
        with pytest.raises(RoleLostError, match=r"^Cannot change the queue: one is no longer the scheduler$"):
            change()
    assert {waiting.table_uuid for waiting in store.jobs.waiting()} == {"uuid-a", "uuid-b"}
    assert store.jobs.withdraw([job.job_id], message="", now_ms=NOW, scheduler="two") == 1


@ON_SQLITE
def test_on_sqlite_a_claim_ends_by_the_callers_clock(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    assert claimed(store, claim_ms=MINUTE).until_ms == NOW + MINUTE
    assert claim(store, now_ms=NOW + MINUTE - 1) is None
    assert claim(store, now_ms=NOW + MINUTE) is not None


@ON_SQLITE
def test_a_claim_that_a_clock_far_ahead_wrote_ends_and_a_live_worker_keeps_it(store: StateStore) -> None:
    enqueue(store, decision("a"), decision("b"))
    dead = claimed(store, "dead", now_ms=NOW + 365 * DAY)
    alive = claimed(store, "alive", now_ms=NOW + 365 * DAY)
    assert claim(store, now_ms=NOW) is None  # from now on, both claims end in a minute
    assert store.jobs.beat(alive, now_ms=NOW + MINUTE // 2, claim_ms=MINUTE) is not None
    taken = claim(store, "next", now_ms=NOW + MINUTE)
    assert taken is not None
    assert taken.job_id == dead.job_id
    assert claim(store, now_ms=NOW + MINUTE) is None


@ON_SQLITE
def test_a_claim_lasts_an_hour_at_most_without_a_heartbeat(store: StateStore) -> None:
    store.jobs.enqueue([decision()], NOW)
    assert claimed(store, claim_ms=DAY).until_ms == NOW + HOUR


@ON_POSTGRES
@pytest.mark.parametrize("wrong_ms", [0, 10**15])
def test_on_postgres_a_host_whose_clock_is_wrong_does_no_harm(store: StateStore, wrong_ms: int) -> None:
    store.jobs.enqueue([decision("a")], NOW)
    held = claimed(store)
    assert claim(store, now_ms=wrong_ms) is None
    assert held.until_ms is not None
    before_ms = store.clock_ms(0)
    store.jobs.enqueue([decision("b", not_before_ms=wrong_ms + HOUR)], wrong_ms)
    assert claim(store) is None  # an hour by any clock
    assert store.jobs.beat(held, now_ms=wrong_ms, claim_ms=MINUTE) is not None
    assert store.jobs.start(held, now_ms=wrong_ms)
    assert finish(store, held, JobState.FAILED, now_ms=wrong_ms, paused_until_ms=wrong_ms + HOUR)
    job, last = stored(store, held), store.jobs.last_runs()["uuid-a"]["compact"]
    moments = [job.started_ms, job.finished_ms, last.started_ms, last.finished_ms]
    assert all(moment is not None and before_ms <= moment <= store.clock_ms(0) for moment in moments)
    assert last.finished_ms is not None
    assert last.paused_until_ms == last.finished_ms + HOUR
