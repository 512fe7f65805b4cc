"""A group several times larger than an executor, sorted and laid along curves: does it come to its end, ours and Iceberg's own?

Run as `python -m bench.sort_large --work DIR`. A standalone worker gives one executor with a heap of 1 GiB; the rows are more
than 4 GiB decoded, in random order, and become four files. Each contender runs in a driver of its own. Exits with 1 when
ours does not complete, with 2 when a contender that completed left the wrong rows or the wrong order.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.cluster import CORES, EXECUTOR, PYTHON, catalog_conf, contest_options, limited, measured
from neve.spark.runtime.session import SparkOptions, open_session
from neve.table.units import GIB, MIB

TABLE = "lake.db.orders"
FILES = 44
FIELDS = (("name", "string"), ("amount", "bigint"), ("number", "bigint"), ("note", "string"))
OURS = {"neve-sort": "sort(name)", "neve-zorder": "z-order(name, amount)", "neve-hilbert": "hilbert(name, amount)"}
ICEBERG = {"iceberg-sort": "name ASC NULLS FIRST", "iceberg-zorder": "zorder(name, amount)"}
CONTENDERS = (*OURS, *ICEBERG)


@dataclass(frozen=True)
class Size:
    """Of the table."""

    rows_per_file: int

    @classmethod
    def of(cls, scale: float) -> Size:
        """Files of a million rows, smaller or larger."""
        return cls(int(1_000_000 * scale))

    @property
    def rows(self) -> int:
        """Of all files."""
        return FILES * self.rows_per_file


QUICK_SCALE = 0.001


def main() -> int:
    """Makes the table, lets everybody try, prints, writes, judges."""
    options = contest_options(__doc__, "sort_large", "the 4.3 GiB of decoded rows", CONTENDERS, QUICK_SCALE)
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
    made = json.loads((options.work / "made").read_text())
    rows = [measured(_command(options), name, work=options.work, timeout=options.timeout) for name in options.contenders]
    content = {**about, "size": asdict(size), **made, "rows": rows}
    bars = [(row["contender"], row["seconds"]) for row in rows]
    chart = BarChart("A group larger than the executor, sorted: time to the end, whatever it was", "s", [("all", bars)])
    figures = _figures(rows, size, made)
    leave("sort_large", figures, content, {"sort_large": chart}, json_file=options.json, quick=options.quick)
    if any(row["outcome"] not in ("completed", "failed", "out of memory") for row in rows):
        return 2
    return 1 if any(row["contender"] in OURS and row["outcome"] != "completed" for row in rows) else 0


def _command(options: argparse.Namespace) -> list[str]:
    return [sys.executable, "-m", "bench.sort_large", "--work", str(options.work), "--scale", str(options.scale)]


def _figures(rows: list[dict[str, Any]], size: Size, made: dict[str, int]) -> Figures:
    head = ["contender", "outcome", "s", "rewrite s", "files", "JVM MiB", "Python MiB"]
    lines = [
        [
            row["contender"],
            row["outcome"],
            f"{row['seconds']:.1f}",
            f"{row['rewrite_seconds']:.1f}" if "rewrite_seconds" in row else "",
            str(row.get("output_files", "")),
            *(f"{row[name] / MIB:.0f}" for name in ("jvm_peak_bytes", "python_peak_bytes")),
        ]
        for row in rows
    ]
    data = f"{size.rows:,} rows in {FILES} files, {made['decoded_bytes'] / GIB:.2f} GiB decoded, "
    data += f"{made['file_bytes'] / GIB:.2f} GiB as files, target {_target(made['file_bytes']) / MIB:.0f} MiB"
    return Figures(
        head, lines, left=2, notes=[f"{data}; one executor of {CORES} cores with {EXECUTOR} of heap and {PYTHON} for Python."]
    )


def _target(file_bytes: int) -> int:
    """Of an output: four of them, each larger than the executor's heap once it is decoded."""
    return file_bytes // 4


def _contend(options: argparse.Namespace, size: Size) -> dict[str, Any]:
    """In a driver of its own: what one contender came to."""
    name, made = options.contender, json.loads((options.work / "made").read_text())
    target = _target(made["file_bytes"])
    catalog = catalog_conf(options.work)
    with open_session(limited(options.master), catalog_conf=catalog, needs=["sqlite"], app_name=name) as spark:
        began = time.monotonic()
        try:
            paths = _ours(spark, OURS[name], target) if name in OURS else _iceberg(spark, ICEBERG[name], target)
        except Exception as error:  # whatever happens is the result
            return {"outcome": "failed", "reason": str(error)[-2000:]}
        seconds = time.monotonic() - began
    judged = _judged(paths, size, is_sorted=name.endswith("-sort"))
    for path in paths:
        path.unlink()
    return {"rewrite_seconds": seconds, **judged}


