# ruff: noqa: E402 - named after the command; the path must be set right before anything is imported
"""How long `neve inspect` takes on tables of 1 k to 1 M files, from a cold shell: wall, CPU, memory, and which reader.

Run as `python bench/inspect.py`. The tables exist only as metadata (`neve.samples.metadata`). Exits with 1 when a bar of the
design is missed, with 2 when an answer is wrong.
"""

from __future__ import annotations

import os
import sys

# This file is called `inspect`, as the command is; in front of the standard library's module it would break every import.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import argparse
import json
import platform
import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.chart import Chart, Series
from bench.process_tree import Measured, measure

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

MIB, GIB = 1024**2, 1024**3
OUT = Path(__file__).parent / "out"
TIMEOUT_SECONDS = 300
BYTECODE = OUT / "bytecode"
"""Where the runs keep compiled modules, as an installed package has them; the first look at each size fills it unmeasured."""


@dataclass(frozen=True)
class Bar:
    """What a cold look may take at most."""

    wall_seconds: float
    rss_bytes: float | None = None


BARS = {1_000: Bar(2), 100_000: Bar(15, 1.5 * GIB), 1_000_000: Bar(60, 4 * GIB)}


@dataclass(frozen=True)
class Look:
    """Medians over the repeats, the largest memory."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    reader: str


@dataclass(frozen=True)
class Row:
    """One size of table."""

    files: int
    generated_seconds: float
    manifest_bytes: int
    cold: Look
    cached: Look

    @property
    def verdict(self) -> str:
        """`ok`, what was missed, or nothing where there is no bar."""
        bar = BARS.get(self.files)
        if bar is None:
            return "-"
        missed = []
        if self.cold.wall_seconds > bar.wall_seconds:
            missed.append(f"over {bar.wall_seconds:g} s")
        if bar.rss_bytes and self.cold.peak_rss_bytes > bar.rss_bytes:
            missed.append(f"over {bar.rss_bytes / GIB:g} GiB")
        return ", ".join(missed) or "ok"


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options = _options()
    load = os.getloadavg()[0]
    if load > 0.5 * (os.cpu_count() or 1):
        print(
            f"This machine is busy (load {load:.1f} on {os.cpu_count()} cores): wall times will be too long.", file=sys.stderr
        )
    warehouse = options.keep or Path(tempfile.mkdtemp(prefix="neve-bench-"))
    try:
        rows = []
        for files in options.sizes:
            rows.append(_measure_size(warehouse, files, repeats=options.repeats))
            _print_row(rows[-1], header=len(rows) == 1)
        _write(rows, options.repeats, load=load)
    except WrongAnswerError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        if options.keep is None:
            shutil.rmtree(warehouse)
    return 0 if all(row.verdict in ("ok", "-") for row in rows) else 1


class WrongAnswerError(Exception):
    """The command failed, or counted wrong: its time means nothing."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", type=_sizes, default=_sizes("1k,10k,100k,1m"), metavar="LIST", help="files per table (1k,10k,100k,1m)"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each kind (3)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the tables there, and use those found there")
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    units = {"k": 1_000, "m": 1_000_000}
    return [int(part[:-1]) * units[part[-1]] if part[-1] in units else int(part) for part in text.lower().split(",")]


def _measure_size(warehouse: Path, files: int, *, repeats: int) -> Row:
    seconds, manifest_bytes = _generate(warehouse, files)
    with tempfile.TemporaryDirectory(prefix="neve-bench-home-") as home:
        _look(warehouse, files, Path(home))
    cold, cached = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="neve-bench-home-") as home:
            cold.append(_look(warehouse, files, Path(home)))
            cached.append(_look(warehouse, files, Path(home)))
    return Row(files, seconds, manifest_bytes, _medians(cold), _medians(cached))


