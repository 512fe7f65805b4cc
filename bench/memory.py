"""The most memory that one task takes, against the size of its group: it must stay flat, and under 1 GiB.

Run as `python -m bench.memory --work DIR`. Each order runs in a process of its own, as a Spark task runs it. Exits with 1 when
a bar is missed, with 2 when an order did not write every row.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.chart import Chart, Series
from bench.chart_page import OUT, Figures, leave, machine
from bench.process_tree import measure
from neve.rewrite.group import Kernel
from neve.rewrite.work_order import InputFile, WorkOrder, WorkResult, WriteSettings
from neve.table.units import GIB, MIB

BAR_BYTES = GIB
FLAT_RATIO = 1.25
"""How much more the largest group may take than one of a gigabyte."""
GB = 10**9
TIMEOUT_SECONDS = 3600
EVENT_FILES, WIDE_MIB, LONG_ROWS = 8, 512, 120
EVENTS = (
    "id long, user_id long, ts timestamptz, kind string, country string, page string, price double, score double, "
    "quantity int, status int, session string, created timestamptz"
)


class WrongResultError(Exception):
    """An order failed, or lost rows: its memory means nothing."""


@dataclass(frozen=True)
class Row:
    """One order."""

    case: str
    kernel: str
    input_bytes: int
    output_bytes: int
    peak_rss_bytes: int
    wall_seconds: float
    cpu_seconds: float

    @property
    def verdict(self) -> str:
        """`ok`, or what was missed."""
        return "ok" if self.peak_rss_bytes < BAR_BYTES else f"over {BAR_BYTES / GIB:g} GiB"


@dataclass(frozen=True)
class Case:
    """Files to rewrite; the same few may be named many times over, which saves the disk most of a large group."""

    name: str
    schema: dict[str, Any]
    inputs: tuple[InputFile, ...]

    @property
    def bytes(self) -> int:
        """Of all inputs."""
        return sum(file.size_bytes for file in self.inputs)

    def order(self, kernel: Kernel, prefix: Path) -> WorkOrder:
        """As the driver would send it; the limits that send badly cut files to another kernel are lifted."""
        write = WriteSettings(target_bytes=2 * 512 * MIB, min_chunk_bytes=0, max_chunks=10**9)
        return WorkOrder(
            order_id=self.name,
            group_id=0,
            kernels=(kernel,),
            inputs=self.inputs,
            table_schema=self.schema,
            output_prefix=str(prefix),
            write=write,
        )


def main() -> int:
    """Makes the files, runs the orders, prints, writes, judges."""
    options = _options()
    if options.order:
        return _run_one(options.order)
    if options.make:
        _make(options)
        return 0
    about = machine()
    # In a process of its own: what this one ever held would count as its children's peak.
    make = [sys.executable, "-m", "bench.memory", "--make", "--work", str(options.work)]
    subprocess.run([*make, "--quick"] if options.quick else make, check=True)
    rows: list[Row] = []
    try:
        for case in _cases(options):
            rows += [_measured(case, kernel, options.work) for kernel in (Kernel.COPY, Kernel.ARROW)]
    except WrongResultError as error:
        print(error, file=sys.stderr)
        return 2
    grown = list(_grown(rows))
    content = {**about, "grown": grown, "rows": [{**asdict(row), "verdict": row.verdict} for row in rows]}
    leave("memory", _figures(rows, grown), content, {"memory": _chart(rows)}, json_file=options.json, quick=options.quick)
    return 1 if grown or any(row.verdict != "ok" for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, metavar="DIR", default=OUT / "memory", help="where the files are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go, the chart beside (bench/out/memory.json)")
    parser.add_argument("--quick", action="store_true", help="small files: only to see that it works")
    parser.add_argument("--sizes", default="0.1,1,5", metavar="LIST", help="group sizes in GB (0.1,1,5)")
    parser.add_argument("--order", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.shape = (1, 8, 6) if options.quick else (EVENT_FILES, WIDE_MIB, LONG_ROWS)
    options.sizes = "0.02" if options.quick else options.sizes
    return options


def _run_one(path: Path) -> int:
    """In the process that is measured: nothing is imported but what a task imports."""
    from neve.kernels.orders import run_order
    from neve.storage.files import Storage

    print(run_order(WorkOrder.model_validate_json(path.read_text(encoding="utf-8")), Storage({})).model_dump_json())
    return 0


def _make(options: argparse.Namespace) -> None:
    """Writes the files that are not there yet."""
    options.work.mkdir(parents=True, exist_ok=True)
    for make, count in zip((_events, _wide, _long), options.shape, strict=True):
        make(options.work, count)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    files, wide_mib, long_rows = options.shape
    events = _events(options.work, files)
    for size in map(float, options.sizes.split(",")):
        wanted = int(size * GB)
        free = shutil.disk_usage(options.work).free
        if 1.5 * wanted > free:
            print(f"events {size:g} GB: left out, the disk has {free / GB:.0f} GB free", file=sys.stderr)
            continue
        yield Case(f"events {size:g} GB", events.schema, _repeated(events.inputs, wanted))
    yield _wide(options.work, wide_mib)
    yield _long(options.work, long_rows)


def _repeated(files: tuple[InputFile, ...], wanted: int) -> tuple[InputFile, ...]:
    total, chosen = 0, []
    while total < wanted:
        chosen.append(files[len(chosen) % len(files)])
        total += chosen[-1].size_bytes
    return tuple(chosen)


def _measured(case: Case, kernel: Kernel, work: Path) -> Row:
    print(f"{case.name}: {kernel}", file=sys.stderr, flush=True)
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    order = work / "order.json"
    order.write_text(case.order(kernel, out / "output").model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "bench.memory", "--order", str(order)]
    used = measure(command, environ=os.environ, timeout_seconds=TIMEOUT_SECONDS)
    shutil.rmtree(out)
    if used.exit_code:
        raise WrongResultError(f"{case.name}, {kernel}: exit code {used.exit_code}: {used.stderr[-500:]}")
    result = WorkResult.model_validate_json(used.stdout)
    written, wanted = sum(file.records for file in result.outputs), sum(file.records for file in case.inputs)
    if written != wanted or result.kernel is not kernel:
        raise WrongResultError(f"{case.name}, {kernel}: {written} rows of {wanted} written by {result.kernel}")
    return Row(
        case=case.name,
        kernel=str(kernel),
        input_bytes=case.bytes,
        output_bytes=sum(file.size_bytes for file in result.outputs),
        peak_rss_bytes=used.peak_rss_bytes,
        wall_seconds=used.wall_seconds,
        cpu_seconds=used.cpu_seconds,
    )


def _grown(rows: list[Row]) -> Iterator[str]:
    """Groups above a gigabyte must not take more than one of that size."""
    for kernel in (Kernel.COPY, Kernel.ARROW):
        events = [row for row in rows if row.kernel == kernel and row.case.startswith("events")]
        base = next((row for row in events if row.input_bytes >= GB), None)
        for row in events:
            if base is not None and row.peak_rss_bytes > FLAT_RATIO * base.peak_rss_bytes:
                times = row.peak_rss_bytes / base.peak_rss_bytes
                yield f"{row.case}, {kernel}: {times:.2f} times the memory of {base.case}, the bar is {FLAT_RATIO:g}"


def _figures(rows: list[Row], grown: list[str]) -> Figures:
    head = ["case", "kernel", "input MB", "output MB", "peak MiB", "wall s", "CPU s", "bar"]
    lines = [
        [
            row.case,
            row.kernel,
            *(f"{size / 1e6:.1f}" for size in (row.input_bytes, row.output_bytes)),
            f"{row.peak_rss_bytes / MIB:.0f}",
            *(f"{seconds:.1f}" for seconds in (row.wall_seconds, row.cpu_seconds)),
            row.verdict,
        ]
        for row in rows
    ]
    return Figures(head, lines, left=2, notes=grown)


def _chart(rows: list[Row]) -> Chart:
    events = [row for row in rows if row.case.startswith("events")]
    return Chart(
        title="Peak memory of a task by the size of its group",
        x_label="group, MB",
        y_label="peak RSS, MiB",
        series=[
            Series(kernel, [(row.input_bytes / 1e6, row.peak_rss_bytes / MIB) for row in events if row.kernel == kernel])
            for kernel in (Kernel.COPY, Kernel.ARROW)
        ],
        bars=[(row.input_bytes / 1e6, BAR_BYTES / MIB, "1 GiB") for row in events[-1:]],
    )


def _schema(text: str) -> dict[str, Any]:
    """An Iceberg schema from `name type, ...`."""
    columns = [column.split() for column in text.split(", ")]
    fields = [{"id": i, "name": n, "required": False, "type": t} for i, (n, t) in enumerate(columns, 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _events(work: Path, count: int) -> Case:
    """Files of some 16 MB with the columns of the reference table."""
    schema, rows = _schema(EVENTS), 500_000
    files = [work / f"events-{index}.parquet" for index in range(count)]
    for index, path in enumerate(files):
        if not path.exists():
            _write_file(path, schema, _event_columns(index, rows), compression="zstd", compression_level=3)
    return Case("events", schema, tuple(InputFile(path=str(p), size_bytes=p.stat().st_size, records=rows) for p in files))


def _event_columns(index: int, rows: int) -> list[Any]:
    import numpy as np

    rng = np.random.default_rng(index)

    def words(prefix: str, count: int) -> Any:
        return np.array([f"{prefix}{i:04d}" for i in range(count)])[rng.integers(0, count, rows)]

    ts = 1_700_000_000_000_000 + np.arange(index * rows, (index + 1) * rows) * 1000 + rng.integers(0, 2000, rows)
    texts = [words("kind", 5), words("c", 60), words("/page/", 500)]
    numbers = [rng.gamma(2, 30, rows), rng.random(rows), rng.integers(1, 50, rows), rng.integers(0, 6, rows)]
    ids = [np.arange(index * rows, (index + 1) * rows), rng.integers(0, 10**9, rows), ts]
    return [*ids, *texts, *numbers, words("session-", 2000), ts + rng.integers(0, 10**9, rows)]


def _wide(work: Path, mib: int) -> Case:
    """One row group of so many MiB in 200 columns that do not compress."""
    import numpy as np

    schema, rows = _schema(", ".join(f"c{i} long" for i in range(200))), mib * MIB // 8 // 200
    path = work / f"wide-{mib}.parquet"
    if not path.exists():
        rng = np.random.default_rng(7)
        columns = [rng.integers(-(2**62), 2**62, rows) for _ in range(200)]
        _write_file(path, schema, columns, row_group_size=rows, use_dictionary=False, compression="zstd")
    return Case(f"{mib} MiB x 200", schema, (InputFile(path=str(path), size_bytes=path.stat().st_size, records=rows),))


def _long(work: Path, rows: int) -> Case:
    """Strings of 10 MB in one row group, a page each: a reader must decompress a page whole."""
    import numpy as np

    schema = _schema("id long, body string")
    path = work / f"long-{rows}.parquet"
    if not path.exists():
        rng = np.random.default_rng(7)
        columns = [np.arange(rows), [rng.bytes(5_000_000).hex() for _ in range(rows)]]
        pages = {"write_batch_size": 1, "data_page_size": MIB}
        _write_file(path, schema, columns, use_dictionary=False, compression="zstd", **pages)
    return Case("10 MB strings", schema, (InputFile(path=str(path), size_bytes=path.stat().st_size, records=rows),))


def _write_file(path: Path, schema: dict[str, Any], columns: list[Any], **options: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from neve.kernels.arrow.schema import arrow_schema

    fields = arrow_schema(schema)
    arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, fields, strict=True)]
    part = path.with_suffix(".part")
    pq.write_table(pa.Table.from_arrays(arrays, schema=fields), part, store_schema=False, **options)
    part.rename(path)


if __name__ == "__main__":
    sys.exit(main())
