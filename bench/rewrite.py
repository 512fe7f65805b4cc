"""Our kernels against Iceberg's own `rewrite_data_files`: same table, same warm Spark session, alternating, medians.

Run as `python -m bench.rewrite --work DIR`. Iceberg's own first tries each of its settings once; its fastest then takes turns
with our kernels. Exits with 1 when a bar is missed, with 2 when a table's content changed.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.contenders import ICEBERG, Contender, DeclinedError, iceberg, iceberg_options, ours
from bench.own_tree import OwnTree
from bench.shapes import SHAPES, Written, write
from neve.api import Neve
from neve.rewrite.group import Kernel
from neve.settings import load_settings
from neve.table.units import MIB

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
    jvm_peak_bytes: int
    driver_peak_bytes: int
    workers_peak_bytes: int
    output_files: int
    output_bytes: int
    scan_seconds: float


@dataclass
class Row:
    """A contender on a table: all its runs, or why there are none. `tried` are settings with their wall and CPU seconds."""

    table: str
    table_words: str
    contender: str
    settings: str
    runs: list[Run] = field(default_factory=list)
    declined: str | None = None
    tried: dict[str, tuple[float, float]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """Over the runs."""
        return statistics.median(getattr(run, name) for run in self.runs)

    def peak(self, name: str) -> int:
        """The largest of all runs."""
        return max(getattr(run, name) for run in self.runs)


class TreeByRole(OwnTree):
    """Peak memory by role as well: the JVM, this process, and Spark's Python workers. Each role has its own moment."""

    def __init__(self) -> None:
        super().__init__()
        self.peaks = {"jvm": 0, "driver": 0, "workers": 0}

    def _sample(self) -> None:
        super()._sample()
        me = psutil.Process()
        now = {"jvm": 0, "driver": me.memory_info().rss, "workers": 0}
        for process in me.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                now["jvm" if process.name() == "java" else "workers"] += process.memory_info().rss
        self.peaks = {role: max(peak, now[role]) for role, peak in self.peaks.items()}


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
            with TreeByRole() as tree:
                contender.run()
            self.spark.sql(f"REFRESH TABLE {self.written.table}")
            answer, seconds = self._scan()
            if answer != self._answer:
                raise WrongContentError(f"{contender.name} changed the content of {self.written.table}")
            return self._result(tree, seconds)
        finally:
            self.reset()

    def _result(self, tree: TreeByRole, scan_seconds: float) -> Run:
        files, size = self.spark.sql(f"SELECT count(*), sum(file_size_in_bytes) FROM {self.written.table}.files").first()
        peaks = {f"{role}_peak_bytes": peak for role, peak in tree.peaks.items()}
        return Run(**asdict(tree.used), **peaks, output_files=files, output_bytes=size, scan_seconds=scan_seconds)

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
    about = machine()
    rows: list[Row] = []
    try:
        with opened(options.work, cores=2) as neve:
            for name in options.tables:
                rows += _on_table(neve, name, options)
    except WrongContentError as error:
        print(error, file=sys.stderr)
        return 2
    missed = list(_missed(rows))
    content = {**about, "repeats": options.repeats, "missed": missed, "rows": [asdict(row) for row in rows]}
    leave("rewrite", _figures(rows, options), content, {"rewrite": _chart(rows)}, json_file=options.json, quick=options.quick)
    for words in missed:
        print(words)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where tables are kept between runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go, the chart beside (bench/out/rewrite.json)")
    parser.add_argument("--quick", action="store_true", help="a tiny table, once, with one setting: only to see that it works")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=["A", "B", "large", "wide", "partitioned"])
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each contender (5)")
    parser.add_argument(
        "--settings",
        choices=["all", "best", "one"],
        default="all",
        help="settings of Iceberg's own: try all once and take the fastest; take the fastest of an earlier round in the same "
        "directory; or take the first, untried (all)",
    )
    parser.add_argument("--kernels", type=lambda text: [Kernel(name) for name in text.split(",")], default=list(_OURS))
    options = parser.parse_args()
    if options.quick:
        options.tables, options.repeats, options.settings = ["tiny"], 1, "one"
    return options


@contextmanager
def opened(work: Path, *, cores: int) -> Iterator[Neve]:
    """Neve on the tables of this directory, with so many Spark tasks at a time."""
    work.mkdir(parents=True, exist_ok=True)
    environ = {
        "NEVE_STATE__URL": f"sqlite:///{work.resolve()}/state.db",
        "NEVE_CACHE__ENABLED": "false",  # it would know the manifests from the run before, as no first run does
        "NEVE_SPARK__MASTER": f"local[{cores}]",
    }
    loaded = load_settings(environ=environ)
    with Neve.open(loaded, warehouse=str(work / "warehouse"), create_warehouse=True) as neve:
        yield neve


