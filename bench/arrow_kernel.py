"""CPU, memory and output size of the arrow kernel alone, on one core, beside plain `pq.write_table`.

.venv/bin/python -m bench.arrow_kernel --files 500 --work DIR      the reference table: 20,000 rows x 12 columns per file
.venv/bin/python -m bench.arrow_kernel --shape wide --work DIR     one row group of 512 MiB x 200 columns
.venv/bin/python -m bench.arrow_kernel --shape long --work DIR     strings of 10 MB
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.core.units import MIB
from neve.kernels.arrow import ArrowInput, WriteOptions, rewrite
from neve.kernels.arrow.schema import arrow_schema
from neve.kernels.streams import LocalSink, LocalSource

ROWS = 20_000
START_US = 1_700_000_000_000_000
EVENTS = (
    "id long, user_id long, ts timestamptz, kind string, country string, page string, price double, score double, "
    "quantity int, status int, session string, created timestamptz"
)


def iceberg_schema(text: str) -> dict[str, Any]:
    """From `name type, ...`."""
    columns = [column.split() for column in text.split(", ")]
    fields = [{"id": i, "name": n, "required": False, "type": t} for i, (n, t) in enumerate(columns, 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def events(index: int, rng: np.random.Generator) -> list[Any]:
    """One small file of the reference table."""

    def words(prefix: str, count: int) -> Any:
        return np.array([f"{prefix}{i:04d}" for i in range(count)])[rng.integers(0, count, ROWS)]

    ts = START_US + index * 20_000_000 + np.cumsum(rng.integers(0, 2000, ROWS))
    return [
        np.arange(index * ROWS, (index + 1) * ROWS),
        rng.integers(0, 1_000_000, ROWS),
        ts,
        words("kind", 5),
        words("c", 60),
        words("/page/", 500),
        np.round(rng.gamma(2, 30, ROWS), 2),
        rng.random(ROWS),
        rng.integers(1, 50, ROWS).astype(np.int32),
        rng.integers(0, 6, ROWS).astype(np.int32),
        words("session-", 2000),
        ts + rng.integers(0, 10**9, ROWS),
    ]


def write_events(directory: Path, files: int, dictionaries: bool | list[str]) -> dict[str, Any]:
    """The reference table; Java's writer would keep dictionaries only where they pay."""
    schema = iceberg_schema(EVENTS)
    rng = np.random.default_rng(7)
    for index in range(files):
        columns = [pa.array(c).cast(f.type) for c, f in zip(events(index, rng), arrow_schema(schema), strict=True)]
        table = pa.Table.from_arrays(columns, schema=arrow_schema(schema))
        path = directory / f"{index:05d}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=3, use_dictionary=dictionaries, store_schema=False)
    return schema


def write_wide(directory: Path) -> dict[str, Any]:
    """One row group of about 512 MiB in 200 columns that do not compress."""
    schema = iceberg_schema(", ".join(f"c{i} long" for i in range(200)))
    rng = np.random.default_rng(7)
    rows = 512 * MIB // 8 // 200
    columns = [pa.array(rng.integers(-(2**62), 2**62, rows)) for _ in range(200)]
    table = pa.Table.from_arrays(columns, schema=arrow_schema(schema))
    pq.write_table(table, directory / "wide.parquet", row_group_size=rows, use_dictionary=False, store_schema=False)
    return schema


def write_long(directory: Path) -> dict[str, Any]:
    """120 strings of 10 MB in one row group, a page each: a reader must decompress a page whole."""
    schema = iceberg_schema("id long, body string")
    rng = np.random.default_rng(7)
    ids, bodies = pa.array(range(120)), pa.array([rng.bytes(5_000_000).hex() for _ in range(120)])
    table = pa.Table.from_arrays([ids, bodies], schema=arrow_schema(schema))
    path, one_row = directory / "long.parquet", {"write_batch_size": 1, "data_page_size": MIB}
    pq.write_table(table, path, use_dictionary=False, store_schema=False, compression="zstd", **one_row)
    return schema


def cpu_seconds() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(work: Callable[[], None]) -> dict[str, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    return {"wall_s": round(time.perf_counter() - wall, 2), "cpu_s": round(cpu_seconds() - cpu, 2)}


def halves(paths: list[Path], count: int) -> Iterator[list[Path]]:
    """The paths in so many equal parts."""
    size = -(-len(paths) // count)
    return (paths[i : i + size] for i in range(0, len(paths), size))


def main() -> None:
    """Runs one shape and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--shape", choices=["events", "wide", "long"], default="events")
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--every-dictionary", action="store_true", help="inputs as plain pyarrow writes them")
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--plain", action="store_true", help="decode all, then pq.write_table, instead of the kernel")
    args = parser.parse_args()
    name = f"{args.shape}-{args.files}{'-dict' if args.every_dictionary else ''}"
    source, target = args.work / name, args.work / "out"
    target.mkdir(parents=True, exist_ok=True)
    schema_file = args.work / f"{name}.json"
    if not schema_file.exists():
        source.mkdir(parents=True, exist_ok=True)
        some = ["kind", "country", "page", "price", "quantity", "status", "session"]
        make = {"wide": write_wide, "long": write_long}.get(args.shape)
        schema = make(source) if make else write_events(source, args.files, args.every_dictionary or some)
        schema_file.write_text(json.dumps(schema))
        print("made the inputs; run again to measure without them in memory")
        return
    schema = json.loads(schema_file.read_text())
    paths = sorted(source.iterdir())
    for old in target.iterdir():
        old.unlink()
    groups = list(halves(paths, 2 if args.shape == "events" else 1))

    def kernel() -> None:
        for number, group in enumerate(groups):
            inputs = [ArrowInput(LocalSource(path), pq.read_metadata(path).num_rows) for path in group]
            options = WriteOptions(delta_integers=args.delta)
            rewrite(inputs, schema, options, lambda i, number=number: LocalSink(target / f"{number}-{i}.parquet"))

    def plain() -> None:
        for number, group in enumerate(groups):
            table = pa.concat_tables(pq.ParquetFile(path).read(use_threads=False) for path in group)
            pq.write_table(table, target / f"{number}.parquet", compression="zstd", compression_level=3, store_schema=False)

    result: dict[str, Any] = measured(plain if args.plain else kernel)
    result["input_mb"] = round(sum(path.stat().st_size for path in paths) / 1e6, 1)
    result["output_mb"] = [round(path.stat().st_size / 1e6, 1) for path in sorted(target.iterdir())]
    result["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
