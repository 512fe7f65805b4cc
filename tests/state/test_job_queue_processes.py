"""Several workers on one queue: none claims what another has, and connections that are cut leave nothing half done."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, func, select, text

from neve.errors import StateError
from neve.scheduling.job import Job, JobState
from neve.state import StateStore, database, job_queue, schema
from neve.state.job_reading import JobFilter
from neve.state.notices import NewNotice
from tests.builders.jobs import MINUTE, NOW, decision
from tests.builders.state_databases import POSTGRES

TABLES, OPERATIONS = 12, ("compact", "expire")
ALL = [decision(f"t{number:02}", operation) for number in range(TABLES) for operation in OPERATIONS]

WORKER = """
import sys
from neve.scheduling.job import JobState
from neve.state import StateStore

url, name = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with StateStore.open(url) as store:
    while store.jobs.waiting():
        job = store.jobs.claim(name, now_ms=1, claim_ms=600_000)
        if job is not None:
            assert store.jobs.start(job, now_ms=1)
            others = [one for one in store.jobs.claimed() if one.table_uuid == job.table_uuid]
            assert [one.job_id for one in others] == [job.job_id], others
            assert store.jobs.beat(job, now_ms=1, claim_ms=600_000) is not None
            assert store.jobs.finish(job, state=JobState.DONE, outcome="committed", message=name, now_ms=1)
            print(job.job_id)
