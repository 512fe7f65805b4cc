"""Three queries before and after `neve compact`: planning time, requests, wall and CPU time, on a disk and on a slow S3.

Run as `python -m bench.query --work DIR`. The same rows lie in 100, 1,000 and 10,000 files. Exits with 2 when a compaction
changed an answer, or when two readers disagree.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.chart import Chart, Series
from bench.chart_page import Figures, leave, machine
from bench.shapes_events import DAYS, Answer, Events, Query, queries
from neve.api import Neve
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from stack import web
from stack.endpoints import ProxyEndpoint, RestEndpoint
from stack.errors import UnavailableError
from stack.places import Places
from stack.session import Session

NAMESPACE, SECRET = "bench", "BENCH_S3_SECRET"
ROWS, FILES, LATENCY_SECONDS = 2_000_000, (100, 1_000, 10_000), 0.02


class WrongAnswerError(Exception):
    """A query answers differently than it did: no time means anything."""


class SparkReader:
    """Spark SQL with Iceberg's own reader; each call looks at the table anew."""

    name = "spark"

    def __init__(self, spark: Any, table: str) -> None:
        self._spark, self._table = spark, table

    def plan(self, query: Query) -> None:
        """Spark's own way to its tasks, without the shuffle that only a run would need."""
        self._spark.sql(f"REFRESH TABLE {self._table}")
        frame = self._spark.table(self._table).where(query.condition).select(*query.columns)
        frame._jdf.queryExecution().toRdd().getNumPartitions()

    def run(self, query: Query) -> Answer:
        """To the collected rows."""
        self._spark.sql(f"REFRESH TABLE {self._table}")
        return [tuple(row) for row in self._spark.sql(query.sql(self._table)).collect()]


class IcebergReader:
    """pyiceberg, in this process: no JVM has a part in it. Each call looks at the table anew."""

    name = "pyiceberg"

    def __init__(self, catalog: Any, table: tuple[str, str]) -> None:
        self._catalog, self._table = catalog, table

    def plan(self, query: Query) -> None:
        """The files to read."""
        list(self._scan(query).plan_files())

    def run(self, query: Query) -> Answer:
        """Read into Arrow, summed there."""
        return query.answer(self._scan(query).to_arrow())

    def _scan(self, query: Query) -> Any:
        return self._catalog.load_table(self._table).scan(row_filter=query.condition, selected_fields=query.columns)


Reader = SparkReader | IcebergReader


@dataclass(frozen=True)
class Place:
    """Where tables lie: a catalog to write with, the same to read with, and the proxy in between if there is one."""

    name: str
    catalog: str
    write: Any
    read: Any
    proxy: ProxyEndpoint | None = None

    @contextmanager
    def slowed(self, seconds: float) -> Iterator[None]:
        """Every request to the storage is held back for so long."""
        if self.proxy is not None:
            fault = json.dumps({"kind": "delay", "seconds": seconds}).encode()
            web.fetch(f"{self.proxy.control}/s3/faults", method="POST", body=fault)
        try:
            yield
        finally:
            if self.proxy is not None:
                web.fetch(f"{self.proxy.control}/s3/faults", method="DELETE")

    def requests(self) -> int | None:
        """To the storage so far."""
        if self.proxy is None:
            return None
        return sum(int(entry["count"]) for entry in web.fetch_json(f"{self.proxy.control}/s3/requests"))


@dataclass(frozen=True)
class Cost:
    """What something took. CPU is that of this process and of Spark's JVM, not that of servers."""

    wall_seconds: float
    cpu_seconds: float
    requests: int | None = None


@dataclass(frozen=True)
class Row:
    """One query of one reader on one table, before or after: medians."""

    place: str
    files: int
    reader: str
    query: str
    when: str
    runs: int
    plan: Cost
    run: Cost


@dataclass(frozen=True)
class Compaction:
    """What lay between before and after."""

    place: str
    files_before: int
    files_after: int
    kernels: dict[str, int]
    cost: Cost


