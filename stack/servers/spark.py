"""A standalone Spark cluster from the pip package: a master and two workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from neve.errors import NeveError
from neve.spark.runtime.distribution import spark_home
from stack import jvm, web
from stack.endpoints import SparkEndpoint
from stack.errors import NotReadyError, UnavailableError
from stack.ports import free_ports
from stack.server import Launch

_WORKERS = 2
_DEPLOY = "org.apache.spark.deploy"


class Spark:
    """Real processes, real shuffle, real loss of tasks; one core and 1 GiB per worker."""

    name = "spark"
    needs: tuple[str, ...] = ()
    endpoint_type = SparkEndpoint
    ready_seconds = 120.0
    stop_signal = signal.SIGTERM

    def install(self, cache: Path) -> None:  # noqa: ARG002 - it comes as a wheel
        """Finds the pip package and a Java that it runs on."""
        try:
            spark_home()
        except NeveError as error:
            raise UnavailableError(f"Cannot start spark: {error}", hint=error.hint) from error
        jvm.java()

    def start(self, launch: Launch) -> SparkEndpoint:
        """The package has no start scripts for master and worker, so their classes are run."""
        port, ui, *others = free_ports(2 + 2 * _WORKERS)
        master = f"spark://127.0.0.1:{port}"
        _spawn(launch, "master", ["--port", str(port), "--webui-port", str(ui)])
        for number in range(1, _WORKERS + 1):
            own, own_ui = others.pop(), others.pop()
            size = ["-c", "1", "-m", "1g", "-d", str(launch.data / f"work{number}")]
            _spawn(launch, f"worker{number}", ["--port", str(own), "--webui-port", str(own_ui), *size, master])
        return SparkEndpoint(master, f"http://127.0.0.1:{ui}", _WORKERS, str(jvm.java().home))

    def check(self, endpoint: SparkEndpoint) -> None:
        """The master has seen both workers."""
        alive = web.fetch_json(f"{endpoint.ui}/json/")["aliveworkers"]
        if alive != endpoint.workers:
            raise NotReadyError(f"{alive} of {endpoint.workers} workers")


def _spawn(launch: Launch, part: str, arguments: list[str]) -> None:
    role = "Master" if part == "master" else "Worker"
    launch.spawn(
        [spark_home() / "bin" / "spark-class", f"{_DEPLOY}.{role.lower()}.{role}", "--host", "127.0.0.1", *arguments],
        part=part,
        env={
            "SPARK_HOME": str(spark_home()),
            "JAVA_HOME": str(jvm.java().home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(launch.data / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PATH": os.environ.get("PATH", os.defpath),
        },
    )
