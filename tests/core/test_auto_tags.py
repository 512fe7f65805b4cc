"""Which tags are made and dropped: under clocks that move, pauses, rollbacks, and names that belong to others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.maintenance.tags import FOREVER_MS, MAX_REF_AGE, TagPlan, plan_tags, tag_name
from neve.policy.auto_tags import Period, parse_keep, spell_keep
from neve.table.state import Ref, RefKind, Snapshot, TableState
from tests.builders.tables import make_snapshot, make_table

HOUR = 3_600_000
DAY = 24 * HOUR
JUNE = int(datetime(2025, 6, 1, tzinfo=UTC).timestamp() * 1000)  # a Sunday
KEEP = {Period.DAILY: 3}


def table(moments: Sequence[int], *, refs: Sequence[Ref] = (), replaced: Sequence[int] = (), **changes: Any) -> TableState:
    """A table whose snapshots 1, 2, ... became current at these moments; those in `replaced` are compactions."""
    snapshots: list[Snapshot] = []
    for number, at in enumerate(moments, 1):
        operation = "replace" if number in replaced else "append"
        snapshots.append(make_snapshot(number, parent=number - 1 or None, at=at, operation=operation))
    history = tuple((at, number) for number, at in enumerate(moments, 1))
    plain = {"snapshots": tuple(snapshots), "history": history, "refs": tuple(refs), "snapshot_id": len(moments) or None}
    return make_table(**plain | changes)


def tag(name: str, snapshot_id: int = 1, kind: RefKind = RefKind.TAG) -> Ref:
    return Ref(name=name, kind=kind, snapshot_id=snapshot_id)


def plan(state: TableState, now_ms: int, keep: dict[Period, int] | None = None, prefix: str = "neve") -> TagPlan:
    return plan_tags(state, keep or KEEP, prefix=prefix, now_ms=now_ms)


def made(found: TagPlan) -> dict[str, int]:
    return {tag.name: tag.snapshot_id for tag in found.created}


def after(state: TableState, found: TagPlan) -> TableState:
    """The table with the plan carried out."""
    gone = {tag.name for tag in found.dropped}
    refs = [ref for ref in state.refs if ref.name not in gone] + [tag(t.name, t.snapshot_id) for t in found.created]
    return state.model_copy(update={"refs": tuple(refs)})


def test_a_day_that_is_over_gets_the_snapshot_that_was_current_at_its_end() -> None:
    state = table([JUNE + HOUR, JUNE + 23 * HOUR, JUNE + DAY + HOUR])
    assert made(plan(state, JUNE + DAY - 1)) == {}
    assert made(plan(state, JUNE + DAY)) == {"neve-daily-2025-06-01": 2}
    assert made(plan(state, JUNE + 2 * DAY)) == {"neve-daily-2025-06-01": 2, "neve-daily-2025-06-02": 3}


def test_a_plan_without_work_says_when_the_next_tag_is_made() -> None:
    state = table([JUNE + HOUR])
    [rule] = plan(state, JUNE + DAY - 1, {Period.DAILY: 7}).not_due
    assert (rule.rule, rule.knob, rule.due_ms, rule.until) == ("daily-tag", "auto-tags", JUNE + DAY, None)
    tagged = after(state, plan(state, JUNE + DAY, {Period.DAILY: 7}))
    [rule] = plan(tagged, JUNE + DAY + HOUR, {Period.DAILY: 7}).not_due
    assert (rule.what, rule.due_ms, rule.until) == ("end of the current day", JUNE + 2 * DAY, "rows have changed in it")
    assert plan(state, JUNE + DAY, {Period.DAILY: 7}).not_due == ()
    [rule] = plan(state, JUNE + DAY, {Period.DAILY: 0}).not_due
    assert rule.what == "auto-tags keeps no tags"


def test_a_snapshot_of_the_first_moment_of_a_day_belongs_to_that_day() -> None:
    state = table([JUNE, JUNE + DAY])
    assert made(plan(state, JUNE + 2 * DAY)) == {"neve-daily-2025-06-01": 1, "neve-daily-2025-06-02": 2}


def test_weeks_begin_on_mondays_and_months_on_their_first() -> None:
    state = table([JUNE + HOUR, JUNE + DAY, JUNE + 20 * DAY, JUNE + 31 * DAY])
    keep = {Period.WEEKLY: 9, Period.MONTHLY: 9}
    assert made(plan(state, JUNE + 90 * DAY, keep)) == {
        "neve-weekly-2025-W22": 1,
        "neve-weekly-2025-W23": 2,
        "neve-weekly-2025-W25": 3,
        "neve-weekly-2025-W27": 4,
        "neve-monthly-2025-06": 3,
        "neve-monthly-2025-07": 4,
    }


def test_the_last_days_of_december_are_in_the_first_week_of_the_next_year() -> None:
    eve = int(datetime(2024, 12, 31, tzinfo=UTC).timestamp() * 1000)
    found = made(plan(table([eve]), eve + 30 * DAY, {Period.WEEKLY: 1, Period.MONTHLY: 1, Period.DAILY: 1}))
    assert set(found) == {"neve-weekly-2025-W01", "neve-monthly-2024-12", "neve-daily-2024-12-31"}


def test_the_newest_are_kept_by_their_number() -> None:
    state = table([JUNE + i * DAY for i in range(6)])
    found = plan(state, JUNE + 6 * DAY)
    assert list(made(found)) == ["neve-daily-2025-06-04", "neve-daily-2025-06-05", "neve-daily-2025-06-06"]
    later = table([JUNE + i * DAY for i in range(7)], refs=after(state, found).refs)
    again = plan(later, JUNE + 7 * DAY)
    assert made(again) == {"neve-daily-2025-06-07": 7}
    assert [t.name for t in again.dropped] == ["neve-daily-2025-06-04"]
    assert again.kept == ("neve-daily-2025-06-05", "neve-daily-2025-06-06")


def test_a_clock_that_is_years_ahead_drops_nothing_that_nothing_new_replaces() -> None:
    state = table([JUNE + i * DAY for i in range(4)])
    state = after(state, plan(state, JUNE + 3 * DAY))
    assert [ref.name[-2:] for ref in state.refs] == ["01", "02", "03"]
    ahead = plan(state, JUNE + 4000 * DAY)
    assert (made(ahead), [t.name for t in ahead.dropped]) == ({"neve-daily-2025-06-04": 4}, ["neve-daily-2025-06-01"])


def test_a_clock_that_was_set_back_makes_and_drops_nothing() -> None:
    state = table([JUNE + i * DAY for i in range(4)])
    state = after(state, plan(state, JUNE + 4 * DAY))
    assert plan(state, JUNE - 100 * DAY).is_empty


def test_days_without_a_change_get_no_tag_and_compactions_are_no_change() -> None:
    state = table([JUNE, JUNE + HOUR, JUNE + 3 * DAY], replaced=[2, 3])
    assert made(plan(state, JUNE + 10 * DAY)) == {"neve-daily-2025-06-01": 2}


def test_missed_days_are_caught_up_as_far_as_snapshots_exist() -> None:
    whole = table([JUNE + i * DAY for i in range(5)])
    expired = whole.model_copy(update={"snapshots": whole.snapshots[3:], "history": whole.history[3:]})
    assert list(made(plan(expired, JUNE + 9 * DAY, {Period.DAILY: 7}))) == ["neve-daily-2025-06-04", "neve-daily-2025-06-05"]
    without = whole.model_copy(update={"snapshots": whole.snapshots[:-1]})
    assert "neve-daily-2025-06-05" not in made(plan(without, JUNE + 9 * DAY))


def test_what_was_current_counts_and_not_what_was_committed_last() -> None:
    state = table([JUNE, JUNE + HOUR])
    rolled_back = state.model_copy(update={"history": (*state.history, (JUNE + 2 * HOUR, 1))})
    assert made(plan(rolled_back, JUNE + DAY)) == {"neve-daily-2025-06-01": 1}


OTHERS = [
    "release",
    "neve",
    "neve-daily",
    "neve-daily-2020-01-01-audit",
    "neve-daily-2020-1-1",
    "neve-daily-2020-13-01",
    "neve-daily-20200101",
    "neve-weekly-2020-01-01",
    "neve-weekly-2020-W54",
    "neve-monthly-2020-00",
    "my-neve-daily-2020-01-01",
    "neve2-daily-2020-01-01",
    "Neve-daily-2020-01-01",
    "neve-daily-٢٠٢٠-01-01",
]


def test_tags_of_others_are_never_touched() -> None:
    state = table([JUNE + i * DAY for i in range(9)], refs=[tag(name) for name in OTHERS])
    keep = dict.fromkeys(Period, 1)
    found = plan(state, JUNE + 400 * DAY, keep)
    assert found.dropped == ()
    assert not set(made(found)) & set(OTHERS)


def test_an_old_tag_of_ours_is_dropped_with_the_snapshot_that_it_must_still_name() -> None:
    state = table([JUNE], refs=[tag("neve-daily-2020-01-01", 77), tag("neve-weekly-2020-W01", 78)])
    found = plan(state, JUNE + DAY, {Period.DAILY: 1})
    assert [(t.name, t.snapshot_id) for t in found.dropped] == [("neve-daily-2020-01-01", 77)]


def test_a_kind_that_is_not_named_is_left_alone_and_one_with_zero_is_dropped() -> None:
    state = table([JUNE], refs=[tag("neve-daily-2020-01-01"), tag("neve-weekly-2020-W01")])
    found = plan(state, JUNE + DAY, {Period.WEEKLY: 0})
    assert ([t.name for t in found.dropped], made(found)) == (["neve-weekly-2020-W01"], {})


def test_a_branch_with_such_a_name_is_neither_moved_nor_dropped() -> None:
    branches = [tag(name, kind=RefKind.BRANCH) for name in ("neve-daily-2025-06-01", "neve-daily-2020-01-01")]
    found = plan(table([JUNE], refs=branches), JUNE + DAY, {Period.DAILY: 1})
    assert (found.is_empty, found.taken) == (True, ("neve-daily-2025-06-01",))


def test_a_tag_that_somebody_moved_stays_where_it_is() -> None:
    state = table([JUNE, JUNE + HOUR], refs=[tag("neve-daily-2025-06-01", 1)])
    found = plan(state, JUNE + DAY)
    assert (found.is_empty, found.kept) == (True, ("neve-daily-2025-06-01",))


def test_tags_outlive_the_tables_own_limit_of_age() -> None:
    plain = plan(table([JUNE]), JUNE + DAY)
    limited = plan(table([JUNE], properties={MAX_REF_AGE: "1000"}), JUNE + DAY)
    assert [t.max_ref_age_ms for t in (*plain.created, *limited.created)] == [None, FOREVER_MS]


@pytest.mark.parametrize(
    "text", ["", "daily", "daily 7 weekly 4", "yearly 3", "daily -1", "daily 7, daily 8", "7 daily", 7, None]
)
def test_a_policy_that_cannot_be_read_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="does not say how many tags to keep; write daily 7, weekly 4, monthly 12"):
        parse_keep(text)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(Period), st.integers(0, 9999), min_size=1))
def test_a_policy_reads_as_it_is_spelled(keep: dict[Period, int]) -> None:
    assert parse_keep(spell_keep(keep)) == keep


@settings(deadline=None)
@given(
    st.lists(st.integers(JUNE - 900 * DAY, JUNE + 900 * DAY), max_size=40, unique=True).map(sorted),
    st.dictionaries(st.sampled_from(Period), st.integers(0, 5), min_size=1),
    st.lists(st.integers(JUNE - 1000 * DAY, JUNE + 1000 * DAY), min_size=1, max_size=6),
    st.lists(st.dates(date(2023, 1, 1), date(2027, 1, 1)), max_size=5),
)
def test_whatever_the_clock_does_at_most_so_many_are_kept_and_a_second_plan_does_nothing(
    moments: list[int], keep: dict[Period, int], clock: list[int], older: list[date]
) -> None:
    refs = {tag_name("neve", period, day.replace(day=1)): period for period in Period for day in older}
    state = table(moments, refs=[*(tag(name) for name in refs), tag("release")])
    for now in clock:
        found = plan_tags(state, keep, prefix="neve", now_ms=now)
        state = after(state, found)
        assert plan_tags(state, keep, prefix="neve", now_ms=now).is_empty
        names = [ref.name for ref in state.refs]
        assert "release" in names
        for period, number in keep.items():
            assert sum(name.startswith(f"neve-{period}-") for name in names) <= number
    for name, period in refs.items():
        assert period in keep or name in {ref.name for ref in state.refs}


@pytest.mark.parametrize("at", [2**62, -(2**62), 253_402_300_799_999, -62_135_596_800_000])
def test_snapshots_of_absurd_moments_get_no_tag_and_stop_nothing(at: int) -> None:
    keep = {Period.DAILY: 3, Period.WEEKLY: 3, Period.MONTHLY: 3}
    assert "neve-daily-2025-06-01" in made(plan(table([JUNE + HOUR, at]), 2**61, keep)) or at < JUNE
    plan(table([at]), 2**61, keep)
