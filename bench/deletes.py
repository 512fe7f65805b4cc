"""Thousands of small delete files: our rewrite against Iceberg's own, on the table that a CDC writer leaves.

Run as `python -m bench.deletes --work DIR`. Both take turns in one warm session; then ours runs alone on the whole table and on
one of half its size, each time in a new process, for the memory. Exits with 1 when a bar is missed, with 2 when rows are wrong.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.contenders import Contender, ours
from bench.file_opens import FileOpens
from bench.rewrite import CATALOG, Field, Row, Run, TreeByRole, WrongContentError, compete, opened
from bench.shapes import Written
from bench.shapes_deletes import FILES_PER_OUTPUT, Cdc, write
from neve.api import Neve
from neve.rewrite.group import Kernel
from neve.spark.tasks.staging import DELETE_CACHE
from neve.table.units import MIB

FASTER, LARGER = 2.0, 1.2
"""The bars: times faster than Iceberg's own, and times the memory of the half table."""
ROLES = ("peak_rss_bytes", "jvm_peak_bytes", "driver_peak_bytes", "workers_peak_bytes")


@dataclass(frozen=True)
class DeletesRun(Run):
    """Of a table with deletes: how often delete files were opened, and how many are still in the table afterwards."""

    delete_opens: int
    deletes_left: int


class CdcField(Field):
    """A table whose right content is known, and what it takes to begin each run as if deletes had never been read."""

    def __init__(self, neve: Neve, cdc: Cdc, warehouse: Path) -> None:
        written, self._deletes = write(neve.spark, f"{CATALOG}.bench", cdc)
        neve.spark.conf.set(DELETE_CACHE, "true")  # for the scans before and after, which would open each delete once per file
        super().__init__(neve, written, warehouse)
        found = tuple(self.spark.sql(f"SELECT count(*), sum(id) FROM {written.table}").first())
        if found != cdc.left:
            raise WrongContentError(f"{written.table} has (rows, sum of ids) {found}, expected {cdc.left}")

    def run(self, contender: Contender) -> Run:
        """As on other tables, with an eye on the delete files."""

        def watched() -> None:
            with FileOpens(self._deletes) as self._opens:
                contender.run()

        return super().run(replace(contender, run=watched))

    def _result(self, tree: TreeByRole, scan_seconds: float) -> Run:
        data = vars(super()._result(tree, scan_seconds))
        columns = "count_if(content = 0), sum(if(content = 0, file_size_in_bytes, 0)), count_if(content > 0)"
        files, size, deletes = self.spark.sql(f"SELECT {columns} FROM {self.written.table}.files").first()
        return DeletesRun(
            **{**data, "output_files": files, "output_bytes": size}, delete_opens=self._opens.count, deletes_left=deletes
        )

    def _collect_garbage(self) -> None:
        """Our workers keep deletes that they have read; a run in production finds none."""
        super()._collect_garbage()
        tasks = 8 * self.spark.sparkContext.defaultParallelism
        self.spark.sparkContext.parallelize(range(tasks), tasks).foreach(_forget_deletes)


class UnreadField(CdcField):
    """Reads no rows, neither before nor after: what reading took would count as the memory of the run."""

    def __init__(self, neve: Neve, written: Written, deletes: Path, warehouse: Path) -> None:
        self._deletes = deletes
        Field.__init__(self, neve, written, warehouse)

    def _scan(self) -> tuple[Any, float]:
        return None, 0.0


