"""A compaction as a user types it, on a real cluster: with and without Python there, and with a worker that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from neve.state import StateStore
from stack.endpoints import SparkEndpoint
from stack.errors import UnavailableError
from stack.places import Places
from stack.pytest_plugin import REQUIRE
from stack.session import Session
from stack.state import State
from tests.builders.table_contents import duckdb_rows

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SCHEMA = Schema(NestedField(1, "day", IntegerType()), NestedField(2, "id", LongType()), NestedField(3, "text", StringType()))
APPENDS = 3
ROWS = 6_000
"""Per file: enough that column chunks are worth copying."""

LIBRARIES = (
    "numpy",
    "numpy.libs",
    "pyarrow",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_extensions.py",
    "typing_inspection",
)


@dataclass
class Cluster:
    """The cluster, and a way to lose a part of it."""

    endpoint: SparkEndpoint
    session: Session

    def kill(self, part: str) -> None:
        """One of the stack's own processes, with what it started."""
        child = next(one for one in State(self.session._home()).servers["spark"].children if one.name == f"spark-{part}")
        assert child.is_alive()
        os.killpg(child.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Never the shared one: a worker of it dies."""
    session = Session(shared=Places(home=tmp_path_factory.mktemp("nowhere")))
    try:
        yield Cluster(session.server("spark"), session)
    except UnavailableError as error:
        pytest.fail(str(error)) if os.environ.get(REQUIRE) == "1" else pytest.skip(str(error))
    finally:
        session.close()


@dataclass
class Lake:
    """A table in a directory, whose partitions are groups of their own, and the command that compacts it."""

    directory: Path
    cluster: Cluster

    def write(self, partitions: int, rows: int = ROWS) -> list[str]:
        """The rows, as DuckDB reads them."""
        random = Random(1)
        for _ in range(APPENDS):
            days = [day for day in range(partitions) for _ in range(rows)]
            ids = [random.getrandbits(62) for _ in days]
            texts = [f"{random.getrandbits(128):x}" for _ in days]
            self.load().append(pa.table({"day": days, "id": ids, "text": texts}, schema=SCHEMA.as_arrow()))
        return self.rows()

    def load(self) -> Table:
        uri = f"sqlite:///{self.directory}/catalog.db"
        with closing(SqlCatalog("lake", uri=uri, warehouse=str(self.directory))) as catalog:
            catalog.create_namespace_if_not_exists("db")
            spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
            return catalog.create_table_if_not_exists("db.t", schema=SCHEMA, partition_spec=spec)

    def rows(self) -> list[str]:
        return duckdb_rows(self.load())

    def live_files(self) -> set[str]:
        return {task.file.file_path.removeprefix("file://") for task in self.load().scan().plan_files()}

    def written(self) -> set[str]:
        """Data files of ours on disk, whole or not, live or not."""
        return {str(path) for path in (self.directory / "db" / "t" / "data").rglob("*neve-*")}

    def unexplained(self) -> set[str]:
        """Those that are not in the quarantine."""
        uuid = str(self.load().metadata.table_uuid)
        with StateStore.open(f"sqlite:///{self.directory / 'state.db'}") as store:
            return self.written() - {file.path.removeprefix("file://") for file in store.quarantined(uuid)}

    def start(self, kernel: str, conf: dict[str, str]) -> subprocess.Popen[str]:
        """`neve compact` on the cluster."""
        endpoint = self.cluster.endpoint
        here = {"spark.cores.max": "2", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        spark = {
            "master": endpoint.master,
            "java-home": endpoint.java_home,
            "driver-memory": "1 GB",
            "executor-memory": "512 MB",
        }
        settings = {
            "catalogs": {"lake": {"type": "sql", "warehouse": str(self.directory)}},
            "spark": {**spark, "conf": {**here, **conf}},
            "state": {"url": f"sqlite:///{self.directory / 'state.db'}"},
            "cache": {"enabled": False},
        }
        file = self.directory / "neve.yaml"
        file.write_text(yaml.safe_dump(settings))
        command = [
            sys.executable,
            "-m",
            "neve",
            "compact",
            "db.t",
            "--config",
            str(file),
            "--kernel",
            kernel,
            "--force",
            "--json",
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def compact(self, kernel: str, conf: dict[str, str]) -> tuple[int, dict[str, Any], str]:
        return finish(self.start(kernel, conf))


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Its exit code, the run that it printed, and what it said besides."""
    output, said = process.communicate(timeout=300)
    assert output, said
    run: dict[str, Any] = json.loads(output)
    return process.returncode, run, said


@pytest.fixture
def lake(tmp_path: Path, cluster: Cluster) -> Lake:
    return Lake(tmp_path, cluster)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that knows neither our libraries nor the checkout."""
    directory = tmp_path_factory.mktemp("bare")
    venv.create(directory)
    return str(directory / "bin" / "python")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tasks import, as the guide says to pack it."""
    site = Path(pa.__file__).parents[1]
    archive = tmp_path_factory.mktemp("packages") / "packages.tar"
    with tarfile.open(archive, "w") as file:
        for name in LIBRARIES:
            file.add(site / name, name, filter=lambda one: None if Path(one.name).name in ("tests", "include") else one)
    return archive


def test_executors_without_our_libraries_leave_the_work_to_spark_and_say_why(lake: Lake, bare_python: str) -> None:
    before = lake.write(2)
    code, run, said = lake.compact("copy", {"spark.pyspark.python": bare_python})
    assert (code, run["outcome"], run["kernels"]) == (0, "done", {"spark": 2})
    cure = "set PYSPARK_PYTHON to an interpreter that has them, or send them along"
    reason = f"executors have Python without numpy and pyarrow and pydantic; {cure} (docs/guide/cluster.md)"
    assert [group["refusals"] for group in run["groups"]] == [[reason], [reason]]
    assert said.count(reason) == 1
    assert lake.rows() == before
    assert len(lake.live_files()) == 2


@pytest.mark.parametrize("kernel", ["copy", "arrow"])
def test_an_archive_of_libraries_is_all_that_a_bare_interpreter_needs(
    kernel: str, lake: Lake, bare_python: str, packages: Path
) -> None:
    before = lake.write(3)
    conf = {
        "spark.pyspark.python": bare_python,
        "spark.archives": f"{packages}#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
    }
    code, run, said = lake.compact(kernel, conf)
    assert (code, run["outcome"], run["kernels"], said) == (0, "done", {kernel: 3}, "")
    assert lake.rows() == before
    assert len(lake.live_files()) == 3


def hooked(directory: Path, body: str) -> dict[str, str]:
    """Executors on the test's own interpreter, where `body` runs whenever a Parquet file is opened by its `path`."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "def opened(event, args):\n"
        "    path = str(args[0]) if event == 'open' else ''\n"
        f"    if path.endswith('.parquet'):\n        {body}\n"
        "sys.addaudithook(opened)\n"
    )
    return {"spark.pyspark.python": sys.executable, "spark.executorEnv.PYTHONPATH": str(directory)}


def test_a_group_that_kills_its_python_is_set_aside_and_the_others_are_committed(lake: Lake, tmp_path: Path) -> None:
    before = lake.write(3)
    code, run, said = lake.compact("copy", hooked(tmp_path / "hook", "if 'day=1/' in path: os._exit(9)"))
    assert (code, run["outcome"], run["kernels"]) == (3, "partly-done", {"copy": 2})
    assert [group["state"] for group in run["groups"]] == ["committed", "failed", "committed"]
    assert "Python worker exited unexpectedly (crashed)" in run["groups"][1]["reason"]
    assert said.count("3 groups are tried one by one") == 1
    assert lake.rows() == before
    assert lake.unexplained() == {path for path in lake.live_files() if "/neve-" in path}


def test_a_worker_that_dies_in_the_middle_costs_nothing_but_time(lake: Lake, tmp_path: Path) -> None:
    before, groups = lake.write(8), 8
    marks = tmp_path / "marks"
    marked = hooked(tmp_path / "hook", f"os.makedirs({str(marks)!r} + os.getcwd(), exist_ok=True); time.sleep(0.5)")
    process = lake.start("arrow", {**marked, "spark.scheduler.minRegisteredResourcesRatio": "1.0"})
    while not any("/work1/" in str(path) for path in marks.rglob("*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    lake.cluster.kill("worker1")
    assert len(lake.written()) < groups
    code, run, _ = finish(process)
    assert (code, run["outcome"], run["kernels"]) == (0, "done", {"arrow": groups})
    assert lake.rows() == before
    assert lake.unexplained() == lake.live_files()
    assert len(lake.live_files()) == groups