"""


def all_jobs(store: StateStore) -> tuple[Job, ...]:
    return store.jobs.jobs(JobFilter(), limit=10_000)


def claim(store: StateStore, worker: str = "w", claim_ms: int = MINUTE) -> Job | None:
    return store.jobs.claim(worker, now_ms=NOW, claim_ms=claim_ms)


def finish(store: StateStore, job: Job) -> bool:
    """Ends a job with a notice of its own."""
    notice = NewNotice(kind=job.job_id[:32])
    return store.jobs.finish(job, state=JobState.DONE, outcome="committed", message="", now_ms=NOW, notices=[notice])


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_several_processes_one_carries_out_each_job(url: str, store: StateStore) -> None:
    jobs = store.jobs.enqueue(ALL, NOW)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    workers: list[Any] = [subprocess.Popen([sys.executable, "-c", WORKER, url, f"w{number}"], **pipes) for number in range(3)]
    try:
        assert [worker.stdout.readline() for worker in workers] == ["ready\n"] * 3
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        answers = [worker.communicate(timeout=300) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [errors for _, errors in answers] == [""] * 3
    assert sorted(line for done, _ in answers for line in done.split()) == sorted(job.job_id for job in jobs)
    assert {(job.state, job.attempts) for job in all_jobs(store)} == {(JobState.DONE, 1)}


@pytest.mark.parametrize("url", ["sqlite", POSTGRES], indirect=True)
def test_of_many_threads_that_claim_together_none_gets_a_table_or_a_place_that_another_has(store: StateStore) -> None:
    store.jobs.enqueue([one.model_copy(update={"owner": "sales"}) for one in ALL], NOW)

    def claim_bounded(number: int) -> Job | None:
        return store.jobs.claim(f"w{number}", now_ms=NOW, claim_ms=10 * MINUTE, per_owner={"sales": 6})

    with ThreadPoolExecutor(8) as pool:
        found = [job for job in pool.map(claim_bounded, range(24)) if job is not None]
    assert len({job.table_uuid for job in found}) == len(found) == 6


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_a_job_that_another_transaction_has_locked_is_passed_over(store: StateStore) -> None:
    first, second = (store.jobs.enqueue([decision(name, rank=rank)], NOW)[0] for name, rank in (("a", 9.0), ("b", 1.0)))
    with store._engine.begin() as other:
        other.execute(select(schema.jobs).where(schema.jobs.c.job_id == first.job_id).with_for_update())
        found = claim(store)  # one that waits for the row is ended by the database
        assert found is not None
        assert found.job_id == second.job_id
        assert claim(store) is None
    found = claim(store)
    assert found is not None
    assert found.job_id == first.job_id


@contextmanager
def cutting(engine: Engine, monkeypatch: pytest.MonkeyPatch, step: str) -> Iterator[None]:
    """Ends the connection of a transaction after one of its steps, before it commits."""
    original: Callable[..., Any] = getattr(job_queue, step)

    def cut(connection: Connection, *arguments: Any, **options: Any) -> Any:
        found = original(connection, *arguments, **options)
        backend = connection.execute(select(func.pg_backend_pid())).scalar_one()
        with engine.begin() as other:
            other.execute(select(func.pg_terminate_backend(backend)))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(job_queue, step, cut)
        yield


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
@pytest.mark.parametrize("step", ["lock_queue", "settle_claims", "choose"])
def test_a_claim_whose_connection_is_cut_claims_nothing_and_holds_up_nobody(
    url: str, store: StateStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (job,) = store.jobs.enqueue([decision()], NOW)
    admin = database.connect(url, create=False)
    with cutting(admin, monkeypatch, step), pytest.raises(StateError, match=r"^Cannot write to state store "):
        claim(store)
    assert store.jobs.waiting() == (job,)
    found = claim(store)
    assert found is not None
    assert (found.job_id, found.token) == (job.job_id, 1)
    admin.dispose()


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
@pytest.mark.parametrize("step", ["note_end", "add_notices"])
def test_an_end_whose_connection_is_cut_is_not_written_and_can_be_written_again(
    url: str, store: StateStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store.jobs.enqueue([decision()], NOW)
    job = claim(store)
    assert job is not None
    admin = database.connect(url, create=False)
    with cutting(admin, monkeypatch, step), pytest.raises(StateError, match=r"^Cannot write to state store "):
        finish(store, job)
    assert store.jobs.claimed() == (job,)
    assert (store.jobs.last_runs(), store.notices.notices()) == ({}, ())
    assert finish(store, job)
    admin.dispose()


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_decisions_whose_connection_is_cut_are_added_all_or_none(
    url: str, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = database.connect(url, create=False)
    with cutting(admin, monkeypatch, "_waiting_for"), pytest.raises(StateError, match=r"^Cannot write to state store "):
        store.jobs.enqueue(ALL, NOW)
    assert store.jobs.waiting() == ()
    assert len(store.jobs.enqueue(ALL, NOW)) == len(ALL)
    admin.dispose()


@pytest.mark.parametrize("url", [POSTGRES], indirect=True)
def test_while_connections_are_cut_at_random_every_job_ends_once(url: str, store: StateStore) -> None:
    jobs = store.jobs.enqueue(ALL, NOW)
    application = f"{schema.metadata.tables['jobs'].name}-{jobs[0].job_id[:8]}"
    stop = threading.Event()
    cuts: list[int] = []

    def cut() -> None:
        query = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name")
        while not stop.wait(0.3):
            with store._engine.begin() as connection:
                cuts.append(connection.execute(query, {"name": application}).scalar_one())

    def work(number: int) -> None:
        engine = database.connect(f"{url}&application_name={application}", create=False)
        mine = StateStore(engine)
        left: Job | None = None
        while not stop.is_set():
            with suppress(StateError):
                left = left or claim(mine, f"w{number}", claim_ms=2_000)
                if left is None and any(cuts) and not mine.jobs.waiting() and not mine.jobs.claimed():
                    break
                if left is not None:
                    finish(mine, left)
                    left = None
        mine.close()

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            workers = [pool.submit(work, number) for number in range(4)]
            stopper = threading.Timer(120, stop.set)
            stopper.start()
            for worker in workers:
                worker.result()
            stopper.cancel()
    finally:
        stop.set()
        cutter.join()
    assert {job.state for job in all_jobs(store)} == {JobState.DONE}
    assert Counter(notice.kind for notice in store.notices.notices(limit=1000)) == Counter(job.job_id[:32] for job in jobs)
    assert sum(len(by) for by in store.jobs.last_runs().values()) == len(jobs)
