"""Rounds of the scheduler over real tables in a directory: what it wants, withdraws, and leaves to another process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.api import Neve
from neve.policy.document import PolicyDocument
from neve.scheduling.hold import HoldCode
from neve.scheduling.job import JobState
from neve.service.fleet_round import ObservedRound
from neve.service.observer import Observer
from neve.service.scheduler import Scheduler
from neve.settings import load_settings
from neve.state import StateStore
from neve.state.policies import PolicyChange
from tests.builders.clocks import FixedClock

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
NOW_MS = 4_000_000_000_000


@pytest.fixture
def clock() -> FixedClock:
    """Ahead of the machine's clock, by which tables are written."""
    return FixedClock(NOW_MS)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    made = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}/lake")
    made.create_namespace("sales")
    return made


@pytest.fixture
def neve(tmp_path: Path, catalog: SqlCatalog, clock: FixedClock) -> Iterator[Neve]:  # noqa: ARG001 - the catalog must be there
    file = tmp_path / "neve.yaml"
    file.write_text(
        f"default-catalog: lake\n"
        f"catalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{tmp_path}/lake.db\n    warehouse: file://{tmp_path}/lake\n"
        f"state:\n  url: sqlite:///{tmp_path}/state.db\n",
        encoding="utf-8",
    )
    with Neve.open(load_settings(file=file, environ={}), environ={}, clock=clock) as opened:
        yield opened


@pytest.fixture
def store(neve: Neve) -> Iterator[StateStore]:
    with neve.connection.store() as opened:
        yield opened


def write(catalog: SqlCatalog, name: str, files: int) -> None:
    table = catalog.create_table_if_not_exists(f"sales.{name}", schema=ROWS.schema)
    for _ in range(files):
        table.append(ROWS)


def apply(store: StateStore, *documents: PolicyDocument, version: int = 0) -> None:
    changes = [PolicyChange(kind="policy", name=one.name, document=one, expected_version=version) for one in documents]
    store.policies.apply(changes, by="test", now_ms=NOW_MS)


def small_files(number: int) -> PolicyDocument:
    document = {"name": "merge", "tables": "lake.sales.*", "operations": ["compact"], "triggers": {"small-files": number}}
    return PolicyDocument.model_validate(document)


def jobs(store: StateStore) -> dict[str, JobState]:
    return {job.table: job.state for job in store.jobs.jobs()}


def test_a_table_with_many_small_files_gets_a_job_and_others_do_not(neve: Neve, store: StateStore, catalog: SqlCatalog) -> None:
    write(catalog, "many", 6)
    write(catalog, "few", 2)
    apply(store, small_files(5))
    decided = Scheduler(neve.connection, store, holder="one").tick()
    assert decided is not None
    assert jobs(store) == {"lake.sales.many": JobState.WAITING}
    [job] = store.jobs.jobs()
    assert (job.operation, job.policy, job.reason) == ("compact", "merge", "6 small files (5 are enough)")


