"""Rows past their time leave real tables: as many as were previewed, by whole files where metadata proves it, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.compose import Neve
from neve.core.record import RunOutcome
from neve.core.ttl import TtlRecord
from neve.engines.spark.ttl import SparkPastRows
from neve.errors import BadRequestError, CommitUnknownError
from neve.settings import load_settings
from tests.spark.rewriting import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
NOON = datetime(2025, 6, 15, 12, tzinfo=UTC)
DAY = 86_400


class Moved:
    """A clock that stands until somebody moves it."""

    seconds = NOON.timestamp()

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


CLOCK = Moved()


@dataclass
class Kept:
    """A table and the composition root that enforces its limit."""

    bench: Bench
    open: Callable[..., Neve]

    def sql(self, statement: str) -> Any:
        return self.bench.sql(statement)

    def append(self, first: int, *days: float, branch: str = "") -> None:
        """One file: a row for each number of days before noon, with ids from `first` on."""
        rows = ", ".join(f"({first + i}, {int(NOON.timestamp() - days * DAY)})" for i, days in enumerate(days))
        self.insert(f"SELECT id, timestamp_seconds(s) FROM VALUES {rows} AS t(id, s)", branch)

    def insert(self, select: str, branch: str = "") -> None:
        to = f"{self.bench.sql_name}.branch_{branch}" if branch else self.bench.sql_name
        self.bench.spark.sql(f"INSERT INTO {to} SELECT /*+ COALESCE(1) */ * FROM ({select})")

    def ttl(self, keep: str | None = "30 days", *, column: str | None = "ts", knobs: Any = None, **words: Any) -> TtlRecord:
        said = {"ttl": keep, "ttl-column": column, **(knobs or {})}
        with self.open({key: value for key, value in said.items() if value is not None}) as neve:
            return neve.ttl(f"{self.bench.namespace}.{self.bench.name}", **words)

    def ids(self) -> list[int]:
        """In which Spark and DuckDB agree."""
        found = self.bench.ids()
        by_duckdb = sorted(int(row.split("'id': ")[1].split(",")[0].rstrip("}")) for row in self.bench.duckdb())
        assert by_duckdb == found
        return found

    def of_ref(self, ref: str) -> list[int]:
        self.sql("REFRESH TABLE {}")
        return sorted(row.id for row in self.sql(f"SELECT id FROM {{}} VERSION AS OF '{ref}'").collect())

    def head(self) -> int | None:
        return self.bench.load().metadata.current_snapshot_id


Make = Callable[..., Kept]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.ttl")
    url = f"sqlite:///{tmp_path_factory.mktemp('state')}/state.db"

    def open_(knobs: dict[str, str]) -> Neve:
        settings = load_settings(environ={}, flags={"state.url": url, **knobs})
        opened = Neve.open(settings, warehouse=str(warehouse), environ={}, clock=CLOCK)
        vars(opened._place)["spark"] = spark
        return opened

    def make(columns: str = "ts TIMESTAMP", how: str = "", *, version: int = 2, mode: str = "merge-on-read") -> Kept:
        bench = Bench(spark, warehouse, "ttl", f"t{next(NUMBERS)}")
        properties = f"'format-version' = '{version}', 'write.delete.mode' = '{mode}', 'commit.retry.min-wait-ms' = '1'"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, {columns}) USING iceberg {how} TBLPROPERTIES ({properties})")
        return Kept(bench, open_)

    return make


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


COLUMNS = "n TIMESTAMP_NTZ, d DATE, day INT, ms BIGINT, text STRING, s STRUCT<ts: TIMESTAMP>"
OTHERS = [
    ("n", None),
    ("d", None),
    ("day", "yyyyMMdd"),
    ("ms", "milliseconds"),
    ("text", "yyyy-MM-dd"),
    ("s.ts", None),
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
    ]
    casts = "CAST(n AS TIMESTAMP_NTZ), CAST(d AS DATE), day, ms, text, named_struct('ts', to_timestamp(concat(n, 'Z')))"
    table.insert(f"SELECT id, {casts} FROM VALUES {', '.join(rows)} AS t(id, n, d, day, ms, text)")
    for column, form in OTHERS:
        counts = table.ttl(column=column, knobs={"ttl-format": form} if form else None, dry_run=True).counts
        assert (column, counts.files_dropped, counts.rows_deleted) == (column, 0, 1)
    table.sql("ALTER TABLE {} RENAME COLUMN text TO told")
    table.ttl(column="told", knobs={"ttl-format": "yyyy-MM-dd"})
    assert table.ttl(column="told", knobs={"ttl-format": "yyyy-MM-dd"}, enforce=True).counts.rows_deleted == 1
    assert table.ids() == [2, 3, 4, 5]


def test_a_first_enforcement_needs_a_preview_and_takes_its_cutoff(make: Make, clock: Moved) -> None:
    table = make()
    table.append(0, 40, 29.5)
    with pytest.raises(BadRequestError, match=r"Cannot enforce the limit of local.ttl.t\d+: it was never previewed"):
        table.ttl(enforce=True)
    table.ttl(dry_run=True)
    with pytest.raises(BadRequestError, match="it was never previewed"):
        table.ttl(enforce=True)
    preview = table.ttl()
    with pytest.raises(BadRequestError, match="it was never previewed"):
        table.ttl("31 days", enforce=True)
    clock.seconds += DAY
    first = table.ttl(enforce=True)
    assert (first.cutoff_ms, first.counts, table.ids()) == (preview.cutoff_ms, preview.counts, [1])
    second = table.ttl(enforce=True)
    assert (second.cutoff_ms - first.cutoff_ms, second.previewed_by, table.ids()) == (DAY * 1000, None, [])
    with pytest.raises(BadRequestError, match=r"Cannot keep rows of .* for 60 min only: that is below ttl-floor, 24 h"):
        table.ttl("1 h")


@pytest.fixture
def at_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets something happen before the first commit of a kind is sent, or after it has landed; counts what is sent."""

    def arm(kind: str, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> list[str]:
        sent: list[str] = []
        real = getattr(SparkPastRows, kind)

        def struck(self: SparkPastRows, *args: Any) -> None:
            sent.append(kind)
            first = len(sent) == 1
            before() if first else None
            real(self, *args)
            after() if first else None

        monkeypatch.setattr(SparkPastRows, kind, struck)
        return sent

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
