"""Equality deletes several times larger than an executor: does a rewrite come to its end, ours and Iceberg's own?

Run as `python -m bench.oversized_deletes --work DIR`. A standalone worker gives one executor with a heap of 1 GiB and capped
Python; the deletes' keys are more than 4 GiB decoded, and every one of them concerns every data file. Each contender runs in a
driver of its own, and its outcome is written down whatever it is. Exits with 1 when ours does not complete, with 2 when a
contender that completed left the wrong rows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.cluster import CORES, EXECUTOR, catalog_conf, contest_options, limited, measured
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.spark.runtime.session import SparkOptions, open_session
from neve.table.units import GIB, MIB

PYTHON = "2g"
PREFIX = b"urn:shop:eu-central-1:orders:invoice-line:"
KEY_BYTES = len(PREFIX) + 16
HIT_EVERY = 10
"""Of the data's rows, every tenth is deleted; all other deletes meet nothing, as after most of a table has been rewritten."""
COMMITS = 4
OUTPUTS = 10
TABLE = "lake.db.orders"
FIELDS = (
    {"id": 1, "name": "key", "required": False, "type": "string"},
    {"id": 2, "name": "number", "required": False, "type": "long"},
)
ICEBERG = {
    # `rewrite_data_files` with its defaults, then with what takes the least memory: one task at a time, small groups, no cache.
    "iceberg": ({}, {}),
    "iceberg-lean": (
        {"spark.task.cpus": str(CORES), "spark.sql.iceberg.executor-cache.enabled": "false"},
        {
            "partial-progress.enabled": "true",
            "max-concurrent-file-group-rewrites": "1",
            "max-file-group-size-bytes": str(32 * MIB),
        },
    ),
}
OURS = "neve"
CONTENDERS = (OURS, *ICEBERG)


@dataclass(frozen=True)
class Size:
    """Of the table."""

    rows: int
    deletes: int
    rows_per_file: int

    @classmethod
    def of(cls, scale: float) -> Size:
        """40 data files and 160 deletes, smaller or larger."""
        rows_per_file = int(500_000 * scale)
        return cls(40 * rows_per_file, 160 * rows_per_file, rows_per_file)

    @property
    def hits(self) -> int:
        """Rows that are deleted."""
        return len(range(0, self.rows, HIT_EVERY))

    @property
    def key_bytes(self) -> int:
        """Of the deletes, decoded."""
        return self.deletes * KEY_BYTES

    @property
    def sum_left(self) -> int:
        """Of the column `number` when the deletes are applied."""
        return sum(range(self.rows)) - sum(range(0, self.rows, HIT_EVERY))


QUICK_SCALE = 0.002


def main() -> int:
    """Makes the table, lets everybody try, prints, writes, judges."""
    options = contest_options(__doc__, "oversized_deletes", "the 4.3 GiB of decoded keys", CONTENDERS, QUICK_SCALE)
    size = Size.of(options.scale)
    if options.make:
        _make(options.work, size)
        return 0
    if options.contender:
        print(json.dumps(_contend(options, size)))
        return 0
    about = machine()
    options.work /= f"scale-{options.scale:g}"
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "made").exists():
        subprocess.run([*_command(options), "--make"], check=True)
    rows = [measured(_command(options), name, work=options.work, timeout=options.timeout) for name in options.contenders]
    content = {**about, "size": asdict(size), "key_bytes": size.key_bytes, "rows": rows}
    bars = [(row["contender"], row["seconds"]) for row in rows]
    chart = BarChart("Deletes larger than the executor: time to the end, whatever it was", "s", [("all", bars)])
    leave(
        "oversized_deletes",
        _figures(rows, size),
        content,
        {"oversized_deletes": chart},
        json_file=options.json,
        quick=options.quick,
    )
    if any(row["outcome"] == "wrong rows" for row in rows):
        return 2
    return 1 if any(row["contender"] == OURS and row["outcome"] != "completed" for row in rows) else 0


def _command(options: argparse.Namespace) -> list[str]:
    return [sys.executable, "-m", "bench.oversized_deletes", "--work", str(options.work), "--scale", str(options.scale)]


def _figures(rows: list[dict[str, Any]], size: Size) -> Figures:
    head = ["contender", "outcome", "s", "JVM MiB", "Python MiB"]
    lines = [
        [
            row["contender"],
            row["outcome"],
            f"{row['seconds']:.1f}",
            *(f"{row[name] / MIB:.0f}" for name in ("jvm_peak_bytes", "python_peak_bytes")),
        ]
        for row in rows
    ]
    keys = f"{size.deletes:,} deletes whose keys are {size.key_bytes / GIB:.2f} GiB decoded"
    data = f"{size.rows:,} rows in {size.rows // size.rows_per_file} files"
    notes = [f"{keys}, {data}; one executor of {CORES} cores with {EXECUTOR} of heap and {PYTHON} for Python."]
    return Figures(head, lines, left=2, notes=notes)


def _contend(options: argparse.Namespace, size: Size) -> dict[str, Any]:
    """In a driver of its own: what one contender came to."""
    conf, settings = ICEBERG.get(options.contender, ({}, {}))
    spark, catalog = limited(options.master, conf, python=PYTHON), catalog_conf(options.work)
    with open_session(spark, catalog_conf=catalog, needs=["sqlite"], app_name=options.contender) as session:
        try:
            return _ours(session, options.work, size) if options.contender == OURS else _iceberg(session, settings, size)
        except Exception as error:  # whatever happens is the result
            return {"outcome": "failed", "reason": str(error)[-2000:]}


