"""The tables that `bench/query.py` reads, the same rows in as many small files as wanted, and the questions that it asks.

pyiceberg writes them file by file, which takes milliseconds each and works on a disk and on S3. Same arguments, same rows.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DAYS, COMMITS = 10, 20
FIRST_DAY = 20_000
"""Days after 1970-01-01."""
_DAY_MICROS = 86_400 * 10**6
Answer = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Events:
    """`rows` rows in `files` files; each file holds a stretch of time, as a writer that never stops leaves them."""

    rows: int
    files: int

    def __post_init__(self) -> None:
        if self.files % DAYS or self.rows % self.files:
            raise ValueError(f"{self.rows} rows in {self.files} files of {DAYS} days do not come out even")

    @property
    def rows_per_file(self) -> int:
        """Every file has as many."""
        return self.rows // self.files

    def day(self, number: int) -> int:
        """The day that a file belongs to."""
        return FIRST_DAY + number // (self.files // DAYS)

    def content(self, number: int) -> pa.Table:
        """One file's rows. Amounts are whole cents, so that sums are exact in any order."""
        ids = np.arange(number * self.rows_per_file, (number + 1) * self.rows_per_file)
        ts = FIRST_DAY * _DAY_MICROS + ids * (DAYS * _DAY_MICROS // self.rows)
        columns = {
            "id": ids,
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "user_id": _drawn(ids, 10**6, salt=1),
            "kind": _words("kind", 5).take(pa.array(_drawn(ids, 5, salt=2))),
            "page": _words("/page/", 500).take(pa.array(_drawn(ids, 500, salt=3))),
            "cents": _drawn(ids, 10**5, salt=4),
        }
        return pa.table(columns)

    def write(self, catalog: Any, name: tuple[str, str]) -> Any:
        """A new table of that name, in a namespace that may have to be made; written in a few commits."""
        table = _create(catalog, name)
        for numbers in np.array_split(np.arange(self.files), min(self.files, COMMITS)):
            with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
                for file in self._written(table, numbers.tolist()):
                    snapshot.append_data_file(file)
        return table

    def _written(self, table: Any, numbers: list[int]) -> Iterator[Any]:
        from pyiceberg.io.pyarrow import write_file
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
        from pyiceberg.table import WriteTask

        spec, schema, write_id = table.spec(), table.schema(), uuid4()

        def task(number: int) -> Any:
            day = PartitionFieldValue(field=spec.fields[0], value=self.day(number))
            key = PartitionKey(field_values=[day], partition_spec=spec, schema=schema)
            batches = self.content(number).to_batches()
            return WriteTask(write_uuid=write_id, task_id=number, schema=schema, record_batches=batches, partition_key=key)

        yield from write_file(io=table.io, table_metadata=table.metadata, tasks=map(task, numbers))


def _drawn(ids: npt.NDArray[np.int64], below: int, *, salt: int) -> npt.NDArray[np.int64]:
    """Numbers that look random and hang on a row's id alone, however the rows are cut into files (SplitMix64)."""
    mixed = (ids.astype(np.uint64) + np.uint64(salt << 40)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(below)).astype(np.int64)


def _words(prefix: str, count: int) -> pa.Array:
    return pa.array([f"{prefix}{i:04d}" for i in range(count)])


def _create(catalog: Any, name: tuple[str, str]) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import DayTransform
    from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

    types = {"id": LongType(), "ts": TimestamptzType(), "user_id": LongType(), "kind": StringType(), "page": StringType()}
    fields = [NestedField(i, key, kind) for i, (key, kind) in enumerate({**types, "cents": LongType()}.items(), 1)]
    day = PartitionField(source_id=2, field_id=1000, transform=DayTransform(), name="day")
    catalog.create_namespace_if_not_exists(name[0])
    return catalog.create_table(name, Schema(*fields), partition_spec=PartitionSpec(day))


@dataclass(frozen=True)
class Query:
    """One question, as SQL and as a scan with a sum over what it returns."""

    name: str
    select: str
    columns: tuple[str, ...]
    answer: Callable[[pa.Table], Answer]
    condition: str = "true"
    group: str = ""

    def sql(self, table: str) -> str:
        """For Spark."""
        return f"SELECT {self.select} FROM {table} WHERE {self.condition} {self.group}"


def queries(rows: int) -> tuple[Query, ...]:
    """Everything, a thousandth of the rows in the middle, and a sum by day, which is how the table is partitioned."""
    start, end = rows // 2, rows // 2 + max(1, rows // 1000)

    def sums(found: pa.Table) -> Answer:
        return [(found.num_rows, *(pc.sum(found[name]).as_py() for name in found.column_names if name in ("cents", "user_id")))]

    def by_day(found: pa.Table) -> Answer:
        day = pc.floor_temporal(found["ts"], unit="day").cast(pa.date32())
        grouped = (
            pa.table({"day": day, "cents": found["cents"]}).group_by("day").aggregate([([], "count_all"), ("cents", "sum")])
        )
        return sorted(zip(*(grouped[name].to_pylist() for name in ("day", "count_all", "cents_sum")), strict=True))

    ids = f"id >= {start} AND id < {end}"
    return (
        Query("full scan", "count(*), sum(user_id), sum(cents)", ("user_id", "cents"), sums),
        Query("range of ids", "count(*), sum(cents)", ("cents",), sums, condition=ids),
        Query(
            "sum by day",
            "cast(ts AS date) AS day, count(*), sum(cents)",
            ("ts", "cents"),
            by_day,
            group="GROUP BY 1 ORDER BY 1",
        ),
    )
