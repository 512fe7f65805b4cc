"""Policies of any shape: what is written is read as the same, schedules agree with themselves, one rule decides each run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from neve.operations.policy_options import operation_problems, option_names
from neve.policy.changes import InForce, plan_changes
from neve.policy.document import PolicyDocument, Schedule, as_written
from neve.policy.effective import PolicyResolver
from neve.policy.schedule_text import DAYS
from neve.policy.schedule_times import check_schedule, day_start, is_open, last_start, next_opening, next_start
from neve.policy.selector import literal, matches, specificity
from neve.policy.workload_presets import WORKLOAD_PRESETS, automatic_target
from neve.settings.policy_files import Vocabulary, policy_yaml, read_policies

HOUR = 3_600_000
FIRST = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")

times = st.integers(FIRST, FIRST + 400 * 24 * HOUR)
clock = st.builds("{:02d}:{:02d}".format, st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
days = st.one_of(st.sampled_from(DAYS), st.builds("{}-{}".format, st.sampled_from(DAYS), st.sampled_from(DAYS)))
spans = st.tuples(clock, clock).filter(lambda pair: pair[0] != pair[1]).map("-".join)
windows = st.one_of(days, spans, st.builds("{} {}".format, days, spans))
dates = st.dates(datetime(2026, 1, 1).date(), datetime(2027, 1, 1).date())  # noqa: DTZ001 - dates
ranges = st.tuples(dates, dates).map(lambda pair: "/".join(one.isoformat() for one in sorted(pair)))
crons = st.sampled_from(["0 2 * * *", "*/20 * * * *", "30 2 * * sun", "15 1,2,3 * * *", "0 0 1 * *", "30 * * * mon-fri"])
schedules = st.builds(
    lambda **keys: Schedule.model_validate(keys),
    time_zone=st.sampled_from(ZONES),
    cron=st.lists(crons, max_size=2),
    windows=st.lists(windows, max_size=2),
    blackouts=st.lists(st.one_of(windows, ranges), max_size=2),
)

parts = st.sampled_from(["prod", "dev", "db", "a", "*", "a*", "?b", "[*]"])
globs = st.lists(parts, min_size=1, max_size=3).map(".".join)
names = st.sampled_from(["prod.db.a", "prod.db.ab", "dev.db.a", "prod.a.b.c", "prod.db.*"])
amounts = st.fixed_dictionaries(
    {}, optional={"bytes": st.integers(1, 2**60), "core-seconds": st.floats(0.001, 1e12), "money": st.floats(0.01, 1e9)}
)
documents = st.builds(
    lambda **keys: PolicyDocument.model_validate({key.replace("_", "-"): value for key, value in keys.items()}),
    name=st.sampled_from(["a", "b", "c.1", "d-2"]),
    description=st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=20),
    enabled=st.booleans(),
    tables=st.lists(globs, min_size=1, max_size=2),
    operations=st.lists(st.sampled_from(["compact", "expire", "tags"]), unique=True, max_size=3),
    preset=st.one_of(st.none(), st.sampled_from(sorted(WORKLOAD_PRESETS))),
    schedule=schedules.filter(lambda found: check_schedule(found) == []),
    triggers=st.fixed_dictionaries(
        {"commits": st.integers(1, 10**9)},
        optional={
            "bytes-added": st.integers(1, 2**60),
            "quiet-for": st.floats(0.001, 1e12),
            "delete-ratio": st.floats(0.001, 9),
        },
    ),
    limits=st.fixed_dictionaries({}, optional={"per-run": amounts, "per-day": amounts}),
    set=st.fixed_dictionaries({}, optional={"max-files": st.integers(50, 90), "target-file-size": st.just("auto")}),
    priority=st.integers(-100, 100),
)


@settings(deadline=None, max_examples=60)
@given(documents)
def test_a_document_that_is_written_is_read_as_the_same(document: PolicyDocument) -> None:
    assert PolicyDocument.model_validate(as_written(document)) == document


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(found=st.lists(documents, min_size=1, max_size=3, unique_by=lambda one: one.name))
def test_applying_an_export_changes_nothing(tmp_path: Path, found: list[PolicyDocument]) -> None:
    file = tmp_path / "export.yaml"
    file.write_text(policy_yaml(found), encoding="utf-8")
    read = read_policies(str(file), Vocabulary(operation_problems, [], []))
    in_force: dict[tuple[str, str], InForce] = {(one.kind, one.name): InForce(version=1, document=one) for one in found}
    assert plan_changes(in_force, read, prune=True).changes == ()


@settings(deadline=None, max_examples=60)
@given(schedules, times)
def test_work_opens_at_the_next_opening_and_not_before(schedule: Schedule, at_ms: int) -> None:
    found = next_opening(schedule, at_ms)
    if found is None:
        assert check_schedule(schedule) or not is_open(schedule, at_ms)
        return
    assert found >= at_ms
    assert is_open(schedule, found)
    if found > at_ms:
        assert not is_open(schedule, found - 1)
        steps = range(at_ms, min(found, at_ms + 60 * 24 * HOUR), HOUR)
        assert not any(is_open(schedule, step) for step in steps)


@settings(deadline=None, max_examples=60)
@given(schedules, times)
def test_the_last_and_the_next_cron_time_enclose_every_moment(schedule: Schedule, at_ms: int) -> None:
    assume(schedule.cron)
    last, following = last_start(schedule, at_ms), next_start(schedule, at_ms)
    assert last is not None
    assert following is not None
    assert last <= at_ms < following
    assert last_start(schedule, following - 1) == last
    assert next_start(schedule, last) == following
    assert last_start(schedule, following) == following


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(ZONES), times)
def test_a_day_has_a_beginning_that_all_of_its_moments_share(zone: str, at_ms: int) -> None:
    begin = day_start(zone, at_ms)
    assert begin <= at_ms < begin + 25 * HOUR
    assert day_start(zone, begin) == begin
    assert day_start(zone, (begin + at_ms) // 2) == begin


@settings(deadline=None, max_examples=60)
@given(st.lists(documents, max_size=4, unique_by=lambda one: one.name), names)
def test_one_policy_decides_each_operation_and_it_is_the_most_specific(found: list[PolicyDocument], table: str) -> None:
    policy = PolicyResolver(found, operations=option_names()).effective(table, {})
    matching = sorted((one for one in found if matches(one, table, {})), key=lambda one: specificity(one, table), reverse=True)
    assert policy.policies == tuple(one.name for one in matching)
    for name in ("compact", "expire", "tags"):
        first = next((one for one in matching if any(choice.name == name for choice in one.operations)), None)
        rules = [rule.policy for rule in policy.rules if rule.operation == name]
        assert rules == ([first.name] if first is not None and first.enabled else [])
        assert policy.switched_off.get(name) == (first.name if first is not None and not first.enabled else None)


@settings(deadline=None, max_examples=60)
@given(st.lists(documents, max_size=4, unique_by=lambda one: one.name), names, st.randoms())
def test_the_order_of_documents_decides_nothing(found: list[PolicyDocument], table: str, random: Any) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    first, second = (PolicyResolver(one, operations=option_names()).effective(table, {}) for one in (found, shuffled))
    assert first == second


@settings(deadline=None, max_examples=60)
@given(st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20), st.text(max_size=20))
def test_a_literal_pattern_matches_its_own_text_and_no_other(text: str, other: str) -> None:
    document = PolicyDocument(name="a", tables=(literal(text),))
    assert matches(document, text, {})
    assert matches(document, other, {}) == (text == other)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**60), st.integers(0, 10**12), st.sampled_from([64, 128, 256, 512, 1024]))
def test_an_automatic_target_stays_once_it_is_chosen(size: int, rows: int, current_mb: int) -> None:
    chosen = automatic_target(size, rows=rows, current=current_mb * 1024**2)
    assert automatic_target(size, rows=rows, current=chosen) == chosen
