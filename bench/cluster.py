"""A standalone Spark cluster of one worker with little memory, and a contender on it, watched. Used by benchmarks of such.

Each contender gets a cluster and a driver of its own, so that nothing is left of the one before; whatever happens to it is its
outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from neve.spark.runtime.distribution import spark_home
from neve.spark.runtime.java import find_java
from neve.spark.runtime.session import SparkOptions
from stack.errors import NotReadyError
from stack.ports import free_ports
from stack.web import fetch_json

CORES, EXECUTOR, PYTHON = 2, "1g", "1g"


def catalog_conf(work: Path) -> dict[str, str]:
    """Spark's side of a SQLite catalog named `lake` in this directory."""
    return {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:file:{work}/catalog.db",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": str(work),
    }


def contest_options(
    about: str | None, name: str, unit: str, contenders: Sequence[str], quick_scale: float
) -> argparse.Namespace:
    """The command line of a benchmark whose table is `scale` times a `unit`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where the table is kept between runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"where figures go (bench/out/{name}.json)")
    parser.add_argument("--quick", action="store_true", help="a small table: only to see that it works")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help=f"times {unit} (1)")
    parser.add_argument("--timeout", type=float, default=3600, metavar="SECONDS", help="for each contender (3600)")
    parser.add_argument("--contenders", nargs="+", default=list(contenders), choices=contenders, help="who takes part (all)")
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.scale = quick_scale if options.quick else options.scale
    options.work = options.work.resolve()
    return options


def limited(master: str, conf: Mapping[str, str] | None = None, *, python: str = PYTHON) -> SparkOptions:
    """A session on that cluster: one executor of `CORES` cores with `EXECUTOR` of heap, and so much for Python."""
    settings = {
        "spark.executor.cores": str(CORES),
        "spark.executor.pyspark.memory": python,
        "spark.task.maxFailures": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
        **(conf or {}),
    }
    return SparkOptions(master=master, driver_memory="1g", executor_memory=EXECUTOR, conf=settings)


def measured(command: Sequence[str], name: str, *, work: Path, timeout: float) -> dict[str, Any]:
    """What a contender came to: `command` gets its name and the master, and prints a JSON object with an `outcome`."""
    print(name, file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=work, ignore_cleanup_errors=True) as scratch:
        with _cluster(Path(scratch)) as (master, worker):
            executors = _Executors(worker)
            executors.start()
            began = time.monotonic()
            arguments = [*command, "--contender", name, "--master", master]
            driver = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                told, errors = driver.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                driver.kill()
                told, errors = driver.communicate()[0], f"not done after {timeout:g} s"
            seconds = time.monotonic() - began
            executors.stop()
        reached = json.loads(told) if driver.returncode == 0 else {"outcome": "failed", "reason": errors[-2000:]}
        if reached["outcome"] == "failed" and _ran_out(reached["reason"], Path(scratch)):
            reached["outcome"] = "out of memory"
    memory = {"jvm_peak_bytes": executors.jvm_bytes, "python_peak_bytes": executors.python_bytes}
    return {"contender": name, "seconds": seconds, **memory, **reached}


@contextmanager
def _cluster(scratch: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A master and one worker; gives its address and the worker, whose children are executors."""
    port, ui, own, own_ui = free_ports(4)
    environ = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(find_java(spark_version="4.1").home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(scratch / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[subprocess.Popen[bytes]] = []
    master = f"spark://127.0.0.1:{port}"
    with (scratch / "cluster.log").open("wb") as log:

        def start(role: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{role.lower()}.{role}"]
            process = subprocess.Popen([*command, "--host", "127.0.0.1", *arguments], env=environ, stdout=log, stderr=log)
            started.append(process)
            return process

        try:
            start("Master", "--port", str(port), "--webui-port", str(ui))
            here = ["--port", str(own), "--webui-port", str(own_ui), "-d", str(scratch / "worker")]
            worker = start("Worker", *here, "-c", str(CORES), "-m", "3g", master)
            _until(lambda: fetch_json(f"http://127.0.0.1:{ui}/json/")["aliveworkers"] == 1)
            yield master, psutil.Process(worker.pid)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(60)


def _until(ready: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with suppress(NotReadyError):
            if ready():
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"Spark did not start within {seconds:g} s")
        time.sleep(0.2)


class _Executors(threading.Thread):
    """Watches what runs under the worker: the most that the executor's JVM, and that all its Python, took at one moment."""

    def __init__(self, worker: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._worker, self._ended = worker, threading.Event()
        self.jvm_bytes = self.python_bytes = 0

    def run(self) -> None:
        """Until `stop`."""
        while not self._ended.wait(0.2):
            python_bytes = 0
            for process in self._worker.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    name, rss = process.name(), process.memory_info().rss
                    # There is one executor; a process that a JVM is just starting is a copy of it under some other name.
                    self.jvm_bytes = max(self.jvm_bytes, rss if name == "java" else 0)
                    python_bytes += rss if name.startswith("python") else 0
            self.python_bytes = max(self.python_bytes, python_bytes)

    def stop(self) -> None:
        """Ends the watch."""
        self._ended.set()
        self.join()


def _ran_out(reason: str, scratch: Path) -> bool:
    """The driver often hears only that its executor is gone; why stands in that executor's own log."""
    logs = (path.read_text(encoding="utf-8", errors="replace") for path in scratch.glob("worker/*/*/stderr"))
    return any("OutOfMemoryError" in text or "GC overhead limit" in text for text in (reason, *logs))