@dataclass
class Bench:
    """The session, the limits, and what was measured so far."""

    neve: Neve
    options: argparse.Namespace

    def __post_init__(self) -> None:
        self.rows: list[Row] = []
        self.compactions: list[Compaction] = []
        jvm = self.neve.spark._jvm.java.lang.ProcessHandle.current().pid()
        self._processes = [psutil.Process(), psutil.Process(jvm)]

    def table(self, place: Place, files: int) -> None:
        """One table: written without latency, then read, compacted and read again with it."""
        name = (NAMESPACE, f"events_{files}")
        _say(f"{place.name}: writing {files} files")
        Events(self.options.rows, files).write(place.write, name)
        with place.slowed(LATENCY_SECONDS):
            before = self.read_all(place, files, name, "before")
            self.compact(place, files, ".".join((place.catalog, *name)))
            after = self.read_all(place, files, name, "after")
        if before != after:
            raise WrongAnswerError(f"{place.name}, {files} files: {before} became {after}")

    def read_all(self, place: Place, files: int, name: tuple[str, str], when: str) -> list[Answer]:
        """Every query by every reader; they must agree."""
        readers: list[Reader] = [
            SparkReader(self.neve.spark, ".".join((place.catalog, *name))),
            IcebergReader(place.read, name),
        ]
        answers = []
        for query in queries(self.options.rows):
            given = [self.measure(place, files, reader, query, when) for reader in readers]
            if given[0] != given[1]:
                raise WrongAnswerError(
                    f"{place.name}, {files} files, {query.name}: {readers[0].name} and {readers[1].name} differ"
                )
            answers.append(given[0])
        return answers

    def measure(self, place: Place, files: int, reader: Reader, query: Query, when: str) -> Answer:
        """Medians of the repeats, or of as many as there is time for; the first table of a place is read once before."""
        _say(f"{place.name}: {files} files, {when}, {reader.name}: {query.name}")
        if files == self.options.files[0]:
            reader.run(query)
        plans: list[Cost] = []
        runs: list[Cost] = []
        answer: Answer = []
        while not runs or (len(runs) < self.options.repeats and sum(c.wall_seconds for c in runs) < self.options.seconds):
            plans.append(self.cost(place, lambda: reader.plan(query))[0])
            cost, answer = self.cost(place, lambda: reader.run(query))
            runs.append(cost)
        row = Row(place.name, files, reader.name, query.name, when, len(runs), _median(plans), _median(runs))
        self.rows.append(row)
        return answer

    def compact(self, place: Place, files: int, table: str) -> None:
        """`neve compact --force`: the table was written a moment ago, which would be a reason to wait."""
        _say(f"{place.name}: compacting {table}")
        cost, record = self.cost(place, lambda: self.neve.compact(table, request=Request(force=True)))
        if record.outcome is not RunOutcome.DONE or record.files_compacted != files:
            raise RuntimeError(f"{table}: {record.outcome}, {record.files_compacted} of {files} files compacted")
        kernels = {str(kernel): count for kernel, count in record.kernels.items()}
        self.compactions.append(Compaction(place.name, record.files_compacted, record.files_written, kernels, cost))

    def cost(self, place: Place, action: Callable[[], Any]) -> tuple[Cost, Any]:
        """What an action takes, and what it returns."""
        asked, cpu, start = place.requests(), self._cpu(), time.perf_counter()
        result = action()
        wall, cpu = time.perf_counter() - start, self._cpu() - cpu
        requests = place.requests()
        return Cost(wall, cpu, None if requests is None or asked is None else requests - asked), result

    def _cpu(self) -> float:
        return sum(times.user + times.system for times in (process.cpu_times() for process in self._processes))


def _median(costs: Sequence[Cost]) -> Cost:
    asked = [cost.requests for cost in costs if cost.requests is not None]
    return Cost(
        statistics.median(cost.wall_seconds for cost in costs),
        statistics.median(cost.cpu_seconds for cost in costs),
        int(statistics.median(asked)) if asked else None,
    )


def main() -> int:
    """Generates, measures, prints, writes."""
    options = _options()
    about = machine()
    try:
        with closing(Session(Places(home=options.work / "no-stack"))) as session:
            bench = _measured(options, None if options.local else _servers(session))
    except WrongAnswerError as error:
        print(error, file=sys.stderr)
        return 2
    content = {
        **about,
        "rows_per_table": options.rows,
        "latency_seconds": LATENCY_SECONDS,
        "compactions": [asdict(one) for one in bench.compactions],
        "rows": [asdict(row) for row in bench.rows],
    }
    charts = {f"query-{place}": _chart(place, bench.rows) for place in dict.fromkeys(row.place for row in bench.rows)}
    leave("query", _figures(bench), content, charts, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for tables; what is in it may go")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go, charts beside (bench/out/query.json)")
    parser.add_argument("--quick", action="store_true", help="one small table, once: only to see that it works")
    parser.add_argument("--local", action="store_true", help="the disk only, no servers")
    parser.add_argument("--files", type=_numbers, default=FILES, metavar="LIST", help="files per table (100,1000,10000)")
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"rows per table ({ROWS})")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of each query (5)")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="no further repeat after so long (60)")
    parser.add_argument("--cores", type=int, default=2, metavar="N", help="of Spark (2)")
    options = parser.parse_args()
    if options.quick:
        options.files, options.rows, options.repeats = (20,), 40_000, 1
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _servers(session: Session) -> tuple[RestEndpoint, ProxyEndpoint] | None:
    """Servers of this benchmark alone: latency must not hit anybody else."""
    try:
        return session.server("rest"), session.server("proxy")
    except UnavailableError as error:
        print(f"S3 is left out: {error}", file=sys.stderr)
        return None


