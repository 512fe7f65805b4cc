"""Real runs on real small tables, kept as JSON: the files before, the plan, the files after. What `replaying` is held against.

Called by `bench/simulate.py record`, which needs Spark. Locations are replaced by numbers, so that a recording says nothing
of the machine it was made on.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.shapes import Shape
from bench.simulation.table import path_of
from neve.api import Neve
from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.health.row_groups import row_groups_by_file
from neve.operations import inspect
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import RunRecord
from neve.samples.equality_deletes import add_equality_deletes
from neve.table.depth import Depth
from neve.table.files import DATA, UNKNOWN, FileColumns
from neve.table.state import TableName, TableState

Numbers = dict[tuple[str, int], int]
"""By path and place inside it."""

RECORDED = Path(__file__).parent / "recorded"
_NARROW = {
    "id": "id",
    "changed": "timestamp_micros(1700000000000000 + id * 1000)",
    "amount": "cast(rand(3) * 1e6 as int)",
}
_IN_PLACE = (
    "'write.delete.mode' = 'merge-on-read', 'write.distribution-mode' = 'none', 'write.delete.distribution-mode' = 'none'"
)


@dataclass(frozen=True)
class Case:
    """A table and what is asked of its compaction. `deleted` tenths of the rows are deleted, evenly over all files."""

    name: str
    files: int
    rows_per_file: int
    target: str
    tier: Tier | None = None
    kernel: Kernel | None = None
    partitions: int = 1
    narrow: bool = False
    wide: int = 0
    codec: str = "zstd"
    format_version: int = 2
    deleted: int = 0
    by_key: bool = False
    knobs: Mapping[str, str] = field(default_factory=dict)
    after: str | None = None
    """The case whose outcome this one begins with."""

    @property
    def request(self) -> Request:
        """Forced, so that it does not hang on the time of day."""
        return Request(tier=self.tier, kernel=self.kernel, force=True)


CASES = (
    Case("minor-copy", 30, 20_000, "16 MB", tier=Tier.MINOR),
    Case("copied-then-encoded", 30, 20_000, "16 MB", kernel=Kernel.ARROW, tier=Tier.FULL, after="minor-copy"),
    Case("minor-copy-into-three", 70, 20_000, "16 MB", tier=Tier.MINOR),
    Case("minor-copy-partitioned", 40, 20_000, "16 MB", tier=Tier.MINOR, partitions=4),
    Case("minor-copy-narrow", 24, 60_000, "16 MB", tier=Tier.MINOR, narrow=True),
    Case("minor-copy-with-lineage", 30, 20_000, "16 MB", tier=Tier.MINOR, format_version=3),
    Case("major-arrow", 10, 80_000, "16 MB", tier=Tier.MAJOR),
    Case("major-arrow-with-lineage", 30, 20_000, "16 MB", tier=Tier.MAJOR, kernel=Kernel.ARROW, format_version=3),
    Case("full-arrow-tiny-files", 80, 5_000, "16 MB", tier=Tier.FULL, kernel=Kernel.ARROW),
    Case("full-arrow-into-four", 30, 20_000, "5 MB", tier=Tier.FULL, kernel=Kernel.ARROW),
    Case("full-arrow-partitioned", 40, 20_000, "16 MB", tier=Tier.FULL, kernel=Kernel.ARROW, partitions=8),
    Case("full-arrow-wide", 12, 5_000, "32 MB", tier=Tier.FULL, kernel=Kernel.ARROW, wide=200),
    Case("full-arrow-snappy", 30, 20_000, "16 MB", tier=Tier.FULL, kernel=Kernel.ARROW, codec="snappy"),
    Case("cut-arrow", 2, 600_000, "4 MB", tier=Tier.MAJOR, knobs={"max-file-size": "8 MB"}),
    Case("position-deletes-arrow", 30, 20_000, "16 MB", tier=Tier.MAJOR, deleted=3),
    Case("equality-deletes-arrow", 30, 20_000, "16 MB", tier=Tier.MAJOR, deleted=2, by_key=True),
    Case("vectors-arrow", 30, 20_000, "16 MB", tier=Tier.MAJOR, deleted=1, format_version=3),
    Case("full-spark", 30, 20_000, "16 MB", tier=Tier.FULL, kernel=Kernel.SPARK),
    Case("full-spark-partitioned", 40, 20_000, "16 MB", tier=Tier.FULL, kernel=Kernel.SPARK, partitions=4),
    Case("cut-spark", 2, 600_000, "4 MB", tier=Tier.MAJOR, kernel=Kernel.SPARK, knobs={"max-file-size": "8 MB"}),
    Case("cut-arrow-with-deletes", 3, 500_000, "6 MB", tier=Tier.MAJOR, deleted=4, knobs={"max-file-size": "12 MB"}),
    Case("sorted-arrow", 30, 20_000, "5 MB", tier=Tier.FULL, kernel=Kernel.ARROW, knobs={"cluster-by": "sort(user_id)"}),
    Case(
        "hilbert-arrow",
        30,
        20_000,
        "5 MB",
        tier=Tier.FULL,
        kernel=Kernel.ARROW,
        knobs={"cluster-by": "hilbert(user_id, price)"},
    ),
    Case(
        "hilbert-spark",
        30,
        20_000,
        "5 MB",
        tier=Tier.FULL,
        kernel=Kernel.SPARK,
        knobs={"cluster-by": "hilbert(user_id, price)"},
    ),
    Case("sorted-spark", 40, 20_000, "6 MB", tier=Tier.FULL, kernel=Kernel.SPARK, knobs={"cluster-by": "sort(session, ts)"}),
    Case("position-deletes-spark", 30, 20_000, "16 MB", tier=Tier.FULL, kernel=Kernel.SPARK, deleted=5),
)


def record(neve: Neve, warehouse: Path, folder: Path = RECORDED, names: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Makes each table, compacts it, and keeps what was seen; only the cases named, if any are."""
    neve.spark.sql("CREATE NAMESPACE IF NOT EXISTS local.recorded")
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        if not names or case.name in names:
            path = folder / f"{case.name}.json"
            path.write_text(json.dumps(_recorded(neve, warehouse, case)) + "\n", encoding="utf-8")
            yield path