def _on_table(neve: Neve, name: str, options: argparse.Namespace) -> list[Row]:
    written = write(neve.spark, f"{CATALOG}.bench", SHAPES[name])
    field_ = Field(neve, written, options.work / "warehouse")
    size, target = f"{written.bytes / MIB:.0f} MiB", f"{written.target_bytes / MIB:.0f} MiB"
    words = f"{written.shape.words} ({written.files} files, {size}, target {target}, scan before {field_.scan_before:.2f} s)"
    return compete(field_, words, [ours(neve, written, kernel) for kernel in options.kernels], options)


def compete(field_: Field, words: str, others: Sequence[Contender], options: argparse.Namespace) -> list[Row]:
    """Iceberg's own at its best and the others, taking turns on one table; `words` describe the table."""
    name = field_.written.shape.name
    _say(f"{name}: {words}")
    best, tried = _best(field_, options)
    contenders = [best, *others]
    rows = [Row(name, words, contender.name, contender.settings) for contender in contenders]
    rows[0].tried = tried
    for number in range(options.repeats + 1):
        for row, contender in zip(rows, contenders, strict=True):
            if row.declined is None and not (number == 0 and contender.name == ICEBERG):
                _take_turn(field_, row, contender, counts=number > 0)
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
        _say(f"  {row.contender}: {run.wall_seconds:.2f} s wall, {run.cpu_seconds:.2f} s CPU")


def _best(field_: Field, options: argparse.Namespace) -> tuple[Contender, dict[str, tuple[float, float]]]:
    """Iceberg's own at the settings that were fastest here, with what each took; a run to warm up goes before."""
    written, memory = field_.written, options.work / "fastest-settings.json"
    candidates = {one.settings: one for one in (iceberg(field_.spark, written, given) for given in iceberg_options(written))}
    fastest: dict[str, str] = json.loads(memory.read_text(encoding="utf-8")) if memory.exists() else {}
    known = next(iter(candidates)) if options.settings == "one" else fastest.get(written.shape.name)
    field_.run(next(iter(candidates.values())))
    if options.settings != "all" and known in candidates:
        return candidates[known], {}
    tried = {}
    for settings, candidate in candidates.items():
        run = field_.run(candidate)
        tried[settings] = run.wall_seconds, run.cpu_seconds
        _say(f"  tried: {settings}: {run.wall_seconds:.2f} s wall, {run.cpu_seconds:.2f} s CPU")
    fastest[written.shape.name] = min(tried, key=lambda settings: tried[settings])
    memory.write_text(json.dumps(fastest, indent=2), encoding="utf-8")
    return candidates[fastest[written.shape.name]], tried


_HEAD = ["table", "contender", "wall s", "x", "CPU s", "x"]
_HEAD += ["peak MiB", "JVM", "driver", "workers", "files", "MiB", "of Iceberg's", "scan s"]
_PEAKS = ("peak_rss_bytes", "jvm_peak_bytes", "driver_peak_bytes", "workers_peak_bytes")


def _figures(rows: list[Row], options: argparse.Namespace) -> Figures:
    lines, notes = [], []
    bases = {row.table: row for row in rows if row.contender == ICEBERG}
    for row in rows:
        base = bases[row.table]
        if row.runs:
            lines.append([row.table, row.contender, *_cells(row, base)])
        else:
            lines.append([row.table, row.contender, "declined", *["-"] * (len(_HEAD) - 3)])
            notes.append(f"{row.table}: {row.contender} declined: {row.declined}.")
        if row is base:
            notes.append(f"{row.table}: {row.table_words}; {ICEBERG} with {row.settings}, {_how_chosen(row, options)}.")
    turns = f"Medians of {options.repeats}, contenders taking turns in one warm session; memory is the largest seen."
    return Figures(_HEAD, lines, left=2, notes=[turns, *notes])


def _how_chosen(row: Row, options: argparse.Namespace) -> str:
    if row.tried:
        tried = "; ".join(f"{settings}: {wall:.1f} s" for settings, (wall, _) in row.tried.items())
        return f"the fastest of one round over all settings ({tried})"
    return "not tried against others" if options.settings == "one" else "the fastest in an earlier round over all settings"


def _cells(row: Row, base: Row) -> Iterator[str]:
    for name in ("wall_seconds", "cpu_seconds"):
        yield from (f"{row.median(name):.2f}", f"{base.median(name) / row.median(name):.1f}")
    yield from (f"{row.peak(name) / MIB:.0f}" for name in _PEAKS)
    size = row.median("output_bytes")
    yield from (f"{row.median('output_files'):.0f}", f"{size / MIB:.1f}", f"{size / base.median('output_bytes'):.3f}")
    yield f"{row.median('scan_seconds'):.2f}"


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


def _chart(rows: list[Row]) -> BarChart:
    groups = []
    for name in dict.fromkeys(row.table for row in rows):
        measured = [row for row in rows if row.table == name and row.runs]
        for kind, key in (("wall", "wall_seconds"), ("CPU", "cpu_seconds")):
            bars = [(row.contender, row.median(key)) for row in measured]
            groups.append((f"{name}: {SHAPES[name].words}, {kind}", bars))
    return BarChart("Rewriting the same table in the same session", "s", groups)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
