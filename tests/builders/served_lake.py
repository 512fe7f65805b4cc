"""A lake that several `neve serve` processes look after: its tables and writer, the processes, and what happens to them.

State store and catalog are databases of a real PostgreSQL server; files are in a local directory. `Service` is one `neve serve`
with its workers, which are found by their command lines, so that a test can kill and pause them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from uuid import uuid4

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from stack.endpoints import PostgresEndpoint

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
STOP_SECONDS = 120

SETTINGS = """
default-catalog: lake
catalogs:
  lake:
    type: sql
    uri: ${{env:SERVED_URL}}
    warehouse: {directory}/lake
state:
  url: ${{env:SERVED_URL}}
service:
  tick: 1 s
  claim: 6 s
  shutdown-grace: 60 s
policy:
  cool-down: 0 s
  minor-file-count: 4
  minor-interval: 1 s
spark:
  master: local[1]
  driver-memory: 768 MB
"""

POLICIES = """
kind: policy
name: merge
tables: lake.db.*
operations:
  - compact
triggers:
  small-files: 5
  at-most-every: 5 s
set:
  target-file-size: 64 MB
---
kind: policy
name: history
tables: lake.db.*
operations:
  - expire
triggers:
  since-last-run: 20 s
set:
  snapshot-keep: 20 s
  snapshot-min-count: 3
"""


@dataclass
class Lake:
    """Tables, and a writer that appends small files to all of them and knows every row that it committed."""

    url: str
    directory: Path
    tables: tuple[str, ...]
    rows: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def create(cls, url: str, directory: Path, *, tables: int) -> Lake:
        """Makes settings, policies and empty tables."""
        (directory / "neve.yaml").write_text(SETTINGS.format(directory=directory), encoding="utf-8")
        (directory / "policies.yaml").write_text(POLICIES, encoding="utf-8")
        lake = cls(url, directory, tuple(f"t{number}" for number in range(tables)))
        catalog = lake.catalog()
        catalog.create_namespace("db")
        for name in lake.tables:
            catalog.create_table(f"db.{name}", schema=SCHEMA)
        catalog.close()
        return lake

    def catalog(self) -> SqlCatalog:
        """The catalog, past Neve."""
        return SqlCatalog("lake", uri=self.url, warehouse=str(self.directory / "lake"))

    @contextmanager
    def written(self, *, seconds: float) -> Iterator[None]:
        """Appends to each table every so many seconds while the block lasts."""
        thread = threading.Thread(target=self._write, args=(seconds,))
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _write(self, seconds: float) -> None:
        catalog = self.catalog()
        while not self._over.wait(seconds):
            for name in self.tables:
                self._append(catalog, name)
        catalog.close()

    def _append(self, catalog: SqlCatalog, name: str) -> None:
        """Until it is committed. An answer that was lost is looked up, so that the rows are known for certain."""
        first = self.rows[name]
        batch = pa.table({"id": range(first, first + 10), "text": [f"{name} {first}"] * 10}, schema=SCHEMA)
        while True:
            try:
                catalog.load_table(f"db.{name}").append(batch)
            except (CommitFailedException, sa.exc.DBAPIError):
                if not self._has(name, first):
                    continue
            self.rows[name] += 10
            return

    def _has(self, name: str, row: int) -> bool:
        while True:
            try:
                catalog = self.catalog()
                found = catalog.load_table(f"db.{name}").scan(row_filter=f"id = {row}").to_arrow().num_rows
                catalog.close()
            except sa.exc.DBAPIError:
                time.sleep(0.2)
            else:
                return bool(found)

    def content(self, name: str) -> list[int]:
        """The ids of a table's rows, by pyiceberg."""
        catalog = self.catalog()
        try:
            return sorted(catalog.load_table(f"db.{name}").scan().to_arrow()["id"].to_pylist())
        finally:
            catalog.close()

    def neve(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command typed by hand."""
        command = [sys.executable, "-m", "neve", *arguments, "--config", str(self.directory / "neve.yaml")]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=300, check=False)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of Neve's processes."""
        others = {name: value for name, value in os.environ.items() if not name.startswith("NEVE_")}
        return others | {"SERVED_URL": self.url}


@dataclass
class Service:
    """One `neve serve`. Each has a directory of its own for its log."""

    lake: Lake
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, again if it was killed."""
        command = [sys.executable, "-m", "neve", "serve", "--config", str(self.lake.directory / "neve.yaml")]
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                command, env=self.lake.environ, stdout=stream, stderr=stream, start_new_session=True
            )

    def is_alive(self) -> bool:
        """Whether the service itself runs; its workers may not."""
        return self.process is not None and self.process.poll() is None

    def workers(self) -> list[int]:
        """Processes of its workers."""
        return [] if self.process is None else _children(self.process.pid)

    def kill(self) -> None:
        """Ends the service at once, as a power cut does; its workers notice by themselves."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """Asks it to stop, and waits until it has."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


def _children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.parent.name))
    return found


def family(pid: int) -> list[int]:
    """A process and all below it, such as a worker's JVM."""
    found = [pid]
    for child in _children(pid):
        found += family(child)
    return found


@dataclass
class Trouble:
    """What befalls services, at random moments of a seed."""

    services: Sequence[Service]
    url: str
    random: Random
    happened: Counter[str] = field(default_factory=Counter)
    _paused: list[tuple[float, list[int]]] = field(default_factory=list)

    def strike(self, now: float) -> None:
        """One piece of trouble."""
        kind = self.random.choice(["kill a worker", "kill a service", "pause a worker", "cut connections"])
        service = self.random.choice(self.services)
        workers = service.workers()
        if kind == "cut connections":
            self._cut()
        elif kind == "kill a service" and service.is_alive():
            service.kill()
        elif kind == "kill a worker" and workers:
            _send(family(workers[0]), signal.SIGKILL)
        elif kind == "pause a worker" and workers and not self._paused:
            pids = family(workers[0])
            _send(pids, signal.SIGSTOP)
            self._paused.append((now + 10, pids))
        else:
            return
        self.happened[kind] += 1

    def mend(self, now: float) -> None:
        """Wakes what has slept beyond its claim, and starts services that were killed."""
        for until, pids in [one for one in self._paused if one[0] <= now]:
            _send(pids, signal.SIGCONT)
            self._paused.remove((until, pids))
        for service in self.services:
            if not service.is_alive():
                service.start()

    def end(self) -> None:
        """Wakes everything and starts everything."""
        self.mend(float("inf"))

    def _cut(self) -> None:
        engine = sa.create_engine(self.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            connection.execute(sa.text(f"{others} AND pid <> pg_backend_pid()"))
        engine.dispose()


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def new_database(postgres: PostgresEndpoint) -> Iterator[str]:
    """The URL of a database of its own."""
    name = f"served_{uuid4().hex[:12]}"
    engine = sa.create_engine(postgres.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    try:
        yield sa.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()
