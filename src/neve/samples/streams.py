"""Append-only samples: a stream of micro-batches, events whose days were treated very unequally, orders in no order at all.

Registered in `neve.samples.registry`. Nothing is ever deleted here, so every row written can be counted on.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from neve.samples.seeding import seeded
from neve.samples.target import Target, append, append_files

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

MIDNIGHT = datetime(2025, 1, 17, tzinfo=UTC)

EVENT_TYPES = ("page_view", "click", "purchase", "add_to_cart", "search")
DEVICE_TYPES = ("mobile", "desktop", "tablet")

STREAM_BATCHES = 50
STREAM_BATCH_ROWS = 200

EVENT_DAYS = 14
EVENT_COMMITS = 40
HUGE_DAY = 7  # days before the last; the one whose single file dwarfs the rest
HUGE_ROWS = 60_000

ORDER_COMMITS = 8
ORDER_FILES = 8
ORDER_ROWS = 400
ORDER_FILE_BYTES = 32 * 1024  # as a table so small must ask for, or it would be one file and nothing could be skipped
CITIES = ("Amsterdam", "Berlin", "Lima", "Lisbon", "London", "Madrid", "Nairobi", "Oslo", "Paris", "Quito", "Rome", "Tokyo")


def write_stream(target: Target, name: str, *, seed: int, scale: float) -> None:
    """50 micro-batches ten minutes apart, partitioned by event type: five tiny files each."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    by_type = PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="event_type")
    table = target.create(name, _stream_schema(), spec=PartitionSpec(by_type))
    for batch in range(STREAM_BATCHES):
        rng = seeded(seed, f"stream {batch}")
        append(table, [stream_row(rng, batch, row) for row in range(max(1, round(STREAM_BATCH_ROWS * scale)))])


def _stream_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, IntegerType, NestedField, StringType, TimestamptzType

    return Schema(
        NestedField(1, "event_id", StringType(), required=True),
        NestedField(2, "user_id", IntegerType(), required=True),
        NestedField(3, "event_type", StringType(), required=True),
        NestedField(4, "event_timestamp", TimestamptzType(), required=True),
        NestedField(5, "event_value", DoubleType(), required=False),
        NestedField(6, "device_type", StringType(), required=False),
        NestedField(7, "session_id", StringType(), required=False),
    )


def stream_row(rng: random.Random, batch: int, row: int) -> dict[str, Any]:
    """One event; only purchases have a value."""
    user, event_type = rng.randint(1, 10_000), rng.choice(EVENT_TYPES)
    return {
        "event_id": f"evt_{batch:03d}_{row:05d}",
        "user_id": user,
        "event_type": event_type,
        "event_timestamp": MIDNIGHT + timedelta(minutes=batch * 10 + row),
        "event_value": round(rng.uniform(0, 1000), 2) if event_type == "purchase" else None,
        "device_type": rng.choice(DEVICE_TYPES),
        "session_id": f"session_{user % 100}",
    }


def write_events(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Fourteen days: the newest in crumbs, older ones in a few files, one in a single huge file."""
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform

    by_day = PartitionField(source_id=2, field_id=1000, transform=DayTransform(), name="ts_day")
    table = target.create(name, _events_schema(), spec=PartitionSpec(by_day))
    for commit in range(EVENT_COMMITS):
        rng = seeded(seed, f"events {commit}")
        days = [age for age in range(EVENT_DAYS) if commit < files_of_day(age)]
        append_files(table, [_day_events(rng, commit, age, scale=scale) for age in days])


def _events_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ts", TimestamptzType(), required=True),
        NestedField(3, "kind", StringType(), required=False),
        NestedField(4, "amount", DoubleType(), required=False),
    )


def files_of_day(age: int) -> int:
    """How many files the day so many days before the last has: 40, 20, 13, 10, 8, ... and one for the huge day."""
    return 1 if age == HUGE_DAY else max(2, EVENT_COMMITS // (age + 1))


def _day_events(rng: random.Random, commit: int, age: int, *, scale: float) -> list[dict[str, Any]]:
    """The rows of one commit that fall on one day."""
    rows = HUGE_ROWS if age == HUGE_DAY else 5 * (age + 1)
    start = MIDNIGHT - timedelta(days=age)
    first = (age * EVENT_COMMITS + commit) * 1_000_000
    return [
        {
            "id": first + n,
            "ts": start + timedelta(microseconds=rng.randrange(86_400_000_000)),
            "kind": rng.choice(EVENT_TYPES),
            "amount": round(rng.uniform(0, 100), 2),
        }
        for n in range(max(1, round(rows * scale)))
    ]


def write_scattered(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Orders to be clustered by city and amount, which nobody has done yet: every file has all cities and all amounts."""
    from neve.table.layout import CLUSTER_BY

    small = {"write.target-file-size-bytes": str(ORDER_FILE_BYTES)}
    table = target.create(name, _orders_schema(), properties={CLUSTER_BY: "hilbert(city, amount)", **small})
    for commit in range(ORDER_COMMITS):
        rng = seeded(seed, f"scattered {commit}")
        append_files(table, [_orders(rng, commit * ORDER_FILES + n, scale=scale) for n in range(ORDER_FILES)])


def _orders_schema() -> Schema:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DoubleType, LongType, NestedField, StringType

    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "city", StringType(), required=False),
        NestedField(3, "amount", DoubleType(), required=False),
        NestedField(4, "note", StringType(), required=False),
    )


def _orders(rng: random.Random, file: int, *, scale: float) -> list[dict[str, Any]]:
    """The rows of one file, among which every city is once at least."""
    rest = max(0, round(ORDER_ROWS * scale) - len(CITIES))
    return [
        {
            "id": file * 1_000_000 + n,
            "city": city,
            "amount": round(rng.lognormvariate(4, 1), 2),
            "note": f"{rng.getrandbits(64):016x}",
        }
        for n, city in enumerate((*CITIES, *rng.choices(CITIES, k=rest)))
    ]
