"""Rows past their time leave real tables: as many as were previewed, by whole files where metadata proves it, and no others."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.errors import BadRequestError, CommitUnknownError
from neve.maintenance.ttl import TtlRule, limits_of
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.spark.maintenance.ttl import predicate
from neve.spark.tasks.staging import exact_times
from neve.table.calendar import days_to
from tests.builders.ttl_tables import (
    CLOCK,
    DAY,
    NOON,
    Kept,
    Make,
    Moved,
    delete_twice,
    maker,
    striking,
    swap_names,
    with_two_times,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.ttl")
    return maker(spark, warehouse, tmp_path_factory.mktemp("state"), "ttl")


@pytest.fixture
def clock() -> Iterator[Moved]:
    yield CLOCK
    CLOCK.seconds = NOON.timestamp()


def four_files(table: Kept) -> Kept:
    """Ids 0 to 2 are past as a whole, of 10 to 13 two are, 20 is young, and of 30 nobody knows the age."""
    table.append(0, 100, 50, 31)
    table.append(10, 40, 31, 29, 1)
    table.append(20, 0.5)
    table.insert("SELECT 30 AS id, CAST(NULL AS TIMESTAMP) AS ts")
    return table


@pytest.mark.parametrize(
    ("version", "mode"),
    [(1, "copy-on-write"), (2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")],
)
def test_what_is_enforced_is_what_was_previewed(make: Make, version: int, mode: str) -> None:
    table = four_files(make(version=version, mode=mode))
    head, disk = table.head(), table.bench.on_disk()
    preview = table.ttl()
    counts = preview.counts
    assert (counts.files_dropped, counts.rows_dropped, counts.files_touched, counts.rows_deleted) == (1, 3, 1, 2)
    assert (preview.outcome, preview.dry_run, preview.snapshots, table.head()) == (RunOutcome.DONE, True, (), head)
    record = table.ttl(enforce=True)
    assert (record.outcome, record.counts, record.previewed_by) == (RunOutcome.DONE, counts, preview.run_id)
    assert len(record.snapshots) == 2
    assert table.ids() == [12, 13, 20, 30]
    assert disk <= table.bench.on_disk()
    assert table.ttl(enforce=True).outcome is RunOutcome.NOTHING_TO_DO


def test_branches_and_tags_keep_what_main_loses(make: Make) -> None:
    table = four_files(make())
    table.sql("ALTER TABLE {} CREATE TAG before")
    table.sql("ALTER TABLE {} CREATE BRANCH audit")
    everything = [0, 1, 2, 10, 11, 12, 13, 20, 30]
    table.ttl()
    table.ttl(enforce=True)
    assert table.of_ref("before") == table.of_ref("audit") == everything
    table.ttl(branch="audit")
    record = table.ttl(branch="audit", enforce=True)
    assert (record.branch, record.counts.rows_dropped, record.counts.rows_deleted) == ("audit", 3, 2)
    assert (table.of_ref("before"), table.of_ref("audit")) == (everything, [12, 13, 20, 30])


def test_partitions_prove_it_where_files_tell_no_bounds(make: Make) -> None:
    table = make("ts TIMESTAMP, day STRING", "PARTITIONED BY (months(ts), day)")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none')")
    stamps = {
        1: "'2025-03-31 23:59:59Z'",
        2: "'2025-05-01 00:00:00Z'",
        3: "'2025-05-31 00:00:00Z'",
        4: "'2025-06-01 00:00:00Z'",
    }
    for number, stamp in stamps.items():
        table.insert(f"SELECT {number} AS id, TIMESTAMP {stamp}, date_format(TIMESTAMP {stamp}, 'yyyy-MM-dd')")
    table.insert("SELECT 5 AS id, CAST(NULL AS TIMESTAMP), 'none'")
    by_time = table.ttl(dry_run=True).counts
    assert (by_time.files_dropped, by_time.files_touched, by_time.rows_deleted) == (1, 1, 1)  # May is opened
    knobs = {"ttl-format": "yyyy-MM-dd"}
    by_text = table.ttl(column="day", knobs=knobs).counts
    assert (by_text.files_dropped, by_text.files_touched) == (2, 0)
    assert table.ttl(column="day", knobs=knobs, enforce=True).counts == by_text
    assert table.ids() == [3, 4, 5]


COLUMNS = "n TIMESTAMP_NTZ, d DATE, day INT, ms BIGINT, text STRING, s STRUCT<ts: TIMESTAMP, `a.b`: DATE>, `c.d` DATE"
NO_DAYS = [
    "concat('2020-01-01', chr(10))",
    "concat('2020-01-01', chr(13), chr(10))",
    "concat(chr(10), '2020-01-01')",
    "'0000-00-00'",
]
"""Of which Java's `$` takes the first two for days."""
OTHERS = [
    ("n", None),
    ("d", None),
    ("day", "yyyyMMdd"),
    ("ms", "milliseconds"),
    ("text", "yyyy-MM-dd"),
    ("s.ts", None),
    ("s.a.b", None),
    ("c.d", None),
]


