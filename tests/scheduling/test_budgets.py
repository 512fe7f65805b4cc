"""What limits leave: of a day, for a run, and what `maintain` covers."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.document import Amounts, Document
from neve.policy.effective import DayLimit
from neve.rewrite.cost import Rates
from neve.scheduling.coverage import included, with_maintain
from neve.scheduling.day_budget import DayBudgets, day_starts, next_day
from neve.scheduling.job import Decision, Spent
from neve.scheduling.names import by_uuid
from neve.scheduling.prediction import DIVISIBLE_OPERATIONS, Costs, spent_on
from neve.scheduling.run_bounds import MAX_BYTES, MAX_COST, UNLIMITED, Allowance, Need, RunLimits, bound, reserved
from neve.table.units import GIB, MIB
from tests.builders.scheduling import (
    DAY,
    HOUR,
    NOW,
    OPERATIONS,
    inspected,
    last_run,
    observation,
    policy,
    resolver,
    team,
    waiting_job,
)

COSTS = Costs(Rates(core_hour=3600.0))
"""A core second costs 1."""


def at(zone: str, *moment: int) -> int:
    return int(datetime(*moment, tzinfo=ZoneInfo(zone)).timestamp()) * 1000  # type: ignore[arg-type,misc]


def day_limit(scope: str = "team sales", zone: str = "UTC", **amounts: Any) -> DayLimit:
    return DayLimit(scope=scope, time_zone=zone, amounts=Amounts.model_validate(amounts))


# Days


def test_each_scope_has_its_own_day_and_only_those_with_limits_count() -> None:
    limits = {"per-day": {"money": 1}}
    documents: list[Document] = [
        policy("a", limits=limits, schedule={"time-zone": "Asia/Tokyo"}),
        policy("b", limits=limits, enabled=False),
        policy("c"),
        team("sales", limits=limits, **{"time-zone": "America/New_York"}),
        team("ops"),
    ]
    assert day_starts(documents, NOW) == {
        "policy a": at("Asia/Tokyo", 2026, 9, 21),
        "team sales": at("America/New_York", 2026, 9, 21),
    }


@pytest.mark.parametrize(
    ("zone", "now", "expected"),
    [
        ("UTC", (2026, 9, 21, 14), (2026, 9, 22)),
        ("UTC", (2026, 9, 21, 0), (2026, 9, 22)),
        ("Europe/Berlin", (2026, 10, 25, 0), (2026, 10, 26)),
        ("Europe/Berlin", (2026, 10, 25, 23, 59), (2026, 10, 26)),
        ("Europe/Berlin", (2027, 3, 28, 0), (2027, 3, 29)),
        ("Europe/Berlin", (2027, 3, 27, 23), (2027, 3, 28)),
    ],
)
def test_the_next_day_begins_at_midnight_also_where_a_day_has_23_or_25_hours(
    zone: str, now: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert next_day(zone, at(zone, *now)) == at(zone, *expected)


def test_what_is_left_counts_what_was_spent_and_reserved() -> None:
    budgets = DayBudgets({"team sales": Spent(bytes=2 * MIB, money=3.0)})
    budgets.reserve(["team sales", "policy a"], Spent(bytes=4 * MIB, core_seconds=1.0, money=1.0), job="compact on t")
    (left,) = budgets.left([day_limit(bytes="10 MB", money=5)])
    assert left.today == Allowance(bytes=14 * MIB, money=1.0)
    assert left.reason(NOW) == (
        "team sales may use 10 MB, 5 of money a day, of which 7 MB, 1 of money are left until 2026-09-22 00:00 UTC"
    )


def test_a_job_whose_use_is_unknown_leaves_nothing_of_what_is_limited() -> None:
    budgets = DayBudgets({})
    budgets.reserve(["team sales"], Spent(), job="stats on t")
    limited, other = budgets.left([day_limit(money=5), day_limit("team ops", money=5)])
    assert (limited.today, other.today.money) == (Allowance(money=-1.0), 5)
    assert limited.reason(NOW) == "it is unknown what stats on t uses, and it counts against the day of team sales"


# Runs


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ({}, inf),
        ({"bytes": "10 MB"}, 10 * MIB),
        ({"core-seconds": "7 s"}, 80 * MIB),
        ({"money": 7}, 80 * MIB),
        ({"money": 7, "core-seconds": "6 s"}, 40 * MIB),
        ({"core-seconds": "4 s"}, -1),
    ],
)
def test_amounts_are_compared_as_the_bytes_that_a_run_may_read(amounts: Any, expected: float) -> None:
    assert Allowance.of(Amounts.model_validate(amounts)).readable(COSTS) == pytest.approx(expected, rel=1e-3)


def test_free_core_seconds_are_not_limited_by_money() -> None:
    assert Allowance(money=1.0).readable(Costs(Rates(core_hour=0.0))) == inf


limits = st.builds(
    lambda size, seconds, money: Allowance(size or inf, seconds or inf, money or inf),
    st.none() | st.floats(1, 10 * GIB),
    st.none() | st.floats(0.1, 500),
    st.none() | st.floats(0.1, 500),
)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(OPERATIONS)),
    st.integers(0, 10 * GIB) | st.none(),
    limits,
    limits,
    st.none() | st.integers(1, 10 * GIB),
    st.floats(0, GIB),
)
def test_a_run_that_is_granted_is_predicted_to_keep_to_every_limit(
    operation: str, read: int | None, per_run: Allowance, today: Allowance, most: int | None, worth: float
) -> None:
    need = Need(read, read)
    found = bound(operation, need, RunLimits(per_run, today, most), COSTS, worth=worth)
    if found.refusal is not None:
        assert (found.knobs, found.predicted) == ({}, Spent())
        return
    assert found.knobs == {} or operation in DIVISIBLE_OPERATIONS
    use = found.reserved
    if use.bytes is None or use.core_seconds is None or use.money is None:
        return
    assert most is None or use.bytes <= 2 * most
    for allowed in (per_run, today):
        assert use.bytes <= allowed.bytes
        assert use.core_seconds <= allowed.core_seconds + 0.002
        assert use.money <= allowed.money + 0.002
    if MAX_BYTES in found.knobs:
        assert 1 <= found.knobs[MAX_BYTES] <= min(per_run.readable(COSTS), inf if most is None else most)
        assert found.knobs.get(MAX_COST, 0) <= per_run.money


def test_a_run_that_fits_is_not_bounded_by_what_is_left_of_the_day() -> None:
    fits = bound("compact", Need(MIB, MIB), RunLimits(today=Allowance(bytes=20 * MIB)), COSTS)
    assert (fits.knobs, fits.refusal) == ({}, None)
    cut = bound("compact", Need(20 * MIB, 20 * MIB), RunLimits(today=Allowance(bytes=20 * MIB, money=9.0)), COSTS)
    assert cut.knobs == {MAX_BYTES: 10 * MIB, MAX_COST: 9.0}


def test_a_run_of_unknown_size_is_bounded_by_what_is_left() -> None:
    found = bound("compact", Need(None, None), RunLimits(today=Allowance(bytes=20 * MIB)), COSTS)
    assert (found.knobs, found.predicted.bytes, found.reserved.bytes) == ({MAX_BYTES: 10 * MIB}, None, 20 * MIB)
    free = bound("compact", Need(None, None), RunLimits(), COSTS)
    assert (free.knobs, free.reserved.bytes) == ({}, None)


def test_no_run_needs_more_than_the_whole_table() -> None:
    assert Need.of("compact", observation(total_bytes=GIB)) == (None, GIB)
    assert Need.of("stats", observation(inspected=inspected(data_bytes=GIB))) == (None, GIB)
    assert Need.of("compact", observation(inspected=inspected(small_bytes=5))) == (5, 5)
    assert Need.of("expire", observation()) == (0, 0)
    assert Need.of("compact", None) == (None, None)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"predicted": spent_on(MIB, Costs())}, 2 * MIB),
        ({"knobs": {MAX_BYTES: 3 * MIB}}, 6 * MIB),
        ({}, 2 * GIB),
    ],
)
def test_a_job_in_the_queue_reserves_what_it_is_predicted_or_allowed_to_use(values: Any, expected: int) -> None:
    job = waiting_job(Decision(table="t", table_uuid="u", operation="compact", reason="", **values))
    assert reserved(job, observation(total_bytes=GIB), Costs()).bytes == expected
    assert UNLIMITED.without(reserved(job, None, Costs())) == UNLIMITED


# Maintain


@pytest.mark.parametrize(
    ("options", "knobs", "expected"),
    [
        ({"only": ("compact", "expire")}, {}, {"compact", "expire"}),
        ({"only": "compact, expire"}, {}, {"compact", "expire"}),
        ({"only": ["compact"], "skip": ["compact"]}, {}, set()),
        ({"only": ["deletes"]}, {"maintain-deletes": "false"}, {"deletes"}),
    ],
)
def test_maintain_includes_the_steps_that_its_options_and_knobs_leave(options: Any, knobs: Any, expected: set[str]) -> None:
    effective = resolver(policy(operations=["maintain"], set=knobs)).effective("lake.sales.orders", {})
    assert included(effective, options) == expected


def test_maintain_includes_everything_but_clustering_unless_told_otherwise() -> None:
    effective = resolver(policy(operations=["maintain"])).effective("lake.sales.orders", {})
    steps = {"tags", "expire", "ttl", "compact", "deletes", "manifests", "stats", "orphans", "settle", "purge"}
    assert included(effective, {}) == steps
    off = resolver(policy(operations=["maintain"], set={"maintain-orphans": False})).effective("lake.sales.orders", {})
    assert included(off, {"skip": ["tags"]}) == steps - {"orphans", "tags"}


def test_the_later_of_two_successful_runs_counts_and_failures_of_the_operation_stay() -> None:
    old, new = last_run("compact", ago=DAY), last_run("maintain", ago=HOUR)
    merged = with_maintain(old, new)
    assert merged is not None
    assert (merged.operation, merged.started_ms) == ("compact", new.started_ms)
    assert with_maintain(last_run("compact", ago=HOUR), last_run("maintain", ago=DAY)) == last_run("compact", ago=HOUR)
    failed = last_run("compact", ago=DAY, failures=2, outcome="failed")
    assert with_maintain(failed, new) == failed
    for outcome in ("failed", "cancelled", None):
        assert with_maintain(old, last_run("maintain", ago=HOUR, outcome=outcome)) == old
        assert with_maintain(None, last_run("maintain", ago=HOUR, outcome=outcome)) is None


# Names


def test_a_name_with_a_job_goes_first_then_one_with_a_policy_then_the_newest_metadata() -> None:
    policies = resolver(policy(tables="lake.prod.*", operations=["compact"]))

    def listed(name: str, **values: Any) -> Any:
        return observation(name, uuid="u", **values), policies.effective(name, {})

    copy, old = listed("lake.copy.t", sequence_number=9), listed("lake.prod.a", sequence_number=3)
    new = listed("lake.prod.b", sequence_number=7)
    found, others = by_uuid([copy, old, new], [])
    assert found["u"][0].table == "lake.prod.b"
    assert [(one[0].table, name) for one, name in others] == [("lake.prod.a", "lake.prod.b"), ("lake.copy.t", "lake.prod.b")]
    job = waiting_job(Decision(table="lake.prod.a", table_uuid="u", operation="compact", reason=""))
    assert by_uuid([copy, old, new], [job])[0]["u"][0].table == "lake.prod.a"
    gone = waiting_job(Decision(table="lake.prod.gone", table_uuid="u", operation="compact", reason=""))
    assert by_uuid([copy, old, new], [gone])[0]["u"][0].table == "lake.prod.b"
