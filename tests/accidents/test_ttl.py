"""Removing old rows: no younger row goes, whatever is renamed, redirected, compacted or expired meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.errors import BadRequestError, StorageError
from neve.maintenance.last_write import facts_to_keep
from neve.maintenance.ttl import cutoff_ms, wrongly_removed
from neve.maintenance.ttl_proof import why_unproved
from neve.operations.ttl import _Ttl
from neve.rewrite.planner import Request
from neve.spark.maintenance.ttl import SparkPastRows, column_of, confirm_target, current_column, missed_rows
from neve.spark.table.redirects import refuse_redirects
from neve.table import time_format
from tests.accidents.unguarded import accident, answering
from tests.builders.parquet_files import edited, group, thrift
from tests.builders.table_integrity import assert_whole
from tests.builders.ttl_tables import (
    CLOCK,
    DAY,
    NOON,
    Kept,
    Make,
    delete_twice,
    import_times,
    maker,
    other_column_of_that_name,
    striking,
    swap_names,
    with_two_times,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUR_TRIALS = "Neve's own trials"


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Make]:
    yield maker(spark, warehouse, tmp_path, "accidents")
    CLOCK.seconds = NOON.timestamp()


@accident(
    "A table that nobody wrote to lost all its rows, once expiry had removed the snapshot of its last write",
    evidence=OUR_TRIALS,
    guard="expiry writes the last write into the table in the same commit; while it is unknown every row is kept",
    behind=[answering(facts_to_keep, "{}")],
    without=[answering(cutoff_ms, "min(now_ms, last_write_ms or now_ms) - int(rule.keep_seconds * 1000)")],
    sees="other rows",
)
def test_an_idle_table_is_compacted_and_expired(make: Make) -> None:
    table, now = make(), time.time()
    for first in (0, 10):
        table.insert(f"SELECT id + {first}, timestamp_seconds({int(now)} - id * {DAY}) FROM range(3)")
    CLOCK.seconds = now + 60
    name = f"accidents.{table.bench.name}"
    knobs = {
        "ttl": "30 days",
        "ttl-column": "ts",
        "ttl-since": "last-write",
        "snapshot-keep": "1 days",
        "snapshot-min-count": "1",
    }
    with table.open(knobs) as neve:
        neve.ttl(name)
        CLOCK.seconds += 1  # of two runs at one moment, nobody knows which is the newer
        neve.ttl(name, enforce=True)
        neve.compact(name, request=Request(force=True))
        CLOCK.seconds += 5 * DAY
        neve.expire(name)
        assert len(table.bench.load().metadata.snapshots) == 1
        CLOCK.seconds += 60 * DAY
        neve.ttl(name, enforce=True)
    assert_whole(table.bench.load(), {"main": [0, 1, 2, 10, 11, 12]})


def enforce_while_columns_swap_names(table: Kept, kind: str) -> None:
    """The second enforcement of a limit, on a table whose names change before a step of it."""
    table.ttl()
    table.ttl(enforce=True)
    table.insert("SELECT 20, timestamp_seconds(1), timestamp_seconds(1) UNION ALL SELECT 21, now(), timestamp_seconds(1)")
    with pytest.MonkeyPatch.context() as patched:
        striking(patched, kind, before=lambda: swap_names(table))
        table.ttl(enforce=True)
    lost = sorted({1, 11, 12, 21} - set(table.ids()))
    assert not lost, f"lost rows: {lost}"


NO_PROOF = answering(wrongly_removed, "0")


@accident(
    "Rows were deleted by another column, which had come to the name of the first since the table was read",
    evidence=OUR_TRIALS,
    guard="field id, name and type are confirmed right before; the statement is built from the name that the field id has now",
    behind=[answering(confirm_target, "None")],
    without=[answering(current_column, "quoted(target.column)"), NO_PROOF],
    sees="lost rows",
)
def test_names_change_between_our_metadata_and_spark_s(make: Make) -> None:
    enforce_while_columns_swap_names(with_two_times(make("ts TIMESTAMP, made TIMESTAMP")), "delete")


@accident(
    "Names of columns changed after the last check and before the statement found them",
    evidence=OUR_TRIALS,
    guard="rows of all files that a delete changed are counted by field id before and after; if others left, it is rolled back",
    without=[NO_PROOF],
    sees="lost rows",
)
def test_names_change_after_the_check(make: Make) -> None:
    enforce_while_columns_swap_names(with_two_times(make("ts TIMESTAMP, made TIMESTAMP")), "_send")


@accident(
    "Rows were deleted on the branch that the session's `spark.wap.branch` named",
    evidence=OUR_TRIALS,
    guard="a session that redirects writes is refused; each statement names its branch",
    behind=[answering(refuse_redirects, "None")],
    without=[answering(SparkPastRows._quoted_branch, "self._bridge.quoted")],
    sees="other rows",
)
def test_a_session_writes_to_a_branch_for_audits(make: Make) -> None:
    table = make()
    table.append(10, 40, 31, 29, 1)
    table.sql("ALTER TABLE {} CREATE BRANCH audit")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    table.ttl()
    table.bench.spark.conf.set("spark.wap.branch", "audit")
    try:
        with suppress(BadRequestError):
            table.ttl(enforce=True)
    finally:
        table.bench.spark.conf.unset("spark.wap.branch")
    found = table.of_ref("audit")
    assert found == [10, 11, 12, 13], f"other rows on audit: {found}"


@accident(
    "Texts that are no times, such as a day and a line end, were deleted as old",
    evidence=OUR_TRIALS,
    guard="a value has to match its format to the very end; in Java `$` stands before a final line end too",
    without=[answering(time_format.expression, "'\\\\A' + _body(pattern) + '$'")],
    sees="other rows",
)
def test_a_text_ends_with_a_line_end(make: Make) -> None:
    table = make("day STRING")
    table.insert("SELECT 1, '2020-01-01' UNION ALL SELECT 2, concat('2020-01-01', chr(10)) UNION ALL SELECT 3, '2025-06-01'")
    knobs = {"ttl-format": "yyyy-MM-dd"}
    table.ttl(column="day", knobs=knobs)
    table.ttl(column="day", knobs=knobs, enforce=True)
    assert_whole(table.bench.load(), {"main": [2, 3]})


@accident(
    "Numbers that are no days, such as 20200100 for an unknown day, were deleted as old",
    evidence=OUR_TRIALS,
    guard="digits have to match their format like texts; a file goes whole only if every number between its bounds does",
    without=[answering(time_format.expression, "''")],
    sees="other rows",
)
def test_a_number_is_no_day(make: Make) -> None:
    table = make("day INT")
    table.insert("SELECT * FROM VALUES (1, 20200101), (2, 20200100), (3, 20201301), (4, 20250601)")
    knobs = {"ttl-format": "yyyyMMdd"}
    table.ttl(column="day", knobs=knobs)
    table.ttl(column="day", knobs=knobs, enforce=True)
    assert_whole(table.bench.load(), {"main": [2, 3, 4]})


NO_FOOTERS = answering(why_unproved, "None")


def enforce(table: Kept, column: str = "ts") -> None:
    table.ttl(column=column)
    table.ttl(column=column, enforce=True)


@accident(
    "Rows of yesterday were dropped with an imported file, whose milliseconds the manifest has as microseconds, so in 1970",
    evidence=OUR_TRIALS,
    guard="a file is dropped as a whole only if its footer has the column in Iceberg's type, and statistics that confirm it",
    without=[NO_FOOTERS],
    sees="other rows",
)
def test_an_imported_file_has_milliseconds(make: Make, tmp_path: Path) -> None:
    table = make()
    import_times(table, tmp_path / "imported" / "f.parquet", "ms", [NOON - timedelta(days=1)])
    enforce(table)
    assert_whole(table.bench.load(), {"main": [0]})


@accident(
    "Rows whose time is null for readers were dropped by bounds of a column that an imported file no longer has",
    evidence=OUR_TRIALS,
    guard="the footer has to have the column, by field id or by the table's name mapping",
    without=[NO_FOOTERS],
    sees="other rows",
)
def test_an_imported_file_without_field_ids_has_a_column_that_was_renamed(make: Make, tmp_path: Path) -> None:
    table = make()
    import_times(table, tmp_path / "imported" / "f.parquet", "us", [datetime(2020, 1, 1, tzinfo=UTC)])
    other_column_of_that_name(table)
    enforce(table, "created")
    assert_whole(table.bench.load(), {"main": [0]})


BY_THE_SUMMARY = """(
    (past := sum(tally.past for tally in self._tallies(parent, self._changed(parent, ours.snapshot_id)[0]).values())),
    (left := int(ours.summary["added-position-deletes"]) - int(ours.summary.get("removed-position-deletes", 0))),
    self._roll_back(ours, f"{left} rows left the table and {past} of them were past their time") if left != past else None,
    {"rows_deleted": past},
)[-1]"""


@accident(
    "A table in which two deletes named the same row was never rid of its old rows again",
    evidence=OUR_TRIALS,
    guard="what a delete removed is counted by the rows that readers see before and after, and not by the snapshot's summary",
    without=[answering(_Ttl._proved, BY_THE_SUMMARY)],
    sees="old rows stay: .* was rolled back",
)
@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_two_position_deletes_name_the_same_rows(make: Make, version: int) -> None:
    table = make()
    table.append(10, 40, 31, 29, 1)
    delete_twice(table, 11, 12)
    table.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ('format-version' = '{version}')")
    table.ttl()
    record = table.ttl(enforce=True)
    assert record.counts.rows_deleted == 1, f"old rows stay: {record.reason}"
    assert_whole(table.bench.load(), {"main": [13], "other": [10, 13]})


@accident(
    "Old rows stayed for ever, since the column of the limit is nested and has a dot in its name",
    evidence=OUR_TRIALS,
    guard="a column's name is built from its path of names, each quoted by itself",
    without=[
        answering(column_of, "quoted(*rule.column.split('.'))"),
        answering(current_column, "quoted(*target.column.split('.'))"),
    ],
    sees="refused: Cannot count rows",
)
def test_a_nested_column_has_a_dot_in_its_name(make: Make) -> None:
    table = make("s STRUCT<`a.b`: DATE>")
    table.insert("SELECT 1, named_struct('a.b', DATE '2020-01-01') UNION ALL SELECT 2, named_struct('a.b', DATE '2025-06-01')")
    try:
        enforce(table, "s.a.b")
    except (BadRequestError, StorageError) as error:
        raise AssertionError(f"refused: {error}") from error
    assert_whole(table.bench.load(), {"main": [2]})


@accident(
    "Removing old rows from a data file removes others too, which Iceberg's reader leaves out since the file's footer claims a "
    "wrong size of their row group",
    evidence=OUR_TRIALS,
    guard="the rows that the reader finds in the files that are looked into, deleted ones too, are compared with the table's "
    "metadata before anything is deleted",
    without=[answering(missed_rows, "False")],
    sees="other rows",
)
def test_rows_that_the_reader_leaves_out_are_not_rewritten_away(make: Make, tmp_path: Path) -> None:
    table, path = make(mode="copy-on-write"), tmp_path / "f.parquet"
    import_times(table, path, "us", [NOON, datetime(2020, 1, 1, tzinfo=UTC)], group_rows=1)
    path.write_bytes(edited(path.read_bytes(), lambda footer: group(footer).update({6: (thrift.I64, 8191)})))
    with suppress(StorageError):
        table.ttl()
        table.ttl(enforce=True)
    assert any("'id': 0," in row for row in table.bench.duckdb()), "other rows"
