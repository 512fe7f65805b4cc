"""Two `neve serve` on one PostgreSQL, while workers and services are killed and paused, and connections are cut.

Every job ends, none is carried out twice, no table stays locked, and no row is lost. `NEVE_SERVE_SEED` repeats a seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest

from neve.scheduling.job import Job, JobState
from neve.state import StateStore
from neve.state.job_reading import JobFilter
from stack.endpoints import PostgresEndpoint
from tests.builders.served_lake import Lake, Service, Trouble, new_database

pytestmark = pytest.mark.stack

SEED = int(os.environ.get("NEVE_SERVE_SEED") or SystemRandom().randrange(10**6))
_QUIET_SECONDS = 300
"""How long everything may take to end once trouble and writers have."""


@pytest.fixture
def lake(postgres: PostgresEndpoint, tmp_path: Path) -> Iterator[Lake]:
    with new_database(postgres) as url:
        yield Lake.create(url, tmp_path, tables=3)


def served(lake: Lake, *, seconds: float, every: float) -> Trouble:
    """Lets two services look after the lake for a time full of trouble, then until nothing is left to do."""
    applied = lake.neve("policy", "apply", "-f", str(lake.directory / "policies.yaml"))
    assert applied.returncode == 0, applied.stderr
    services = [Service(lake, lake.directory / f"service-{number}.log") for number in (1, 2)]
    trouble = Trouble(services, lake.url, Random(SEED))
    try:
        with lake.written(seconds=2):
            begun, next_strike = time.monotonic(), every
            while (now := time.monotonic() - begun) < seconds:
                trouble.mend(now)
                if now >= next_strike:
                    trouble.strike(now)
                    next_strike = now + every
                time.sleep(0.5)
        trouble.end()
        until_idle(lake, services)
        assert [service.stop() for service in services] == [0, 0]
    finally:
        for service in services:
            if service.is_alive():
                service.kill()
    return trouble


def until_idle(lake: Lake, services: list[Service]) -> None:
    """Waits until no job is claimed, and each table has had its last compaction."""
    begun = time.monotonic()
    while time.monotonic() - begun < _QUIET_SECONDS:
        jobs = all_jobs(lake)
        open_ones = [job for job in jobs if job.state in (JobState.CLAIMED, JobState.WAITING) and job.operation == "compact"]
        claimed = [job for job in jobs if job.state is JobState.CLAIMED]
        if not open_ones and not claimed:
            return
        time.sleep(1)
    logs = "\n".join(service.log.read_text(encoding="utf-8", errors="replace")[-4_000:] for service in services)
    pytest.fail(f"seed {SEED}: jobs are left after {_QUIET_SECONDS} s: {open_ones}\n{logs}")


def all_jobs(lake: Lake) -> tuple[Job, ...]:
    with opened(lake) as store:
        return store.jobs.jobs(JobFilter(), limit=100_000)


def opened(lake: Lake) -> StateStore:
    store = StateStore.open_existing(lake.url)
    assert store is not None
    return store


def check(lake: Lake, trouble: Trouble) -> None:
    context = f"seed {SEED}, {dict(trouble.happened)}"
    for name in lake.tables:
        assert lake.content(name) == list(range(lake.rows[name])), f"rows of {name} are wrong: {context}"
    jobs = all_jobs(lake)
    ended = [job for job in jobs if job.state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)]
    assert {job.state for job in jobs if job not in ended} <= {JobState.WAITING}, context
    runs = [job.run_id for job in ended if job.run_id is not None]
    assert len(runs) == len(set(runs)), f"a run was reported twice: {context}"
    assert sum(job.state is JobState.DONE for job in jobs) >= 3, f"hardly anything was done: {context}"
    with opened(lake) as store:
        assert store.unfinished() == (), f"runs have not ended: {context}"
        assert store.holders(time.time_ns() // 1_000_000) == {}, f"tables are locked: {context}"
    for name in lake.tables:
        told = lake.neve("compact", f"db.{name}", "--force")
        assert told.returncode == 0, f"{name} is locked: {told.stderr} {context}"


@pytest.mark.timeout(900)
def test_a_minute_of_trouble_loses_nothing_and_leaves_nothing_undone(lake: Lake) -> None:
    trouble = served(lake, seconds=75, every=15)
    assert trouble.happened
    check(lake, trouble)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_five_minutes_of_trouble_lose_nothing_and_leave_nothing_undone(lake: Lake) -> None:
    trouble = served(lake, seconds=300, every=12)
    assert len(trouble.happened) >= 3
    check(lake, trouble)
