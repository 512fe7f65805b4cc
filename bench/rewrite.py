"""Our kernels against Iceberg's own `rewrite_data_files`: same table, same warm Spark session, alternating, medians.

Run as `python -m bench.rewrite --work DIR`. Exits with 1 when a bar is missed, with 2 when a table's content changed.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.chart import BarChart
from bench.contenders import ICEBERG, Contender, DeclinedError, iceberg, iceberg_options, ours
from bench.own_tree import OwnTree, Used
from bench.shapes import SHAPES, Written, write
from neve.compose import Neve
from neve.core.plan_words import Kernel
from neve.core.units import MIB
from neve.settings import load_settings

OUT = Path(__file__).parent / "out"
CATALOG = "local"
_OURS = (Kernel.COPY, Kernel.ARROW)


@dataclass(frozen=True)
class Bar:
    """How much better than Iceberg's own a kernel must be on a table."""

    wall: float
    cpu: float | None = None
    output: float | None = None


BARS = {
    ("A", Kernel.COPY): Bar(wall=10, cpu=12),
    ("A", Kernel.ARROW): Bar(wall=3, cpu=3, output=1.05),
    ("B", Kernel.COPY): Bar(wall=15),
}


class WrongContentError(Exception):
    """A rewrite changed what the table says: its time means nothing."""


@dataclass(frozen=True)
class Run:
    """One rewrite and the scan after it."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    output_files: int
    output_bytes: int
    scan_seconds: float


@dataclass
class Row:
    """A contender on a table: all its runs, or why there are none."""

    table: str
    contender: str
    settings: str
    runs: list[Run] = field(default_factory=list)
    declined: str | None = None

    def median(self, name: str) -> float:
        """Over the runs."""
        return statistics.median(getattr(run, name) for run in self.runs)


class Field:
    """One table and everything needed to let contenders loose on it, again and again from the same state."""

    def __init__(self, neve: Neve, written: Written, warehouse: Path) -> None:
        self.spark, self.written = neve.spark, written
        self._data = warehouse / written.table.split(".", 1)[1].replace(".", "/") / "data"
        self._check = ", ".join(f"sum(cast(hash(`{c}`) as bigint))" for c in self.spark.table(written.table).columns)
        target = f"'write.target-file-size-bytes' = '{written.target_bytes}'"
        self.spark.sql(f"ALTER TABLE {written.table} SET TBLPROPERTIES ({target})")
        self.reset()
        self._own = set(self._data.rglob("*.parquet"))
        self._answer, self.scan_before = self._scan()

    def reset(self) -> None:
        """Back to the snapshot that was written; outputs of others go."""
        catalog, _, name = self.written.table.partition(".")
        self.spark.sql(f"CALL {catalog}.system.set_current_snapshot('{name}', {self.written.snapshot_id})").collect()
        if hasattr(self, "_own"):
            for path in set(self._data.rglob("*.parquet")) - self._own:
                path.unlink()
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)

    def run(self, contender: Contender) -> Run:
        """Lets one contender rewrite the table, looks at what it left, and puts the table back."""
        self._collect_garbage()
        try:
            with OwnTree() as tree:
                contender.run()
            self.spark.sql(f"REFRESH TABLE {self.written.table}")
            answer, seconds = self._scan()
            if answer != self._answer:
                raise WrongContentError(f"{contender.name} changed the content of {self.written.table}")
            return self._result(tree.used, seconds)
        finally:
            self.reset()

    def _result(self, used: Used, scan_seconds: float) -> Run:
        files, size = self.spark.sql(f"SELECT count(*), sum(file_size_in_bytes) FROM {self.written.table}.files").first()
        return Run(**asdict(used), output_files=files, output_bytes=size, scan_seconds=scan_seconds)

    def _scan(self) -> tuple[Any, float]:
        """A sum of hashes by column: every value is decoded, no order matters, and metadata alone cannot answer it."""
        with OwnTree() as tree:
            answer = self.spark.sql(f"SELECT count(*), {self._check} FROM {self.written.table}").first()
        return answer, tree.used.wall_seconds

    def _collect_garbage(self) -> None:
        """What the last contender left is not the next one's to clear away."""
        self.spark._jvm.System.gc()


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options = _options()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"This machine is busy (load {load:.1f} on {os.cpu_count()} cores): times will be too long.", file=sys.stderr)
    rows: list[Row] = []
    try:
        with _opened(options.work) as neve:
            for name in options.tables:
                rows += _compete(neve, name, options)
    except WrongContentError as error:
        print(error, file=sys.stderr)
        return 2
    missed = list(_missed(rows))
    for words in missed:
        print(words)
    _write(rows, load=load, repeats=options.repeats, missed=missed)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where tables are kept between runs")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["A", "B", "large", "wide", "partitioned"])
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each contender (5)")
    parser.add_argument("--settings", choices=["all", "one"], default="all", help="settings of Iceberg's own to choose from")
    parser.add_argument("--kernels", type=lambda text: [Kernel(name) for name in text.split(",")], default=list(_OURS))
    return parser.parse_args()


