"""What clustering saves selective queries, and what it costs to keep a table clustered while rows arrive.

Run as `python -m bench.clustering --work DIR`. Bytes that queries read are counted by pyiceberg's own planning. Iceberg's
`rewrite_data_files` with its z-order runs beside ours, on the same table. Exits with 1 when a bar is missed, with 2 when rows
changed.
"""

# ruff: noqa: S608 - the only names in these statements are our own
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.chart import BarChart
from bench.chart_page import Figures, leave, machine
from bench.rewrite import CATALOG, WrongContentError, opened
from neve.api import Neve
from neve.rewrite.group import Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.table.units import MIB

FEWER, SHARE, SKIPPING = 10.0, 0.15, 0.9
"""The bars: times fewer bytes read once clustered; after 5 % new rows, share of a full rewrite's bytes and of its skipping."""
TABLE = f"{CATALOG}.bench.scattered"
COLUMNS = "city, amount"
CITIES = 5_000
NEW = 0.05


@dataclass(frozen=True)
class Size:
    """Of the table, and of the files that it is to have."""

    rows: int
    files: int


@dataclass(frozen=True)
class Stage:
    """The table at one moment: what came before it took, and what queries then read, as shares of all bytes."""

    name: str
    wall_seconds: float
    rewritten_bytes: int
    files: int
    bytes: int
    reads: dict[str, float]

    @property
    def mean(self) -> float:
        """Of the kinds of queries."""
        return float(np.mean(list(self.reads.values())))


class Field:
    """The table, and everything that is done to it and asked of it."""

    def __init__(self, neve: Neve, size: Size) -> None:
        self.neve, self.spark, self.size = neve, neve.spark, size
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bench")
        self.spark.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
        self.spark.sql(f"CREATE TABLE {TABLE} (id bigint, city string, amount double, note string) USING iceberg")
        self._append(0, size.rows, files=size.files)
        target = self._bytes() // size.files
        self.spark.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('write.target-file-size-bytes' = '{target}')")
        self.rows = self._content()

    def grow(self) -> None:
        """A share of new rows, as random as the others, in files as an hourly writer leaves them."""
        self._append(self.size.rows, int(self.size.rows * NEW), files=max(2, int(self.size.files * NEW)))
        self.rows = self._content()

    def _append(self, start: int, rows: int, *, files: int) -> None:
        city = f"concat('city-', lpad(cast(floor(rand(1) * {CITIES}) as string), 8, '0'))"
        columns = f"id, {city} AS city, exp(randn(2)) * 100 AS amount, sha1(cast(id AS string)) AS note"
        frame = self.spark.sql(f"SELECT {columns} FROM range({start}, {start + rows}, 1, {files})")
        frame.writeTo(TABLE).append()

    def stage(self, name: str, act: Callable[[], object] = lambda: None) -> Stage:
        """Does something, and looks at the table; whoever changes rows ends the benchmark."""
        before = self._files()
        began = time.monotonic()
        act()
        seconds = time.monotonic() - began
        after = self._files()
        if self._content() != self.rows:
            raise WrongContentError(f"{name} changed the rows of {TABLE}")
        gone = sum(size for path, size in before.items() if path not in after)
        print(f"  {name}: {seconds:.1f} s, {gone / MIB:.0f} MiB rewritten", file=sys.stderr, flush=True)
        return Stage(name, seconds, gone, len(after), sum(after.values()), dict(self._reads()))

    def snapshot(self) -> int:
        """The table as it is, to come back to."""
        return int(self.spark.sql(f"SELECT snapshot_id FROM {TABLE}.refs WHERE name = 'main'").first()[0])

    def back_to(self, snapshot_id: int) -> None:
        """Sets the table back."""
        name = TABLE.split(".", 1)[1]
        self.spark.sql(f"CALL {CATALOG}.system.set_current_snapshot('{name}', {snapshot_id})").collect()

    def ours(self, *, full: bool = False) -> None:
        """`neve cluster`; the columns are the table's own from the second time on."""
        request = Request(tier=Tier.FULL if full else None)
        record = self.neve.cluster(TABLE, COLUMNS, request=request)
        if record.outcome not in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO):
            reasons = sorted({group.reason for group in record.groups})
            raise RuntimeError(f"neve cluster ended {record.outcome}: {record.empty_reason or '; '.join(reasons)[:500]}")

    def iceberg(self) -> None:
        """`rewrite_data_files` with a z-order of the same columns, every file."""
        name = TABLE.split(".", 1)[1]
        given = f"strategy => 'sort', sort_order => 'zorder({COLUMNS})', options => map('rewrite-all', 'true')"
        self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', {given})").collect()

    def _reads(self) -> Iterator[tuple[str, float]]:
        """The share of bytes that each kind of query reads, in the mean of twenty of them."""
        table = self._table()
        rng, total = np.random.default_rng(3), self._bytes()
        edges = self.spark.table(TABLE).approxQuantile("amount", [i / 100 for i in range(101)], 0.001)
        kinds: dict[str, list[float]] = {"a city": [], "1 % of amounts": [], "both": []}
        for _ in range(20):
            city, slot = f"city = 'city-{rng.integers(CITIES):08d}'", int(rng.integers(100))
            amount = f"amount >= {edges[slot]} and amount < {edges[slot + 1]}"
            for kind, text in zip(kinds, (city, amount, f"{city} and {amount}"), strict=True):
                tasks = table.scan(row_filter=text).plan_files()
                kinds[kind].append(sum(task.file.file_size_in_bytes for task in tasks) / total)
        for kind, shares in kinds.items():
            yield kind, float(np.mean(shares))

    def _table(self) -> Any:
        from pyiceberg.catalog.sql import SqlCatalog

        uri = f"sqlite:///{self._warehouse}/catalog.db"
        return SqlCatalog(CATALOG, uri=uri, warehouse=str(self._warehouse)).load_table(TABLE.split(".", 1)[1])

    @property
    def _warehouse(self) -> Path:
        location = self.spark.sql(f"DESCRIBE TABLE EXTENDED {TABLE}").where("col_name = 'Location'").first().data_type
        return Path(str(location).removeprefix("file:")).parent.parent

    def _files(self) -> dict[str, int]:
        found = self.spark.sql(f"SELECT file_path, file_size_in_bytes FROM {TABLE}.data_files").collect()
        return {row[0]: row[1] for row in found}

    def _bytes(self) -> int:
        return sum(self._files().values())

    def _content(self) -> tuple[Any, ...]:
        return tuple(self.spark.sql(f"SELECT count(*), sum(xxhash64(id, city, amount, note) % 1000003) FROM {TABLE}").first())