def _measured(options: argparse.Namespace, servers: tuple[RestEndpoint, ProxyEndpoint] | None) -> Bench:
    warehouse = options.work / "query"
    shutil.rmtree(warehouse, ignore_errors=True)
    warehouse.mkdir(parents=True)
    with _opened(options, warehouse, servers) as neve:
        bench = Bench(neve, options)
        for place in _places(neve, servers):
            for files in options.files:
                bench.table(place, files)
    return bench


@contextmanager
def _opened(options: argparse.Namespace, directory: Path, servers: Any) -> Iterator[Neve]:
    """Neve on a directory and, if there are servers, on S3 behind the proxy."""
    settings: dict[str, Any] = {
        "state": {"url": f"sqlite:///{directory.resolve()}/state.db"},
        "cache": {"enabled": False},  # so that a second look asks as much as a first one
        "spark": {"master": f"local[{options.cores}]"},
    }
    environ = dict(os.environ)
    if servers is not None:
        rest, proxy = servers
        keys = {"access-key-id": rest.s3.access_key, "secret-access-key": f"${{env:{SECRET}}}"}
        storage = {"endpoint": proxy.s3, "region": rest.s3.region, "path-style-access": True, **keys}
        lake = {"type": "rest", "uri": rest.uri, "warehouse": rest.warehouse, "storage": {"s3": storage}}
        settings["catalogs"] = {"lake": lake}
        environ[SECRET] = rest.s3.secret_key
    file = directory / "neve.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    loaded = load_settings(file=file, environ=environ)
    with Neve.open(loaded, warehouse=str(directory / "warehouse"), create_warehouse=True, environ=environ) as neve:
        yield neve


def _places(neve: Neve, servers: tuple[RestEndpoint, ProxyEndpoint] | None) -> Iterator[Place]:
    from pyiceberg.catalog import load_catalog

    with neve.demo_target(NAMESPACE) as target:
        yield Place("local", target.spark_catalog, target.catalog, target.catalog)
    if servers is not None:
        rest, proxy = servers
        direct = load_catalog("lake", **rest.properties())
        slow = load_catalog("lake", **{**rest.properties(), "s3.endpoint": proxy.s3})
        yield Place("s3", "lake", direct, slow, proxy)


_COSTS: dict[str, Callable[[Row], float | None]] = {
    "plan s": lambda row: row.plan.wall_seconds,
    "requests": lambda row: row.run.requests,
    "wall s": lambda row: row.run.wall_seconds,
    "CPU s": lambda row: row.run.cpu_seconds,
}


def _figures(bench: Bench) -> Figures:
    head = ["where", "files", "reader", "query", *(title for what in _COSTS for title in (what, "after", "x"))]
    pairs: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in bench.rows:
        pairs.setdefault((row.place, f"{row.files:,}", row.reader, row.query), {})[row.when] = row
    rows = [(*key, *_cells(pair["before"], pair["after"])) for key, pair in pairs.items()]
    latency = f"{LATENCY_SECONDS * 1000:g} ms added to every request"
    notes = [
        f"Before, after, and how many times less. {bench.options.rows:,} rows in {DAYS} days; s3 has {latency}.",
        *map(_compaction_words, bench.compactions),
    ]
    return Figures(head, rows, left=4, notes=notes)


def _cells(before: Row, after: Row) -> Iterator[str]:
    for take in _COSTS.values():
        old, new = take(before), take(after)
        if old is None or new is None:
            yield from ("-", "-", "-")
        else:
            style = ",d" if isinstance(old, int) else ".2f"
            yield from (format(old, style), format(new, style), f"{old / new:.1f}" if new else "-")


def _compaction_words(one: Compaction) -> str:
    kernels = ", ".join(f"{count} by {kernel}" for kernel, count in one.kernels.items())
    asked = "" if one.cost.requests is None else f", {one.cost.requests:,} requests"
    spent = f"{one.cost.wall_seconds:.1f} s, {one.cost.cpu_seconds:.1f} s CPU without Python workers{asked}"
    return f"neve compact, {one.place}: {one.files_before:,} to {one.files_after:,} files ({kernels}), {spent}."


def _chart(place: str, rows: Sequence[Row]) -> Chart:
    """Spark's wall time by the number of files, a line for each query before and a dashed one after."""
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row.place == place and row.reader == SparkReader.name:
            lines.setdefault(row.query, {}).setdefault(row.when, []).append((row.files, row.run.wall_seconds))
    series = [
        Series(f"{query}, {when}", points, colour=number, dashed=when == "after")
        for number, (query, sides) in enumerate(lines.items())
        for when, points in sides.items()
    ]
    where = "a local disk" if place == "local" else f"S3 with {LATENCY_SECONDS * 1000:g} ms more per request"
    return Chart(title=f"Queries on {where}", x_label="files before compaction", y_label="seconds, Spark", series=series)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