def test_a_second_round_wants_nothing_twice(neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    [first] = store.jobs.jobs()
    clock.advance(30_000)
    decided = scheduler.tick()
    assert decided is not None
    assert decided.counts == {HoldCode.WAITING: 1}
    assert [job.job_id for job in store.jobs.jobs()] == [first.job_id]


def test_a_job_is_withdrawn_when_its_policy_is_gone(
    neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    apply(store, small_files(5).model_copy(update={"enabled": False}), version=1)
    clock.advance(30_000)
    scheduler.tick()
    [job] = store.jobs.jobs()
    assert (job.state, job.message) == (JobState.CANCELLED, "policy merge switches compact off")


def test_a_dropped_table_takes_its_job_with_it(neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    catalog.drop_table("sales.many")
    clock.advance(30_000)
    scheduler.tick()
    [job] = store.jobs.jobs()
    assert (job.state, job.message) == (JobState.CANCELLED, "lake.sales.many is no longer listed by its catalog")


def test_only_one_of_two_processes_schedules_and_the_other_takes_over(
    neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    one, other = (Scheduler(neve.connection, store, holder=name) for name in ("one", "other"))
    assert one.tick() is not None
    assert other.tick() is None
    clock.advance(10 * 60_000)  # the first one was killed
    assert other.tick() is not None
    assert one.tick() is None
    other.release()
    assert one.tick() is not None


def test_a_process_that_observes_for_long_keeps_the_role(
    neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    monkeypatch.setattr("neve.service.scheduler._LEAST_ROLE_MS", 300)
    monkeypatch.setattr("neve.service.scheduler._ROLE_TICKS", 0)
    one, other = (Scheduler(neve.connection, store, holder=name) for name in ("one", "other"))
    observe, others = Observer.observe, list[object]()

    def slowly(self: Observer, *values: Any) -> ObservedRound:
        for _ in range(15):
            time.sleep(0.1)
            clock.advance(100)
            others.append(other._take_role())
        return observe(self, *values)

    monkeypatch.setattr(Observer, "observe", slowly)
    decided = one.tick()
    assert decided is not None
    assert [job.table for job in decided.enqueue] == ["lake.sales.many"]
    assert not any(others)


def test_a_job_that_nobody_takes_over_is_decided_anew(
    neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    [job] = store.jobs.waiting()
    store.jobs.enqueue([job.model_copy(update={"target": "removed"})], clock.now_ms())
    assert store.jobs.claim("dead", now_ms=clock.now_ms(), claim_ms=60_000, targets=["removed"]) is not None
    clock.advance(5 * 60_000)
    scheduler.tick()
    assert jobs(store) == {"lake.sales.many": JobState.CLAIMED}
    clock.advance(2 * 60_000)
    scheduler.tick()
    [again] = store.jobs.waiting()
    assert (again.job_id, again.target, again.deaths) == (job.job_id, "local", 1)


def test_a_table_that_cannot_be_read_is_reported_and_stops_no_other(
    neve: Neve, store: StateStore, catalog: SqlCatalog, tmp_path: Path
) -> None:
    write(catalog, "broken", 1)
    write(catalog, "many", 6)
    for file in (tmp_path / "lake" / "sales" / "broken" / "metadata").glob("*.metadata.json"):
        file.write_text("{", encoding="utf-8")
    apply(store, small_files(5))
    Scheduler(neve.connection, store, holder="one").tick()
    assert jobs(store) == {"lake.sales.many": JobState.WAITING}
    broken = store.fleet.entry("lake.sales.broken")
    assert broken is not None
    assert broken.trouble is not None


def test_a_catalog_that_is_away_keeps_its_tables_and_jobs(
    neve: Neve, store: StateStore, catalog: SqlCatalog, tmp_path: Path, clock: FixedClock
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    catalog.close()
    (tmp_path / "lake.db").rename(tmp_path / "away.db")
    clock.advance(30_000)
    scheduler.tick()
    assert jobs(store) == {"lake.sales.many": JobState.WAITING}
    entry = store.fleet.entry("lake.sales.many")
    assert entry is not None
    assert entry.vanished_ms is None


def test_a_run_on_a_table_makes_it_the_first_to_be_observed_again(
    neve: Neve, store: StateStore, catalog: SqlCatalog, clock: FixedClock
) -> None:
    write(catalog, "many", 6)
    apply(store, small_files(5))
    scheduler = Scheduler(neve.connection, store, holder="one")
    scheduler.tick()
    job = store.jobs.claim("w", now_ms=clock.now_ms(), claim_ms=60_000)
    assert job is not None
    store.jobs.start(job, now_ms=clock.now_ms())
    catalog.load_table("sales.many").append(ROWS)
    clock.advance(1_000)
    store.jobs.finish(job, state=JobState.DONE, outcome="done", message="", now_ms=clock.now_ms())
    clock.advance(1_000)
    scheduler.tick()
    entry = store.fleet.entry("lake.sales.many")
    assert entry is not None
    assert entry.observation is not None
    assert entry.observation.inspected is not None
    assert entry.observation.inspected.data_files == 7