def _forget_deletes(_: int) -> None:
    from neve.kernels.deletes.cache import SHARED

    for size in (SHARED.limit_bytes, 0):  # what fills the cache drives everything else out
        SHARED.put("", None, size)
    time.sleep(0.02)  # long enough for the other worker to take a task, too


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options = _options()
    if options.alone:
        print(json.dumps(asdict(_alone(options, options.alone))))
        return 0
    about = machine()
    try:
        with opened(options.work, cores=2) as neve:
            rows = _rows(neve, options)
    except WrongContentError as error:
        print(error, file=sys.stderr)
        return 2
    memory = {files: _memory(options, files) for files in (options.files // 2, options.files)}
    missed = [] if options.quick else list(_missed(rows, memory))
    content = {**about, "repeats": options.repeats, "missed": missed, "rows": [asdict(row) for row in rows], "memory": memory}
    charts = {"deletes": _chart(rows, memory)}
    leave("deletes", _figures(rows, memory, options), content, charts, json_file=options.json, quick=options.quick)
    for words in missed:
        print(words)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where tables are kept between runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go, the chart beside (bench/out/deletes.json)")
    parser.add_argument("--quick", action="store_true", help="a tiny table, once, with one setting: only to see that it works")
    parser.add_argument("--files", type=int, default=2_000, metavar="N", help="data files, and deletes of each kind (2000)")
    parser.add_argument("--shared", action="store_true", help="position deletes name rows of ten files each, not of one")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each contender (3)")
    parser.add_argument("--settings", choices=["all", "best", "one"], default="all", help="as for bench.rewrite (all)")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.files, options.repeats, options.settings = 20, 1, "one"
    return options


def _cdc(options: argparse.Namespace, files: int) -> Cdc:
    return Cdc(files, shared=options.shared)


def _rows(neve: Neve, options: argparse.Namespace) -> list[Row]:
    write(neve.spark, f"{CATALOG}.bench", _cdc(options, options.files // 2))
    field = CdcField(neve, _cdc(options, options.files), options.work / "warehouse")
    written = field.written
    size, target = f"{written.bytes / MIB:.0f} MiB", f"{written.target_bytes / MIB:.0f} MiB"
    words = f"{written.shape.words} ({size} of data, target {target}, scan before {field.scan_before:.2f} s)"
    return compete(field, words, [ours(neve, written, Kernel.ARROW, pinned=False)], options)


def _memory(options: argparse.Namespace, files: int) -> dict[str, float]:
    """Medians of runs in processes of their own: a JVM does not give back what another run made it take."""
    command = [sys.executable, "-m", "bench.deletes", "--work", str(options.work), "--alone", str(files)]
    command += [flag for flag, given in (("--quick", options.quick), ("--shared", options.shared)) if given]
    runs = []
    for _ in range(options.repeats):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs.append(json.loads(done.stdout))
        print(f"  {files} files alone: {runs[-1]['peak_rss_bytes'] / MIB:.0f} MiB", file=sys.stderr, flush=True)
    return {role: statistics.median(run[role] for run in runs) for role in (*ROLES, "wall_seconds")}


def _alone(options: argparse.Namespace, files: int) -> Run:
    with opened(options.work, cores=2) as neve:
        written, deletes = write(neve.spark, f"{CATALOG}.bench", _cdc(options, files))
        field = UnreadField(neve, written, deletes, options.work / "warehouse")
        return field.run(ours(neve, written, Kernel.ARROW, pinned=False))


def _missed(rows: list[Row], memory: dict[int, dict[str, float]]) -> Iterator[str]:
    base, own = rows
    if not own.runs:
        yield f"{own.contender} declined: {own.declined}"
        return
    ratio = base.median("wall_seconds") / own.median("wall_seconds")
    if ratio < FASTER:
        yield f"ours is {ratio:.1f} times as fast, the bar is {FASTER:g}"
    half, whole = (memory[files]["peak_rss_bytes"] for files in sorted(memory))
    # Smaller, and the half table is one group, which only one worker has a hand in.
    if min(memory) >= 2 * FILES_PER_OUTPUT and whole > half * LARGER:
        yield f"ours takes {whole / half:.2f} times the memory of the half table, the bar is {LARGER:g}"


_HEAD = ["table", "contender", "wall s", "x", "CPU s", "x", "peak MiB", "JVM", "driver", "workers"]
_HEAD += ["opens per delete", "files", "MiB", "deletes left", "scan s"]


def _figures(rows: list[Row], memory: dict[int, dict[str, float]], options: argparse.Namespace) -> Figures:
    lines = [[row.table, row.contender, *_cells(row, rows[0], options)] for row in rows if row.runs]
    for files, found in memory.items():
        peaks = [f"{found[role] / MIB:.0f}" for role in ROLES]
        wall = f"{found['wall_seconds']:.2f}"
        lines.append([_cdc(options, files).shape.name, "ours alone, cold", wall, "-", "-", "-", *peaks, *["-"] * 5])
    base = rows[0]
    tried = "; ".join(f"{settings}: {wall:.1f} s" for settings, (wall, _) in base.tried.items())
    notes = [
        f"{base.table}: {base.table_words}.",
        f"{base.contender} with {base.settings}"
        + (f", the fastest of one round over all settings ({tried})." if tried else "."),
        f"Medians of {options.repeats}; contenders take turns in one warm session, where memory is the largest seen.",
        *(f"{row.contender} declined: {row.declined}." for row in rows if row.declined),
    ]
    return Figures(_HEAD, lines, left=2, notes=notes)


def _cells(row: Row, base: Row, options: argparse.Namespace) -> Iterator[str]:
    for name in ("wall_seconds", "cpu_seconds"):
        yield from (f"{row.median(name):.2f}", f"{base.median(name) / row.median(name):.1f}")
    yield from (f"{row.peak(role) / MIB:.0f}" for role in ROLES)
    yield f"{row.median('delete_opens') / (2 * options.files):.2f}"
    yield from (f"{row.median('output_files'):.0f}", f"{row.median('output_bytes') / MIB:.1f}")
    yield from (f"{row.median('deletes_left'):.0f}", f"{row.median('scan_seconds'):.2f}")


def _chart(rows: list[Row], memory: dict[int, dict[str, float]]) -> BarChart:
    measured = [row for row in rows if row.runs]
    groups = [(kind, [(row.contender, row.median(f"{kind.lower()}_seconds")) for row in measured]) for kind in ("wall", "CPU")]
    title = f"Rewriting {max(memory):,} data files with as many deletes of either kind"
    return BarChart(title, "s", groups)


if __name__ == "__main__":
    sys.exit(main())
