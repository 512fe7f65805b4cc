"""How fast each kernel is on one core and on two, and how many cores 1 TB in ten minutes would then take.

Run as `python -m bench.scale --work DIR`. One process for each number of workers, held to as many cores; rates come from the
difference between a small and a large table, so that starting a run and committing it do not count. Exits with 2 when a
table's content changed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.contenders import DeclinedError, ours
from bench.rewrite import CATALOG, Field, WrongContentError, opened
from bench.shapes import SHAPES, write
from neve.rewrite.group import Kernel

WORKERS = (1, 2)
KERNELS = (Kernel.COPY, Kernel.ARROW, Kernel.SPARK)
TERABYTE, TEN_MINUTES = 10**12, 600
ASSUMPTIONS = (
    "Extrapolated from 2 cores of one machine: it assumes that more cores on more machines lose no more than the second core "
    "did, that storage keeps up (a local disk was read, mostly from memory), and that all files are like these. Reading the "
    "metadata and planning come on top (inspect.py, planning.py); so does what it takes to start a run and to commit."
)


@dataclass(frozen=True)
class Measured:
    """One table rewritten by one kernel with so many workers: medians."""

    kernel: str
    workers: int
    table: str
    bytes: int
    files: int
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Rate:
    """What a kernel does with so many workers, from the difference of two tables; None where noise ate the difference."""

    kernel: str
    workers: int
    whole_mb_per_second: float
    """Of the large table from the call to its return, everything counted."""
    mb_per_second: float | None
    mb_per_cpu_second: float | None

    @classmethod
    def of(cls, small: Measured, large: Measured) -> Rate:
        """Two tables of the same kernel and workers."""
        megabytes = (large.bytes - small.bytes) / 1e6
        wall, cpu = large.wall_seconds - small.wall_seconds, large.cpu_seconds - small.cpu_seconds
        return cls(
            small.kernel,
            small.workers,
            large.bytes / 1e6 / large.wall_seconds,
            megabytes / wall if wall > 0 else None,
            megabytes / cpu if cpu > 0 else None,
        )

    @property
    def per_core(self) -> float | None:
        """By wall time."""
        return self.mb_per_second and self.mb_per_second / self.workers

    @property
    def cores_for_a_terabyte(self) -> int | None:
        """In ten minutes, if every core went on like these."""
        return math.ceil(TERABYTE / 1e6 / TEN_MINUTES / self.per_core) if self.per_core else None


def main() -> int:
    """Measures in processes of their own, prints, writes."""
    options = _options()
    if options.workers:
        return _measure(options)
    about = machine()
    measured: list[Measured] = []
    for workers in WORKERS:
        done = subprocess.run([*_command(options), "--workers", str(workers)], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.returncode
        measured += [Measured(**one) for one in json.loads(done.stdout)]
    rates = _rates(measured, options.tables)
    content = {**about, "measured": [asdict(one) for one in measured], "rates": [_with_cores(rate) for rate in rates]}
    content["assumptions"] = ASSUMPTIONS
    leave("scale", _figures(rates, options), content, {"scale": _chart(rates)}, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where tables are kept between runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go, the chart beside (bench/out/scale.json)")
    parser.add_argument("--quick", action="store_true", help="small tables, once: only to see that it works")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each kernel (5)")
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.tables = ("few", "tiny") if options.quick else ("scale1", "scale4")
    options.repeats = 1 if options.quick else options.repeats
    return options


def _command(options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "bench.scale", "--work", str(options.work), "--repeats", str(options.repeats)]
    return [*command, "--quick"] if options.quick else command


def _measure(options: argparse.Namespace) -> int:
    """In a process of its own: everything that it starts keeps to as many cores as there are workers."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.workers])
    try:
        with opened(options.work, cores=options.workers) as neve:
            measured = [one for name in options.tables for one in _table(neve, name, options)]
    except (WrongContentError, DeclinedError) as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps([asdict(one) for one in measured]))
    return 0


def _table(neve: Any, name: str, options: argparse.Namespace) -> list[Measured]:
    """Kernels take turns; the first turn only warms up."""
    written = write(neve.spark, f"{CATALOG}.bench", SHAPES[name])
    field = Field(neve, written, options.work / "warehouse")
    runs: dict[Kernel, list[Any]] = {kernel: [] for kernel in KERNELS}
    for number in range(options.repeats + 1):
        for kernel in KERNELS:
            run = field.run(ours(neve, written, kernel))
            text = f"{options.workers} workers, {name}, {kernel}: {run.wall_seconds:.2f} s wall, {run.cpu_seconds:.2f} s CPU"
            print(text if number else f"{text} (warming up)", file=sys.stderr, flush=True)
            runs[kernel] += [run] if number else []
    return [
        Measured(
            str(kernel),
            options.workers,
            name,
            written.bytes,
            written.files,
            statistics.median(run.wall_seconds for run in done),
            statistics.median(run.cpu_seconds for run in done),
        )
        for kernel, done in runs.items()
    ]


def _rates(measured: list[Measured], tables: tuple[str, str]) -> list[Rate]:
    found = {(one.kernel, one.workers, one.table): one for one in measured}
    small, large = tables
    pairs = [(str(kernel), workers) for kernel in KERNELS for workers in WORKERS]
    return [Rate.of(found[*pair, small], found[*pair, large]) for pair in pairs]


def _with_cores(rate: Rate) -> dict[str, Any]:
    return {**asdict(rate), "mb_per_second_per_core": rate.per_core, "cores_for_a_terabyte": rate.cores_for_a_terabyte}


def _figures(rates: list[Rate], options: argparse.Namespace) -> Figures:
    head = [
        "kernel",
        "workers",
        "whole run MB/s",
        "MB/s",
        "MB/s per core",
        "MB per CPU s",
        "efficiency",
        "cores for 1 TB in 10 min",
    ]
    alone = {rate.kernel: rate.per_core for rate in rates if rate.workers == 1}
    rows = []
    for rate in rates:
        first = alone[rate.kernel]
        efficiency = f"{rate.per_core / first:.0%}" if rate.per_core and first else "-"
        numbers = [rate.whole_mb_per_second, rate.mb_per_second, rate.per_core, rate.mb_per_cpu_second]
        cores = rate.cores_for_a_terabyte
        rows.append([rate.kernel, str(rate.workers), *map(_number, numbers), efficiency, f"{cores:,}" if cores else "-"])
    small, large = (SHAPES[name].words for name in options.tables)
    how = f"Medians of {options.repeats}. Rates from the difference between {small}, and {large}."
    return Figures(head, rows, left=1, notes=[how, ASSUMPTIONS])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _chart(rates: list[Rate]) -> BarChart:
    groups = []
    for kernel in dict.fromkeys(rate.kernel for rate in rates):
        known = [(f"{rate.workers} workers", rate.mb_per_second) for rate in rates if rate.kernel == kernel]
        groups.append((kernel, [(name, value) for name, value in known if value is not None]))
    return BarChart("Megabytes rewritten per second", "MB/s", [group for group in groups if group[1]])


if __name__ == "__main__":
    sys.exit(main())
