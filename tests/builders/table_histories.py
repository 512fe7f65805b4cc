"""A state store with the history of two tables: health, runs of which one is a step of another, and a job."""

from __future__ import annotations

from typing import Any

from neve.context.runs import keep_record
from neve.maintenance.record import Operation
from neve.maintenance.steps import MaintainRecord
from neve.rewrite.record import RunOutcome
from neve.rewrite.run_summary import RunKeeper
from neve.rewrite.usage import CpuSeconds, Requests, Used
from neve.scheduling.job import JobState, Spent
from neve.state import StateStore
from neve.state.rows import Run
from tests.builders.jobs import DAY, HOUR, MINUTE, decision, inspected, observation
from tests.builders.maintenance_records import make_expiry
from tests.builders.run_records import AFTER, BEFORE, make_record

ORDERS, ITEMS = "lake.db.orders", "lake.db.items"


def make_history(store: StateStore, now_ms: int) -> None:
    """Orders became healthier in three days, by a maintain run whose step compacted. The expiry of items failed."""
    for days, health in ((3, 42), (2, 55), (1, 97)):
        entry = inspected(now_ms - days * DAY, health=health, data_files=1_000 // days, data_bytes=2_000_000)
        store.fleet.add_health([observation("orders", inspected=entry)])
    _keep_compaction(store, now_ms - 2 * DAY)
    _keep_maintain(store, now_ms - 2 * DAY)
    failed = make_expiry(
        run_id="c3", table=ITEMS, table_uuid="uuid-items", outcome=RunOutcome.FAILED, reason="denied", **_times(now_ms - HOUR)
    )
    keep_record(store, failed, "expire")
    store.start_run(Run("d4", "uuid-items", ITEMS, "compact", now_ms - MINUTE))
    _keep_job(store, now_ms)


def measured(**values: Any) -> Used:
    """What a run on local Spark used."""
    known = {"requests": Requests(read=20, write=4, catalog=3, uncounted=("jvm",)), "money": 0.02, "predicted_money": 0.01}
    return Used(**{"cpu_seconds": CpuSeconds(python=1.5, jvm=6.0, workers=2.5), "prices": "2026-07", **known, **values})


def _times(started_ms: int) -> dict[str, int]:
    return {"started_ms": started_ms, "finished_ms": started_ms + MINUTE}


def _keep_compaction(store: RunKeeper, started_ms: int) -> None:
    known = {"run_id": "a1", "table": ORDERS, "table_uuid": "uuid-orders", **_times(started_ms)}
    known |= {"elapsed_seconds": 60.0, "session_start_seconds": 9.0, "used": measured(part_of_another=True, money=0.015)}
    store.keep_run(make_record(**known).between(BEFORE, AFTER), ())


def _keep_maintain(store: StateStore, started_ms: int) -> None:
    record = MaintainRecord(
        run_id="b2",
        table=ORDERS,
        table_uuid="uuid-orders",
        operation=Operation.MAINTAIN,
        outcome=RunOutcome.DONE,
        health_before=55,
        health_after=97,
        elapsed_seconds=61.0,
        used=measured(),
        **_times(started_ms),
    )
    keep_record(store, record, "maintain")


def _keep_job(store: StateStore, now_ms: int) -> None:
    predicted = Spent(bytes=2**33, core_seconds=10.0, money=0.01)
    store.jobs.enqueue([decision("orders", policy="hot", owner="sales", predicted=predicted)], now_ms - DAY)
    job = store.jobs.claim("worker-1", now_ms=now_ms - DAY + MINUTE, claim_ms=MINUTE)
    assert job is not None
    store.jobs.start(job, "a1", now_ms=now_ms - DAY + MINUTE)
    spent = Spent(bytes=2**34, core_seconds=12.5, money=0.02, prices="2026-07")
    moment = now_ms - DAY + 2 * MINUTE
    store.jobs.finish(job, state=JobState.DONE, outcome="done", message="212 files", now_ms=moment, actual=spent)
