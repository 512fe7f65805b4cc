"""A simulated month: nobody starves, budgets hold, no table is maintained twice at a time, blackouts are respected."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from neve.policy.document import Document
from neve.scheduling.backoff import DEFAULT_BACKOFF
from tests.builders.scheduling import DAY, HOUR, MINUTE, policy, team
from tests.builders.simulated_month import Figures, SimulatedTable, Simulation

BERLIN = ZoneInfo("Europe/Berlin")
NAMESPACES = ("hot", "core", "batch", "misc")


def fleet(number: int) -> list[SimulatedTable]:
    """Tables with a load that falls with their rank: a few get most of the commits, most get one in several hours."""
    return [
        SimulatedTable(
            f"lake.{NAMESPACES[rank % 4]}.t{rank}",
            commits_per_hour=max(0.2, 120 / (1 + rank / 4)),
            always_fails=rank % 50 == 7,
        )
        for rank in range(number)
    ]


def documents(number: int) -> list[Document]:
    """The budget of `batch` is a fraction of what its tables need.

    At each tick, which takes 30 minutes here, a team gets at most 9 jobs for each run that it may have at a time.
    """
    return [
        policy("hot", "lake.hot.*", operations=["maintain"], owner="web", triggers={"small-files": 30, "at-most-every": "1 h"}),
        policy(
            "core",
            "lake.core.*",
            operations=["compact"],
            owner="core",
            triggers={"small-files": 20},
            schedule={"windows": "22:00-06:00", "blackouts": ["sat 00:00-24:00", "2026-10-22"], "time-zone": "Europe/Berlin"},
        ),
        policy(
            "expiry",
            "lake.core.*",
            operations=["expire"],
            owner="core",
            schedule={"cron": "30 2 * * *", "time-zone": "Europe/Berlin"},
        ),
        policy(
            "batch",
            "lake.batch.*",
            operations=["compact"],
            triggers={"small-files": 10},
            limits={"per-day": {"bytes": f"{number * 40} MB"}, "per-run": {"bytes": "500 MB"}},
        ),
        policy(
            "misc",
            "lake.misc.*",
            operations=["compact", "expire"],
            triggers={"since-last-run": "1 day"},
            schedule={"blackouts": "mon-fri 09:00-17:00", "time-zone": "America/New_York"},
        ),
        team(
            "web",
            concurrency=max(3, number // 100),
            **{"time-zone": "America/New_York"},
            limits={"per-day": {"core-seconds": number * 20}},
        ),
        team(
            "core",
            concurrency=max(2, number // 150),
            **{"time-zone": "Europe/Berlin"},
            limits={"per-day": {"money": number / 1000}},
        ),
    ]


START = datetime(2026, 10, 18, tzinfo=UTC)
"""A week before daylight saving ends in Berlin, two before it ends in New York."""
LONGEST_WAITS = {
    "hot": 24 * HOUR,
    "expiry": 12 * HOUR,
    # Windows and blackouts included: from Friday morning to Sunday night it may not begin.
    "core": 3 * DAY,
    "misc": 24 * HOUR,
    # Its budget is a fraction of what its tables need.
    "batch": 5 * DAY,
}
"""How long an operation is due at most before it begins, by policy. Pauses after failures do not count."""


def simulated(number: int, days: int) -> Figures:
    start_ms = int(START.timestamp()) * 1000
    simulation = Simulation(
        fleet(number), documents(number), start_ms=start_ms, workers=6, tick_ms=30 * MINUTE, max_waiting=max(30, number // 10)
    )
    return simulation.run(start_ms + days * DAY)


def local_night(at_ms: int) -> date:
    """The day of the last 02:30 in Berlin, of which the first counts where there are two."""
    day = datetime.fromtimestamp(at_ms / 1000, BERLIN).date()
    half_past_two = datetime.combine(day, time(2, 30), BERLIN)
    return day if at_ms >= half_past_two.timestamp() * 1000 else day - timedelta(days=1)


def require_nobody_starved(found: Figures) -> None:
    longest = {name: max(waits) for name, waits in found.waits.items()}
    assert {name: wait for name, wait in longest.items() if wait[0] > LONGEST_WAITS[name]} == {}
    policy_of = {
        ("hot", "maintain"): "hot",
        ("core", "compact"): "core",
        ("core", "expire"): "expiry",
        ("batch", "compact"): "batch",
    }
    for waited, table, operation in found.still_due:
        name = policy_of.get((table.split(".")[1], operation), "misc")
        assert waited <= LONGEST_WAITS[name], (table, operation)


def require_pauses_grew(found: Figures, tables: int) -> None:
    """Where a table always fails, each pause is twice the one before, up to a day."""
    failing = [pauses for (name, _), pauses in found.pauses.items() if int(name.rpartition("t")[2]) % 50 == 7]
    assert len(failing) >= tables // 50
    for pauses in failing:
        assert [failures for failures, _ in pauses] == list(range(1, len(pauses) + 1))
        lengths = [length for _, length in pauses]
        longest = round(DEFAULT_BACKOFF.max_seconds * 1000)
        for before, after in pairwise(lengths):
            assert abs(after - 2 * before) <= 1 or (after >= before and after >= 0.8 * longest)
        assert lengths[-1] >= 0.8 * longest


def require_each_night_once(found: Figures, days: int) -> None:
    """Cron at 02:30 in Berlin, which comes twice in the night in which daylight saving ends."""
    checked = 0
    for (name, operation), begun in found.begun_at.items():
        if operation != "expire" or not name.startswith("lake.core.") or int(name.rpartition("t")[2]) % 50 == 7:
            continue
        failures = len(found.pauses.get((name, operation), ()))
        assert len({local_night(at_ms) for at_ms in begun}) == days, name
        assert days <= len(begun) <= days + failures, name
        checked += 1
    assert checked


def require_all(found: Figures, number: int, days: int) -> None:
    assert set(found.begun) == {"hot", "core", "expiry", "batch", "misc"}
    assert min(found.deaths, found.refused, found.failed) > 0
    assert found.longest_queue <= max(30, number // 10)
    assert max(found.used["policy batch"]) > 0.95, "the budget was never reached, so nothing shows that it holds"
    require_nobody_starved(found)
    require_pauses_grew(found, number)
    require_each_night_once(found, days)


def test_ten_days_of_300_tables() -> None:
    require_all(simulated(300, 10), 300, 10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_month_of_2000_tables() -> None:
    require_all(simulated(2_000, 30), 2_000, 30)
