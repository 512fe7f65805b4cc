"""Samples that changed half way: a schema evolved, a partition spec replaced. Old files keep their old shape.

Registered in `neve.samples.registry`. Readers must resolve columns by field id and partitions by each file's own spec.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from neve.samples.seeding import seeded
from neve.samples.target import Target, append, append_files

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

COMMITS = 8  # half of them before the change
ROWS = 40
REGIONS = ("eu", "us", "apac")
FIRST_DAY = datetime(2025, 1, 30, tzinfo=UTC)  # two days before a month ends, so that months and days differ


def write_evolved(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Half way a column is added, one dropped, one renamed, one moved, and three widened."""
    table = target.create(name, _old_schema())
    for commit in range(COMMITS):
        if commit == COMMITS // 2:
            _evolve(table)
        rng = seeded(seed, f"evolved {commit}")
        make = _old_row if commit < COMMITS // 2 else _new_row
        append(table, [make(rng, commit * 1_000_000 + n) for n in range(max(1, round(ROWS * scale)))])


def _old_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DecimalType, FloatType, IntegerType, LongType, NestedField, StringType

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "quantity", IntegerType(), required=False),
        NestedField(3, "weight", FloatType(), required=False),
        NestedField(4, "price", DecimalType(9, 2), required=False),
        NestedField(5, "label", StringType(), required=False),
        NestedField(6, "obsolete", StringType(), required=False),
        NestedField(7, "note", StringType(), required=False),
    )


def _evolve(table: Table) -> None:
    from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

    with table.update_schema() as update:
        update.update_column("quantity", LongType())
        update.update_column("weight", DoubleType())
        update.update_column("price", DecimalType(18, 2))
        update.delete_column("obsolete")
        update.rename_column("label", "title")
        update.add_column("channel", StringType())
    with table.update_schema() as update:
        update.move_first("note")


def _old_row(rng: random.Random, row_id: int) -> dict[str, Any]:
    return {
        "id": row_id,
        "quantity": rng.choice((None, rng.randint(-(2**31), 2**31 - 1))),
        "weight": rng.randrange(1000) / 8,
        "price": Decimal(rng.randrange(10**9)).scaleb(-2),
        "label": f"label {rng.randrange(100)}",
        "obsolete": "gone after the change",
        "note": rng.choice((None, "fragile")),
    }


def _new_row(rng: random.Random, row_id: int) -> dict[str, Any]:
    return {
        "id": row_id,
        "quantity": rng.choice((None, rng.randint(-(2**40), 2**40))),  # only fits the wider type
        "weight": rng.random(),
        "price": Decimal(rng.randrange(10**18)).scaleb(-2),
        "title": f"label {rng.randrange(100)}",
        "channel": rng.choice(("web", "shop", None)),
        "note": rng.choice((None, "fragile")),
    }


def write_respecced(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Partitioned by month at first, later by day and region: files of two specs side by side."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import MonthTransform

    by_month = PartitionField(source_id=2, field_id=1000, transform=MonthTransform(), name="ts_month")
    table = target.create(name, _respecced_schema(), spec=PartitionSpec(by_month))
    for commit in range(COMMITS):
        if commit == COMMITS // 2:
            _respec(table)
        rng = seeded(seed, f"respecced {commit}")
        rows = [_respecced_row(rng, commit, n) for n in range(max(12, round(ROWS * scale)))]
        append_files(table, _by_partition(rows, daily=commit >= COMMITS // 2))


def _respecced_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ts", TimestamptzType(), required=True),
        NestedField(3, "region", StringType(), required=False),
    )


def _respec(table: Table) -> None:
    from pyiceberg.transforms import DayTransform

    with table.update_spec() as update:
        update.remove_field("ts_month")
        update.add_field("ts", DayTransform(), "ts_day")
        update.add_identity("region")


def _respecced_row(rng: random.Random, commit: int, n: int) -> dict[str, Any]:
    # Days and regions go round instead of being drawn, so that every commit has the same number of files.
    moment = FIRST_DAY + timedelta(days=n % 4, seconds=rng.randrange(86_400))
    return {"id": commit * 1_000_000 + n, "ts": moment, "region": REGIONS[n // 4 % 3]}


def _by_partition(rows: list[dict[str, Any]], *, daily: bool) -> list[list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["ts"].date(), row["region"]) if daily else (row["ts"].month,)
        groups.setdefault(key, []).append(row)
    return list(groups.values())
