"""Thousands of runs of the service on small tables while everything around it fails: how many end well without a person.

Run as `python -m bench.soak --work DIR`. One `neve serve` with two workers looks after tables in a REST catalog and on S3, both
behind proxies that drop requests, lose answers and answer 503; its state store is PostgreSQL. A writer appends, and rewrites
files by copy-on-write deletes. A worker is killed every few seconds. In the end everything is in peace until nothing is left to
do, and every row is read back past the proxies. Exits with 2 if a row is wrong or work is left undone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import yaml

from bench.chart_page import Figures, leave, machine
from neve.scheduling.job import Job, JobState
from neve.state import StateStore
from neve.state.job_reading import JobFilter
from stack.proxy import FaultProxy, answer, delay, drop, drop_answer
from stack.session import Session

RUNS, TABLES = 3_000, 16
KILL_SECONDS = 20.0
_POLL_SECONDS = 2.0
_QUIET_SECONDS = 600.0
_ENDED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)
SHARE = 0.003
"""Of the requests to the catalog and to the storage, for each kind of fault."""
POLICIES = """
kind: policy
name: merge
tables: lake.*
operations: [compact]
triggers:
  small-files: 4
---
kind: policy
name: history
tables: lake.*
operations: [expire]
triggers:
  since-last-run: 5 min
set:
  snapshot-keep: 1 min
  snapshot-min-count: 3
