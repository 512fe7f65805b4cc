"""Which snapshots go: heads, tags, runs and streaming writers come before every age and count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from neve.maintenance.retention import Keep, Retention, Rules, SnapshotHistory, kept_text, next_expiry, retain
from neve.policy.model import Policy
from neve.table.state import Ref, RefKind, Snapshot

DAY = 86_400_000
NOW = 100 * DAY
WEEK = Rules(keep_ms=7 * DAY, min_count=1)


def snapshot(number: int, days: float, parent: int | None = None, **summary: str) -> Snapshot:
    """One that was committed so many days ago."""
    return Snapshot(
        snapshot_id=number,
        parent_id=parent,
        sequence_number=number,
        timestamp_ms=int(NOW - days * DAY),
        operation="append",
        summary={key.replace("_", "-"): value for key, value in summary.items()},
    )


def branch(name: str, at: int, **limits: int) -> Ref:
    return Ref(name=name, kind=RefKind.BRANCH, snapshot_id=at, **limits)


def tag(name: str, at: int, **limits: int) -> Ref:
    return Ref(name=name, kind=RefKind.TAG, snapshot_id=at, **limits)


def chain(*days: float) -> tuple[Snapshot, ...]:
    """Snapshots 1, 2, and so on, each the parent of the next."""
    return tuple(snapshot(i, day, i - 1 or None) for i, day in enumerate(days, start=1))


def decide(snapshots: tuple[Snapshot, ...], refs: tuple[Ref, ...], rules: Rules = WEEK, **words: Any) -> Retention:
    return retain(SnapshotHistory("m", {}, snapshots, refs), rules, now_ms=NOW, **words)


def reasons(found: Retention) -> Mapping[int, Keep]:
    return {number: kept.keep for number, kept in sorted(found.kept.items())}


def test_old_snapshots_go_oldest_first_and_the_head_stays_however_old() -> None:
    found = decide(chain(40, 30, 20, 10), (branch("main", 4),))
    assert found.expired == (1, 2, 3)
    assert {number: kept.why for number, kept in found.kept.items()} == {4: "head of main"}


def test_a_moment_counts_instead_of_the_age() -> None:
    rules = Rules(keep_ms=0, min_count=1, since_ms=NOW - 20 * DAY)
    found = decide(chain(21, 20.001, 20, 1), (branch("main", 4),), rules)
    assert (found.expired, reasons(found)) == ((1,), {2: Keep.PERIOD_START, 3: Keep.AGE, 4: Keep.HEAD})
    assert found.kept[3].why == "not older than 20 days, on main"


def test_age_keeps_up_to_its_limit_and_not_beyond() -> None:
    found = decide(chain(8, 7.001, 7, 1), (branch("main", 4),))
    assert (found.expired, reasons(found)) == ((1,), {2: Keep.PERIOD_START, 3: Keep.AGE, 4: Keep.HEAD})
    assert found.kept[3].why == "not older than 7 days, on main"


def test_what_a_branch_was_when_the_time_began_stays_however_old() -> None:
    found = decide(chain(90, 80, 1), (branch("main", 3),))
    assert (found.expired, found.kept[2].why) == ((1,), "what main was 7 days ago")
    assert found.counts == {Keep.HEAD: 1, Keep.PERIOD_START: 1}
    assert decide(chain(90, 80, 8), (branch("main", 3),)).expired == (1, 2)


def test_a_snapshot_that_stays_between_younger_ones_is_not_called_young() -> None:
    found = decide(chain(90, 1, 30, 1), (branch("main", 4),))
    assert {number: kept.why for number, kept in found.kept.items()} == {
        1: "what main was 7 days ago",
        2: "not older than 7 days, on main",
        3: "newer than one that is not older than 7 days, on main",
        4: "head of main",
    }


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({Keep.HEAD: 1, Keep.AGE: 50}, "1 head of a branch, 50 young"),
        (
            {Keep.HEAD: 2, Keep.TAG: 1, Keep.PERIOD_START: 1},
            "2 heads of branches, 1 tag, 1 current when the retention period began",
        ),
        ({Keep.TAG: 1200, Keep.COUNT: 3}, "1,200 tags, 3 by count"),
    ],
)
def test_kept_snapshots_are_counted_by_their_reasons(counts: dict[Keep, int], text: str) -> None:
    assert kept_text(counts) == text


def test_count_keeps_the_newest_of_each_branch() -> None:
    snapshots = (*chain(40, 30, 20), snapshot(4, 15, 2), snapshot(5, 14, 4))
    found = decide(snapshots, (branch("main", 3), branch("dev", 5)), Rules(7 * DAY, 2))
    assert (found.expired, reasons(found)) == ((1,), {2: Keep.COUNT, 3: Keep.HEAD, 4: Keep.COUNT, 5: Keep.HEAD})
    assert found.kept[4].why == "among the newest 2 of dev"


def test_a_tag_holds_its_snapshot_and_nothing_before_it() -> None:
    found = decide(chain(40, 30, 20), (branch("main", 3), tag("v1", 2)))
    assert (found.expired, found.kept[2].why, found.counts) == ((1,), "tag v1", {Keep.HEAD: 1, Keep.TAG: 1})


def test_a_branch_goes_by_its_own_limits() -> None:
    refs = (branch("main", 4), branch("dev", 3, min_snapshots_to_keep=3, max_snapshot_age_ms=1))
    assert decide(chain(40, 30, 20, 1), refs).expired == ()
    assert decide(chain(50, 40, 30, 20), (branch("main", 4), branch("dev", 3, max_snapshot_age_ms=31 * DAY))).expired == (1,)
    assert decide(chain(6, 5, 4, 2), (branch("main", 4, max_snapshot_age_ms=DAY),)).expired == (1, 2, 3)


def test_what_is_on_no_branch_goes_by_age() -> None:
    snapshots = (snapshot(1, 40), snapshot(2, 30, 1), snapshot(3, 3, 1), snapshot(4, 2))
    found = decide(snapshots, (branch("main", 4),))
    assert (found.expired, found.kept[3].why) == ((1, 2), "not older than 7 days, on no branch")


@pytest.mark.parametrize(("days", "goes"), [(10, ("old",)), (9, ()), (8, ())])
def test_a_ref_goes_by_its_own_age_alone(days: float, goes: tuple[str, ...]) -> None:
    refs = (branch("main", 2), tag("old", 1, max_ref_age_ms=9 * DAY))
    found = decide((snapshot(1, days), snapshot(2, 1)), refs)
    assert (found.refs, found.expired) == (goes, (1,) if goes else ())
    assert decide(chain(days, 1), refs, Rules(7 * DAY, 1, refs_go=False)).refs == ()


def test_main_never_goes() -> None:
    assert decide(chain(90), (branch("main", 1, max_ref_age_ms=1),)).refs == ()


def test_a_ref_stays_that_points_at_what_a_run_needs() -> None:
    refs = (branch("main", 2), branch("dev", 1, max_ref_age_ms=1))
    assert decide(chain(40, 1), refs).refs == ("dev",)
    assert decide(chain(40, 1), refs, pinned={1: "run 3f9c"}).refs == ()


def test_a_pinned_snapshot_stays_and_the_way_to_it() -> None:
    found = decide(chain(40, 30, 20, 10), (branch("main", 4),), pinned={2: "run 3f9c was planned from it", 99: "long gone"})
    assert (found.expired, reasons(found)) == ((1,), {2: Keep.RUN, 3: Keep.RUN, 4: Keep.HEAD})
    assert found.kept[2].why == "run 3f9c was planned from it"
    assert found.kept[3].why == "on the way to snapshot 2: run 3f9c was planned from it"


def test_the_last_commit_of_each_streaming_writer_stays_and_the_way_to_it() -> None:
    snapshots = (
        snapshot(1, 40, None, job_id="a"),
        snapshot(2, 29, 1, job_id="a"),
        snapshot(3, 28, 2, job_id="b"),
        snapshot(4, 27, 3),
        snapshot(5, 1, 4),
    )
    rules = Rules(7 * DAY, 1, consumers=("other-id", "job-id"), consumer_keep_ms=30 * DAY)
    found = decide(snapshots, (branch("main", 5),), rules)
    assert (found.expired, reasons(found)) == (
        (1,),
        {2: Keep.CONSUMER, 3: Keep.CONSUMER, 4: Keep.CONSUMER, 5: Keep.HEAD},
    )
    assert found.kept[2].why == "job-id a committed it last"
    gone = Rules(7 * DAY, 1, consumers=("job-id",), consumer_keep_ms=28 * DAY)
    assert decide(snapshots, (branch("main", 5),), gone).expired == (1, 2)
    assert decide(snapshots, (branch("main", 5),)).expired == (1, 2, 3)


def test_a_limit_leaves_the_newest_for_the_next_run() -> None:
    found = decide(chain(40, 30, 20, 10), (branch("main", 4),), Rules(7 * DAY, 1, limit=2))
    assert (found.expired, found.kept[3].keep) == ((1, 2), Keep.LIMIT)


def test_what_is_asked_for_by_id_goes_unless_somebody_needs_it() -> None:
    refs = (branch("main", 4), tag("v1", 2))
    found = decide(chain(4, 3, 2, 1), refs, only=[1, 2, 4], pinned={})
    assert (found.expired, reasons(found)) == ((1,), {2: Keep.TAG, 3: Keep.UNASKED, 4: Keep.HEAD})


def test_a_table_of_version_1_without_refs_keeps_its_head() -> None:
    history = SnapshotHistory("m", {}, chain(40, 30), (), head=2)
    assert retain(history, WEEK, now_ms=NOW).expired == (1,)


def test_history_that_runs_in_a_circle_ends() -> None:
    snapshots = (snapshot(1, 40, 2), snapshot(2, 30, 1))
    assert decide(snapshots, (branch("main", 2),)).expired == (1,)


def test_rules_are_read_from_the_policy() -> None:
    rules = Rules.of(
        Policy.model_validate({"snapshot-keep": "2 days", "snapshot-consumers": " a , b,", "snapshot-refs": False})
    )
    assert (rules.keep_ms, rules.min_count, rules.consumers, rules.refs_go) == (2 * DAY, 1, ("a", "b"), False)
    assert Rules.of(Policy()).consumers == ("flink.job-id", "flink.operator-id", "spark.sql.streaming.queryId")
    assert (Rules.of(Policy()).keep_ms, Rules.of(Policy()).consumer_keep_ms) == (7 * DAY, 30 * DAY)


def test_the_next_expiry_is_a_week_after_a_snapshot_was_replaced() -> None:
    history = SnapshotHistory("m", {}, chain(30, 2, 1), (branch("main", 3),))
    rule = next_expiry(history, WEEK, now_ms=NOW)
    assert rule.due_ms == NOW + 5 * DAY + 1
    assert str(rule) == (
        "time since the oldest snapshot was replaced: 2 days, due after 7 days (snapshot-keep), at 1970-04-16 00:00:01 UTC"
    )


def test_what_no_time_lets_go_says_what_keeps_it() -> None:
    alone = next_expiry(SnapshotHistory("m", {}, chain(30), (branch("main", 1),)), WEEK, now_ms=NOW)
    assert str(alone) == "snapshots kept: 1 head of a branch, due once another snapshot is committed"
    tagged = next_expiry(SnapshotHistory("m", {}, chain(30, 20), (branch("main", 2), tag("v1", 1))), WEEK, now_ms=NOW)
    assert str(tagged) == "snapshots kept: 1 head of a branch, 1 tag, due once commits are added, or what keeps them ends"
    assert str(next_expiry(SnapshotHistory("m", {}, (), ()), WEEK, now_ms=NOW)) == (
        "the table has no snapshots, due once another snapshot is committed"
    )
