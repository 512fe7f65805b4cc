"""Digests of a real store: jobs of each team, what their runs gained, pauses, and what waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from neve.scheduling.job import JobState, Spent
from neve.scheduling.notice import DayDigest
from neve.service.notify import digest_source
from neve.service.notify.digest_source import gain_of, open_digests
from neve.settings.notifications import NotificationSettings
from neve.state import Run, StateStore
from tests.builders.jobs import DAY, HOUR, MINUTE, NOW, decision, observation

ENDS = NOW - NOW % DAY + 8 * HOUR
"""Of a period: 08:00 UTC."""
NIGHT = ENDS - 6 * HOUR
SETTINGS = NotificationSettings.model_validate({"channels": {"ops": {"kind": "webhook", "url": "https://ops.test"}}})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{tmp_path / 'state.db'}") as opened:
        yield opened


def end(
    store: StateStore,
    table: str,
    *,
    state: JobState = JobState.DONE,
    at_ms: int = NIGHT,
    run_id: str | None = None,
    actual: Spent | None = None,
    paused_ms: int | None = None,
    **values: Any,
) -> None:
    """A job that was wanted, claimed and ended."""
    store.jobs.enqueue([decision(table, **values)], at_ms - 2)
    claimed = store.jobs.claim("w", now_ms=at_ms - 1, claim_ms=HOUR)
    assert claimed is not None
    assert store.jobs.start(claimed, now_ms=at_ms - 1)
    assert store.jobs.finish(
        claimed,
        state=state,
        outcome=state.value,
        message=f"{table} {state.value}",
        now_ms=at_ms,
        run_id=run_id,
        actual=actual,
        paused_until_ms=paused_ms,
    )


def keep(store: StateStore, run_id: str, kind: str, record: Mapping[str, Any]) -> str:
    """A run with its record."""
    store.start_run(Run(run_id, "uuid-a", "lake.db.a", kind, NIGHT - 1))
    store.finish_run(run_id, finished_ms=NIGHT, outcome="done", record=record)
    return run_id


def digests(store: StateStore, now_ms: int = ENDS) -> dict[str, DayDigest]:
    """What a new process writes, by team."""
    open_digests(store, SETTINGS).write_due(now_ms)
    return {
        notice.owner: DayDigest.model_validate(notice.content)
        for notice in store.notices.notices(limit=1000)
        if notice.kind == "digest"
    }


def test_each_team_reads_what_its_jobs_did_gained_and_spent(store: StateStore) -> None:
    compacted = keep(store, "r1", "compact", {"files_compacted": 210, "files_written": 10, "bytes_read": 5, "bytes_written": 3})
    purged = keep(store, "r2", "quarantine", {"operation": "purge", "files": 9, "size_bytes": 4096})
    end(store, "a", owner="sales", run_id=compacted, actual=Spent(bytes=8, core_seconds=2.0, money=0.5))
    end(store, "a", owner="sales", operation="purge", run_id=purged, actual=Spent(core_seconds=1.0))
    end(store, "b", owner="sales", state=JobState.FAILED, paused_ms=ENDS + HOUR)
    end(store, "c")
    found = digests(store)
    assert sorted(found) == ["", "sales"]
    sales = found["sales"]
    assert [(total.operation, total.runs, total.tables) for total in sales.done] == [("compact", 1, 1), ("purge", 1, 1)]
    assert (sales.files_fewer, sales.bytes_freed) == (200, 4096)
    assert (sales.bytes_used, sales.core_seconds, sales.money, sales.unmeasured) == (8, 3.0, 0.5, 1)
    assert [(line.table, line.operation, line.text) for line in sales.failed] == [("lake.db.b", "compact", "b failed")]
    assert [(line.table, line.text, line.at_ms) for line in sales.paused] == [("lake.db.b", "b failed", ENDS + HOUR)]
    assert (found[""].done[0].runs, found[""].files_fewer) == (1, None)


def test_only_jobs_that_ended_in_the_period_count_its_beginning_included(store: StateStore) -> None:
    for table, at_ms in {"before": ENDS - DAY - 1, "first": ENDS - DAY, "last": ENDS - 1, "after": ENDS}.items():
        end(store, table, at_ms=at_ms)
    assert digests(store, ENDS + HOUR)[""].done[0].runs == 2


def test_many_jobs_are_read_in_pages(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_source, "PAGE", 2)
    for number in range(7):
        end(store, f"t{number}", at_ms=NIGHT + number % 3)
    assert (digests(store)[""].done[0].runs, digests(store)[""].done[0].tables) == (7, 7)


def test_the_gain_of_maintain_is_that_of_its_steps(store: StateStore) -> None:
    keep(store, "s1", "compact", {"files_compacted": 30, "files_written": 1})
    keep(store, "s2", "deletes", {"deletes_removed": 12, "data_files": 2})
    steps = [{"run_id": "s1"}, {"run_id": "s2"}, {"run_id": None}, {"run_id": "forgotten"}]
    end(store, "a", operation="maintain", run_id=keep(store, "m", "maintain", {"steps": steps}))
    assert digests(store)[""].files_fewer == 39


def test_a_run_that_the_store_has_forgotten_gains_nothing_known(store: StateStore) -> None:
    end(store, "a", run_id="forgotten")
    assert digests(store)[""].files_fewer is None


@pytest.mark.parametrize(
    ("kind", "record", "gain"),
    [
        ("cluster", {"files_compacted": 8, "files_written": 9}, (-1, 0)),
        ("ttl", {"counts": {"files_dropped": 4}}, (4, 0)),
        ("ttl", {"counts": {"files_dropped": 4}, "dry_run": True}, None),
        ("quarantine", {"operation": "settle", "size_bytes": 77}, None),
        ("expire", {"size_bytes": 77}, None),
        ("later", {}, None),
        ("compact", {}, (0, 0)),
    ],
)
def test_the_record_of_a_run_says_what_it_gained(kind: str, record: Mapping[str, Any], gain: tuple[int, int] | None) -> None:
    found = gain_of(kind, record)
    assert (None if found is None else (found.files_fewer, found.bytes_freed)) == gain


def test_a_pause_by_hand_is_listed_with_the_tables_name_and_one_that_is_over_is_not(store: StateStore) -> None:
    store.fleet.record([observation("a")])
    store.pauses.pause("uuid-a", "compact", until_ms=ENDS + DAY, table="lake.db.a", by="ada")
    end(store, "b", state=JobState.FAILED, paused_ms=NIGHT + MINUTE)
    found = digests(store)[""]
    assert [(line.table, line.operation, line.text, line.at_ms) for line in found.paused] == [
        ("lake.db.a", "compact", "", ENDS + DAY)
    ]


def test_jobs_that_wait_are_listed_by_rank_unless_they_were_added_after_the_period(store: StateStore) -> None:
    store.jobs.enqueue([decision("low", rank=1.0), decision("high", rank=9.0)], NIGHT)
    store.jobs.enqueue([decision("new", rank=99.0)], ENDS + 1)
    found = digests(store, ENDS + 2)[""]
    assert [line.table for line in found.waiting] == ["lake.db.high", "lake.db.low"]
    assert (found.waiting[0].text, found.waiting_count) == ("212 small files", 2)


def test_a_service_that_just_started_writes_no_digest_of_the_day_before(store: StateStore) -> None:
    store.jobs.enqueue([decision("a")], ENDS + HOUR)
    assert digests(store, ENDS + HOUR) == {}


def test_two_processes_write_one_digest(store: StateStore) -> None:
    end(store, "a")
    assert open_digests(store, SETTINGS).write_due(ENDS) == 1
    assert open_digests(store, SETTINGS).write_due(ENDS + 1) == 0


def test_a_service_that_was_down_in_the_morning_writes_it_when_it_starts(store: StateStore) -> None:
    end(store, "a")
    assert open_digests(store, SETTINGS).write_due(ENDS + 20 * HOUR) == 1
    assert open_digests(store, SETTINGS).write_due(ENDS + DAY) == 0
