"""A worker and its reports to the queue, on a state store of its own, with operations that are made up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from neve.errors import CatalogUnreachableError, LeaseHeldError, NeveError, StateError, StateReplacedError, TableGoneError
from neve.scheduling.backoff import DEFAULT_BACKOFF
from neve.scheduling.job import Decision, Job, JobState, Spent
from neve.service.heartbeat import Interruption
from neve.service.job_end import MAX_ATTEMPTS, MAX_DEATHS, MAX_RETRIES, JobEnd
from neve.service.reporting import Concurrency, Reporter
from neve.service.worker import Worker
from neve.settings import ServiceSettings
from neve.state import StateStore
from neve.state.job_reading import JobFilter
from tests.builders.clocks import FixedClock

DONE = JobEnd(JobState.DONE, "done", "60 files became 1", "run-1", Spent(bytes=10))
DECISION = Decision(table="lake.db.t", table_uuid="uuid-t", operation="compact", reason="60 small files (50 are enough)")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(1_000_000_000)


def worker(store: StateStore, clock: FixedClock, carry_out: Callable[[Job], JobEnd], name: str = "w1") -> Worker:
    reporter = Reporter(store, name, "local", clock, lambda: Concurrency({}, {}))
    return Worker(carry_out, reporter, ServiceSettings())


def the_job(store: StateStore) -> Job:
    [job] = store.jobs.jobs(JobFilter())
    return job


def failing(error: Exception) -> Callable[[Job], JobEnd]:
    def carry_out(_: Job) -> JobEnd:
        raise error

    return carry_out


def notices(store: StateStore) -> list[str]:
    return [notice.kind for notice in reversed(store.notices.notices())]


def test_a_worker_without_a_job_does_nothing(store: StateStore, clock: FixedClock) -> None:
    assert worker(store, clock, failing(AssertionError())).run_next() is None


def test_a_job_is_carried_out_and_its_end_is_recorded(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    seen: list[Job] = []

    def carry_out(_: Job) -> JobEnd:
        seen.append(the_job(store))
        return DONE

    assert worker(store, clock, carry_out).run_next() is not None
    assert (seen[0].state, seen[0].claimed_by, seen[0].started_ms) == (JobState.CLAIMED, "w1", clock.now_ms())
    job = the_job(store)
    assert (job.state, job.outcome, job.message, job.run_id) == (JobState.DONE, "done", "60 files became 1", "run-1")
    assert job.actual == Spent(bytes=10)
    assert notices(store) == []


def test_the_first_failure_pauses_the_operation_and_people_are_notified(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    worker(store, clock, failing(NeveError("Cannot write: the disk is full", hint="Make room."))).run_next()
    job = the_job(store)
    assert (job.state, job.message) == (JobState.FAILED, "Cannot write: the disk is full Make room.")
    last = store.jobs.last_runs()["uuid-t"]["compact"]
    assert last.failures == 1
    assert last.paused_until_ms == clock.now_ms() + DEFAULT_BACKOFF.pause_ms(1, "uuid-t")
    assert notices(store) == ["failure"]


def test_failures_in_a_row_pause_longer_and_people_are_notified_now_and_then(store: StateStore, clock: FixedClock) -> None:
    pauses = []
    for _ in range(4):
        store.jobs.enqueue([DECISION], clock.now_ms())
        worker(store, clock, failing(NeveError("Cannot write"))).run_next()
        last = store.jobs.last_runs()["uuid-t"]["compact"]
        pauses.append((last.paused_until_ms or 0) - clock.now_ms())
        clock.advance(pauses[-1] + 1)
    assert pauses == [DEFAULT_BACKOFF.pause_ms(failures, "uuid-t") for failures in (1, 2, 3, 4)]
    assert notices(store) == ["failure", "pause"]


def test_a_success_after_failures_ends_them_and_is_announced(store: StateStore, clock: FixedClock) -> None:
    for carry_out in (failing(NeveError("Cannot write")), lambda _: DONE):
        store.jobs.enqueue([DECISION], clock.now_ms())
        worker(store, clock, carry_out).run_next()
        clock.advance(10_000)
    last = store.jobs.last_runs()["uuid-t"]["compact"]
    assert (last.failures, last.paused_until_ms) == (0, None)
    assert notices(store) == ["failure", "recovery"]


def test_a_table_that_another_run_holds_makes_the_job_wait_and_is_no_failure(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    held = worker(store, clock, failing(LeaseHeldError("Cannot compact: another run works on it")))
    held.run_next()
    assert the_job(store).state is JobState.WAITING
    assert held.run_next() is None, "it waits before it is tried again"
    clock.advance(61_000)
    assert held.run_next() is not None
    assert store.jobs.last_runs() == {}


def test_a_job_that_never_ends_fails_after_many_attempts(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    held = worker(store, clock, failing(LeaseHeldError("Cannot compact: another run works on it")))
    for _ in range(MAX_ATTEMPTS):
        assert held.run_next() is not None
        clock.advance(61_000)
    assert the_job(store).state is JobState.FAILED


def test_a_table_that_is_gone_cancels_the_job(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    worker(store, clock, failing(TableGoneError("Cannot work on lake.db.t: it is gone"))).run_next()
    assert (the_job(store).state, the_job(store).outcome) == (JobState.CANCELLED, "table-gone")


def test_a_worker_that_was_paused_beyond_its_claim_can_report_nothing(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    other = worker(store, clock, lambda _: DONE, name="w2")

    def while_paused(_: Job) -> JobEnd:
        clock.advance(120_000)
        assert other.run_next() is not None
        return JobEnd(JobState.FAILED, "failed", "too late")

    worker(store, clock, while_paused).run_next()
    job = the_job(store)
    assert (job.state, job.claimed_by, job.attempts) == (JobState.DONE, "w2", 2)
    assert notices(store) == []


def test_an_interrupt_gives_the_job_back(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())

    def interrupted(_: Job) -> JobEnd:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt was lost")

    worker(store, clock, interrupted).run_next()
    assert (the_job(store).state, the_job(store).message) == (JobState.WAITING, "the service was stopped")


def test_what_a_job_raises_after_its_interrupt_is_no_failure(store: StateStore, clock: FixedClock) -> None:
    """Such as Spark, cut off while it starts."""
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, lambda _: DONE)

    def cut_off(_: Job) -> JobEnd:
        with suppress(KeyboardInterrupt):
            one.interrupt()
        raise NeveError("Cannot start Spark: Py4JError")

    one.carry_out = cut_off
    one.run_next()
    assert (the_job(store).state, the_job(store).outcome, notices(store)) == (JobState.WAITING, None, [])
    assert one.stop.is_set()


def test_an_unexpected_exception_fails_the_job_and_not_the_worker(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    worker(store, clock, failing(ZeroDivisionError("division by zero"))).run_next()
    assert (the_job(store).state, the_job(store).outcome) == (JobState.FAILED, "unexpected")


def test_a_worker_ends_when_it_should_be_replaced(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, lambda _: DONE)
    one.should_leave = lambda done: "it has done 1 job" if done else None
    assert one.work() == "it has done 1 job"
    assert the_job(store).state is JobState.DONE


def test_a_worker_that_is_told_to_stop_claims_nothing_more(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, lambda _: DONE)
    one.stop.set()
    assert one.work() is None
    assert the_job(store).state is JobState.WAITING


def test_a_worker_whose_service_has_ended_claims_nothing_more(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    orphan = worker(store, clock, lambda _: DONE)
    orphan.parent = os.getppid() + 1
    assert orphan.work() == "the service has ended"
    assert the_job(store).state is JobState.WAITING


def test_an_interrupt_by_a_person_ends_the_worker_as_well(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION, DECISION.model_copy(update={"table_uuid": "other"})], clock.now_ms())
    begun: list[str] = []

    def interrupted(job: Job) -> JobEnd:
        begun.append(job.table_uuid)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt was lost")

    assert worker(store, clock, interrupted).work() is None
    assert len(begun) == 1


def test_an_end_is_recorded_when_the_state_store_is_back(
    store: StateStore, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.service.worker.POLL_SECONDS", 0.01)
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, lambda _: DONE)
    away = iter([True, True, False])
    finish = one.reporter.finish

    def finish_if_there(job: Job, end: JobEnd) -> bool:
        if next(away):
            raise StateError("Cannot write to the state store: it is away")
        return finish(job, end)

    monkeypatch.setattr(Reporter, "finish", lambda _, job, end: finish_if_there(job, end))
    assert one.run_next() is not None
    assert the_job(store).state is JobState.DONE


@pytest.mark.parametrize(
    "error",
    [CatalogUnreachableError("Cannot reach lake"), StateError("Cannot write to the state store")],
    ids=["catalog", "state"],
)
def test_what_could_pass_is_tried_again_before_it_counts_as_a_failure(
    error: NeveError, store: StateStore, clock: FixedClock
) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, failing(error))
    waits = []
    for _ in range(MAX_RETRIES - 1):
        assert one.run_next() is not None
        waits.append(the_job(store).not_before_ms - clock.now_ms())
        assert (the_job(store).state, notices(store)) == (JobState.WAITING, [])
        clock.advance(waits[-1])
    assert waits == [30_000, 60_000, 120_000, 240_000]
    one.run_next()
    assert (the_job(store).state, notices(store)) == (JobState.FAILED, ["failure"])


def test_a_job_that_kills_its_workers_fails_and_the_next_job_is_carried_out(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION.model_copy(update={"rank": 2.0})], clock.now_ms())
    store.jobs.enqueue([DECISION.model_copy(update={"table_uuid": "other", "rank": 1.0})], clock.now_ms())

    class Killed(BaseException):
        """The process is gone: nothing is reported."""

    def kill(job: Job) -> JobEnd:
        if job.table_uuid == "other":
            return DONE
        raise Killed

    deaths = 0
    for _ in range(MAX_DEATHS):
        with pytest.raises(Killed):
            worker(store, clock, kill).run_next()
        deaths += 1
        clock.advance(61_000)
    done = worker(store, clock, kill).run_next()
    assert done is not None
    assert (deaths, done.table_uuid) == (3, "other")
    [failed] = store.jobs.jobs(JobFilter(table_uuid="uuid-t"))
    assert (failed.state, failed.outcome) == (JobState.FAILED, "worker-died")
    last = store.jobs.last_runs()["uuid-t"]["compact"]
    assert (last.failures, notices(store)) == (1, ["failure"])
    assert last.paused_until_ms is not None


def test_a_job_that_hangs_is_recorded_before_its_process_ends(store: StateStore, clock: FixedClock) -> None:
    store.jobs.enqueue([DECISION], clock.now_ms())
    one = worker(store, clock, lambda _: DONE)
    ended: list[JobState] = []
    one.end_process = lambda: ended.append(the_job(store).state)
    job = one.reporter.claim(60)
    assert job is not None
    one._hang(job, Interruption.TOO_LONG)
    assert ended == [JobState.FAILED]
    assert the_job(store).outcome == "too-long"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_worker_ends_when_the_file_of_the_state_store_is_no_longer_the_same(
    is_replaced: bool, store: StateStore, clock: FixedClock, tmp_path: Path
) -> None:
    one = worker(store, clock, lambda _: DONE)
    assert one.run_next() is None
    (tmp_path / "state.db").rename(tmp_path / "away.db")
    if is_replaced:
        (tmp_path / "state.db").write_bytes((tmp_path / "away.db").read_bytes())
    with pytest.raises(StateReplacedError, match="the file was removed or replaced while it was open"):
        one.work()
