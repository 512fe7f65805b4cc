"""What a scheduled run costs on a small table: `neve serve --once` over few and over many tables that all need a compaction.

Run as `python -m bench.serve --work DIR`. The difference between the two sizes is the cost of the runs without the start of
Spark and of the service. CPU seconds are those of the whole process tree. Exits with 2 when a table was not compacted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.chart_page import Figures, leave, machine
from bench.process_tree import Measured, measure

FILES, ROWS = 8, 1_000
TIMEOUT_SECONDS = 3_600
POLICIES = """
kind: policy
name: merge
tables: lake.*
operations: [compact]
triggers:
  small-files: 5
"""


@dataclass(frozen=True)
class Row:
    """One round over so many tables."""

    tables: int
    wall_seconds: float
    cpu_seconds: float
    peak_mib: float


class WrongError(Exception):
    """A table was not compacted."""


def main() -> int:
    """Generates, measures, prints, writes."""
    options, about = _options(), machine()
    try:
        rows = [_measured(options.work / str(tables), tables) for tables in options.tables]
    except WrongError as error:
        print(error, file=sys.stderr)
        return 2
    few, many = rows[0], rows[-1]
    runs = many.tables - few.tables
    per_run = {
        "cpu_seconds": round((many.cpu_seconds - few.cpu_seconds) / runs, 3),
        "wall_seconds": round((many.wall_seconds - few.wall_seconds) / runs, 3),
    }
    content = {**about, "rows": [asdict(row) for row in rows], "per_run": per_run}
    leave("serve", _figures(rows, per_run), content, {}, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/serve.json)")
    parser.add_argument("--quick", action="store_true", help="1 and 3 tables: only to see that it works")
    parser.add_argument("--tables", type=_sizes, default=[5, 105], help="the two numbers of tables")
    options = parser.parse_args()
    options.work = options.work.absolute()
    if options.quick:
        options.tables = [1, 3]
    return options


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _measured(directory: Path, tables: int) -> Row:
    shutil.rmtree(directory, ignore_errors=True)
    _write(directory, tables)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NEVE_")}
    program = str(Path(sys.executable).parent / "neve")
    options = ["--config", str(directory / "neve.yaml"), "--policies", str(directory / "policies.yaml")]
    measured = measure([program, "serve", "--once", *options], environ=environ, timeout_seconds=TIMEOUT_SECONDS)
    _check(measured, tables)
    row = Row(tables, round(measured.wall_seconds, 2), round(measured.cpu_seconds, 2), round(measured.peak_rss_bytes / 2**20))
    print(row, file=sys.stderr, flush=True)
    return row


def _check(measured: Measured, tables: int) -> None:
    compacted = measured.stderr.count(f"Compacted {FILES} files into 1 ")
    if measured.exit_code != 0 or compacted != tables:
        raise WrongError(f"{compacted} of {tables} tables were compacted:\n{measured.stderr[-2000:]}")


def _write(directory: Path, tables: int) -> None:
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    directory.mkdir(parents=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{directory}/lake.db", warehouse=f"file://{directory}/lake")
    catalog.create_namespace("db")
    rows = pa.table({"id": list(range(ROWS)), "text": [f"row {number}" for number in range(ROWS)]})
    for number in range(tables):
        table = catalog.create_table(f"db.t{number}", schema=rows.schema)
        for _ in range(FILES):
            table.append(rows)
    catalog.close()
    (directory / "neve.yaml").write_text(
        f"default-catalog: lake\ncatalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{directory}/lake.db\n"
        f"    warehouse: {directory}/lake\nstate:\n  url: sqlite:///{directory}/state.db\n"
        f"cache:\n  directory: {directory}/cache\nservice:\n  inspections: 1000\n",
        encoding="utf-8",
    )
    (directory / "policies.yaml").write_text(POLICIES, encoding="utf-8")


def _figures(rows: list[Row], per_run: dict[str, float]) -> Figures:
    head = ("tables compacted in one round", "wall s", "CPU s", "peak MiB")
    lines = [(str(row.tables), f"{row.wall_seconds:.1f}", f"{row.cpu_seconds:.1f}", f"{row.peak_mib:.0f}") for row in rows]
    seconds = per_run["cpu_seconds"]
    rate = 60 / max(seconds, 0.001)
    note = f"A run costs {seconds:.2f} CPU s and {per_run['wall_seconds']:.2f} s: {rate:.0f} tables per minute and core."
    return Figures(head, lines, left=0, notes=[note])


if __name__ == "__main__":
    sys.exit(main())
