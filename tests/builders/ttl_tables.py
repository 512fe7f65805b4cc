"""Tables on Spark with a limit on the age of their rows, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.api import Neve
from neve.maintenance.ttl import TtlRecord
from neve.settings import load_settings
from neve.spark.maintenance.ttl import SparkPastRows
from neve.spark.table.bridge import TableBridge
from neve.table.state import TableName
from tests.builders.spark_tables import Bench

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


def maker(spark: SparkSession, warehouse: Path, state: Path, namespace: str) -> Make:
    """Makes tables in a namespace that exists; runs are remembered below `state`."""
    url = f"sqlite:///{state}/state.db"

    def open_(knobs: dict[str, str]) -> Neve:
        settings = load_settings(environ={}, flags={"state.url": url, **knobs})
        opened = Neve.open(settings, warehouse=str(warehouse), environ={}, clock=CLOCK)
        opened.connection.session = spark
        return opened

    def make(columns: str = "ts TIMESTAMP", how: str = "", *, version: int = 2, mode: str = "merge-on-read") -> Kept:
        bench = Bench(spark, warehouse, namespace, f"ttl{next(NUMBERS)}")
        properties = f"'format-version' = '{version}', 'write.delete.mode' = '{mode}', 'commit.retry.min-wait-ms' = '1'"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, {columns}) USING iceberg {how} TBLPROPERTIES ({properties})")
        return Kept(bench, open_)

    return make


def import_times(
    table: Kept, path: Path, unit: str | None, times: Sequence[datetime], first: int = 0, *, group_rows: int | None = None
) -> None:
    """Adds one Parquet file without field ids: ids from `first` on, and times as `ts` in this unit, `d` for a column of days.
    A folder such as `d=2020-01-01` is its partition."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"id": pa.array(range(first, first + len(times)), pa.int64())}
    if unit == "d":
        columns["d"] = pa.array([time.date() for time in times], pa.date32())
    elif unit is not None:
        columns["ts"] = pa.array(times, pa.timestamp(unit, tz="UTC"))
    pq.write_table(pa.table(columns), path, row_group_size=group_rows)
    source = path.parent.parent if "=" in path.parent.name else path.parent
    name = f"{table.bench.namespace}.{table.bench.name}"
    where = "" if "=" in path.parent.name else f"/{path.name}"
    table.bench.spark.sql(
        f"CALL local.system.add_files(table => '{name}', source_table => '`parquet`.`{source}{where}`')"
    ).collect()


def other_column_of_that_name(table: Kept) -> None:
    """What was `ts` is `created` from now on, and readers find it in no file that was imported before."""
    table.sql("ALTER TABLE {} RENAME COLUMN ts TO created")
    table.sql("ALTER TABLE {} ADD COLUMN ts TIMESTAMP")


def delete_twice(table: Kept, *ids: int) -> None:
    """Two position deletes name these rows, as two writers under snapshot isolation leave it."""
    table.sql("ALTER TABLE {} CREATE BRANCH other")
    to, found = table.bench.sql_name, ", ".join(map(str, ids))
    for target in (to, f"{to}.branch_other"):
        table.bench.spark.sql(f"DELETE FROM {target} WHERE id IN ({found})")
    bridge = TableBridge(
        table.bench.spark, TableName(catalog="local", namespace=(table.bench.namespace,), name=table.bench.name)
    )
    head, other = bridge.head(), bridge.head("other")
    assert head is not None
    assert other is not None
    bridge.row_delta(bridge.delete_files(other), [], referenced=[f.path for f in bridge.scan(head)], head=head, summary={})


SWAPPED = ["RENAME COLUMN ts TO event_ts", "RENAME COLUMN made TO ts"]


def with_two_times(table: Kept) -> Kept:
    """By `ts` ids 0 and 10 are past, by `made` every one."""
    for first, days in ((0, (40, 20)), (10, (35, 10, 5))):
        rows = ", ".join(f"({first + i}, {int(NOON.timestamp() - d * DAY)})" for i, d in enumerate(days))
        made = "TIMESTAMP '2001-01-01 00:00:00Z'"
        table.insert(f"SELECT id, timestamp_seconds(s), {made} AS made FROM VALUES {rows} AS t(id, s)")
    return table


def swap_names(table: Kept) -> None:
    """What was `made` is `ts` from now on."""
    for change in SWAPPED:
        table.sql(f"ALTER TABLE {{}} {change}")


def striking(patched: pytest.MonkeyPatch, kind: str, before: Any = lambda: None, after: Any = lambda: None) -> list[str]:
    """Lets something happen before the first call of a method of the engine, or after it; counts the calls."""
    sent: list[str] = []
    real = getattr(SparkPastRows, kind)

    def struck(self: SparkPastRows, *args: Any) -> None:
        sent.append(kind)
        first = len(sent) == 1
        before() if first else None
        real(self, *args)
        after() if first else None

    patched.setattr(SparkPastRows, kind, struck)
    return sent