"""


class WrongError(Exception):
    """Rows are wrong, or work was left undone."""


@dataclass
class Writer:
    """Appends to tables in turn, and now and then deletes a row by rewriting its file. It knows every row that there is."""

    catalog: Any
    names: list[str]
    random: Random
    pause_seconds: float
    rows: dict[str, set[int]] = field(default_factory=dict)
    conflicts: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    _next: int = 0

    def create(self) -> None:
        """Empty tables with the state of no row."""
        import pyarrow as pa

        for name in self.names:
            self.catalog.create_table(name, schema=pa.schema([("id", pa.int64()), ("text", pa.string())]))
            self.rows[name] = set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes in a thread while the block lasts."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self.over.set()
            thread.join()

    def _write(self) -> None:
        while not self.over.wait(self.pause_seconds):
            name = self.names[self._next % len(self.names)]
            self._next += 1
            self._once(name)

    def _once(self, name: str) -> None:
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        gone = self.random.choice(sorted(self.rows[name])) if self.rows[name] and self.random.random() < 0.15 else None
        new = range(self._next * 100, self._next * 100 + 20)
        while True:
            table = self.catalog.load_table(name)
            try:
                if gone is not None:
                    table.delete(f"id = {gone}")
                    self.rows[name].remove(gone)
                else:
                    table.append(pa.table({"id": list(new), "text": [f"{name} {number}" for number in new]}))
                    self.rows[name] |= set(new)
            except (CommitFailedException, ValidationException):
                self.conflicts += 1
                continue
            return

    def wrong(self) -> list[str]:
        """Tables whose rows are not those that were written."""
        found = []
        for name, expected in self.rows.items():
            ids = self.catalog.load_table(name).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
            if sorted(ids) != sorted(expected):
                found.append(f"{name}: {len(expected)} rows were written, {len(ids)} are there")
        return found


@dataclass
class Service:
    """One `neve serve` and its workers."""

    settings: Path
    environ: dict[str, str]
    log: Path
    random: Random
    kills: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it."""
        command = [sys.executable, "-m", "neve", "serve", "--config", str(self.settings)]
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(command, env=self.environ, stdout=stream, stderr=stream, start_new_session=True)

    def kill_a_worker(self) -> None:
        """Ends one worker with everything that it started; each leads a group of its own."""
        if self.process is None:
            return
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        workers = [int(line) for line in listed.stdout.split()]
        if workers:
            with suppress(ProcessLookupError):
                os.killpg(self.random.choice(workers), signal.SIGKILL)
                self.kills += 1

    def stop(self) -> None:
        """Asks it to stop, and makes sure."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(180)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


def main() -> int:
    """Serves, counts, checks, prints, writes."""
    options, about = _options(), machine()
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    session = Session()
    try:
        content = _soaked(session, options)
    except WrongError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        session.close()
    leave("soak", _figures(content), {**about, **content}, {}, json_file=options.json, quick=options.quick)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="a directory for settings and logs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where figures go (bench/out/soak.json)")
    parser.add_argument("--quick", action="store_true", help="20 runs: only to see that it works")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many runs ({RUNS})")
    parser.add_argument("--tables", type=int, default=TABLES, help=f"how many tables ({TABLES})")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many minutes, with fewer runs")
    parser.add_argument("--seed", type=int, default=7, help="of everything that happens at random (7)")
    options = parser.parse_args()
    options.work = options.work.absolute()
    if options.quick:
        options.runs, options.tables = 20, 3
    return options


def _soaked(session: Session, options: argparse.Namespace) -> dict[str, Any]:
    from pyiceberg.catalog import load_catalog

    rest, s3, postgres = (session.server(name) for name in ("rest", "s3", "postgres"))
    random = Random(options.seed)  # noqa: S311 - trouble is no secret
    with (
        _database(postgres) as url,
        FaultProxy(rest.uri, seed=options.seed) as catalog_proxy,
        FaultProxy(s3.endpoint, seed=options.seed + 1) as storage_proxy,
    ):
        namespace = f"soak_{uuid4().hex[:8]}"
        catalog = load_catalog("lake", **rest.properties())
        catalog.create_namespace(namespace)
        names = [f"{namespace}.t{number}" for number in range(options.tables)]
        writer = Writer(catalog, names, random, pause_seconds=0.25)
        writer.create()
        storage = {
            "endpoint": storage_proxy.url, "region": s3.region, "path-style-access": True,
            "access-key-id": s3.access_key, "secret-access-key": "${env:SOAK_SECRET}",
        }  # fmt: skip
        lake = {"type": "rest", "uri": catalog_proxy.url, "warehouse": rest.warehouse, "storage": {"s3": storage}}
        settings = _written(options.work, lake)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("NEVE_")}
        environ |= {"SOAK_SECRET": s3.secret_key, "SOAK_STATE": url}
        service = Service(settings, environ, options.work / "serve.log", random)
        policies = options.work / "policies.yaml"
        policies.write_text(POLICIES, encoding="utf-8")
        command = [sys.executable, "-m", "neve", "policy", "apply", "-f", str(policies), "--config", str(settings)]
        subprocess.run(command, env=environ, check=True, capture_output=True)
        begun = time.monotonic()
        with StateStore.open(url) as store:
            service.start()
            try:
                with writer.writing():
                    for proxy in (catalog_proxy, storage_proxy):
                        for fault in (
                            drop(share=SHARE),
                            drop_answer(share=SHARE),
                            answer(503, share=SHARE),
                            delay(1, share=SHARE),
                        ):
                            proxy.faults.add(fault)
                    _trouble(store, service, options)
                troubled_seconds = time.monotonic() - begun
                for proxy in (catalog_proxy, storage_proxy):
                    proxy.faults.clear()
                left = _until_idle(store)
            finally:
                service.stop()
            jobs = store.jobs.jobs(JobFilter(), limit=1_000_000)
        content = _counted(jobs) | {
            "troubled_seconds": round(troubled_seconds),
            "kills": service.kills,
            "writer_conflicts": writer.conflicts,
            "rows": sum(map(len, writer.rows.values())),
            "left": left,
            "requests": {"catalog": catalog_proxy.requests.count(), "storage": storage_proxy.requests.count()},
        }
        print(json.dumps(content, indent=1), file=sys.stderr)
        if problems := [*writer.wrong(), *left]:
            raise WrongError("\n".join(problems))
        return content


def _written(directory: Path, lake: dict[str, Any]) -> Path:
    document = {
        "default-catalog": "lake",
        "catalogs": {"lake": lake},
        "state": {"url": "${env:SOAK_STATE}"},
        "service": {"tick": "2 s", "claim": "15 s", "targets": {"local": {"kind": "local", "max-concurrency": 2}}},
        "policy": {"cool-down": "0 s", "minor-file-count": 3, "minor-interval": "1 s"},
        "spark": {"master": "local[1]", "driver-memory": "1 GB"},
    }
    file = directory / "neve.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def _trouble(store: StateStore, service: Service, options: argparse.Namespace) -> None:
    """Kills workers until so many jobs have ended."""
    ends, next_kill = time.monotonic() + options.minutes * 60, time.monotonic() + KILL_SECONDS
    told = 0.0
    while time.monotonic() < ends:
        counts = store.jobs.counts()
        if sum(counts[state] for state in _ENDED) >= options.runs:
            return
        if time.monotonic() >= next_kill:
            next_kill = time.monotonic() + KILL_SECONDS
            service.kill_a_worker()
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print({state.value: number for state, number in counts.items()}, file=sys.stderr, flush=True)
        time.sleep(_POLL_SECONDS)


def _until_idle(store: StateStore) -> list[str]:
    """Waits until no job waits or runs and nothing has failed last; returns what is left undone."""
    ends = time.monotonic() + _QUIET_SECONDS
    left: list[str] = []
    while time.monotonic() < ends:
        open_jobs = [*store.jobs.waiting(), *store.jobs.claimed()]
        left = [f"{job.table}: {job.operation} {job.state.value}: {job.message}" for job in open_jobs]
        failing = store.jobs.last_runs()
        left += [
            f"{uuid}: {run.operation} failed last" for uuid, runs in failing.items() for run in runs.values() if run.failures
        ]
        if not left:
            return []
        time.sleep(_POLL_SECONDS)
    return left


def _counted(jobs: tuple[Job, ...]) -> dict[str, Any]:
    ended = [job for job in jobs if job.state in (JobState.DONE, JobState.FAILED)]
    failed = [job for job in ended if job.state is JobState.FAILED]
    low, high = wilson(len(ended) - len(failed), len(ended))
    return {
        "runs": len(ended),
        "failed": len(failed),
        "success": round(1 - len(failed) / max(1, len(ended)), 5),
        "interval": [round(low, 5), round(high, 5)],
        "by_operation": dict(Counter(f"{job.operation} {job.outcome}" for job in jobs)),
        "attempts": dict(sorted(Counter(job.attempts for job in ended).items())),
        "failures": [f"{job.table.rpartition('.')[2]} {job.operation} {job.outcome}: {job.message}" for job in failed],
    }


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The interval in which the rate of success lies, with a confidence of 95 %."""
    if not trials:
        return 0.0, 1.0
    share, square = successes / trials, z * z / trials
    middle = share + square / 2
    half = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials))
    return (middle - half) / (1 + square), min(1.0, (middle + half) / (1 + square))


def _figures(content: dict[str, Any]) -> Figures:
    low, high = content["interval"]
    row = [
        f"{content['runs']:,}", f"{content['failed']:,}", f"{content['success']:.2%}", f"{low:.2%} to {high:.2%}",
        f"{content['kills']:,}", f"{content['writer_conflicts']:,}",
    ]  # fmt: skip
    minutes = f"{content['troubled_seconds'] / 60:.0f}"
    share = f"{3 * SHARE:.1%} of the requests to catalog and storage failed, {SHARE:.1%} were late"
    notes = [f"In {minutes} minutes; {share}. Nothing was left undone, and every row was there."]
    head = ("runs", "failed", "success", "95 % interval", "killed workers", "conflicts of the writer")
    return Figures(head, [row], left=0, notes=notes)


@contextmanager
def _database(postgres: Any) -> Iterator[str]:
    import sqlalchemy as sa

    name = f"soak_{uuid4().hex[:12]}"
    engine = sa.create_engine(postgres.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    try:
        yield sa.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


if __name__ == "__main__":
    sys.exit(main())
