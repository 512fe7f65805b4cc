"""The tables that `rewrite.py` and `scale.py` compact, written by Iceberg's own Spark writer and kept for the next time."""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neve.table.units import MIB

_EVENTS = {
    "id": "id",
    "user_id": "cast(rand({seed}) * 1e9 as bigint)",
    "ts": "timestamp_micros(1700000000000000 + id * 1000 + cast(rand({seed} + 1) * 2000 as bigint))",
    "kind": "concat('kind', lpad(cast(cast(rand({seed} + 2) * 5 as int) as string), 4, '0'))",
    "country": "concat('c', lpad(cast(cast(rand({seed} + 3) * 60 as int) as string), 4, '0'))",
    "page": "concat('/page/', lpad(cast(cast(rand({seed} + 4) * 500 as int) as string), 4, '0'))",
    "price": "-ln(rand({seed} + 5) + 1e-9) * 60",
    "score": "rand({seed} + 6)",
    "quantity": "1 + cast(rand({seed} + 7) * 49 as int)",
    "status": "cast(rand({seed} + 8) * 6 as int)",
    "session": "concat('session-', lpad(cast(cast(rand({seed} + 9) * 2000 as int) as string), 4, '0'))",
    "created": "timestamp_micros(1700000000000000 + id * 1000 + cast(rand({seed} + 10) * 1e9 as bigint))",
}
"""The reference table's columns as expressions over a row's number."""


@dataclass(frozen=True)
class Shape:
    """A table: so many files of so many rows, to be rewritten into about `outputs` files."""

    name: str
    words: str
    files: int
    rows_per_file: int
    outputs: int
    wide: int = 0
    partitions: int = 1
    has_deletes: bool = False

    @property
    def rows(self) -> int:
        """Of the whole table."""
        return self.files * self.rows_per_file

    def columns(self, seed: int = 7) -> dict[str, str]:
        """Names and expressions."""
        if self.wide:
            kinds = ("cast(rand({seed}) * 1e6 as bigint)", "rand({seed})", "cast(cast(rand({seed}) * 100 as int) as string)")
            return {"id": "id", **{f"c{n}": kinds[n % 3].format(seed=n) for n in range(1, self.wide)}}
        columns = {name: text.format(seed=seed) for name, text in _EVENTS.items()}
        if self.partitions > 1:
            per_partition = self.rows // self.partitions
            columns["part"] = f"cast(id div {per_partition} as int)"
        return columns


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("A", "500 files of 0.65 MB, 12 columns", files=500, rows_per_file=20_000, outputs=2),
        Shape("B", "2,000 files of 0.65 MB, 12 columns", files=2_000, rows_per_file=20_000, outputs=8),
        Shape("large", "60 files of 8 MB, 12 columns", files=60, rows_per_file=250_000, outputs=4),
        Shape("wide", "60 files, 200 columns", files=60, rows_per_file=5_000, outputs=2, wide=200),
        Shape("partitioned", "1,000 files in 200 partitions", files=1_000, rows_per_file=5_000, outputs=200, partitions=200),
        Shape("scale1", "120 files of 0.65 MB, 12 columns", files=120, rows_per_file=20_000, outputs=8),
        Shape("scale4", "480 files of 0.65 MB, 12 columns", files=480, rows_per_file=20_000, outputs=8),
        Shape("few", "4 files of 0.65 MB, 12 columns", files=4, rows_per_file=20_000, outputs=2),
        Shape("tiny", "20 files, for a quick look", files=20, rows_per_file=20_000, outputs=2),
    )
}


@dataclass(frozen=True)
class Written:
    """A table as it was written; every run starts from this snapshot."""

    shape: Shape
    table: str
    snapshot_id: int
    files: int
    bytes: int
    target_bytes: int


def write(spark: Any, namespace: str, shape: Shape) -> Written:
    """The table in this namespace, written now or found from last time."""
    table = f"{namespace}.{shape.name.lower()}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    if not spark.catalog.tableExists(table):
        _create(spark, table, shape)
    # The first snapshot is the one that was written; later ones are runs.
    snapshot = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at LIMIT 1").first()[0]
    files, size = spark.sql(f"SELECT count(*), sum(file_size_in_bytes) FROM {table}.files VERSION AS OF {snapshot}").first()
    target = target_bytes(int(size), shape)
    return Written(shape, table, int(snapshot), int(files), int(size), target)


def _create(spark: Any, table: str, shape: Shape) -> None:
    rows = spark.range(0, shape.rows, 1, shape.files).selectExpr(*(f"{text} AS `{n}`" for n, text in shape.columns().items()))
    writer = rows.writeTo(table).using("iceberg")
    properties = {
        "format-version": "2",
        "write.distribution-mode": "none",
        "write.parquet.compression-codec": "zstd",
        "write.parquet.compression-level": "3",
    }
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    if shape.partitions > 1:
        from pyspark.sql.functions import col

        writer = writer.partitionedBy(col("part"))
    writer.create()


def target_bytes(size: int, shape: Shape) -> int:
    """A little above an even share, so that neither side needs one file more for a few bytes."""
    return max(int(size / shape.outputs * 1.08), MIB // 4)
