"""A writer that changes rows on a fixed schedule, and a model of the table after the commands that succeeded.

Used by `bench/writers.py`. Commands come from a seed, so that every contender meets the same ones. Each is followed by an
append of a small file to every day. The model is what the table must hold in the end, whatever was compacted meanwhile.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

DAYS = 8
FILES_PER_DAY = 12
ROWS_PER_FILE = 2_000
APPENDED_ROWS = 40
MERGED_ROWS = 30
KINDS = ("UPDATE", "DELETE", "MERGE")
HOT_DAYS, HOT_SHARE = 2, 0.8
"""Most commands change rows of the newest days."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Command:
    """One change of rows of one day; `number` picks the rows."""

    kind: str
    day: int
    number: int


def commands(seed: int) -> Iterator[Command]:
    """Without end."""
    chance, tick = random.Random(seed), 0  # noqa: S311 - a workload, no secret
    while True:
        hot = chance.random() < HOT_SHARE
        day = chance.randrange(DAYS - HOT_DAYS, DAYS) if hot else chance.randrange(DAYS - HOT_DAYS)
        yield Command(KINDS[tick % len(KINDS)], day, tick)
        tick += 1


@dataclass
class Model:
    """Rows by id: their day, or -1 once deleted, and their value."""

    day: Longs
    value: Longs

    @classmethod
    def new(cls) -> Model:
        """As `create` fills the table: rows are dealt to days in turn."""
        rows = DAYS * FILES_PER_DAY * ROWS_PER_FILE
        return cls(np.arange(rows, dtype=np.int64) % DAYS, np.zeros(rows, dtype=np.int64))

    def add(self, day: Longs) -> None:
        """New rows with the next ids and the value 0."""
        self.day = np.append(self.day, day)
        self.value = np.append(self.value, np.zeros(len(day), dtype=np.int64))

    def apply(self, command: Command) -> None:
        """What the command does to the rows."""
        ids = np.arange(len(self.day))
        if command.kind == "UPDATE":
            self.value[(self.day == command.day) & (ids % 97 == command.number % 97)] += 1
        elif command.kind == "DELETE":
            self.day[(self.day == command.day) & (ids % 499 == command.number % 499)] = -1
        else:
            first, last = merged_ids(len(self.day))
            old = np.arange(first, len(self.day))
            self.value[old[self.day[old] == command.day]] += 100
            self.add(np.full(last - len(self.day), command.day, dtype=np.int64))

    def totals(self) -> dict[int, tuple[int, int, int]]:
        """By day the rows, the sum of their ids and the sum of their values."""
        ids = np.arange(len(self.day))
        found = {}
        for day in range(DAYS):
            here = self.day == day
            found[day] = (int(here.sum()), int(ids[here].sum()), int(self.value[here].sum()))
        return found


def merged_ids(rows: int) -> tuple[int, int]:
    """A MERGE updates those of the youngest rows that are of its day, and inserts new ones: from which id to which."""
    return rows - MERGED_ROWS, rows + MERGED_ROWS


def statement(table: str, command: Command, rows: int) -> str:
    """The command in SQL, for a table that had so many ids."""
    day, number = command.day, command.number
    if command.kind == "UPDATE":
        return f"UPDATE {table} SET value = value + 1 WHERE day = {day} AND id % 97 = {number % 97}"
    if command.kind == "DELETE":
        return f"DELETE FROM {table} WHERE day = {day} AND id % 499 = {number % 499}"
    first, last = merged_ids(rows)
    return (
        f"MERGE INTO {table} t USING (SELECT id FROM range({first}, {last})) s ON t.id = s.id AND t.day = {day} "
        f"WHEN MATCHED THEN UPDATE SET value = value + 100 WHEN NOT MATCHED AND s.id >= {rows} THEN "
        f"INSERT (id, day, value, text) VALUES (s.id, {day}, 0, CAST(xxhash64(s.id) AS STRING))"
    )


def create(spark: Any, table: str, mode: str) -> None:
    """The table before the first command: a file for each day, twelve times over."""
    modes = ", ".join(f"'write.{kind.lower()}.mode' = '{mode}'" for kind in KINDS)
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, day INT, value BIGINT, text STRING) USING iceberg PARTITIONED BY (day) "
        f"TBLPROPERTIES ('format-version' = '2', {modes})"
    )
    step = DAYS * ROWS_PER_FILE
    for number in range(FILES_PER_DAY):
        _append(spark, table, number * step, (number + 1) * step)


def _append(spark: Any, table: str, first: int, last: int) -> None:
    columns = f"id, CAST(id % {DAYS} AS INT), 0, CAST(xxhash64(id) AS STRING)"
    spark.sql(f"INSERT INTO {table} SELECT {columns} FROM range({first}, {last}, 1, 1)")


@dataclass(frozen=True)
class Sent:
    """What became of a command; `failure` is None where it succeeded."""

    kind: str
    began_seconds: float
    seconds: float
    failure: str | None


@dataclass
class RowWriter:
    """Sends a command every so many seconds, and an append after each, from a thread of its own."""

    spark: Any
    table: str
    seed: int
    every_seconds: float
    model: Model = field(default_factory=Model.new)
    sent: list[Sent] = field(default_factory=list)
    failed_appends: int = 0

    def run(self, seconds: float, stop: threading.Event) -> None:
        """Until the time is over; a command that fails is counted and not sent again."""
        began = time.monotonic()
        for tick, command in enumerate(commands(self.seed)):
            if stop.wait(max(0.0, began + tick * self.every_seconds - time.monotonic())):
                return
            if time.monotonic() - began >= seconds:
                return
            self._send(command, time.monotonic() - began)
            self._append()

    def _send(self, command: Command, at: float) -> None:
        began, failure = time.monotonic(), None
        try:
            self.spark.sql(statement(self.table, command, len(self.model.day)))
            self.model.apply(command)
        except Exception as error:  # Iceberg's refusals come as many types
            failure = " ".join(str(error).split())[:300]
        self.sent.append(Sent(command.kind, at, time.monotonic() - began, failure))

    def _append(self) -> None:
        rows = len(self.model.day)
        first = -(-rows // DAYS) * DAYS
        try:
            _append(self.spark, self.table, first, first + DAYS * APPENDED_ROWS)
        except Exception:
            self.failed_appends += 1
            return
        # Ids that were left out to begin with the first day belong to no row.
        self.model.add(np.full(first - rows, -1, dtype=np.int64))
        self.model.add(np.arange(first, first + DAYS * APPENDED_ROWS, dtype=np.int64) % DAYS)


def totals(spark: Any, table: str) -> dict[int, tuple[int, int, int]]:
    """What the table holds, as the model tells it."""
    rows = spark.sql(f"SELECT day, count(*), sum(id), sum(value) FROM {table} GROUP BY day").collect()
    return {row[0]: (row[1], row[2], row[3]) for row in rows}