def _generate(warehouse: Path, files: int) -> tuple[float, int]:
    """Writes the table unless a kept one is there; seconds are 0 then."""
    from pyiceberg.catalog.sql import SqlCatalog

    from neve.samples.metadata import write_metadata_table

    warehouse.mkdir(parents=True, exist_ok=True)
    root = warehouse.absolute()
    catalog = SqlCatalog("local", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
    try:
        name = ("db", f"t{files}")
        kept = _kept_bytes(catalog, name)
        if kept is not None:
            return 0.0, kept
        start = time.monotonic()
        written = write_metadata_table(catalog, name, files=files)
        return round(time.monotonic() - start, 2), written.manifest_bytes
    finally:
        catalog.close()


def _kept_bytes(catalog: SqlCatalog, name: tuple[str, str]) -> int | None:
    """The size of the manifests of a table that an earlier run left; one left half way is dropped."""
    if not catalog.table_exists(name):
        return None
    table = catalog.load_table(name)
    snapshot = table.current_snapshot()
    if snapshot is None:
        catalog.drop_table(name)
        return None
    return sum(manifest.manifest_length for manifest in snapshot.manifests(table.io))


def _look(warehouse: Path, files: int, home: Path) -> Measured:
    """One run in a home of its own, so that neither the user's settings nor their cache take part."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NEVE_") or key == "NEVE_JARS"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every run would compile some 600 modules anew, over a second
    environ |= {
        "NEVE_CACHE__DIRECTORY": str(home / "cache"),
        "NEVE_STATE__URL": f"sqlite:///{home}/state.db",
        "PYTHONPYCACHEPREFIX": str(BYTECODE),
    }
    command = [str(Path(sys.executable).parent / "neve"), "inspect", "--warehouse", str(warehouse), f"db.t{files}", "--json"]
    measured = measure(command, environ=environ, timeout_seconds=TIMEOUT_SECONDS)
    if measured.exit_code != 0:
        raise WrongAnswerError(f"`{' '.join(command)}` ended with {measured.exit_code}:\n{measured.stderr[-2000:]}")
    counted = json.loads(measured.stdout)["data_files"]
    if counted != files:
        raise WrongAnswerError(f"`{' '.join(command)}` counted {counted} files instead of {files}")
    return measured


def _medians(runs: list[Measured]) -> Look:
    return Look(
        wall_seconds=round(statistics.median(run.wall_seconds for run in runs), 3),
        cpu_seconds=round(statistics.median(run.cpu_seconds for run in runs), 3),
        peak_rss_bytes=max(run.peak_rss_bytes for run in runs),
        reader="spark" if any("java" in run.programs for run in runs) else "python",
    )


def _print_row(row: Row, *, header: bool) -> None:
    if header:
        print(f"{'':>9}   {'----------- cold -----------':^30}   {'---------- cached ----------':^30}")
        columns = f"{'wall s':>7} {'CPU s':>7} {'MiB':>6} {'reader':>7}"
        print(f"{'files':>9}   {columns}   {columns}   bar")
    looks = [
        f"{look.wall_seconds:7.2f} {look.cpu_seconds:7.2f} {look.peak_rss_bytes / MIB:6.0f} {look.reader:>7}"
        for look in (row.cold, row.cached)
    ]
    print(f"{row.files:>9,}   {looks[0]}   {looks[1]}   {row.verdict}", flush=True)


def _write(rows: list[Row], repeats: int, *, load: float) -> None:
    OUT.mkdir(exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system(), "load": load}
    document = {"machine": machine, "repeats": repeats, "rows": [{**asdict(row), "verdict": row.verdict} for row in rows]}
    (OUT / "inspect.json").write_text(json.dumps(document, indent=2) + "\n")
    (OUT / "inspect-seconds.svg").write_text(_seconds_chart(rows).svg())
    (OUT / "inspect-memory.svg").write_text(_memory_chart(rows).svg())
    print("written to bench/out: inspect.json, inspect-seconds.svg, inspect-memory.svg")


def _seconds_chart(rows: list[Row]) -> Chart:
    return Chart(
        title="neve inspect from a cold shell",
        x_label="data files in the table",
        y_label="seconds",
        series=[
            Series("wall, cold", [(row.files, row.cold.wall_seconds) for row in rows]),
            Series("CPU, cold", [(row.files, row.cold.cpu_seconds) for row in rows]),
            Series("wall, cached", [(row.files, row.cached.wall_seconds) for row in rows]),
        ],
        bars=[
            (row.files, BARS[row.files].wall_seconds, f"{BARS[row.files].wall_seconds:g} s")
            for row in rows
            if row.files in BARS
        ],
    )


def _memory_chart(rows: list[Row]) -> Chart:
    limits = [(row.files, BARS[row.files].rss_bytes) for row in rows if row.files in BARS]
    return Chart(
        title="Peak memory of neve inspect",
        x_label="data files in the table",
        y_label="MiB, all processes",
        series=[
            Series("cold", [(row.files, row.cold.peak_rss_bytes / MIB) for row in rows]),
            Series("cached", [(row.files, row.cached.peak_rss_bytes / MIB) for row in rows]),
        ],
        bars=[(files, limit / MIB, f"{limit / GIB:g} GiB") for files, limit in limits if limit],
    )


if __name__ == "__main__":
    sys.exit(main())
