"""How often do UPDATE, DELETE and MERGE of another writer fail, with Neve's maintenance beside it and with Iceberg's own?

Run as `python -m bench.writers --work DIR [--minutes 10]`. A writer changes rows every 5 seconds and appends small files.
Beside it, in the same Spark session, `neve maintain` runs in a loop; on an equal table with the same commands,
`rewrite_data_files` does. A command that fails is counted and not sent again. Exits with 1 when more than a third as many
commands fail beside ours as beside theirs, or when an append fails, with 2 when a table does not hold what the successful
commands have left.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.cluster import catalog_conf
from bench.row_writer import KINDS, RowWriter, create, totals
from neve.maintenance.steps import StepOutcome
from neve.spark.runtime.session import SparkOptions, open_session
from neve.table.units import MIB

OURS, THEIRS = "neve maintain", "rewrite_data_files"
EVERY_SECONDS = 5.0
MIN_FILES = 2
"""Both merge from so many small files of a day on, so that both have something to do in most runs."""
LEAD_COMMANDS = 4
"""So many commands come before the first maintenance: a writer that nobody has seen before cannot be expected by anyone."""
TARGET_BYTES = 64 * MIB
BAR = 1 / 3
QUICK_MINUTES = 0.25


@dataclass
class Maintenance:
    """What a contender did: runs, those that changed the table, and those that failed."""

    runs: int = 0
    commits: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Side:
    """One contender and the writer beside it."""

    contender: str
    commands: dict[str, int]
    failed: dict[str, int]
    failed_appends: int
    median_seconds: float
    maintenance: Maintenance
    files_before: int
    files_after: int
    is_right: bool
    reasons: dict[str, int]

    @property
    def rate(self) -> float:
        """The share of commands that failed."""
        return sum(self.failed.values()) / max(1, sum(self.commands.values()))


def main() -> int:
    """Runs both, prints, writes, judges."""
    options = _options()
    about = machine()
    conf = catalog_conf(options.work) | {"spark.sql.catalog.lake.cache-enabled": str(options.cached).lower()}
    spark = SparkOptions(master="local[2]", driver_memory="2g")
    with open_session(spark, catalog_conf=conf, needs=["sqlite"], app_name="writers") as session:
        for name in (THEIRS, OURS):
            _side(session, options, name, "warm", minutes=min(options.minutes, 0.5))
        sides = [_side(session, options, name, "t", minutes=options.minutes) for name in (THEIRS, OURS)]
    content = {**about, **{name: getattr(options, name) for name in ("seed", "mode", "cached", "minutes")}}
    bars = [(side.contender, 100 * side.rate) for side in sides]
    chart = BarChart("UPDATE, DELETE and MERGE that failed beside maintenance", "% of commands", [(options.mode, bars)])
    leave(
        "writers",
        _figures(sides, options),
        {**content, "sides": [asdict(side) | {"rate": side.rate} for side in sides]},
        {"writers": chart},
        json_file=options.json,
        quick=options.quick,
    )
    if not all(side.is_right for side in sides):
        return 2
    theirs, ours = sides
    missed = ours.rate > BAR * theirs.rate or any(side.failed_appends for side in sides)
    return 1 if missed and not options.quick else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where the tables are made, new at each run")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the writer writes beside each contender (10)")
    parser.add_argument("--mode", default="copy-on-write", choices=("copy-on-write", "merge-on-read"), help="of the commands")
    parser.add_argument("--cached", action="store_true", help="let the writer's Spark catalog cache tables, as Iceberg does")
    parser.add_argument("--pause", type=float, default=1.0, metavar="SECONDS", help="between two runs of maintenance (1)")
    parser.add_argument("--seed", type=int, default=1, help="of the commands (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/writers.json)")
    parser.add_argument("--quick", action="store_true", help="15 seconds each: only to see that it works")
    options = parser.parse_args()
    options.minutes = QUICK_MINUTES if options.quick else options.minutes
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = Path(tempfile.mkdtemp(prefix="writers-", dir=options.work.resolve()))
    return options


def _side(session: Any, options: argparse.Namespace, name: str, prefix: str, *, minutes: float) -> Side:
    """The writer beside one contender, on a table of its own."""
    print(f"{name}, {minutes:g} minutes ({prefix})", file=sys.stderr, flush=True)
    table = f"lake.db.{prefix}_{'ours' if name == OURS else 'theirs'}"
    create(session, table, options.mode)
    before = session.table(f"{table}.data_files").count()
    writer = RowWriter(session.newSession(), table, options.seed, EVERY_SECONDS)
    done, stop = Maintenance(), threading.Event()
    lead = LEAD_COMMANDS * EVERY_SECONDS
    with _contender(session, options.work, name, table, done) as run:
        loop = threading.Thread(target=_in_a_loop, args=(run, done, stop, lead, options.pause), name="maintenance")
        loop.start()
        try:
            writer.run(60 * minutes + lead, stop)
        finally:
            stop.set()
            loop.join()
    session.sql(f"REFRESH TABLE {table}")
    failed = [sent for sent in writer.sent if sent.failure is not None]
    return Side(
        contender=name,
        commands=_by_kind(sent.kind for sent in writer.sent),
        failed=_by_kind(sent.kind for sent in failed),
        failed_appends=writer.failed_appends,
        median_seconds=statistics.median(sent.seconds for sent in writer.sent),
        maintenance=done,
        files_before=before,
        files_after=session.table(f"{table}.data_files").count(),
        is_right=totals(session, table) == writer.model.totals(),
        reasons=dict(Counter(str(sent.failure) for sent in failed)),
    )


def _by_kind(kinds: Iterator[str]) -> dict[str, int]:
    return dict.fromkeys(KINDS, 0) | Counter(kinds)


def _in_a_loop(run: Callable[[], None], done: Maintenance, stop: threading.Event, lead: float, pause: float) -> None:
    if stop.wait(lead):
        return
    while not stop.wait(pause):
        done.runs += 1
        try:
            run()
        except Exception as error:  # a run that loses to the writer is part of the measurement
            done.failures.append(" ".join(str(error).split())[:300])


@contextmanager
def _contender(session: Any, work: Path, name: str, table: str, done: Maintenance) -> Iterator[Callable[[], None]]:
    spark = session.newSession()
    if name == THEIRS:
        yield lambda: _rewrite_data_files(spark, table, done)
        return
    import neve

    policy = {"target-file-size": TARGET_BYTES, "min-input-files": MIN_FILES, "minor-file-count": MIN_FILES - 1}
    settings = {"state.url": f"sqlite:///{work}/state.db", **{f"policy.{key}": value for key, value in policy.items()}}
    with neve.connect(spark=spark, settings=settings) as place:
        yield lambda: _maintain(place, table, done)


def _rewrite_data_files(spark: Any, table: str, done: Maintenance) -> None:
    options = f"map('target-file-size-bytes', '{TARGET_BYTES}', 'min-input-files', '{MIN_FILES}')"
    found = spark.sql(f"CALL lake.system.rewrite_data_files(table => '{table}', options => {options})").first()
    done.commits += found.rewritten_data_files_count > 0


def _maintain(place: Any, table: str, done: Maintenance) -> None:
    """The steps that replace files; the others never make a command fail."""
    record = place.maintain(table, only=("compact", "deletes"))
    done.commits += sum(step.outcome in (StepOutcome.DONE, StepOutcome.PARTLY) for step in record.steps)
    done.failures += [f"{step.step}: {step.told}" for step in record.steps if step.outcome is StepOutcome.FAILED]


def _figures(sides: list[Side], options: argparse.Namespace) -> Figures:
    head = ["beside", "commands", "failed", *(f"{kind} failed" for kind in KINDS), "rate", "appends failed"]
    head += ["runs", "that committed", "that failed", "data files", "after", "median command"]
    lines = [
        [
            side.contender,
            str(sum(side.commands.values())),
            str(sum(side.failed.values())),
            *(f"{side.failed[kind]} of {side.commands[kind]}" for kind in KINDS),
            f"{100 * side.rate:.1f} %",
            str(side.failed_appends),
            str(side.maintenance.runs),
            str(side.maintenance.commits),
            str(len(side.maintenance.failures)),
            str(side.files_before),
            str(side.files_after),
            f"{side.median_seconds:.1f} s",
        ]
        for side in sides
    ]
    how = f"{options.mode}{', tables cached by the catalog' if options.cached else ''}, seed {options.seed}"
    note = f"A command every {EVERY_SECONDS:g} s for {options.minutes:g} minutes beside maintenance, {how}."
    return Figures(head, lines, notes=[note])


if __name__ == "__main__":
    sys.exit(main())
