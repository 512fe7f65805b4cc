"""Writers that never pause beside a compaction loop: nobody fails, nobody starves, deletes stay few and no row is wrong."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from py4j.protocol import Py4JJavaError

from neve.api import Neve
from neve.rewrite.group import Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.settings import load_settings
from tests.builders.spark_deletes import MERGE_ON_READ, upsert
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import duckdb_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 200
COMPACTIONS, COMMITS = 4, 9
REFUSALS = tuple(f"org.apache.iceberg.exceptions.{name}" for name in ("ValidationException", "CommitFailedException"))
"""How Iceberg tells a writer that somebody replaced the files that it had read."""


class Writer(threading.Thread):
    """Changes a few keys with each commit until it is told to stop; `rows` is what the table must show."""

    def __init__(self, bench: Bench, every_seconds: float) -> None:
        super().__init__()
        self.bench, self._every = bench, every_seconds
        self._stopped = threading.Event()
        self.rows = dict.fromkeys(range(KEYS), 0)
        self.commits = self.refusals = 0
        self.failure: str | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._every):
                self.write(self.commits + 1)
                self.commits += 1
        except BaseException as error:
            self.failure = str(getattr(error, "java_exception", error))
        finally:
            self.ended.set()

    @abstractmethod
    def write(self, number: int) -> None:
        """One commit."""

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Upserter(Writer):
    """As Flink does: new rows, and equality deletes of the old ones, in one commit."""

    def write(self, number: int) -> None:
        ids = [number * 7 % KEYS, number * 11 % KEYS, KEYS + number]
        upsert(self.bench, [{"id": i, "v": number} for i in sorted(set(ids))], key=["id"])
        self.rows |= dict.fromkeys(ids, number)


class SparkWriter(Writer):
    """Deletes by position. Iceberg refuses a statement whose files were replaced while it ran; whoever wrote it tries again."""

    def write(self, number: int) -> None:
        statement, change = self._statements()[number % 3](number)
        while True:
            try:
                self.bench.sql("REFRESH TABLE {}")
                self.bench.sql(statement)
            except Py4JJavaError as error:
                if error.java_exception.getClass().getName() not in REFUSALS:
                    raise
                self.refusals += 1
                continue
            change()
            return

    def _statements(self) -> list[Callable[[int], tuple[str, Callable[[], object]]]]:
        return [self._updating, self._deleting, self._merging]

    def _updating(self, number: int) -> tuple[str, Callable[[], object]]:
        ids = [i for i in self.rows if i % 10 == number % 10]
        changed = dict.fromkeys(ids, number)
        return f"UPDATE {{}} SET v = {number} WHERE id % 10 = {number % 10}", lambda: self.rows.update(changed)

    def _deleting(self, number: int) -> tuple[str, Callable[[], object]]:
        gone = number * 7 % KEYS
        return f"DELETE FROM {{}} WHERE id = {gone}", lambda: self.rows.pop(gone, None)

    def _merging(self, number: int) -> tuple[str, Callable[[], object]]:
        changed = dict.fromkeys([number * 7 % KEYS, KEYS + number], number)
        source = ", ".join(f"({i}, {number})" for i in changed)
        statement = (
            f"MERGE INTO {{}} t USING (SELECT * FROM VALUES {source} AS s(id, v)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
        return statement, lambda: self.rows.update(changed)


@dataclass
class Seen:
    """What the loop saw: its runs, and after each the delete files that were left and the commits since it was planned."""

    records: list[RunRecord] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)


@contextmanager
def writing(writer: Writer) -> Iterator[None]:
    writer.start()
    try:
        yield
    finally:
        writer.stop()


def make(spark: SparkSession, warehouse: Path, version: int) -> Bench:
    bench = Bench(spark, warehouse, f"cdc_{uuid4().hex[:8]}", "t")
    spark.sql(f"CREATE NAMESPACE local.{bench.namespace}")
    properties = f"'format-version' = '{version}', {MERGE_ON_READ}"
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, v BIGINT) USING iceberg TBLPROPERTIES ({properties})")
    bench.sql(f"INSERT INTO {{}} SELECT id, 0 FROM range(0, {KEYS}, 1, 1)")
    return bench


def compact_while(wanted: Callable[[Seen], bool], writer: Writer, monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Compactions of the whole table, one after another, and one more when the writer has stopped."""
    bench, seen = writer.bench, Seen()
    table, request = f"{bench.namespace}.t", Request(tier=Tier.FULL, force=True)
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as neve:
        monkeypatch.setattr(neve.connection, "session", bench.spark)
        with writing(writer):
            # Without a pause a tiny table is committed to so often that a writer's few tries may all come second.
            while wanted(seen) and not writer.ended.wait(0.5):
                before = writer.commits
                seen.records.append(neve.compact(table, request=request))
                seen.left.append((len(bench.deletes()), writer.commits - before))
        seen.records.append(neve.compact(table, request=request))
        seen.left.append((len(bench.deletes()), 0))
    return seen


def few(writer: Writer) -> Callable[[Seen], bool]:
    """As long as there were few compactions, or few commits."""
    return lambda seen: len(seen.records) < COMPACTIONS or writer.commits < COMMITS


def check(writer: Writer, seen: Seen) -> None:
    """Nobody failed or starved, and every reader sees what was written."""
    assert writer.failure is None, writer.failure
    assert [record.outcome for record in seen.records] == [RunOutcome.DONE] * len(seen.records), seen.records
    assert {group.state for record in seen.records for group in record.groups} == {GroupState.COMMITTED}
    # A commit may lie between the count and the look at the table, on either side.
    assert [pair for pair in seen.left if pair[0] > 2 * (pair[1] + 2)] == []
    assert seen.left[-1] == (0, 0)
    assert len(writer.bench.paths()) == 1
    shown = duckdb_query(f"SELECT id, v FROM iceberg_scan('{writer.bench.load().metadata_location}')")
    assert sorted((row["id"], row["v"]) for row in shown) == sorted(writer.rows.items())
    assert writer.bench.rows("id, v") == writer.bench.duckdb()


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_an_upserting_writer_and_compactions_do_not_disturb_each_other(
    version: int, spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Upserter(make(spark, warehouse, version), 0.5)
    check(writer, compact_while(few(writer), writer, monkeypatch))


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_merge_on_read_writer_is_refused_at_times_and_never_wrong(
    version: int, spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SparkWriter(make(spark, warehouse, version), 0.5)
    check(writer, compact_while(few(writer), writer, monkeypatch))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [Upserter, SparkWriter])
@pytest.mark.parametrize("version", [2, 3])
def test_five_minutes_of_commits_every_two_seconds(
    version: int,
    kind: type[Writer],
    spark: SparkSession,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    writer = kind(make(spark, warehouse, version), 2)
    until = time.monotonic() + 300
    check(writer, compact_while(lambda _: time.monotonic() < until, writer, monkeypatch))
    assert writer.commits > 50
    record_property("commits", writer.commits)
    record_property("refusals", writer.refusals)
