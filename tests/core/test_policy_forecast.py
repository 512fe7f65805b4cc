"""What policies would do in the next hours, what holds for a table, and which policies suit it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from neve.health.inspection import Finding, Health, Workload, WorkloadKind
from neve.operations.policy_options import operation_problems, option_names
from neve.policy.document import Document, PolicyDocument, TeamDocument
from neve.policy.effective import EffectivePolicy, effective_policy
from neve.policy.workload_presets import WORKLOAD_PRESETS
from neve.rewrite.record import RunOutcome
from neve.scheduling.explanation import counted_runs, outlooks
from neve.scheduling.forecast import MOST_RUNS, ExpectedRun, ForecastTable, forecast
from neve.scheduling.job import Spent
from neve.scheduling.observation import Counters, Inspected, LastRun, Observation
from neve.scheduling.suggestion import preset_for, suggestions
from neve.table.units import GIB, MIB, TIB
from tests.builders.inspections import NOW_MS as INSPECTED_MS
from tests.builders.inspections import make_inspection

MINUTE, HOUR = 60_000, 3_600_000
NOW = int(datetime(2026, 5, 4, 12, tzinfo=UTC).timestamp() * 1000)  # a Monday


def policy(name: str = "p", **keys: Any) -> PolicyDocument:
    return PolicyDocument.model_validate({"name": name, "tables": "*"} | keys)


def resolved(*documents: Document, table: str = "c.db.t") -> EffectivePolicy:
    return effective_policy(table, {}, documents, operations=option_names())


def observed(table: str = "c.db.t", *, small_files: int | None = None, commits: int = 0) -> Observation:
    found = None
    if small_files is not None:
        numbers = {"health": 50, "data_files": 100, "data_bytes": 100 * MIB, "delete_files": 0, "small_bytes": 50 * MIB}
        found = Inspected(snapshot_id=1, inspected_ms=NOW, small_files=small_files, **numbers)
    return Observation(
        table=table,
        uuid=table,
        metadata_location="m",
        observed_ms=NOW,
        data_files=100,
        total_bytes=100 * MIB,
        delete_files=0,
        counters=Counters(commits=commits),
        inspected=found,
    )


def ran(operation: str = "compact", hours_ago: float = 1, **more: Any) -> LastRun:
    at = NOW - round(hours_ago * HOUR)
    return LastRun(operation=operation, started_ms=at, finished_ms=at + 1, **more)


def expected(
    *documents: Document, seen: Observation | None = None, last: dict[str, LastRun] | None = None, **how: Any
) -> list[tuple[str, list[float], str | None]]:
    """Operations with the hours from now at which they run, and what they wait for."""
    table = ForecastTable(resolved(*documents), seen or observed(), last or {})
    [found] = forecast([table], {}, NOW, predict=lambda *_: Spent(bytes=10), **how)
    return [(one.operation, [hours(run) for run in one.runs if run.held_by is None], one.waits_for) for one in found.operations]


def hours(run: ExpectedRun) -> float:
    return round((run.at_ms - NOW) / HOUR, 2)


def test_cron_times_come_as_often_as_they_fit() -> None:
    daily = policy(operations="compact", schedule={"cron": "0 2 * * *"})
    assert expected(daily, last={"compact": ran(hours_ago=2)}) == [("compact", [14.0], None)]
    assert expected(daily, last={"compact": ran(hours_ago=2)}, length_ms=48 * HOUR) == [("compact", [14.0, 38.0], None)]
    assert expected(daily, last={"compact": ran(hours_ago=20)}) == [("compact", [0.0, 14.0], None)]


def test_a_state_makes_an_operation_due_once_since_nobody_is_taken_to_write() -> None:
    small = policy(operations="compact", triggers={"small-files": 10})
    assert expected(small, seen=observed(small_files=10)) == [("compact", [0.0], None)]
    assert expected(small, seen=observed(small_files=9)) == [("compact", [], "9 small files (10 are needed)")]
    commits = policy(operations="compact", triggers={"commits": 3})
    assert expected(commits, seen=observed(commits=3)) == [("compact", [0.0], None)]


def test_what_is_due_waits_for_its_window() -> None:
    night = policy(operations="compact", triggers={"commits": 3}, schedule={"windows": "22:00-06:00"})
    assert expected(night, seen=observed(commits=3)) == [("compact", [10.0], None)]
    [(_, runs, reason)] = expected(night, seen=observed(commits=3), length_ms=5 * HOUR)
    assert runs == []
    assert (
        reason == "3 commits since the table was first seen (3 are enough); outside its windows (opens at 2026-05-04 22:00 UTC)"
    )


def test_the_time_since_the_last_run_comes_again_and_again() -> None:
    often = policy(operations="compact", triggers={"since-last-run": "6 h"})
    assert expected(often, last={"compact": ran(hours_ago=1)}) == [("compact", [5.0, 11.0, 17.0, 23.0], None)]
    busy = policy(operations="compact", schedule={"cron": "* * * * *"})
    [(_, runs, _)] = expected(busy, last={"compact": ran()}, length_ms=72 * HOUR)
    assert len(runs) == MOST_RUNS


def test_a_day_limit_holds_runs_back_and_begins_again_at_midnight() -> None:
    hourly = policy(operations="compact", triggers={"since-last-run": "4 h"}, limits={"per-day": {"bytes": 25}})
    last = {"compact": ran(hours_ago=4)}
    assert expected(hourly, last=last) == [("compact", [0.0, 4.0, 12.0, 16.0], None)]
    assert expected(hourly, last=last, spent={"policy p": Spent(bytes=20)}) == [("compact", [12.0, 16.0], None)]


def test_tables_of_a_team_share_its_day_and_higher_priority_goes_first() -> None:
    sales = TeamDocument.model_validate({"name": "sales", "limits": {"per-day": {"bytes": 10}}})
    low = policy("low", tables="c.db.a", owner="sales", operations="compact", triggers={"commits": 1})
    high = policy("high", tables="c.db.b", owner="sales", operations="compact", triggers={"commits": 1}, priority=5)
    tables = [ForecastTable(resolved(sales, low, high, table=name), observed(name, commits=1)) for name in ("c.db.a", "c.db.b")]
    first, second = forecast(tables, {}, NOW, predict=lambda *_: Spent(bytes=10))
    assert [run.held_by for run in first.operations[0].runs] == ["team sales"]
    assert [run.held_by for run in second.operations[0].runs] == [None]


def test_an_operation_says_when_it_is_due_and_why_not() -> None:
    daily = policy(operations=["compact", "expire"], schedule={"cron": "0 2 * * *"}, triggers={"commits": 3})
    found = outlooks(resolved(daily), observed(commits=1), {"compact": ran()}, {"p": NOW}, NOW)
    assert [(one.operation, one.is_due, one.next_ms, one.last_run_ms) for one in found] == [
        ("compact", False, NOW + 14 * HOUR, NOW - HOUR),
        ("expire", False, NOW + 14 * HOUR, None),
    ]
    assert found[0].reason.startswith("1 commit since the last run (3 are needed); scheduled for 2026-05-05 02:00 UTC")


def test_a_run_of_maintain_counts_for_what_it_includes() -> None:
    both = resolved(policy(operations=["maintain", "expire", "tags"], triggers={"since-last-run": "6 h"}))
    last = {"maintain": ran("maintain", 1, outcome=RunOutcome.DONE), "expire": ran("expire", 9), "tags": ran("tags", 9)}
    found = counted_runs(both, last)
    assert found["expire"].started_ms == NOW - HOUR
    assert counted_runs(resolved(policy(operations="expire", triggers={"commits": 1})), last) == last


def inspection(
    table: str = "c.db.t", kind: WorkloadKind = WorkloadKind.BATCH, *, size: int = GIB, rows: int = 1, **more: Any
) -> Any:
    workload = Workload(
        kind=kind, evidence="some writes", commits=3, window_seconds=1, median_gap_seconds=1, last_write_ms=INSPECTED_MS
    )
    update = {"table": table, "workload": workload, "data_bytes": size, "rows": rows, "data_files": 10}
    return make_inspection().model_copy(update={"health": Health(score=100, findings=()), **update, **more})


@pytest.mark.parametrize(
    ("found", "preset"),
    [
        (inspection(kind=WorkloadKind.CDC, size=9 * TIB), "cdc"),
        (inspection(kind=WorkloadKind.STREAMING), "streaming"),
        (inspection(size=200 * GIB, rows=10**9), "huge"),
        (inspection(size=50 * GIB, rows=10**9), "normal"),
        (inspection(size=3 * TIB), "large"),
        (inspection(kind=WorkloadKind.APPEND, size=GIB), "append"),
        (inspection(size=GIB), "small"),
        (inspection(kind=WorkloadKind.COLD, size=8 * GIB), "normal"),
        (inspection(kind=WorkloadKind.EMPTY, data_bytes=None, data_files=None), "small"),
    ],
)
def test_a_preset_is_suggested_by_how_a_table_is_written_and_its_size(found: Any, preset: str) -> None:
    assert preset_for(found)[0] == preset


def test_tables_are_grouped_by_preset_and_whole_namespaces_become_patterns() -> None:
    streams = [inspection(f"c.raw.{name}", WorkloadKind.STREAMING) for name in "ab"]
    mixed = [inspection("c.db.a", WorkloadKind.STREAMING), inspection("c.db.x[1]"), inspection("d.db.b")]
    names = [one.table for one in (*streams, *mixed)]
    found = {one.policy.name: one for one in suggestions([*streams, *mixed], names)}
    assert {name: one.policy.tables for name, one in found.items()} == {
        "c-small": ("c.db.x[[]1]",),
        "c-streaming": ("c.db.a", "c.raw.*"),
        "d-small": ("d.db.b",),
    }
    assert found["c-streaming"].reasons == tuple(
        f"{name}: 1 GB in 10 files; some writes" for name in ("c.db.a", "c.raw.a", "c.raw.b")
    )


def test_a_namespace_of_which_a_table_was_not_inspected_is_not_a_pattern() -> None:
    found = suggestions([inspection("c.db.a"), inspection("c.db.b")], ["c.db.a", "c.db.b", "c.db.sub.c"])
    assert found[0].policy.tables == ("c.db.a", "c.db.b")


def test_old_snapshots_and_many_manifests_get_policies_of_their_own() -> None:
    def finding(operation: str) -> Finding:
        return Finding(
            code="x", title="x", weight=5, severity=1, evidence=f"reason for {operation}", fix="x", operation=operation
        )

    health = Health(score=50, findings=(finding("expire"), finding("manifests"), finding("compact")))
    found = {one.policy.name: one for one in suggestions([inspection(health=health)], ["c.db.t"])}
    assert set(found) == {"c-small", "c-expiry", "c-manifests"}
    assert found["c-expiry"].reasons == ("c.db.t: reason for expire",)
    choices = [choice for one in found.values() for choice in one.policy.operations]
    assert [choice.name for choice in choices] == ["compact", "expire", "settle", "purge", "manifests"]
    assert [problem for choice in choices for problem in operation_problems(choice)] == []


def test_only_some_tables_are_listed_as_reasons() -> None:
    found = suggestions(
        [inspection(f"c.db.t{number:02d}") for number in range(25)], [f"c.db.t{number:02d}" for number in range(25)]
    )
    assert len(found[0].reasons) == 21
    assert found[0].reasons[-1] == "and 5 more tables"


def test_every_workload_preset_says_whom_it_suits() -> None:
    assert all(preset.suits for preset in WORKLOAD_PRESETS.values())
