"""Measures the engine of the `copy` kernel: `python -P bench/copy_kernel.py [--profile]`.

Small files of 12 columns are concatenated on a local disk. Prints CPU seconds by part, microseconds per footer and per column
chunk, and the same for a generic decode and encode of the footers, which is what splicing is to be compared with.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.parquet import thrift
from neve.kernels.parquet.agreement import Agreement
from neve.kernels.parquet.copying import copy_row_groups, read_footers
from neve.kernels.parquet.footer import Footer, read_footer
from neve.kernels.parquet.footer_writing import MovedGroup, footer_bytes
from neve.kernels.streams import LocalSink, LocalSource

ROWS_PER_FILE, DISTINCT_FILES = 20_000, 50


def write_files(directory: Path) -> list[LocalSource]:
    """Files of about 0.65 MB with the statistics and page indexes that an Iceberg writer leaves."""
    rng = np.random.default_rng(7)
    sources = []
    for number in range(DISTINCT_FILES):
        path = directory / f"{number:03}.parquet"
        pq.write_table(_rows(rng), path, compression="zstd", write_page_index=True)
        sources.append(LocalSource(path))
    return sources


def _rows(rng: np.random.Generator) -> pa.Table:
    n = ROWS_PER_FILE
    columns: dict[str, Any] = {f"id{i}": rng.integers(0, 5_000 * 10**i, n) for i in range(4)}
    columns |= {f"amount{i}": np.round(rng.random(n) * 100, 2) for i in range(3)}
    columns |= {f"name{i}": pa.array([f"name-{value}" for value in rng.integers(0, 50 * 4**i, n)]) for i in range(4)}
    columns["at"] = pa.array(np.arange(n) * 1_000_000 + rng.integers(0, 1000, n), pa.timestamp("us", "UTC"))
    return pa.table(columns)


def decode(buf: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A value as Python objects."""
    if kind == thrift.STRUCT:
        spans, end = thrift.spans(buf, at)
        return {span.field: (span.kind, decode(buf, span.start, span.kind)[0]) for span in spans}, end
    if kind == thrift.LIST:
        count, element, at = thrift.read_list_head(buf, at)
        values = []
        for _ in range(count):
            value, at = decode(buf, at, element)
            values.append(value)
        return (element, values), at
    if kind in (thrift.I16, thrift.I32, thrift.I64):
        return thrift.read_int(buf, at)
    end = thrift.skip(buf, at, kind)
    return buf[at:end], end


def encode(out: bytearray, value: Any, kind: int) -> None:
    """And back."""
    if kind == thrift.STRUCT:
        last = 0
        for field, (field_kind, field_value) in value.items():
            out += thrift.field_head(field, field_kind, last)
            encode(out, field_value, field_kind)
            last = field
        out.append(0)
    elif kind == thrift.LIST:
        out += thrift.list_head(len(value[1]), value[0])
        for item in value[1]:
            encode(out, item, value[0])
    elif kind in (thrift.I16, thrift.I32, thrift.I64):
        out += thrift.varint((value << 1) ^ (value >> 63))
    else:
        out += value


def rewrite_footers(footers: list[Footer]) -> int:
    """The output's footer, as a copy would write it."""
    agreement, groups = Agreement(), []
    for footer in footers:
        assert agreement.objection_to(footer) is None
        groups += [MovedGroup(footer, group, group.start + 4096) for group in footer.groups]
    return len(footer_bytes(agreement, groups))


def concatenate(sources: list[LocalSource], out: Path) -> None:
    """Reads and writes the same bytes without a thought."""
    sink = LocalSink(out)
    for source in sources:
        sink.write(source.read_at(0, source.size_bytes))
    sink.close()


def cpu_seconds(work: Callable[[], object], *, out: Path | None = None, repeats: int = 5) -> float:
    """The best of a few runs: the machine may be busy with other things. Freeing the last output is not part of the work."""
    best = float("inf")
    for _ in range(repeats):
        if out is not None:
            out.unlink(missing_ok=True)
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def report(sources: list[LocalSource], out: Path) -> None:
    """Prints what each part costs."""
    footers = [read_footer(source) for source in sources]
    chunks = sum(len(group.chunks) for footer in footers for group in footer.groups)
    schema = footers[0].schema

    def generic() -> None:
        for footer in footers[:50]:
            encode(bytearray(), decode(footer.raw, 0, thrift.STRUCT)[0], thrift.STRUCT)

    parts = {
        "generic decode and encode": cpu_seconds(generic) * len(footers) / len(footers[:50]),
        "read and parse footers": cpu_seconds(lambda: [read_footer(source, known=schema) for source in sources]),
        "write the new footer": cpu_seconds(lambda: rewrite_footers(footers)),
        "copy, footers unknown": cpu_seconds(lambda: copy_row_groups(sources, None, LocalSink(out)), out=out),
        "cat, for comparison": cpu_seconds(lambda: concatenate(sources, out), out=out),
        "copy, footers read first": cpu_seconds(
            lambda: copy_row_groups(sources, read_footers(sources), LocalSink(out)), out=out
        ),
    }
    copied = copy_row_groups(sources, None, LocalSink(out))
    print(f"{len(sources)} files, {chunks} column chunks, {copied.bytes / 2**20:.0f} MiB, footer {copied.footer_bytes} bytes")
    for name, seconds in parts.items():
        print(
            f"{name:28} {seconds:7.3f} CPU s  {seconds / len(sources) * 1e3:7.3f} ms per file"
            f"  {seconds / chunks * 1e6:7.1f} us per chunk"
        )


def main() -> None:
    """Runs it in a directory of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        distinct = write_files(Path(directory))
        sources = [distinct[number % len(distinct)] for number in range(options.files)]
        out = Path(directory) / "out.parquet"
        report(sources, out)
        if options.profile:
            with cProfile.Profile() as profile:
                copy_row_groups(sources, None, LocalSink(out))
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
