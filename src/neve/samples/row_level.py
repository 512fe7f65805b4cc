"""Samples with row-level deletes: change data capture (v2), and deletion vectors with row lineage (v3).

Registered in `neve.samples.registry`; they need Spark, which writes position deletes and vectors.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from neve.samples.equality_deletes import add_equality_deletes
from neve.samples.seeding import seeded
from neve.samples.target import Target

COLUMNS = "id bigint, region string, owner string, balance decimal(12, 2), version int"
REGIONS = ("eu", "us")
CDC_LOADS = 5
CDC_ROUNDS = 2
V3_LOADS = 5
V3_CHANGES = (
    "DELETE FROM {} WHERE id % 10 = 3",
    "UPDATE {} SET version = 1 WHERE id % 10 = 7",
    "DELETE FROM {} WHERE id % 10 = 5",
)
ROWS = 200

MERGE_ON_READ = {
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
WRITTEN_IN_PLACE = {"write.distribution-mode": "none", "write.delete.distribution-mode": "none"}
"""Appends and deletes need no shuffle. Updates and merges keep theirs: it makes the number of files independent of planning."""


def write_cdc(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Loads, then rounds of upserts: merged by Spark (position deletes), or as Flink does (equality deletes)."""
    rows = max(20, round(ROWS * scale))
    _create(target, name, version=2)
    for load in range(CDC_LOADS):
        rng = seeded(seed, f"cdc load {load}")
        _append(target, name, [_account(rng, load * rows + n, version=0) for n in range(rows)])
    keys = range(CDC_LOADS * rows)
    for turn in range(1, CDC_ROUNDS + 1):
        rng = seeded(seed, f"cdc round {turn}")
        changed = sorted(rng.sample(keys, rows // 4))
        _merge(target, name, [_account(rng, key, version=turn) for key in changed])
        _upsert_by_equality(target, name, rng, keys=keys, turn=turn)


def write_v3(target: Target, name: str, *, seed: int, scale: float) -> None:
    """Loads, then deletes and updates that leave deletion vectors; some rows have been rewritten and keep their ids."""
    rows = max(20, round(ROWS * scale))
    _create(target, name, version=3)
    for load in range(V3_LOADS):
        rng = seeded(seed, f"v3 load {load}")
        _append(target, name, [_account(rng, load * rows + n, version=0) for n in range(rows)])
    for change in V3_CHANGES:
        target.session(f"build sample {name!r}").sql(change.format(target.spark_name(name)))


def _create(target: Target, name: str, *, version: int) -> None:
    properties = {"format-version": str(version), **MERGE_ON_READ, **WRITTEN_IN_PLACE}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    target.session(f"build sample {name!r}").sql(
        f"CREATE TABLE {target.spark_name(name)} ({COLUMNS}) USING iceberg PARTITIONED BY (region) TBLPROPERTIES ({listed})"
    )


def _account(rng: random.Random, key: int, *, version: int) -> tuple[Any, ...]:
    """A key keeps its region for life, so that an equality delete in that partition reaches its older versions."""
    return key, REGIONS[key % 2], f"owner {rng.randrange(500)}", Decimal(rng.randrange(10**8)).scaleb(-2), version


def _append(target: Target, name: str, rows: list[tuple[Any, ...]]) -> None:
    frame = target.session(f"build sample {name!r}").createDataFrame(rows, COLUMNS)
    frame.coalesce(1).sortWithinPartitions("region", "id").writeTo(target.spark_name(name)).append()


def _merge(target: Target, name: str, rows: list[tuple[Any, ...]]) -> None:
    spark = target.session(f"build sample {name!r}")
    spark.createDataFrame(rows, COLUMNS).coalesce(1).hint("broadcast").createOrReplaceTempView("neve_changes")
    spark.sql(
        f"MERGE INTO {target.spark_name(name)} t USING neve_changes c "
        "ON t.id = c.id WHEN MATCHED AND c.id % 5 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
    )
    spark.catalog.dropTempView("neve_changes")


def _upsert_by_equality(target: Target, name: str, rng: random.Random, *, keys: range, turn: int) -> None:
    """An equality delete on the key in each region, then the new versions, as a streaming upsert leaves them."""
    changed = sorted(rng.sample(keys, len(keys) // 20))
    for number, region in enumerate(REGIONS):
        doomed = [{"id": key} for key in changed if key % 2 == number]
        add_equality_deletes(target, name, rows=doomed, partition_path=f"region={region}")
    _append(target, name, [_account(rng, key, version=turn) for key in changed])
