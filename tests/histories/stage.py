"""What a history is played on: the table, the shared state store, and the processes with their proxies and clocks."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import pyarrow as pa
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from stack.endpoints import PostgresEndpoint, RestEndpoint, S3Endpoint
from stack.proxy import FaultProxy, delay, drop_answer
from stack.servers.s3 import client
from tests.histories import schedule
from tests.histories.actors import Actor, ActorDiedError
from tests.histories.schedule import CLIENTS, NEVES
from tests.histories.store import SharedStore

WRITERS = {"spark": "spark", "cdc": "spark", "updater": "updater"}
"""The process of each writer."""
PROCESSES = (*NEVES, "spark", "updater")
LEFT_ALONE = "left alone"

SCHEMA = pa.schema([("zone", pa.int32()), ("id", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
PROPERTIES = {
    "format-version": "2",
    "write.update.mode": "copy-on-write",
    "write.delete.mode": "copy-on-write",
    "write.merge.mode": "merge-on-read",
    # Writers never touch one another's rows.
    "write.update.isolation-level": "snapshot",
    "write.delete.isolation-level": "snapshot",
    "write.merge.isolation-level": "snapshot",
    "write.distribution-mode": "none",
    "write.delete.distribution-mode": "none",
    "write.update.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "neve.snapshot-keep": f"{schedule.SNAPSHOT_KEEP_SECONDS} s",
    "neve.quarantine-grace": f"{schedule.GRACE_SECONDS} s",
    "neve.trash-keep": f"{schedule.TRASH_KEEP_SECONDS} s",
    "neve.manifest-min-count": "3",
}


@dataclass(frozen=True)
class Servers:
    """The real servers below it all."""

    rest: RestEndpoint
    s3: S3Endpoint
    postgres: PostgresEndpoint


class Stage:
    """Made once per history; `stack` ends and removes what it made."""

    def __init__(self, seed: int, servers: Servers, directory: Path, over: threading.Event, stack: ExitStack) -> None:
        self._seed, self._servers, self._directory, self._over = seed, servers, directory, over
        name = f"history_{seed}_{os.getpid()}_{time.time_ns() % 10**6}"
        self._table_name = f"{name}.t"
        self._catalog = load_catalog("lake", **servers.rest.properties())
        self._catalog.create_namespace(name)
        made = self._catalog.create_table(self._table_name, schema=SCHEMA, properties=PROPERTIES)
        with made.update_spec() as update:
            update.add_field("zone", IdentityTransform())
        self.table: Table = self._catalog.load_table(self._table_name)
        self.store = SharedStore(servers.postgres, name)
        stack.callback(self.store.drop)
        proxies = {process: stack.enter_context(FaultProxy(servers.rest.uri, seed=seed)) for process in PROCESSES}
        self._proxies = {client: proxies[WRITERS.get(client, client)] for client in CLIENTS}
        self._actors: dict[str, Actor] = {}
        self._standby: dict[str, Actor] = {}
        """The next process of each Neve, already started: a history is no test of how long a JVM takes to start."""
        self._down, self._paused = set[str](), dict[str, float]()
        self._changing = threading.Lock()
        stack.callback(self._kill_all)

    # Processes

    def start(self, say: Callable[[str, str], None]) -> None:
        """Starts every process, all at the same time."""
        for name in PROCESSES:
            self.skew(name, 0)
            self._actors[name] = self._new(name)
        for name, actor in self._actors.items():
            say(name, f"started as {actor.wait_until_ready()}")
        self._standby = {name: self._new(name) for name in NEVES}

    def ask(self, name: str, order: dict[str, Any]) -> Any:
        """The answer of a Neve or a writer. Raises ActorDiedError if its process is killed meanwhile."""
        return self._actors[WRITERS.get(name, name)].ask(name, order)

    def asker(self, name: str) -> Callable[[dict[str, Any]], Any]:
        return partial(self.ask, name)

    def kill(self, name: str) -> str:
        with self._changing:
            self._down.add(name)
            self._actors[name].kill()
        return "killed"

    def start_again(self, name: str) -> str:
        with self._changing:
            if name not in self._down:
                return LEFT_ALONE
            self._actors[name] = self._standby.pop(name)
            if not self._over.is_set():
                self._standby[name] = self._new(name)
            self._down.discard(name)
        return "started"

    def wait_until_up(self, name: str) -> bool:
        """Waits for the process that replaces a killed one; false when the history ends first."""
        while not self._over.wait(0.2):
            with self._changing:
                actor = self._actors[name] if name not in self._down else None
            if actor is not None:
                try:
                    actor.wait_until_ready()
                except ActorDiedError:
                    continue
                return True
        return False

    def wait_until_ready(self, name: str) -> None:
        self._actors[name].wait_until_ready()

    def pause(self, name: str) -> str:
        self._paused[name] = time.monotonic()
        self._actors[name].pause()
        return "paused"

    def go_on(self, name: str, at_least: float = schedule.PAUSE_SECONDS[0]) -> str:
        """Continues a paused process, once the pause has lasted so many seconds."""
        if name not in self._paused:
            return LEFT_ALONE
        # It may have been paused later than planned, and must outlast its lease all the same.
        self._over.wait(max(0.0, self._paused.pop(name) + at_least - time.monotonic()))
        self._actors[name].go_on()
        return "continued"

    def make_ready(self, name: str) -> None:
        """Ends what a fault has done to the process, and waits until it takes orders."""
        self.go_on(name)
        self.start_again(name)
        self.wait_until_ready(name)

    def bar(self, name: str) -> None:
        """From now on the process waits at the stage that an order names."""
        self._go_file(name).unlink(missing_ok=True)

    def unbar(self, name: str) -> None:
        """The process continues from where it waits, or will once it is continued."""
        self._go_file(name).touch()

    def reached(self, name: str, work: Future[Any]) -> dict[str, Any] | None:
        """Where the process stopped; None if its order ended without coming there."""
        queue = self._actors[name].reached
        while not work.done():
            with suppress(Empty):
                return queue.get(timeout=0.05)
        return None

    def skew(self, name: str, seconds: float) -> None:
        self._skew_file(name).write_text(str(seconds))

    def lose_answer(self, name: str) -> None:
        """The next commit of this client is done, and the client never hears of it."""
        self._proxies[name].faults.add(drop_answer(methods="POST", path=r"/tables/[^/]+$", times=1))

    def hold_commit(self, name: str, seconds: float) -> None:
        """The commit after the next one of this client, which is often only a marker, arrives late; the client waits."""
        self._proxies[name].faults.add(delay(seconds, methods="POST", path=r"/tables/[^/]+$", skip=1, times=1))

    def calm(self) -> None:
        """Takes every fault away."""
        for name in sorted(self._paused):
            self.go_on(name)
        for name in sorted(self._down):
            self.start_again(name)
        for name in NEVES:
            self.skew(name, 0)
        for proxy in self._proxies.values():
            proxy.faults.clear()

    def _kill_all(self) -> None:
        for actor in (*self._actors.values(), *self._standby.values()):
            actor.go_on()
            actor.kill()

    def _new(self, name: str) -> Actor:
        files = [str(self._skew_file(name)), str(self._go_file(name))] if name in NEVES else []
        arguments = [str(self._settings(name)), self._table_name, *files]
        module = "neve_actor" if name in NEVES else f"{name}_actor"
        environ = {
            "HISTORY_SECRET": self._servers.s3.secret_key,
            "HISTORY_STATE": self.store.url,
            "XDG_DATA_HOME": str(self._directory / name),
        }
        # Containers often share a host name: then only the process namespaces tell the two apart.
        host = name if self._seed % 2 or name not in NEVES else "neve"
        return Actor(module, arguments, host=host, log=self._directory / f"{name}.log", environ=environ)

    def _skew_file(self, name: str) -> Path:
        return self._directory / f"{name}.skew"

    def _go_file(self, name: str) -> Path:
        return self._directory / f"{name}.go"

    def _settings(self, name: str) -> Path:
        rest, s3, uri = self._servers.rest, self._servers.s3, self._proxies[name].url
        if name == "updater":
            file = self._directory / "updater.json"
            file.write_text(json.dumps({**rest.properties(), "uri": uri}))
            return file
        keys = {"access-key-id": s3.access_key, "secret-access-key": "${env:HISTORY_SECRET}"}
        storage = {"s3": {"endpoint": s3.endpoint, "region": s3.region, "path-style-access": True, **keys}}
        lake = {"type": "rest", "uri": uri, "warehouse": rest.warehouse, "storage": storage}
        spark = {"master": "local[2]", "driver-memory": "1 GB", "conf": {"spark.sql.shuffle.partitions": "2"}}
        state = {"url": "${env:HISTORY_STATE}" if name in NEVES else f"sqlite:///{self._directory / 'unused.db'}"}
        file = self._directory / f"{name}.yaml"
        content = {"catalogs": {"lake": lake}, "spark": spark, "state": state, "cache": {"enabled": False}}
        file.write_text(yaml.safe_dump(content))
        return file

    # The table, past all proxies

    def reload(self) -> tuple[TableMetadata, str]:
        fresh = self._catalog.load_table(self._table_name)
        return fresh.metadata, fresh.metadata_location

    def listing(self) -> dict[str, int]:
        bucket, _, prefix = self.table.location().removeprefix("s3://").partition("/")
        with closing(client(self._servers.s3)) as asked:
            pages = asked.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix.rstrip("/") + "/")
            return {f"s3://{bucket}/{one['Key']}": one["Size"] for page in pages for one in page.get("Contents", [])}