def test_dates_numbers_and_texts_tell_a_time_too_and_what_tells_none_stays(make: Make) -> None:
    table = make(COLUMNS)
    # In order: past, young, and three that tell no time.
    rows = [
        "(1, '2025-05-16 11:59:59', '2025-05-15', 20250515, 1747396799999, '2025-05-15')",
        "(2, '2025-05-16 12:00:00', '2025-05-16', 20250516, 1747396800000, '2025-05-16')",
        "(3, NULL, NULL, 0, 0, '')",
        "(4, NULL, NULL, NULL, 1747396799, '2024')",
        "(5, NULL, NULL, -1, NULL, 'n/a')",
        *(f"({6 + i}, NULL, NULL, {20200000 + 50 * i}, NULL, {text})" for i, text in enumerate(NO_DAYS)),
    ]
    days = "named_struct('ts', to_timestamp(concat(n, 'Z')), 'a.b', CAST(d AS DATE)), CAST(d AS DATE)"
    casts = f"CAST(n AS TIMESTAMP_NTZ), CAST(d AS DATE), day, ms, text, {days}"
    table.insert(f"SELECT id, {casts} FROM VALUES {', '.join(rows)} AS t(id, n, d, day, ms, text)")
    for column, form in OTHERS:
        counts = table.ttl(column=column, knobs={"ttl-format": form} if form else None, dry_run=True).counts
        assert (column, counts.files_dropped, counts.rows_deleted) == (column, 0, 1)
    table.sql("ALTER TABLE {} RENAME COLUMN text TO told")
    table.ttl(column="told", knobs={"ttl-format": "yyyy-MM-dd"})
    assert table.ttl(column="told", knobs={"ttl-format": "yyyy-MM-dd"}, enforce=True).counts.rows_deleted == 1
    assert table.ids() == [2, 3, 4, 5, 6, 7, 8, 9]
    table.ttl(column="s.a.b")
    assert table.ttl(column="s.a.b", enforce=True).outcome is RunOutcome.NOTHING_TO_DO


