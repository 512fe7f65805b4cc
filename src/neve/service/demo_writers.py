"""Writers that keep making small files and deletes, so that one can watch `neve serve --demo` keep tables healthy.

Run as a process of its own, `python -m neve.service.demo_writers`, started and stopped by `service.demo`. `clicks` gets small
files as a stream writes them, `accounts` appends, updates and deletes as change data capture does, and `sensors` a file now and
then.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from neve.context.connection import Connection
from neve.errors import NeveError
from neve.samples.row_level import COLUMNS, MERGE_ON_READ, WRITTEN_IN_PLACE
from neve.samples.streams import EVENT_TYPES
from neve.samples.target import Target
from neve.service.demo import NAMESPACE
from neve.settings import load_settings

log = logging.getLogger(__name__)

TABLES = ("clicks", "accounts", "sensors")
_FIRST_FILES = 60
_KEYS = 5_000
_SENSORS = 20


@dataclass
class Writer:
    """One writer: what it does every so many seconds."""

    name: str
    seconds: float
    write: Callable[[Any, Target, random.Random], None]
    next: float = 0.0


def clicks(spark: Any, target: Target, rng: random.Random) -> None:
    """Appends one small file for each event type."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [(rng.getrandbits(40), rng.choice(EVENT_TYPES), now, rng.random()) for _ in range(500)]
    frame = spark.createDataFrame(rows, "id bigint, event_type string, ts timestamp_ntz, value double")
    frame.coalesce(1).sortWithinPartitions("event_type").writeTo(target.spark_name("clicks")).append()


def accounts(spark: Any, target: Target, rng: random.Random) -> None:
    """Updates some rows, deletes some and inserts others, in one MERGE that leaves delete files."""
    rows = [
        (key, ("eu", "us")[key % 2], f"owner {rng.randrange(500)}", round(rng.uniform(0, 1e5), 2), rng.randrange(10))
        for key in rng.sample(range(_KEYS), 200)
    ]
    frame = spark.createDataFrame(rows, "id bigint, region string, owner string, balance double, version int")
    frame.selectExpr("id", "region", "owner", "CAST(balance AS decimal(12, 2)) balance", "version").createOrReplaceTempView(
        "changes"
    )
    spark.sql(
        f"MERGE INTO {target.spark_name('accounts')} t USING changes c ON t.id = c.id "
        "WHEN MATCHED AND c.version = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def sensors(spark: Any, target: Target, rng: random.Random) -> None:
    """Appends a file of readings."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [(rng.randrange(_SENSORS), now, rng.gauss(20, 4)) for _ in range(2_000)]
    frame = spark.createDataFrame(rows, "sensor int, ts timestamp_ntz, value double")
    frame.coalesce(1).writeTo(target.spark_name("sensors")).append()


def create(spark: Any, target: Target, rng: random.Random) -> None:
    """Makes the tables, the stream with files of an hour already."""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in {**MERGE_ON_READ, **WRITTEN_IN_PLACE}.items())
    for name, columns, partitions in (
        ("clicks", "id bigint, event_type string, ts timestamp_ntz, value double", "PARTITIONED BY (event_type)"),
        ("accounts", COLUMNS, "PARTITIONED BY (region)"),
        ("sensors", "sensor int, ts timestamp_ntz, value double", ""),
    ):
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {target.spark_name(name)} ({columns}) USING iceberg {partitions} "
            f"TBLPROPERTIES ('format-version' = '2', {properties})"
        )
    for _ in range(_FIRST_FILES // len(EVENT_TYPES)):
        clicks(spark, target, rng)


def write_until_parent_ends(writers: list[Writer], spark: Any, target: Target, rng: random.Random) -> None:
    """Lets the writers take turns until the process that started this one has ended."""
    parent = os.getppid()
    while os.getppid() == parent:
        for writer in writers:
            if time.monotonic() >= writer.next:
                try:
                    writer.write(spark, target, rng)
                except Exception as error:  # a conflict with maintenance; a writer tries again
                    log.info("the demo's writer of %s failed and tries again: %s", writer.name, str(error).splitlines()[0])
                writer.next = time.monotonic() + writer.seconds
        time.sleep(0.2)


def main() -> None:
    """Opens the warehouse that the settings describe, makes the tables, and writes."""
    parser = argparse.ArgumentParser(description="Keeps writing to the tables of `neve serve --demo`.")
    parser.add_argument("--config", required=True, help="the settings file")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    loaded = load_settings(file=Path(arguments.config), flags={"spark.master": "local[1]", "spark.driver-memory": "512 MB"})
    rng = random.Random(arguments.seed)  # noqa: S311
    connection = Connection.open(loaded)
    with connection.resources:
        name = connection.default_name()
        client = connection.catalog(name).client
        target = Target(catalog=client, spark=connection.spark, spark_catalog=name, namespace=NAMESPACE)
        create(connection.spark, target, rng)
        writers = [Writer("clicks", 4, clicks), Writer("accounts", 9, accounts), Writer("sensors", 20, sensors)]
        write_until_parent_ends(writers, connection.spark, target, rng)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, NeveError) as error:
        raise SystemExit(0 if isinstance(error, KeyboardInterrupt) else f"demo writers: {error}") from None