def _ours(spark: Any, layout: str, target: int) -> list[Path]:
    """The kernel alone: nothing is committed."""
    from neve.rewrite.group import Kernel
    from neve.rewrite.work_order import InputFile, WorkOrder, WriteSettings
    from neve.spark.table.bridge import TableBridge
    from neve.spark.tasks.spark_kernel import SparkKernel
    from neve.table.layout import Layout
    from neve.table.state import TableName

    bridge = TableBridge(spark, TableName(catalog="lake", namespace=("db",), name="orders"))
    head = bridge.head()
    assert head is not None
    files = bridge.scan(head)
    order = WorkOrder(
        order_id="all",
        group_id=0,
        kernels=(Kernel.SPARK,),
        inputs=tuple(InputFile(path=file.path, size_bytes=file.size_bytes, records=file.records) for file in files),
        table_schema=bridge.schema_json(),
        output_prefix="unused",
        write=WriteSettings(target_bytes=target),
        layout=Layout.parse(layout),
    )
    result = SparkKernel(spark, bridge, head).run(order, ())
    return [_local(file.path) for file in result.outputs]


def _iceberg(spark: Any, order: str, target: int) -> list[Path]:
    before = spark.table(f"{TABLE}.refs").first().snapshot_id
    options = f"'rewrite-all', 'true', 'target-file-size-bytes', '{target}'"
    arguments = f"table => 'db.orders', strategy => 'sort', sort_order => '{order}', options => map({options})"
    try:
        done = spark.sql(f"CALL lake.system.rewrite_data_files({arguments})").first()
        if done.failed_data_files_count:
            raise RuntimeError(f"{done.failed_data_files_count} data files were not rewritten")
        return [_local(row.file_path) for row in spark.table(f"{TABLE}.data_files").select("file_path").collect()]
    finally:
        spark.sql(f"CALL lake.system.rollback_to_snapshot('db.orders', {before})")


def _local(path: str) -> Path:
    return Path(path.removeprefix("file:"))


def _judged(paths: list[Path], size: Size, *, is_sorted: bool) -> dict[str, Any]:
    """Whether all rows are there, and in order if they were to be sorted."""
    rows = total = 0
    ranges, in_order = [], True
    for path in paths:
        numbers = pq.read_table(path, columns=["number"]).column(0).to_numpy()
        rows, total = rows + len(numbers), total + int(numbers.sum())
        if is_sorted:
            names = pq.read_table(path, columns=["name"]).column(0).combine_chunks()
            in_order &= bool(pc.all(pc.greater_equal(names[1:], names[:-1])).as_py())
            ranges.append((names[0].as_py(), names[-1].as_py()))
    in_order &= all(one[1] <= following[0] for one, following in pairwise(sorted(ranges)))
    right = (rows, total) == (size.rows, sum(range(size.rows)))
    outcome = "wrong rows" if not right else "completed" if in_order else "wrong order"
    return {"outcome": outcome, "output_rows": rows, "output_files": len(paths)}


def _make(work: Path, size: Size) -> None:
    """Writes the table: every file has rows from everywhere."""
    with open_session(
        SparkOptions(master="local[1]", driver_memory="1g"), catalog_conf=catalog_conf(work), needs=["sqlite"]
    ) as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
        spark.sql(f"DROP TABLE IF EXISTS {TABLE}")
        spark.sql(f"CREATE TABLE {TABLE} ({', '.join(map(' '.join, FIELDS))}) USING iceberg")
        jvm: Any = spark._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, TABLE)
        directory = work / "files"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        append, decoded, written = table.newFastAppend(), 0, 0
        for start in range(0, size.rows, size.rows_per_file):
            path = directory / f"data-{start}.parquet"
            decoded += _write(path, np.arange(start, start + size.rows_per_file))
            written += path.stat().st_size
            builder = jvm.org.apache.iceberg.DataFiles.builder(table.spec()).withFormat("parquet").withPath(str(path))
            builder = builder.withFileSizeInBytes(path.stat().st_size).withRecordCount(size.rows_per_file)
            append.appendFile(builder.build())
        append.commit()
    (work / "made").write_text(json.dumps({"decoded_bytes": decoded, "file_bytes": written}))


def _write(path: Path, numbers: Any) -> int:
    columns = [
        _names(numbers),
        pa.array(_amounts(numbers)),
        pa.array(numbers),
        _hex(_mixed(numbers, 3), b"order placed in the web shop by account "),
    ]
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(at + 1)})
        for at, ((name, _), column) in enumerate(zip(FIELDS, columns, strict=True))
    ]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    return int(table.nbytes)


def _mixed(numbers: Any, salt: int) -> Any:
    """A number for each, spread evenly and without order."""
    mixed = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


def _names(numbers: Any) -> pa.Array:
    return _hex(_mixed(numbers, 1), b"customer-")


def _amounts(numbers: Any) -> Any:
    """Most are small."""
    return np.exp(_mixed(numbers, 2) / 2**64 * math.log(1e9)).astype(np.int64)


_HEX = np.array([f"{value:02x}".encode() for value in range(256)]).view(np.uint16)


def _hex(values: Any, prefix: bytes) -> pa.Array:
    """Text that begins alike everywhere."""
    digits = _HEX[values.byteswap().view(np.uint8).reshape(-1, 8)].view(np.uint8).reshape(len(values), 16)
    rows = np.concatenate((np.broadcast_to(np.frombuffer(prefix, np.uint8), (len(values), len(prefix))), digits), axis=1)
    width = rows.shape[1]
    offsets = np.arange(0, len(values) * width + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


if __name__ == "__main__":
    sys.exit(main())