def test_a_first_enforcement_needs_a_preview_and_takes_its_cutoff(make: Make, clock: Moved) -> None:
    table = make()
    table.append(0, 40, 29.5)
    with pytest.raises(BadRequestError, match=r"Cannot enforce the limit of local.ttl.ttl\d+: it was never previewed"):
        table.ttl(enforce=True)
    assert not table.ttl(dry_run=True).recorded
    with pytest.raises(BadRequestError, match="it was never previewed"):
        table.ttl(enforce=True)
    preview = table.ttl()
    with pytest.raises(BadRequestError, match="it was never previewed"):
        table.ttl("31 days", enforce=True)
    clock.seconds += DAY
    first = table.ttl(enforce=True)
    assert (first.cutoff_ms, first.counts, table.ids()) == (preview.cutoff_ms, preview.counts, [1])
    second = table.ttl(enforce=True)
    assert second.cutoff_ms is not None
    assert first.cutoff_ms is not None
    assert (second.cutoff_ms - first.cutoff_ms, second.previewed_by, table.ids()) == (DAY * 1000, None, [])
    with pytest.raises(BadRequestError, match=r"Cannot keep rows of .* for 60 min only: that is below ttl-floor, 24 h"):
        table.ttl("1 h")


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets something happen before the first commit of a kind is sent, or after it has landed; counts what is sent."""

    def arm(kind: str, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> list[str]:
        return striking(monkeypatch, kind, before, after)

    return arm


def test_a_file_that_others_compact_with_young_ones_is_opened_instead(make: Make, at_commit: Any) -> None:
    table = four_files(make())
    call = f"CALL local.system.rewrite_data_files(table => 'ttl.{table.bench.name}', options => map('rewrite-all', 'true'))"
    dropped = at_commit("drop", before=lambda: table.bench.spark.sql(call).collect())
    table.ttl()
    record = table.ttl(enforce=True)
    assert (record.outcome, record.counts.rows_dropped, record.counts.rows_deleted) == (RunOutcome.DONE, 0, 5)
    assert (len(dropped), len(record.snapshots), table.ids()) == (1, 1, [12, 13, 20, 30])


def test_young_rows_that_come_while_it_works_are_never_touched(make: Make, at_commit: Any) -> None:
    table = four_files(make())
    at_commit("drop", before=lambda: table.append(40, 3))
    at_commit("delete", before=lambda: table.append(50, 45, 2))
    table.ttl()
    table.ttl(enforce=True)
    left = table.ids()
    assert [i for i in left if i != 50] == [12, 13, 20, 30, 40, 51]
    table.ttl(enforce=True)
    assert table.ids() == [12, 13, 20, 30, 40, 51]


@pytest.mark.parametrize("kind", ["drop", "delete"])
def test_an_answer_that_was_lost_is_found_in_the_table(make: Make, at_commit: Any, kind: str) -> None:
    def lose() -> None:
        raise CommitUnknownError("Cannot tell whether the commit landed: 502")

    table = four_files(make())
    sent = at_commit(kind, after=lose)
    preview = table.ttl()
    record = table.ttl(enforce=True)
    assert (record.outcome, record.counts, len(sent)) == (RunOutcome.DONE, preview.counts, 1)
    assert (len(record.snapshots), table.ids()) == (2, [12, 13, 20, 30])


def test_deletes_of_dropped_files_do_not_come_back_to_life(make: Make) -> None:
    table = four_files(make(version=3))
    table.sql("DELETE FROM {} WHERE id IN (1, 12)")
    table.bench.delete_equal(20)
    preview = table.ttl()
    assert (preview.counts.rows_dropped, preview.counts.rows_deleted) == (3, 2)  # a dropped file's rows are those it stores
    record = table.ttl(enforce=True)
    assert (record.counts, table.ids()) == (preview.counts, [13, 30])


@pytest.mark.parametrize(("kind", "reason"), [("delete", "field 2 is now event_ts"), ("_send", "was rolled back: ")])
def test_rows_go_by_field_id_when_columns_change_their_names_meanwhile(
    make: Make, at_commit: Any, kind: str, reason: str
) -> None:
    table = with_two_times(make("ts TIMESTAMP, made TIMESTAMP"))
    table.ttl()
    assert table.ttl(enforce=True).counts.rows_deleted == 2
    table.insert("SELECT 20, timestamp_seconds(1), TIMESTAMP '2001-01-01 00:00:00Z' UNION ALL SELECT 21, now(), now()")
    at_commit(kind, before=lambda: swap_names(table))
    record = table.ttl(enforce=True)
    assert (record.outcome, record.counts.nothing) == (RunOutcome.FAILED, True)
    assert reason in str(record.reason)
    assert table.ids() == [1, 11, 12, 20, 21]


def test_a_name_that_has_come_to_another_column_needs_a_new_preview(make: Make) -> None:
    table = with_two_times(make("ts TIMESTAMP, made TIMESTAMP"))
    table.ttl()
    table.ttl(enforce=True)
    swap_names(table)
    with pytest.raises(BadRequestError, match=r"never previewed for this column: ts is now field 3 and was field 2"):
        table.ttl(enforce=True)
    assert table.ids() == [1, 11, 12]


def test_a_session_that_sends_writes_to_another_branch_is_refused(make: Make) -> None:
    table = four_files(make())
    table.sql("ALTER TABLE {} CREATE BRANCH audit")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    table.ttl()
    everything = table.of_ref("main")
    conf = table.bench.spark.conf
    for key in ("spark.wap.branch", "spark.wap.id"):
        conf.set(key, "audit")
        try:
            with pytest.raises(BadRequestError, match=f"{key}=audit sends its reads and writes elsewhere"):
                table.ttl(enforce=True)
        finally:
            conf.unset(key)
    assert table.of_ref("audit") == table.of_ref("main") == everything
    table.ttl(enforce=True)
    assert (table.of_ref("audit"), table.of_ref("main")) == (everything, [12, 13, 20, 30])


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_row_that_two_position_deletes_name_is_in_nobody_s_way(make: Make, upgraded: bool) -> None:
    table = make()
    table.append(10, 40, 31, 29, 1)
    delete_twice(table, 11, 12)
    table.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('format-version' = '{3 if upgraded else 2}')")
    preview = table.ttl()
    record = table.ttl(enforce=True)
    assert (record.outcome, record.reason, record.counts) == (RunOutcome.DONE, None, preview.counts)
    assert (record.counts.rows_deleted, table.ids()) == (1, [13])


@pytest.mark.parametrize("seed", [15, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5))])
def test_an_idle_table_keeps_its_rows_whatever_maintenance_runs(make: Make, clock: Moved, seed: int) -> None:
    """By `last-write` no row younger than the limit at the last write ever goes, in any order of steps and years later."""
    table, rng = make(), random.Random(seed)
    began = time.time()
    for first in (0, 10, 20):
        ages = ", ".join(f"({first + i}, {int(began - days * DAY)})" for i, days in enumerate((1, 20, 29)))
        table.insert(f"SELECT id, timestamp_seconds(s) FROM VALUES {ages} AS t(id, s)")
    knobs = {
        "ttl": "30 days",
        "ttl-column": "ts",
        "ttl-since": "last-write",
        "snapshot-keep": "1 days",
        "snapshot-min-count": "1",
        "state.keep": "100000 days",
    }
    name, kept = f"ttl.{table.bench.name}", table.ids()
    clock.seconds = began + 60
    with table.open(knobs) as neve:
        neve.ttl(name)
        steps = ["compact", "expire", "ttl", "expire", "ttl", *rng.choices(["compact", "expire", "ttl", "other"], k=4)]
        for step in steps:
            clock.seconds += rng.choice([60, 5 * DAY, 400 * DAY, -2 * DAY])
            if step == "compact":
                neve.compact(name, request=Request(force=True))
            elif step == "expire":
                neve.expire(name)
            elif step == "other":
                call = f"CALL local.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
                table.bench.spark.sql(call).collect()
            else:
                neve.ttl(name, enforce=True)
            assert table.ids() == kept, f"lost rows by {step} of {steps}"
        left = neve.ttl(name, enforce=True)
    assert (left.outcome, left.counts.nothing) == (RunOutcome.NOTHING_TO_DO, True)


@pytest.mark.parametrize("year", [-290_000, -975, 1, 525, 2025])
def test_spark_reads_a_cutoff_of_any_year(spark: SparkSession, year: int) -> None:
    days = days_to(year)
    for kind, unit in (("date", f"date_from_unix_date({days})"), ("timestamp", f"timestamp_micros({days * 86_400 * 10**6})")):
        rule = TtlRule(column="c", field_id=1, type=kind, keep_seconds=1.0)
        past = predicate(rule, limits_of(rule, days * 86_400_000), "c")
        with exact_times(spark.conf):
            cast = unit if kind == "date" else f"CAST({unit} AS TIMESTAMP_NTZ)"
            found = spark.sql(f"SELECT {past} AS past, c IS NULL AS lost FROM (SELECT {cast} AS c)").collect()
        assert [(row.past, row.lost) for row in found] == [(False, False)]
