"""Which rows are past their time, and what metadata proves of files: never that a row is past which is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.maintenance.ttl import (
    FileVerdict,
    TtlLimits,
    TtlRule,
    TtlTarget,
    cutoff_ms,
    field_of,
    limits_of,
    next_past,
    rule_of,
    verdict,
)
from neve.policy.model import Policy
from neve.rewrite.live_files import LiveFile, describe_metrics
from neve.table import time_format
from neve.table.calendar import days_to
from neve.table.metrics import ColumnMetrics, to_bytes
from neve.table.state import Column, PartitionField, PartitionSpec
from tests.builders.table_states import make_state

NOON = int(datetime(2025, 6, 15, 12, tzinfo=UTC).timestamp())
EPOCH = date(1970, 1, 1)


def rule(kind: str = "timestamptz", form: str | None = None, **more: Any) -> TtlRule:
    return TtlRule(column="ts", field_id=1, type=kind, format=form, keep_seconds=30 * 86_400, **more)


@pytest.mark.parametrize(
    ("kind", "form", "limits"),
    [
        ("timestamptz", None, TtlLimits(None, NOON * 10**6)),
        ("timestamp_ns", None, TtlLimits(None, NOON * 10**9)),
        ("date", None, TtlLimits(None, (date(2025, 6, 15) - EPOCH).days)),
        ("int", "seconds", TtlLimits(10**8, NOON)),
        ("long", "milliseconds", TtlLimits(10**11, NOON * 1000)),
        ("int", "yyyyMMdd", TtlLimits(10**7, 20250615, "yyyyMMdd")),
        ("long", "yyyyMMddHH", TtlLimits(10**9, 2025061512, "yyyyMMddHH")),
        ("string", "yyyy-MM-dd", TtlLimits(None, "2025-06-15", "yyyy-MM-dd")),
        ("string", "yyyy-MM-dd'T'HH:mm", TtlLimits(None, "2025-06-15T12:00", "yyyy-MM-dd'T'HH:mm")),
    ],
)
def test_limits_are_in_the_column_s_own_unit(kind: str, form: str | None, limits: TtlLimits) -> None:
    assert limits_of(rule(kind, form), NOON * 1000) == limits


@pytest.mark.parametrize(
    ("kind", "form", "reason"),
    [
        ("double", None, "a double is no time"),
        ("long", None, "a long has no format of its own"),
        ("string", None, "a string has no format of its own"),
        ("long", "yyyy-MM-dd", "a long cannot be written as yyyy-MM-dd"),
        ("string", "seconds", "a string cannot be written as seconds"),
    ],
)
def test_a_column_that_tells_no_time_is_refused(kind: str, form: str | None, reason: str) -> None:
    with pytest.raises(BadRequestError, match=f"Cannot tell the age of rows by ts: {reason}"):
        limits_of(rule(kind, form), 0)


@pytest.mark.parametrize(
    ("kind", "form", "value"),
    [
        ("timestamptz", None, NOON * 10**6 + 5),
        ("timestamp_ns", None, NOON * 10**9 + 5),
        ("date", None, (date(2025, 6, 15) - EPOCH).days),
        ("int", "seconds", NOON),
        ("long", "milliseconds", NOON * 1000 + 1),
        ("int", "yyyyMMdd", 20250615),
        ("string", "yyyy-MM-dd", "2025-06-15"),
    ],
)
def test_the_next_row_is_past_when_it_is_said_to_be(kind: str, form: str | None, value: Any) -> None:
    found = rule(kind, form)
    newer = to_bytes(kind, value + 10**6 if isinstance(value, int) and kind not in ("date", "int") else value)
    now_ms = NOON * 1000 + 20 * 86_400_000
    due = next_past(found, [None, newer, to_bytes(kind, value)], now_ms - 30 * 86_400_000, now_ms)
    assert due.due_ms is not None
    keep_ms = 30 * 86_400_000
    assert limits_of(found, due.due_ms - keep_ms).hold(value)
    assert not limits_of(found, due.due_ms - keep_ms - 1).hold(value)
    assert (due.threshold, due.knob) == (30 * 86_400, "ttl")
    assert due.measured == pytest.approx(20 * 86_400, abs=86_400)


def test_by_the_last_write_the_next_row_is_past_once_the_table_is_written() -> None:
    found = next_past(rule(since="last-write"), [to_bytes("long", NOON * 10**6)], (NOON - 86_400) * 1000, NOON * 1000)
    assert (found.due_ms, found.until) == (None, "the table is written again")
    assert found.measured == pytest.approx(29 * 86_400, abs=1)


def test_without_bounds_nothing_is_known_of_the_next_row() -> None:
    found = next_past(rule(), [None], 0, 0)
    assert str(found) == "no file tells how old its values of ts are, due once rows grow older"


NO_DAYS = [
    *("", "n/a", "2024", "2024-1-1", "2024-01-01 ", "20240101", "2024-01-01T00"),
    *("2024-01-01\n", "2024-01-01\r\n", "2024-01-01\u0085", "2024-01-01\u2028", "\n2024-01-01", "x\n2024-01-01"),
    *("\u0662\u0660\u0662\u0664-01-01", "0000-00-00", "2024-00-10", "2024-13-01", "2024-01-32"),
]


@pytest.mark.parametrize("text", NO_DAYS)
def test_a_text_that_does_not_look_like_the_format_is_no_time(text: str) -> None:
    assert not limits_of(rule("string", "yyyy-MM-dd"), NOON * 1000).hold(text)
    assert limits_of(rule("string", "yyyy-MM-dd"), NOON * 1000).hold("2024-01-01")


@pytest.mark.parametrize("number", [0, -20240101, 202401, 20240000, 20240100, 20240132, 20241301, 20249999])
def test_a_number_that_does_not_look_like_the_format_is_no_time(number: int) -> None:
    limits = limits_of(rule("int", "yyyyMMdd"), NOON * 1000)
    assert not limits.hold(number)
    assert limits.hold(20240131)


@pytest.mark.parametrize(("stated", "meant"), [("milliseconds", "seconds"), ("microseconds", "milliseconds")])
def test_numbers_in_a_smaller_unit_than_stated_are_no_times(stated: str, meant: str) -> None:
    limits = limits_of(rule("long", stated), NOON * 1000)
    assert not limits.hold(0)
    assert not limits.hold((NOON - 10**8) * time_format.UNITS[meant])
    assert limits.hold((NOON - 10**8) * time_format.UNITS[stated])


@pytest.mark.parametrize(
    "text",
    [
        "MM-dd-yyyy",
        "dd/MM/yyyy",
        "yyyy-dd",
        "yy",
        "hours",
        "yyyy-MM-dd HH:mm:ss Z",
        "'x'yyyy",
        "",
        "'",
        "yyyy''MM",
        "yyyy'a''b'",
    ],
)
def test_a_format_whose_values_do_not_sort_as_times_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no format of times; write seconds, milliseconds"):
        time_format.parse_format(text)


@settings(deadline=None)
@given(
    st.sampled_from(["yyyy", "yyyyMM", "yyyyMMdd", "yyyy-MM-dd", "yyyy/MM/dd HH:mm:ss"]),
    st.lists(st.integers(-62_135_596_800, 253_370_764_800), min_size=2, max_size=2).map(sorted),
)
def test_what_is_written_in_a_format_sorts_as_its_times_do(form: str, seconds: list[int]) -> None:
    first, second = (time_format.written(form, at) for at in seconds)
    assert first <= second
    assert time_format.matches(form, first)
    assert len(first) == len(second) == len(form)


def described(kind: str, values: list[Any], partition: Any = None) -> LiveFile:
    """A file with the bounds of these values, as Iceberg would write them."""
    known = sorted(value for value in values if value is not None)
    bounds: dict[str, Any] = {"lower": to_bytes(kind, known[0]), "upper": to_bytes(kind, known[-1])} if known else {}
    column = ColumnMetrics(values=len(values), nulls=values.count(None), **bounds)
    file = {"file-path": "f", "spec-id": 0, "record-count": len(values), "partition": [partition]}
    return LiveFile(file | describe_metrics({1: column}))


CUT = limits_of(rule(), NOON * 1000)
STAMPS = st.integers(NOON - 3 * 86_400, NOON + 3 * 86_400).map(lambda seconds: seconds * 10**6)


@settings(deadline=None)
@given(st.lists(st.none() | STAMPS, min_size=1, max_size=4))
def test_bounds_prove_no_more_than_is_so(values: list[int | None]) -> None:
    past = [value is not None and value < CUT.high for value in values]  # type: ignore[operator]
    found = verdict(described("timestamptz", values), rule(), CUT, None)
    expected = FileVerdict.PAST if all(past) else FileVerdict.UNSURE if any(past) else FileVerdict.KEPT
    if None in values and not all(value is None for value in values) and not any(past):
        assert found is FileVerdict.KEPT
    assert found is expected


def test_bounds_of_another_type_or_none_at_all_prove_nothing() -> None:
    past = NOON - 90 * 86_400
    days = described("date", [past // 86_400])
    assert verdict(days, rule("date"), limits_of(rule("date"), NOON * 1000), None) is FileVerdict.PAST
    assert verdict(days, rule(), CUT, None) is FileVerdict.UNSURE  # it was a date when the file was written
    assert verdict(LiveFile({"file-path": "f", "spec-id": 0}), rule(), CUT, None) is FileVerdict.UNSURE
    unknown_nulls = ColumnMetrics(lower=to_bytes("long", past * 10**6), upper=to_bytes("long", past * 10**6))
    assert (
        verdict(LiveFile({"file-path": "f", **describe_metrics({1: unknown_nulls})}), rule(), CUT, None) is FileVerdict.UNSURE
    )


def test_texts_between_two_of_the_format_may_be_none() -> None:
    text = rule("string", "yyyy-MM-dd")
    limits = limits_of(text, NOON * 1000)
    assert verdict(described("string", ["2024-01-01", "2024-01-02"]), text, limits, None) is FileVerdict.UNSURE
    assert verdict(described("string", ["2025-06-15", "2025-06-16"]), text, limits, None) is FileVerdict.KEPT


def test_a_number_that_is_no_time_keeps_its_file_from_being_dropped() -> None:
    number = rule("int", "yyyyMMdd")
    limits = limits_of(number, NOON * 1000)
    assert verdict(described("int", [20240101, 20240102]), number, limits, None) is FileVerdict.PAST
    assert verdict(described("int", [0, 20240102]), number, limits, None) is FileVerdict.UNSURE


@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("yyyyMMdd", [20240101, 20240131], FileVerdict.PAST),
        ("yyyyMMdd", [20240131, 20240201], FileVerdict.UNSURE),  # 20240150 may be between them
        ("yyyyMMdd", [20240101, 20240132], FileVerdict.UNSURE),
        ("yyyyMM", [202401, 202412], FileVerdict.PAST),
        ("yyyyMM", [202312, 202401], FileVerdict.UNSURE),
        ("yyyy", [2019, 2024], FileVerdict.PAST),
        ("yyyyMMdd", [20250615, 20250699], FileVerdict.KEPT),
    ],
)
def test_bounds_prove_a_file_past_where_every_number_between_them_is_a_time(
    form: str, values: list[int], expected: FileVerdict
) -> None:
    number = rule("int", form)
    assert verdict(described("int", values), number, limits_of(number, NOON * 1000), None) is expected


def test_a_partition_of_a_number_that_is_no_time_is_kept() -> None:
    number = rule("int", "yyyyMMdd")
    limits = limits_of(number, NOON * 1000)
    assert verdict(described("int", [], 20240100), number, limits, spec_of("identity")) is FileVerdict.KEPT
    assert verdict(described("int", [], 20240101), number, limits, spec_of("identity")) is FileVerdict.PAST


def spec_of(transform: str) -> PartitionSpec:
    return PartitionSpec(spec_id=0, fields=(PartitionField(name="p", transform=transform, source_id=1, field_id=1000),))


def partition_value(transform: str, seconds: int) -> Any:
    at = datetime.fromtimestamp(seconds, UTC)
    months = (at.year - 1970) * 12 + at.month - 1
    values = {
        "year": at.year - 1970,
        "month": months,
        "day": str(at.date()),
        "hour": seconds // 3600,
        "identity": at.isoformat(),
    }
    return values[transform]


def _end(transform: str, at: datetime) -> int:
    day = at.replace(hour=0, minute=0, second=0)
    after = {
        "year": day.replace(year=at.year + 1, month=1, day=1),
        "month": (day.replace(day=28) + timedelta(days=4)).replace(day=1),
        "day": day + timedelta(days=1),
        "hour": at.replace(minute=0, second=0) + timedelta(hours=1),
    }
    return int(after[transform].timestamp())


@settings(deadline=None)
@given(
    st.sampled_from(["year", "month", "day", "hour", "identity"]),
    st.integers(NOON - 400 * 86_400, NOON + 400 * 86_400),
    st.sampled_from([NOON, NOON - 43_200, NOON - 14 * 86_400 - 43_200]),
)
def test_a_partition_is_past_only_when_its_last_moment_is(transform: str, seconds: int, cut: int) -> None:
    limits = limits_of(rule(), cut * 1000)
    value = partition_value(transform, seconds)
    file = LiveFile({"file-path": "f", "spec-id": 0, "partition": [value]})
    found = verdict(file, rule(), limits, spec_of(transform))
    last = seconds if transform == "identity" else _end(transform, datetime.fromtimestamp(seconds, UTC)) - 1
    if found is FileVerdict.PAST:
        assert last < cut
    if found is FileVerdict.KEPT:
        assert last >= cut
    if last < cut:
        assert found is FileVerdict.PAST


@pytest.mark.parametrize(
    ("transform", "value", "expected"),
    [
        ("day", None, FileVerdict.KEPT),
        ("void", None, FileVerdict.UNSURE),
        ("bucket[4]", 1, FileVerdict.UNSURE),
        ("year", 9000, FileVerdict.UNSURE),
        ("day", "2025-06-14", FileVerdict.PAST),
        ("day", "2025-06-15", FileVerdict.UNSURE),
        ("day", "2025-06-16", FileVerdict.KEPT),
    ],
)
def test_what_a_partition_says_by_itself(transform: str, value: Any, expected: FileVerdict) -> None:
    file = LiveFile({"file-path": "f", "spec-id": 0, "partition": [value]})
    assert verdict(file, rule(), CUT, spec_of(transform)) is expected


def test_a_partition_of_texts_is_exact() -> None:
    text = rule("string", "yyyy-MM-dd")
    limits = limits_of(text, NOON * 1000)
    found = {
        value: verdict(LiveFile({"file-path": "f", "partition": [value]}), text, limits, spec_of("identity"))
        for value in ("2025-06-14", "2025-06-15", "0", None)
    }
    assert list(found.values()) == [FileVerdict.PAST, FileVerdict.KEPT, FileVerdict.KEPT, FileVerdict.KEPT]


def test_a_partition_of_days_is_exact() -> None:
    days = rule("date")
    limits = limits_of(days, NOON * 1000)
    found = [
        verdict(LiveFile({"file-path": "f", "partition": [value]}), days, limits, spec_of("identity"))
        for value in ("2025-06-14", "2025-06-15")
    ]
    assert found == [FileVerdict.PAST, FileVerdict.KEPT]


FIELDS = (Column(field_id=1, name="ts", type="timestamptz"), Column(field_id=2, name="d", type="date"))


def test_the_column_is_the_one_that_partitions_by_time_unless_named() -> None:
    state = make_state(fields=FIELDS)
    assert rule_of(state, Policy.model_validate({"ttl": "30 days"})).column == "ts"
    assert rule_of(state, Policy.model_validate({"ttl": "30 days", "ttl-column": "d"})).type == "date"
    with pytest.raises(BadRequestError, match=r"Cannot tell the age of rows of c.db.t: it has no column x of single values"):
        rule_of(state, Policy.model_validate({"ttl": "30 days", "ttl-column": "x"}))
    plain = make_state(fields=FIELDS, specs=(PartitionSpec(spec_id=0, fields=()),))
    with pytest.raises(BadRequestError, match="0 columns partition it by time, not one"):
        rule_of(plain, Policy.model_validate({"ttl": "30 days"}))


def test_no_limit_and_one_below_the_floor_are_refused() -> None:
    state = make_state(fields=FIELDS)
    with pytest.raises(BadRequestError, match=r"Cannot find rows of c.db.t past their time: no limit is set"):
        rule_of(state, Policy())
    with pytest.raises(BadRequestError, match=r"Cannot keep rows of c.db.t for 23 h only: that is below ttl-floor, 24 h"):
        rule_of(state, Policy.model_validate({"ttl": "23 h"}))
    assert rule_of(state, Policy.model_validate({"ttl": "23 h", "ttl-floor": "1 h"})).keep_seconds == 23 * 3600


def test_a_limit_of_thousands_of_years_is_counted_back_and_one_beyond_all_timestamps_is_cut() -> None:
    keep = rule().model_copy(update={"keep_seconds": 3_000 * 365.25 * 86_400})
    cutoff = cutoff_ms(keep, NOON * 1000, None)
    assert cutoff == NOON * 1000 - 3_000 * 36_525 * 864_000
    forever = cutoff_ms(rule().model_copy(update={"keep_seconds": 1e15}), NOON * 1000, None)
    assert forever == days_to(-290_000) * 86_400_000
    assert limits_of(rule(), forever).high == forever * 1000 > -(2**63)


def test_a_table_without_writers_keeps_its_rows_where_the_last_write_counts() -> None:
    keep, now, since = 30 * 86_400_000, NOON * 1000, rule(since="last-write")
    assert cutoff_ms(rule(), now, None) == now - keep
    assert cutoff_ms(since, now, now - 500_000) == now - 500_000 - keep
    assert cutoff_ms(since, now, now + 500_000) == now - keep
    assert cutoff_ms(since, now, None) is None


SCHEMA: dict[str, Any] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "ts", "type": "timestamptz", "required": False},
        {"id": 2, "name": "a.b", "type": "date", "required": False},
        {
            "id": 3,
            "name": "s",
            "required": False,
            "type": {"type": "struct", "fields": [{"id": 4, "name": "c.d", "type": "date", "required": False}]},
        },
        {"id": 5, "name": "l", "required": False, "type": {"type": "list", "element-id": 6, "element": "date"}},
    ],
}


def test_a_field_is_found_by_its_id_with_every_name_on_the_way() -> None:
    assert field_of(SCHEMA, 1) == (("ts",), "timestamptz")
    assert field_of(SCHEMA, 2) == (("a.b",), "date")
    assert field_of(SCHEMA, 4) == (("s", "c.d"), "date")
    assert [field_of(SCHEMA, missing) for missing in (3, 5, 6, 7)] == [None] * 4


TARGET = TtlTarget("uuid", "main", 1, "ts", "timestamptz")


@pytest.mark.parametrize(
    ("target", "uuid", "objection"),
    [
        (TARGET, "uuid", None),
        (replace(TARGET, field_id=4, column="s.c.d", type="date"), "uuid", None),
        (TARGET, "other", "the table was replaced by another one (uuid other, planned for uuid)"),
        (replace(TARGET, field_id=9), "uuid", "column ts (field 9) is no longer in the table"),
        (replace(TARGET, column="t"), "uuid", "field 1 is now ts (timestamptz) and was planned as t (timestamptz)"),
        (replace(TARGET, type="date"), "uuid", "field 1 is now ts (timestamptz) and was planned as ts (date)"),
    ],
)
def test_a_target_is_a_table_by_uuid_and_a_column_by_field_id_name_and_type(
    target: TtlTarget, uuid: str, objection: str | None
) -> None:
    assert target.objection(uuid, SCHEMA) == objection