def main() -> int:
    """Generates, measures, prints, writes, judges."""
    options = _options()
    size = Size(40_000, 16) if options.quick else Size(options.rows, options.files)
    about = machine()
    try:
        with opened(options.work, cores=2) as neve:
            stages = _stages(Field(neve, size))
    except WrongContentError as error:
        print(error, file=sys.stderr)
        return 2
    missed = [] if options.quick else list(_missed(stages))
    content = {**about, "size": asdict(size), "missed": missed, "stages": [asdict(stage) for stage in stages.values()]}
    bars = [(stage.name, 100 * stage.mean) for stage in stages.values()]
    chart = BarChart("What selective queries read of the table", "%", [("share of bytes", bars)])
    leave("clustering", _figures(stages, size), content, {"clustering": chart}, json_file=options.json, quick=options.quick)
    for words in missed:
        print(words)
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/clustering.json)")
    parser.add_argument("--quick", action="store_true", help="a small table: only to see that it works")
    parser.add_argument("--rows", type=int, default=6_000_000, metavar="N", help="rows of the table (6000000)")
    parser.add_argument("--files", type=int, default=256, metavar="N", help="files that they are in (256)")
    return parser.parse_args()


def _stages(field: Field) -> dict[str, Stage]:
    stages = [field.stage("as written")]
    written = field.snapshot()
    stages.append(field.stage("Iceberg's z-order", field.iceberg))
    field.back_to(written)
    stages.append(field.stage("neve cluster", field.ours))
    field.grow()
    stages.append(field.stage("5 % more rows"))
    grown = field.snapshot()
    stages.append(field.stage("neve cluster again", field.ours))
    field.back_to(grown)
    stages.append(field.stage("neve cluster --full", lambda: field.ours(full=True)))
    field.back_to(grown)
    stages.append(field.stage("Iceberg's z-order again", field.iceberg))
    return {stage.name: stage for stage in stages}


def _missed(stages: dict[str, Stage]) -> Iterator[str]:
    fewer = stages["as written"].mean / stages["neve cluster"].mean
    if fewer < FEWER:
        yield f"queries read {fewer:.1f} times fewer bytes, the bar is {FEWER:g}"
    again, full = stages["neve cluster again"], stages["Iceberg's z-order again"]
    share = again.rewritten_bytes / full.rewritten_bytes
    if share >= SHARE:
        yield f"the second run rewrote {share:.0%} of what a full z-order rewrites, the bar is {SHARE:.0%}"
    best = max(1 - full.mean, 1 - stages["neve cluster --full"].mean)
    skipping = (1 - again.mean) / best
    if skipping < SKIPPING:
        yield f"it skips {skipping:.0%} of what a full rewrite does, the bar is {SKIPPING:.0%}"


def _figures(stages: dict[str, Stage], size: Size) -> Figures:
    kinds = list(stages["as written"].reads)
    head = ["stage", "wall s", "rewritten MiB", "files", *(f"{kind} %" for kind in kinds), "mean %"]
    lines = [
        [
            stage.name,
            f"{stage.wall_seconds:.1f}",
            f"{stage.rewritten_bytes / MIB:.0f}",
            f"{stage.files}",
            *(f"{100 * stage.reads[kind]:.1f}" for kind in kinds),
            f"{100 * stage.mean:.1f}",
        ]
        for stage in stages.values()
    ]
    notes = [
        f"{size.rows:,} rows in random order, {size.files} files; {CITIES:,} cities, any amounts; clustered by {COLUMNS}.",
        "Percentages are shares of the table's bytes that a query reads, by file bounds alone; twenty queries of each kind.",
    ]
    return Figures(head, lines, left=1, notes=notes)


if __name__ == "__main__":
    sys.exit(main())
