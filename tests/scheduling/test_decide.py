"""What enters the queue and what leaves it, by what is known of the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from neve.policy.document import Document
from neve.scheduling.decide import Decided, Facts, decide
from neve.scheduling.hold import PAUSED_BY_HAND, HoldCode
from neve.scheduling.job import Job, Spent
from neve.scheduling.observation import LastRun, Observation
from neve.scheduling.targets import RunTarget
from neve.table.units import GIB, MIB
from tests.builders.scheduling import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    claimed_job,
    inspected,
    last_run,
    observation,
    policy,
    resolver,
    team,
    waiting_job,
)

ORDERS = "lake.sales.orders"
COMPACT = policy(operations=["compact"], triggers={"small-files": 10})
DAILY = {"since-last-run": "1 day"}
AUTO = {"target": "auto"}


def shabby(table: str = ORDERS, *, small_bytes: int = 100 * MIB, **values: Any) -> Observation:
    """A table with 50 small files."""
    return observation(table, **{"inspected": inspected(small_files=50, small_bytes=small_bytes), **values})


def by_name(*observations: Observation) -> dict[str, Observation]:
    return {one.table: one for one in observations}


def runs(*last: LastRun, table: str = ORDERS) -> Mapping[str, Mapping[str, LastRun]]:
    return {f"uuid of {table}": {one.operation: one for one in last}}


def decided(documents: Iterable[Document], seen: Sequence[Observation], *, now: int = NOW, **facts: Any) -> Decided:
    return decide(Facts(now, by_name(*seen), resolver(*documents), **facts))


def held_reasons(found: Decided, code: HoldCode) -> list[str]:
    return [one.reason for one in found.held if one.code is code]


def queued(found: Decided, **values: Any) -> list[Job]:
    return [waiting_job(one, **values) for one in found.enqueue]


def test_a_table_that_is_due_gets_a_job_with_policy_reason_and_what_it_is_predicted_to_use() -> None:
    documents: list[Document] = [policy(operations=["compact"], triggers={"small-files": 10}, owner="sales"), team("sales")]
    (one,) = decided(documents, [shabby()]).enqueue
    assert (one.table, one.table_uuid, one.operation) == (ORDERS, f"uuid of {ORDERS}", "compact")
    assert one.reason == "50 small files (10 are enough)"
    assert (one.policy, one.owner, one.scopes) == ("all", "sales", ("policy all", "team sales"))
    assert one.predicted.bytes == 200 * MIB
    assert (one.target, one.not_before_ms, one.knobs) == ("local", 0, {})


def test_a_table_that_is_not_due_gets_none_and_is_counted() -> None:
    found = decided([COMPACT], [observation(inspected=inspected(small_files=3))])
    assert (found.enqueue, found.held, found.counts) == ((), (), {HoldCode.NOT_DUE: 1})


def test_a_table_without_a_policy_is_not_considered() -> None:
    assert decided([policy(tables="other.*", operations=["compact"])], [shabby()]) == Decided()


def test_options_of_the_policy_reach_the_job() -> None:
    document = policy(
        operations=[{"name": "compact", "options": {"tier": "minor"}}], triggers={"small-files": 10}, partitions="day=2026-*"
    )
    (one,) = decided([document], [shabby()]).enqueue
    assert one.options == {"tier": "minor", "partitions": ["day=2026-*"]}


def test_an_operation_has_one_job_however_often_it_is_decided() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    again = decided([COMPACT], [shabby()], waiting=waiting)
    assert (again.enqueue, again.withdraw, again.counts) == ((), (), {HoldCode.WAITING: 1})


def test_an_operation_that_runs_gets_no_second_job() -> None:
    running = [claimed_job(one) for one in decided([COMPACT], [shabby()]).enqueue]
    found = decided([COMPACT], [shabby()], claimed=running)
    assert (found.enqueue, found.counts) == ((), {HoldCode.BUSY: 1})


def test_nothing_else_is_enqueued_for_a_table_while_a_job_runs_on_it() -> None:
    documents = [COMPACT, policy("expiry", operations=["expire"], triggers=DAILY)]
    (running,) = (claimed_job(one) for one in decided(documents, [shabby()]).enqueue if one.operation == "compact")
    found = decided(documents, [shabby()], claimed=[running])
    assert found.enqueue == ()
    assert held_reasons(found, HoldCode.BUSY) == ["it never ran here; compact runs on the table"]


def test_a_job_that_is_no_longer_due_is_withdrawn_with_the_reason() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    found = decided([COMPACT], [observation(inspected=inspected(small_files=2))], waiting=waiting)
    assert [one.reason for one in found.withdraw] == ["no longer due: 2 small files (10 are needed)"]
    assert found.enqueue == ()


def test_a_job_whose_run_has_begun_is_finished_although_it_is_no_longer_due() -> None:
    waiting = queued(decided([COMPACT], [shabby()]), attempts=1, started_ms=NOW - MINUTE)
    found = decided([COMPACT], [observation(inspected=inspected(small_files=2))], waiting=waiting)
    assert (found.withdraw, found.enqueue) == ((), ())


@pytest.mark.parametrize(
    ("documents", "seen", "reason"),
    [
        ([], [shabby()], f"no policy names compact for {ORDERS} any more"),
        ([policy(operations=["expire"])], [shabby()], f"no policy names compact for {ORDERS} any more"),
        (
            [COMPACT, policy("off", ORDERS, operations=["compact"], enabled=False)],
            [shabby()],
            "policy off switches compact off",
        ),
        ([COMPACT], [shabby("lake.sales.other")], f"{ORDERS} is no longer listed by its catalog"),
        ([COMPACT], [shabby(uuid="another table")], f"{ORDERS} is no longer listed by its catalog"),
    ],
    ids=["policy gone", "operation gone", "switched off", "table vanished", "another table has the name"],
)
def test_a_job_is_withdrawn_when_nobody_wants_it(documents: list[Document], seen: list[Observation], reason: str) -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    found = decided(documents, seen, waiting=waiting)
    assert [(one.job_id, one.reason) for one in found.withdraw] == [(waiting[0].job_id, reason)]


def test_a_job_that_people_asked_for_is_never_withdrawn_and_stands_for_the_policys() -> None:
    (decision,) = decided([COMPACT], [shabby()]).enqueue
    asked = waiting_job(decision.model_copy(update={"policy": "", "owner": "", "scopes": ()}))
    for documents, seen in (([COMPACT], [shabby()]), ([], [shabby()]), ([COMPACT], [])):
        found = decided(documents, seen, waiting=[asked])
        assert (found.withdraw, found.enqueue) == ((), ())


def test_a_job_of_a_table_that_was_renamed_follows_it() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    renamed = shabby("lake.sales.purchases", uuid=f"uuid of {ORDERS}")
    found = decided([COMPACT], [renamed], waiting=waiting)
    assert found.withdraw == ()
    assert [(one.table, one.rank, one.queue_clock) for one in found.enqueue] == [
        ("lake.sales.purchases", waiting[0].rank, waiting[0].queue_clock)
    ]


def test_a_table_that_is_listed_twice_gets_one_job() -> None:
    names = [shabby(uuid="u"), shabby("lake.copies.orders", uuid="u")]
    found = decided([COMPACT], names)
    assert len(found.enqueue) == 1
    (other,) = (one for one in found.held if one.code is HoldCode.DUPLICATE)
    assert {other.table, found.enqueue[0].table} == {ORDERS, "lake.copies.orders"}
    assert other.reason == f"the same table is listed as {found.enqueue[0].table}"
    again = decided([COMPACT], names[::-1], waiting=queued(found))
    assert (again.enqueue, again.withdraw) == ((), ())


def test_what_changed_in_a_policy_reaches_the_job_that_waits() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    changed = policy(operations=[{"name": "compact", "options": {"tier": "full"}}], triggers={"small-files": 10}, owner="sales")
    (one,) = decided([changed], [shabby()], waiting=waiting).enqueue
    assert (one.options, one.owner, one.rank) == ({"tier": "full"}, "sales", waiting[0].rank)


def test_a_paused_operation_is_held_back_and_its_job_is_withdrawn() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    failed = last_run(failures=3, outcome="failed", paused_until_ms=NOW + HOUR)
    found = decided([COMPACT], [shabby()], waiting=waiting, last_runs=runs(failed))
    reason = "paused until 2026-09-21 15:13 UTC after 3 failures"
    assert held_reasons(found, HoldCode.PAUSED) == [reason]
    assert [one.next_ms for one in found.held] == [NOW + HOUR]
    assert [one.reason for one in found.withdraw] == [reason]


# Windows: it is Monday, 14:13.


def test_a_job_waits_for_its_window_with_its_rank() -> None:
    night = policy(operations=["compact"], triggers={"small-files": 10}, schedule={"windows": "22:00-06:00"})
    opens = NOW + 7 * HOUR + 46 * MINUTE + 40_000
    assert decided([night], [shabby()]).enqueue == ()
    waiting = queued(decided([night], [shabby()], now=opens))
    found = decided([night], [shabby()], waiting=waiting)
    assert found.withdraw == ()
    assert [(one.not_before_ms, one.rank) for one in found.enqueue] == [(opens, waiting[0].rank)]
    (held,) = found.held
    assert (held.code, held.next_ms) == (HoldCode.CLOSED, opens)
    kept = queued(found)
    assert decided([night], [shabby()], waiting=kept, now=opens - MINUTE).enqueue == ()
    assert decided([night], [shabby()], waiting=kept, now=opens).enqueue == ()


def test_a_job_may_begin_until_its_window_closes_also_if_the_scheduler_is_away_by_then() -> None:
    night = policy(operations=["compact"], triggers={"small-files": 10}, schedule={"windows": "22:00-06:00"})
    opens = NOW + 7 * HOUR + 46 * MINUTE + 40_000
    waiting = queued(decided([night], [shabby()], now=opens))
    assert waiting[0].not_after_ms == opens + 8 * HOUR
    assert decided([night], [shabby()], waiting=waiting, now=opens + HOUR).enqueue == ()
    (next_night,) = decided([night], [shabby()], waiting=waiting, now=opens + 9 * HOUR).enqueue
    assert (next_night.not_before_ms, next_night.not_after_ms) == (opens + 24 * HOUR, opens + 32 * HOUR)
    (always,) = decided([COMPACT], [shabby()], waiting=waiting, now=opens).enqueue
    assert always.not_after_ms is None


def test_times_that_the_queue_keeps_by_its_own_clock_are_no_reason_to_change_a_job() -> None:
    night = policy(operations=["compact"], triggers={"small-files": 10}, schedule={"windows": "22:00-06:00"})
    opens = NOW + 7 * HOUR + 46 * MINUTE + 40_000
    (decision,) = decided([night], [shabby()], now=opens).enqueue
    kept = queued(decided([night], [shabby()], waiting=[waiting_job(decision)]))
    near = [job.model_copy(update={"not_before_ms": opens + 7, "not_after_ms": opens + 8 * HOUR - 7}) for job in kept]
    assert decided([night], [shabby()], waiting=near).enqueue == ()
    assert decided([night], [shabby()], waiting=near, now=opens + 10).enqueue == ()


def test_a_job_that_waited_for_a_window_may_begin_once_the_policy_has_none() -> None:
    (decision,) = decided([COMPACT], [shabby()]).enqueue
    (one,) = decided([COMPACT], [shabby()], waiting=[waiting_job(decision, not_before_ms=NOW + HOUR)]).enqueue
    assert one.not_before_ms == 0


def test_a_job_that_was_given_back_waits_for_its_time() -> None:
    (decision,) = decided([COMPACT], [shabby()]).enqueue
    given_back = waiting_job(decision, attempts=1, not_before_ms=NOW + HOUR)
    assert decided([COMPACT], [shabby()], waiting=[given_back]).enqueue == ()


def test_a_time_that_a_wrong_clock_wrote_does_not_keep_a_job_waiting() -> None:
    (decision,) = decided([COMPACT], [shabby()]).enqueue
    (one,) = decided([COMPACT], [shabby()], waiting=[waiting_job(decision, attempts=1, not_before_ms=NOW + 400 * DAY)]).enqueue
    assert one.not_before_ms == 0


def test_a_job_whose_table_is_being_written_waits_until_it_is_quiet() -> None:
    quiet = policy(operations=["compact"], triggers={"small-files": 10, "quiet-for": "1 h"})
    waiting = queued(decided([quiet], [shabby()]))
    found = decided([quiet], [shabby(last_write_ms=NOW - MINUTE)], waiting=waiting)
    assert [one.not_before_ms for one in found.enqueue] == [NOW + 59 * MINUTE]
    assert found.withdraw == ()


# Maintain


BOTH = policy(operations=["maintain", "compact", "expire", "cluster"], triggers=DAILY)


def test_maintain_covers_the_operations_that_it_includes() -> None:
    found = decided([BOTH], [shabby()])
    assert {one.operation for one in found.enqueue} == {"maintain", "cluster"}
    assert {one.operation for one in found.held if one.code is HoldCode.COVERED} == {"compact", "expire"}


@pytest.mark.parametrize(
    ("options", "knobs", "expected"),
    [
        ({"only": ["compact"]}, {}, {"maintain", "expire"}),
        ({"skip": "expire,orphans"}, {}, {"maintain", "expire"}),
        ({}, {"maintain-expire": False}, {"maintain", "expire"}),
        ({}, {"maintain-expire": "off"}, {"maintain", "expire"}),
        ({"only": ["expire"]}, {"maintain-expire": False}, {"maintain", "compact"}),
        ({}, {}, {"maintain"}),
    ],
)
def test_maintain_covers_nothing_that_it_leaves_out(options: Any, knobs: Any, expected: set[str]) -> None:
    operations = [{"name": "maintain", "options": options}, "compact", "expire"]
    found = decided([policy(operations=operations, triggers=DAILY, set=knobs)], [shabby()])
    assert {one.operation for one in found.enqueue} == expected


def test_a_run_of_maintain_counts_for_the_operations_that_it_includes() -> None:
    ran = runs(last_run("maintain", ago=HOUR), last_run("compact", ago=3 * DAY), last_run("cluster", ago=3 * DAY))
    assert [one.operation for one in decided([BOTH], [shabby()], last_runs=ran).enqueue] == ["cluster"]


def test_a_run_of_maintain_that_failed_counts_for_nothing() -> None:
    failed = last_run("maintain", ago=HOUR, outcome="failed", failures=1, paused_until_ms=NOW + HOUR)
    found = decided([BOTH], [shabby()], last_runs=runs(failed, last_run("expire", ago=HOUR)))
    assert {one.operation for one in found.enqueue} == {"compact", "cluster"}


def test_a_job_that_maintain_covers_is_withdrawn() -> None:
    waiting = queued(decided([COMPACT], [shabby()]))
    daily = policy("daily", operations=["maintain"], triggers=DAILY)
    found = decided([COMPACT, daily], [shabby()], waiting=waiting)
    assert [one.operation for one in found.enqueue] == ["maintain"]
    assert [one.reason for one in found.withdraw] == ["maintain is due, and includes it"]


def test_what_maintain_includes_runs_while_maintain_waits_for_its_window() -> None:
    nightly = policy("nightly", operations=["maintain"], triggers=DAILY, schedule={"windows": "22:00-06:00"})
    found = decided([COMPACT, nightly], [shabby()])
    assert [one.operation for one in found.enqueue] == ["compact"]
    parked = waiting_job(
        decided([nightly], [shabby()], now=NOW + 9 * HOUR).enqueue[0], not_before_ms=NOW + 7 * HOUR + 46 * MINUTE + 40_000
    )
    again = decided([COMPACT, nightly], [shabby()], waiting=[parked])
    assert [one.operation for one in again.enqueue] == ["compact"]


def test_what_maintain_includes_runs_if_maintain_is_over_its_limit() -> None:
    limited = policy("limited", operations=["maintain"], triggers=DAILY, limits={"per-run": {"core-seconds": "1 s"}})
    free = [policy("z", operations=["expire"], triggers=DAILY), limited]
    found = decided(free, [shabby()])
    # The limit of every policy that matches applies, to both.
    assert {one.operation for one in found.held if one.code is HoldCode.BUDGET} == {"maintain", "expire"}
    whole = policy("limited", operations=["maintain"], triggers=DAILY, target="missing")
    found = decided([policy("z", operations=["expire"], triggers=DAILY), whole], [shabby()])
    assert [one.operation for one in found.enqueue] == ["expire"]
    assert {one.operation for one in found.held if one.code is HoldCode.NO_TARGET} == {"maintain"}


def test_while_maintain_runs_what_it_includes_is_covered_and_the_rest_is_busy() -> None:
    (running,) = (claimed_job(one) for one in decided([BOTH], [shabby()]).enqueue if one.operation == "maintain")
    found = decided([BOTH], [shabby()], claimed=[running])
    assert found.enqueue == ()
    assert {(one.operation, one.code) for one in found.held} == {
        ("compact", HoldCode.COVERED),
        ("expire", HoldCode.COVERED),
        ("cluster", HoldCode.BUSY),
    }


def test_a_pause_by_hand_outlasts_a_run_of_maintain() -> None:
    paused = last_run("expire", started_ms=0, finished_ms=None, outcome=PAUSED_BY_HAND, paused_until_ms=NOW + HOUR)
    found = decided([BOTH], [shabby()], last_runs=runs(paused, last_run("maintain", ago=HOUR)))
    assert [one.operation for one in found.held if one.code is HoldCode.PAUSED] == ["expire"]


# Limits


def limited(operations: Any = ("compact",), **limits: Any) -> Document:
    return policy(operations=list(operations), triggers={"small-files": 10, **DAILY}, limits=limits)


@pytest.mark.parametrize(
    ("amounts", "knobs"),
    [
        ({"bytes": "10 MB"}, {"max-bytes": 10 * MIB}),
        ({"bytes": "1 GB"}, {"max-bytes": GIB}),
        ({"core-seconds": "6 s"}, {"max-bytes": 40 * MIB + 20_971}),
    ],
)
def test_a_limit_per_run_bounds_a_run_that_can_do_a_part(amounts: Any, knobs: dict[str, Any]) -> None:
    (one,) = decided([limited(**{"per-run": amounts})], [shabby()]).enqueue
    assert one.knobs == knobs
    assert one.predicted.bytes == 2 * min(100 * MIB, knobs["max-bytes"])


def test_a_limit_of_money_per_run_bounds_the_cost_and_the_bytes() -> None:
    (one,) = decided([limited(**{"per-run": {"money": 0.0001}})], [shabby()]).enqueue
    assert one.knobs["max-cost"] == 0.0001
    assert one.predicted.money == pytest.approx(0.0001, rel=1e-3)


def test_an_operation_that_cannot_do_a_part_is_held_back_with_the_reason() -> None:
    documents = [limited(["deletes"], **{"per-run": {"bytes": "10 MB"}})]
    found = decided(documents, [shabby()])
    assert found.enqueue == ()
    (reason,) = held_reasons(found, HoldCode.BUDGET)
    assert reason == (
        "50 small files (10 are enough); it never ran here; a run may use 10 MB: deletes would read 100 MB, 10 MB may be read, "
        "and it cannot do a part of the work"
    )


def test_an_operation_whose_use_is_unknown_is_held_back_by_a_limit_per_run() -> None:
    found = decided([limited(["stats"], **{"per-run": {"bytes": "1 TB"}})], [observation()])
    (reason,) = held_reasons(found, HoldCode.BUDGET)
    assert reason.endswith("a run may use 1 TB: it is unknown what stats would use")
    known = observation(total_bytes=5 * MIB)
    assert len(decided([limited(["stats"], **{"per-run": {"bytes": "1 TB"}})], [known]).enqueue) == 1


def test_operations_on_metadata_are_within_any_limit_of_bytes() -> None:
    assert len(decided([limited(["expire"], **{"per-run": {"bytes": 1}})], [observation()]).enqueue) == 1


def test_a_day_is_given_out_by_prediction_and_the_rest_waits_for_the_next_day() -> None:
    documents = [limited(["deletes"], **{"per-day": {"bytes": "250 MB"}})]
    tables = [shabby(f"lake.sales.t{number}") for number in range(5)]
    found = decided(documents, tables)
    assert len(found.enqueue) == 2
    held = [one for one in found.held if one.code is HoldCode.BUDGET]
    assert len(held) == 3
    midnight = NOW - NOW % DAY + DAY
    assert {one.next_ms for one in held} == {midnight}
    assert held[0].reason == (
        "50 small files (10 are enough); it never ran here; policy all may use 250 MB a day, of which 50 MB is left until "
        "2026-09-22 00:00 UTC: deletes would read 100 MB, 50 MB may be read, and it cannot do a part of the work"
    )


def test_what_ended_runs_used_and_what_running_jobs_are_predicted_to_use_counts() -> None:
    documents = [limited(["deletes"], **{"per-day": {"bytes": "250 MB"}})]
    tables = [shabby(f"lake.sales.t{number}") for number in range(5)]
    spent = {"policy all": Spent(bytes=2 * 100 * MIB)}
    assert len(decided(documents, tables, spent=spent).enqueue) == 1
    running = [claimed_job(one) for one in decided(documents, tables[:1]).enqueue]
    assert decided(documents, tables, spent=spent, claimed=running).enqueue == ()


def test_jobs_that_wait_keep_what_was_reserved_for_them() -> None:
    documents = [limited(["deletes"], **{"per-day": {"bytes": "250 MB"}})]
    tables = [shabby(f"lake.sales.t{number}") for number in range(5)]
    waiting = queued(decided(documents, tables))
    found = decided(documents, tables, waiting=waiting)
    assert (found.enqueue, found.withdraw) == ((), ())


def test_a_job_that_the_day_no_longer_allows_is_withdrawn() -> None:
    documents = [limited(["deletes"], **{"per-day": {"bytes": "250 MB"}})]
    waiting = queued(decided(documents, [shabby()]))
    found = decided(documents, [shabby()], waiting=waiting, spent={"policy all": Spent(bytes=500 * MIB)})
    assert [one.reason.split(":")[0] for one in found.withdraw] == [
        "policy all may use 250 MB a day, of which 0 B is left until 2026-09-22 00"
    ]


@pytest.mark.parametrize(("ago", "stays"), [(15 * HOUR, True), (21 * HOUR, False)])
def test_a_job_keeps_its_place_in_the_day_unless_another_has_waited_twice_as_long(ago: int, stays: bool) -> None:
    document = policy(operations=["deletes"], triggers={"since-last-run": "1 h"}, limits={"per-day": {"bytes": "100 MB"}})
    tables = [shabby("lake.sales.a"), shabby("lake.sales.b")]
    ran = {
        "uuid of lake.sales.a": {"deletes": last_run("deletes", ago=10 * HOUR)},
        "uuid of lake.sales.b": {"deletes": last_run("deletes", ago=ago)},
    }
    waiting = queued(decided([document], tables[:1], last_runs=ran))
    found = decided([document], tables, waiting=waiting, last_runs=ran)
    assert [one.table for one in found.enqueue] == ([] if stays else ["lake.sales.b"])
    assert len(found.withdraw) == (0 if stays else 1)


def test_a_run_that_can_do_a_part_takes_what_is_left_of_the_day() -> None:
    documents = [limited(**{"per-day": {"bytes": "250 MB"}})]
    tables = [shabby(f"lake.sales.t{number}") for number in range(5)]
    found = decided(documents, tables)
    assert sorted(one.knobs.get("max-bytes", 0) for one in found.enqueue) == [0, 0, 50 * MIB]
    assert sum(one.predicted.bytes or 0 for one in found.enqueue) == 2 * 250 * MIB


def test_a_part_too_small_is_not_worth_a_run() -> None:
    documents = [limited(**{"per-day": {"bytes": "250 MB"}})]
    spent = {"policy all": Spent(bytes=2 * 245 * MIB)}
    (reason,) = held_reasons(decided(documents, [shabby()], spent=spent), HoldCode.BUDGET)
    assert reason.endswith("only 5 MB may be read")


def test_a_run_larger_than_a_whole_day_says_so_and_is_done_in_parts_where_possible() -> None:
    huge = shabby(small_bytes=10 * GIB)
    (one,) = decided([limited(**{"per-day": {"bytes": "1 GB"}})], [huge]).enqueue
    assert one.knobs == {"max-bytes": GIB}
    (held,) = decided([limited(["deletes"], **{"per-day": {"bytes": "1 GB"}})], [huge]).held
    assert (held.code, held.next_ms) == (HoldCode.BUDGET, None)


def test_a_run_whose_use_is_unknown_takes_the_rest_of_the_day_until_it_has_ended() -> None:
    documents = [limited(["stats"], **{"per-day": {"money": 10}})]
    tables = [observation(f"lake.sales.t{number}") for number in range(3)]
    found = decided(documents, tables)
    assert len(found.enqueue) == 1
    assert held_reasons(found, HoldCode.BUDGET)[0].endswith(
        f"it is unknown what stats on {found.enqueue[0].table} uses, and it counts against the day of policy all"
    )
    running = [claimed_job(one) for one in found.enqueue]
    assert decided(documents, tables, claimed=running).enqueue == ()
    ended = {"policy all": Spent(money=1.0)}
    assert len(decided(documents, tables, spent=ended).enqueue) == 1


def test_the_limits_of_policy_and_team_both_apply() -> None:
    documents: list[Document] = [
        policy(operations=["deletes"], triggers=DAILY, owner="sales", limits={"per-day": {"bytes": "1 TB"}}),
        team("sales", limits={"per-day": {"core-seconds": "20 s"}}, **{"time-zone": "Asia/Tokyo"}),
    ]
    found = decided(documents, [shabby(f"lake.sales.t{number}") for number in range(5)])
    assert len(found.enqueue) == 2  # each needs 7.5 s
    assert all("team sales may use 20 s of a core a day" in one.reason for one in found.held)
    tokyo_midnight = NOW - NOW % DAY + 15 * HOUR
    assert {one.next_ms for one in found.held} == {tokyo_midnight}


def test_teams_share_nothing_with_each_other() -> None:
    documents: list[Document] = [
        policy("a", "lake.a.*", operations=["deletes"], triggers=DAILY, owner="a"),
        policy("b", "lake.b.*", operations=["deletes"], triggers=DAILY, owner="b"),
        team("a", limits={"per-day": {"bytes": "100 MB"}}),
        team("b", limits={"per-day": {"bytes": "100 MB"}}),
    ]
    tables = [shabby(f"lake.{name}.t{number}") for name in "ab" for number in range(3)]
    assert sorted(one.owner for one in decided(documents, tables).enqueue) == ["a", "b"]


# Places


def test_a_team_has_at_most_eight_jobs_waiting_for_each_that_it_may_run() -> None:
    documents: list[Document] = [
        policy(operations=["compact"], triggers={"small-files": 10}, owner="sales"),
        team("sales", concurrency=2),
    ]
    found = decided(documents, [shabby(f"lake.sales.t{number}") for number in range(30)])
    assert len(found.enqueue) == 18
    reason = "50 small files (10 are enough); team sales may run 2 jobs at a time, and 18 of its jobs wait"
    assert set(held_reasons(found, HoldCode.TEAM)) == {reason}


def test_the_queue_is_bounded_for_each_target() -> None:
    targets = [RunTarget(name="local", max_bytes=GIB), RunTarget(name="cluster")]
    tables = [shabby(f"lake.sales.s{number}") for number in range(5)]
    tables += [shabby(f"lake.sales.l{number}", small_bytes=10 * GIB) for number in range(5)]
    found = decided([COMPACT], tables, targets=targets, max_waiting=3)
    assert sorted(one.target for one in found.enqueue) == ["cluster"] * 3 + ["local"] * 3
    assert len(held_reasons(found, HoldCode.FULL)) == 4
    again = decided([COMPACT], tables, targets=targets, max_waiting=3, waiting=queued(found))
    assert again.enqueue == ()


def test_jobs_that_wait_for_a_window_leave_their_places_to_others() -> None:
    night = policy(
        "night", "lake.night.*", operations=["compact"], triggers={"small-files": 10}, schedule={"windows": "22:00-06:00"}
    )
    sleeping = [shabby(f"lake.night.t{number}") for number in range(3)]
    parked = queued(decided([night], sleeping, now=NOW + 9 * HOUR), not_before_ms=NOW + 7 * HOUR + 46 * MINUTE + 40_000)
    found = decided([COMPACT, night], [*sleeping, shabby()], waiting=parked, max_waiting=3)
    assert [one.table for one in found.enqueue] == [ORDERS]


def test_a_missing_target_holds_back_and_names_those_there_are() -> None:
    found = decided([policy(operations=["compact"], triggers={"small-files": 10}, target="yarn")], [shabby()])
    assert held_reasons(found, HoldCode.NO_TARGET) == [
        "50 small files (10 are enough); the policy names the target yarn, and the settings describe local"
    ]


def test_a_run_larger_than_its_target_takes_is_bounded_or_held_back() -> None:
    small = [RunTarget(name="local", max_bytes=MIB)]
    (one,) = decided([COMPACT], [shabby()], targets=small).enqueue
    assert one.knobs == {"max-bytes": MIB}
    found = decided([policy(operations=["deletes"], triggers=DAILY)], [shabby()], targets=small)
    assert [one.code for one in found.held] == [HoldCode.NO_TARGET]


def test_of_two_tables_the_one_that_ran_longer_ago_gets_the_last_place() -> None:
    tables = [shabby("lake.sales.a"), shabby("lake.sales.b")]
    ran = {
        f"uuid of {name}": {"compact": last_run(ago=ago)} for name, ago in (("lake.sales.a", 2 * HOUR), ("lake.sales.b", DAY))
    }
    found = decided([COMPACT], tables, last_runs=ran, max_waiting=1)
    assert [one.table for one in found.enqueue] == ["lake.sales.b"]


def test_jobs_enter_behind_those_that_were_served() -> None:
    tables = [shabby(f"lake.sales.t{number}") for number in range(2)]
    first, second = decided([COMPACT], tables).enqueue
    later = decided([COMPACT], [*tables, shabby("lake.sales.t9")], claimed=[claimed_job(first)], waiting=[waiting_job(second)])
    (one,) = later.enqueue
    assert one.rank < second.rank
    assert one.queue_clock == -first.rank