@contextmanager
def _opened(work: Path) -> Iterator[Neve]:
    work.mkdir(parents=True, exist_ok=True)
    environ = {
        "NEVE_STATE__URL": f"sqlite:///{work.resolve()}/state.db",
        "NEVE_CACHE__ENABLED": "false",  # it would know the manifests from the run before, as no first run does
        "NEVE_SPARK__MASTER": "local[2]",
    }
    loaded = load_settings(environ=environ)
    with Neve.open(loaded, warehouse=str(work / "warehouse"), create_warehouse=True) as neve:
        yield neve


def _compete(neve: Neve, name: str, options: argparse.Namespace) -> list[Row]:
    written = write(neve.spark, f"{CATALOG}.bench", SHAPES[name])
    field_ = Field(neve, written, options.work / "warehouse")
    size, target = f"{written.bytes / MIB:.0f} MiB", f"{written.target_bytes / MIB:.0f} MiB"
    print(f"\n{name}: {written.shape.words} ({written.files} files, {size}, target {target}, scan {field_.scan_before:.2f} s)")
    contenders = [_best(field_, options), *(ours(neve, written, kernel) for kernel in options.kernels)]
    rows = [Row(name, contender.name, contender.settings) for contender in contenders]
    for number in range(options.repeats + 1):
        for row, contender in zip(rows, contenders, strict=True):
            if row.declined is None and not (number == 0 and contender.name == ICEBERG):
                _take_turn(field_, row, contender, counts=number > 0)
    _print(rows)
    return rows


def _take_turn(field_: Field, row: Row, contender: Contender, *, counts: bool) -> None:
    """One run; the first of each is only to warm up."""
    try:
        run = field_.run(contender)
    except DeclinedError as error:
        row.declined = str(error)
        return
    if counts:
        row.runs.append(run)


def _best(field_: Field, options: argparse.Namespace) -> Contender:
    """Iceberg's own at the settings that were fastest here, tried once each after a run to warm up."""
    written = field_.written
    candidates = [iceberg(field_.spark, written, given) for given in iceberg_options(written)]
    candidates = candidates[:1] if options.settings == "one" else candidates
    field_.run(candidates[0])
    if len(candidates) == 1:
        return candidates[0]
    times = []
    for candidate in candidates:
        run = field_.run(candidate)
        times.append(run.wall_seconds)
        print(f"  tried: {candidate.settings:52} {run.wall_seconds:7.2f} s wall {run.cpu_seconds:7.2f} s CPU")
    return candidates[times.index(min(times))]


_HEAD = "  contender              wall s      x    CPU s      x  peak MiB  files      MiB      x  scan s"


def _print(rows: list[Row]) -> None:
    print(_HEAD)
    base = rows[0]
    for row in rows:
        if not row.runs:
            print(f"  {row.contender:20} declined: {row.declined}")
            continue
        wall, cpu, size = (row.median(name) for name in ("wall_seconds", "cpu_seconds", "output_bytes"))
        print(
            f"  {row.contender:20} {wall:8.2f} {base.median('wall_seconds') / wall:6.1f} {cpu:8.2f}"
            f" {base.median('cpu_seconds') / cpu:6.1f} {max(r.peak_rss_bytes for r in row.runs) / MIB:9.0f}"
            f" {row.median('output_files'):6.0f} {size / MIB:8.1f} {size / base.median('output_bytes'):6.3f}"
            f" {row.median('scan_seconds'):7.2f}"
        )
    print(f"  ({base.contender}: {base.settings})")


def _missed(rows: list[Row]) -> Iterator[str]:
    for (table, kernel), bar in BARS.items():
        base = next((row for row in rows if row.table == table and row.contender == ICEBERG), None)
        row = next((row for row in rows if row.table == table and row.contender == kernel), None)
        if base is None or row is None:
            continue
        if not row.runs:
            yield f"{table}: {kernel} declined: {row.declined}"
            continue
        for name, least in (("wall_seconds", bar.wall), ("cpu_seconds", bar.cpu)):
            ratio = base.median(name) / row.median(name)
            if least is not None and ratio < least:
                yield f"{table}: {kernel} has a {name.split('_')[0]} ratio of {ratio:.1f}, the bar is {least:g}"
        size = row.median("output_bytes") / base.median("output_bytes")
        if bar.output is not None and size > bar.output:
            yield f"{table}: {kernel} writes {size:.3f} times as much, the bar is {bar.output:g}"


def _write(rows: list[Row], *, load: float, repeats: int, missed: list[str]) -> None:
    OUT.mkdir(exist_ok=True)
    about = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_at_start": load,
        "repeats": repeats,
        "missed": missed,
    }
    content = {**about, "rows": [asdict(row) for row in rows]}
    (OUT / "rewrite.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
    (OUT / "rewrite.svg").write_text(_chart(rows).svg(), encoding="utf-8")


def _chart(rows: list[Row]) -> BarChart:
    groups = []
    for name in dict.fromkeys(row.table for row in rows):
        measured = [row for row in rows if row.table == name and row.runs]
        for kind, key in (("wall", "wall_seconds"), ("CPU", "cpu_seconds")):
            bars = [(row.contender, row.median(key)) for row in measured]
            groups.append((f"{name}: {SHAPES[name].words}, {kind}", bars))
    return BarChart("Rewriting the same table in the same session", "s", groups)


if __name__ == "__main__":
    sys.exit(main())