def _recorded(neve: Neve, warehouse: Path, case: Case) -> dict[str, Any]:
    table = _table(case.after or case.name)
    if case.after is None:
        _make(neve, case)
    before, known = _state(warehouse, table), _row_groups(neve, table)
    plan = neve.plan(table, request=case.request)
    run = neve.compact(table, request=case.request)
    used, planned = [str(group.kernel) for group in run.groups], [str(group.kernel) for group in plan.groups]
    if used != planned:
        raise RuntimeError(f"{case.name} was planned with {planned} and done with {used}: {run.groups[0].refusals}")
    after, now_known = _state(warehouse, table), _row_groups(neve, table)
    assert before.files is not None
    assert after.files is not None
    numbers: Numbers = {}
    document = plan.model_dump(mode="json")
    files_before = _renamed(_told(before.files, known), numbers)
    document["files"] = _renamed(plan.files, numbers).to_json()
    return {
        "case": case.name,
        "specs": [spec.model_dump(mode="json") for spec in before.specs],
        "before": files_before.to_json(),
        "dead": _dead(case, before.files),
        "raw": 1.0,
        "plan": document,
        "after": _renamed(_told(after.files, now_known), numbers).to_json(),
    }


def _row_groups(neve: Neve, table: str) -> dict[str, int]:
    """How files that we wrote are really cut; the metadata of copies tells less on purpose."""
    runs = [RunRecord.model_validate(run.record) for run in neve.runs(table) if run.record]
    return {file.path: file.row_groups for run in runs for group in run.groups for file in group.outputs}


def _told(files: FileColumns, known: Mapping[str, int]) -> FileColumns:
    groups, _ = row_groups_by_file(files, known, {})
    place = files.table.schema.get_field_index("row_groups")
    column = pa.array(groups, pa.int32())
    return replace(files, table=files.table.set_column(place, files.table.schema.field(place), column))


def _table(name: str) -> str:
    return f"local.recorded.{name.replace('-', '_')}"


def _make(neve: Neve, case: Case) -> None:
    spark, table = neve.spark, _table(case.name)
    spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    shape = Shape(case.name, "", case.files, case.rows_per_file, 1, wide=case.wide, partitions=case.partitions)
    columns = _NARROW if case.narrow else shape.columns()
    rows = spark.range(0, shape.rows, 1, shape.files).selectExpr(*(f"{text} AS `{n}`" for n, text in columns.items()))
    writer = rows.writeTo(table).using("iceberg").tableProperty("format-version", str(case.format_version))
    for key, value in {"write.parquet.compression-codec": case.codec, **_knobs(case)}.items():
        writer = writer.tableProperty(key, value)
    if case.partitions > 1:
        from pyspark.sql.functions import col

        writer = writer.partitionedBy(col("part"))
    writer.tableProperty("write.distribution-mode", "none").create()
    if case.deleted:
        _delete(neve, case, shape.rows)


def _knobs(case: Case) -> dict[str, str]:
    return {f"neve.{key}": value for key, value in {"target-file-size": case.target, **case.knobs}.items()}


def _delete(neve: Neve, case: Case, rows: int) -> None:
    if case.by_key:
        doomed = [{"id": i} for i in range(rows) if i % 10 < case.deleted]
        with neve.demo_target("recorded") as target:
            on_spark = replace(target, spark=neve.spark, spark_catalog="local")
            add_equality_deletes(on_spark, case.name.replace("-", "_"), rows=doomed)
        return
    neve.spark.sql(f"ALTER TABLE {_table(case.name)} SET TBLPROPERTIES ({_IN_PLACE})")
    neve.spark.sql(f"DELETE FROM {_table(case.name)} WHERE id % 10 < {case.deleted}")


def _state(warehouse: Path, table: str) -> TableState:
    """As plain Python reads it, past every cache."""
    name, described = open_warehouse(str(warehouse))
    catalog = IcebergCatalog(name, described, environ={})
    try:
        _, namespace, plain = table.split(".")
        return inspect.read(catalog.open(TableName(catalog=name, namespace=(namespace,), name=plain)), Depth.FILES)
    finally:
        catalog.client.close()


def _dead(case: Case, files: FileColumns) -> list[float]:
    """Rows of each file that deletes hide, from how the table was made and not from what came out."""
    records, data = files.column("records"), files.column("content") == DATA
    return [float(n) * case.deleted / 10 if is_data else 0.0 for n, is_data in zip(records.tolist(), data, strict=True)]


def _renamed(files: FileColumns, numbers: Numbers) -> FileColumns:
    """With numbers for paths, in the order in which files are first seen; vectors that share a file get one each."""
    table, offsets = files.table, files.table.column("content_offset").to_pylist()
    named = {
        "path": zip(table.column("path").to_pylist(), offsets, strict=True),
        "referenced": ((path, UNKNOWN) for path in table.column("referenced").to_pylist()),
    }
    for name, keys in named.items():
        paths = [path_of(numbers.setdefault(key, len(numbers))) if key[0] else "" for key in keys]
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), pa.array(paths, pa.string()))
    return FileColumns(table=table, partitions=files.partitions)