def _iceberg(spark: Any, settings: Mapping[str, str], size: Size) -> dict[str, Any]:
    before = spark.table(f"{TABLE}.refs").first().snapshot_id
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in {"rewrite-all": "true", **settings}.items())
    try:
        done = spark.sql(f"CALL lake.system.rewrite_data_files(table => 'db.orders', options => map({pairs}))").first()
        if done.failed_data_files_count:
            return {"outcome": "failed", "reason": f"{done.failed_data_files_count} data files were not rewritten"}
        # The deletes may still be attached; whoever counts would load them again, so the files are counted without them.
        files = spark.table(f"{TABLE}.data_files").select("file_path").collect()
        return _judged([row.file_path for row in files], size)
    finally:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {before})")


def _judged(paths: list[str], size: Size) -> dict[str, Any]:
    rows = total = 0
    for path in paths:
        numbers = pq.read_table(path.removeprefix("file:"), columns=["number"]).column(0).to_numpy()
        rows, total = rows + len(numbers), total + int(numbers.sum())
    right = (rows, total) == (size.rows - size.hits, size.sum_left)
    return {"outcome": "completed" if right else "wrong rows", "output_rows": rows}


def _ours(spark: Any, work: Path, size: Size) -> dict[str, Any]:
    """`neve.compact` in this very session, from inspection to record; the table is set back afterwards."""
    import neve

    before = spark.table(f"{TABLE}.refs").first().snapshot_id
    target = sum(row.file_size_in_bytes for row in spark.table(f"{TABLE}.data_files").collect()) // OUTPUTS
    try:
        with tempfile.TemporaryDirectory(prefix="state-", dir=work) as state:
            settings = {"policy.target-file-size": target, "state.url": f"sqlite:///{state}/state.db"}
            with neve.connect(spark=spark, settings=settings) as place:
                record = place.compact(TABLE, request=Request(force=True))
        if record.outcome is not RunOutcome.DONE:
            return {"outcome": "failed", "reason": "; ".join(sorted({group.reason for group in record.groups}))}
        files = spark.table(f"{TABLE}.data_files").select("file_path").collect()
        judged = _judged([row.file_path for row in files], size)
        return {**judged, "kernels": sorted(record.kernels), "output_files": len(files)}
    finally:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {before})")


def _make(work: Path, size: Size) -> None:
    """Writes the table: data first, then deletes in a few commits."""
    with open_session(
        SparkOptions(master="local[1]", driver_memory="1g"), catalog_conf=catalog_conf(work), needs=["sqlite"]
    ) as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
        spark.sql(f"CREATE TABLE {TABLE} (key string, number bigint) USING iceberg TBLPROPERTIES ('format-version' = '2')")
        jvm: Any = spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, TABLE)
        directory = work / "files"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        append = table.newFastAppend()
        for start in range(0, size.rows, size.rows_per_file):
            numbers = np.arange(start, start + size.rows_per_file)
            path = _write(directory / f"data-{start}.parquet", key=_keys(numbers), number=pa.array(numbers))
            append.appendFile(_described(jvm.org.apache.iceberg.DataFiles.builder(table.spec()), path, len(numbers)))
        append.commit()
        deleted = np.concatenate(
            (np.arange(0, size.rows, HIT_EVERY), np.arange(size.rows, size.rows + size.deletes - size.hits))
        )
        # Hits are in every file and in every commit.
        _delete(spark, table, directory, [deleted[at::COMMITS] for at in range(COMMITS)], size)
    (work / "made").touch()


def _delete(spark: Any, table: Any, directory: Path, commits: list[Any], size: Size) -> None:
    jvm = spark._jvm
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = FIELDS[0]["id"]
    for commit, numbers in enumerate(commits):
        delta = table.newRowDelta()
        for start in range(0, len(numbers), size.rows_per_file):
            part = numbers[start : start + size.rows_per_file]
            path = _write(directory / f"delete-{commit}-{start}.parquet", key=_keys(part))
            builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
            delta.addDeletes(_described(builder, path, len(part)))
        delta.commit()


def _described(builder: Any, path: Path, records: int) -> Any:
    described = builder.withFormat("parquet").withPath(str(path)).withFileSizeInBytes(path.stat().st_size)
    return described.withRecordCount(records).build()


def _write(path: Path, **columns: pa.Array) -> Path:
    ids = {field["name"]: str(field["id"]) for field in FIELDS}
    fields = [pa.field(name, column.type, metadata={"PARQUET:field_id": ids[name]}) for name, column in columns.items()]
    table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    return path


_HEX = np.array([f"{value:02x}".encode() for value in range(256)]).view(np.uint16)


def _keys(numbers: Any) -> pa.Array:
    """A text for each number; neighbours have nothing in common but the beginning that all share."""
    spread = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    digits = _HEX[spread.view(np.uint8).reshape(-1, 8)].view(np.uint8)
    rows = np.concatenate((np.broadcast_to(np.frombuffer(PREFIX, np.uint8), (len(numbers), len(PREFIX))), digits), axis=1)
    offsets = np.arange(0, len(numbers) * KEY_BYTES + 1, KEY_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


if __name__ == "__main__":
    sys.exit(main())
