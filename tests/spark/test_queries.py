"""Stated queries on real Iceberg: what is told beside a plan and after a run, against what pyiceberg plans."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.errors import BadRequestError
from neve.rewrite.group import Tier
from neve.rewrite.planner import Request
from neve.settings import load_settings
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

NUMBERS = count()
QUERIES = {
    "city = 'city 07'": "city == 'city 07'",
    "amount BETWEEN 100 AND 199": "amount >= 100 and amount <= 199",
    "day >= DATE '2025-01-05' AND city IN ('city 01', 'city 02')": "day >= '2025-01-05' and city in ('city 01', 'city 02')",
    "NOT (price < 5000.00)": "price >= 5000.00",
    "at < TIMESTAMP '1970-01-01 00:10:00'": "at < '1970-01-01T00:10:00+00:00'",
    "false": None,
}
"""Each in Spark's words and in pyiceberg's; None for no file at all."""


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    """Forty files, each with values from everywhere."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.asked")
    made = Bench(spark, warehouse, "asked", f"t{next(NUMBERS)}")
    made.sql("CREATE TABLE {} (city STRING, amount INT, day DATE, price DECIMAL(9, 2), at TIMESTAMP) USING iceberg")
    spark.range(0, 40_000, 1, 40).selectExpr(
        "'city ' || lpad(CAST(pmod(hash(id), 20) AS STRING), 2, '0') AS city",
        "CAST(pmod(hash(id, 1), 1000) AS INT) AS amount",
        "date_add(DATE '2025-01-01', CAST(pmod(hash(id, 2), 10) AS INT)) AS day",
        "CAST(pmod(hash(id, 3), 1000000) / 100 AS DECIMAL(9, 2)) AS price",
        "timestamp_seconds(pmod(hash(id, 4), 3600)) AS at",
    ).writeTo(made.sql_name).append()
    return made


@pytest.fixture
def opened(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Any:
    """Opens Neve with knobs, in the tests' own warehouse and session."""
    places: list[Neve] = []

    def make(**knobs: str) -> Neve:
        flags = {"state.url": f"sqlite:///{tmp_path}/state.db"} | {k.replace("_", "-"): v for k, v in knobs.items()}
        place = Neve.open(load_settings(flags=flags, environ={}), warehouse=str(warehouse), environ={})
        place.connection.session = spark
        places.append(place)
        return place

    yield make
    for place in places:
        place.__exit__(None, None, None)


def planned_by_pyiceberg(bench: Bench, predicate: str | None) -> tuple[int, int]:
    if predicate is None:
        return 0, 0
    tasks = list(bench.load().scan(row_filter=predicate).plan_files())
    return len(tasks), sum(task.file.file_size_in_bytes for task in tasks)


def test_a_run_tells_what_queries_read_before_and_after(bench: Bench, opened: Callable[..., Neve]) -> None:
    place = opened(queries="; ".join(QUERIES), target_file_size="25 KB")
    before = [planned_by_pyiceberg(bench, predicate) for predicate in QUERIES.values()]

    record = place.cluster(f"asked.{bench.name}", "city, amount", request=Request())

    after = [planned_by_pyiceberg(bench, predicate) for predicate in QUERIES.values()]
    assert [(gain.before.files, gain.before.bytes) for gain in record.queries] == before
    assert [(gain.after.files, gain.after.bytes) for gain in record.queries if gain.after] == after
    assert [gain.query for gain in record.queries] == list(QUERIES)
    city, amount, both, price, at, nothing = record.queries
    for gain in (city, amount, both):
        assert gain.after is not None
        assert gain.after.files < gain.before.files / 2
        assert gain.after.files / 2 - 1 <= gain.predicted.files <= 2 * gain.after.files + 2
    for gain in (price, at):  # of columns that are no part of the layout: everything is read, as predicted
        assert gain.after is not None
        assert record.after is not None
        assert gain.after.files == record.after.data_files
        assert gain.predicted.bytes == gain.before.bytes
    assert (nothing.before.files, nothing.predicted.files) == (0, 0)
    assert all(gain.before.planning_seconds and gain.before.row_groups >= gain.before.files for gain in record.queries[:5])
    assert place.run(record.recorded_id).record["queries"][0]["query"] == "city = 'city 07'"


def test_a_plan_tells_without_a_run(bench: Bench, opened: Callable[..., Neve]) -> None:
    planned = opened(queries="amount > 900").plan(f"asked.{bench.name}", request=Request(tier=Tier.FULL, force=True))
    (gain,) = planned.queries
    assert gain.before.files == 40
    assert gain.predicted.files == len(planned.groups)
    assert gain.after is None


def test_what_is_no_predicate_is_refused_before_anything_is_done(bench: Bench, opened: Callable[..., Neve]) -> None:
    head = bench.load().current_snapshot()
    with pytest.raises(BadRequestError, match=r"Cannot choose files by 'no_such = 1'"):
        opened(queries="amount > 1; no_such = 1").compact(f"asked.{bench.name}", request=Request(tier=Tier.FULL))
    assert bench.load().current_snapshot() == head
