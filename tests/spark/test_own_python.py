"""A script with a local SparkSession of its own, where `python3` on the PATH has none of our libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neve.spark.runtime import distribution, jars
from neve.spark.runtime.coordinates import spark_coordinates
from neve.spark.runtime.java import find_java
from tests.builders.local_catalog import local_catalog

JARS_CACHE = jars.default_cache()
_SCRIPT = """
import json, sys
import neve
from neve.rewrite.group import Kernel
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", JARS)
for key, value in CATALOG.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

def python_of_a_task(_):
    import importlib.util, os, sys
    found = [name for name in ("numpy", "pyarrow", "neve") if importlib.util.find_spec(name)]
    return [os.path.realpath(sys.executable), found]

def of_a_callers_job():
    return spark.sparkContext.parallelize([0], 1).map(python_of_a_task).collect()[0]

spark.sql("CREATE TABLE local.db.t (id BIGINT, other BIGINT) USING iceberg")
spark.sql("INSERT INTO local.db.t SELECT /*+ REPARTITION(4) */ xxhash64(id), xxhash64(id, 1) FROM range(0, 48000)")
before = spark.sql("SELECT count(*), sum(id % 1000), sum(other % 1000) FROM local.db.t").first()
told = {"first": of_a_callers_job(), "kernels": [], "refusals": []}
for kernel in ("copy", "arrow"):
    record = neve.compact("local.db.t", spark=spark, kernel=kernel, tier="full", force=True)
    told["kernels"].append(dict(record.kernels))
    told["refusals"] += [refusal for group in record.groups for refusal in group.refusals]
# Functions over columns run on another way than tasks.
table = neve.table("local.db.t", spark=spark).kernel("spark").tier("full").verify("content")
record = table.probe_query("SELECT count(*) FROM local.db.t").compact()
told["proofs"] = [record.outcome, record.probe.equal, [group.proof.checks[-1].holds for group in record.groups]]
told["last"] = of_a_callers_job()
told["same"] = before == spark.sql("SELECT count(*), sum(id % 1000), sum(other % 1000) FROM local.db.t").first()
told["exec"] = spark.sparkContext.pythonExec
print(json.dumps(told))
"""


@pytest.fixture
def bare_python() -> Path:
    """The directory of the interpreter that this environment was made from: the same version, without our libraries."""
    base = Path(sys.base_prefix, "bin")
    listed = [sys.executable, "-c", "import sys; print(sys.version_info[:2])"]
    assert (base / "python3").exists()
    if subprocess.run([base / "python3", "-c", "import pyarrow"], capture_output=True, check=False).returncode == 0:
        pytest.skip("the base interpreter has pyarrow")
    same = [
        subprocess.run([python, *listed[1:]], capture_output=True, check=True).stdout
        for python in (str(base / "python3"), *listed[:1])
    ]
    assert same[0] == same[1]
    return base


def test_all_kernels_run_in_a_callers_local_session_and_its_own_jobs_keep_their_python(
    tmp_path: Path, bare_python: Path
) -> None:
    installed = distribution.installed()
    java = find_java(spark_version=installed.spark_version)
    coordinates = spark_coordinates(installed.spark_version, scala=installed.scala, needs=["sqlite"])
    paths = ",".join(map(str, jars.resolve(coordinates, java=java)))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "NEVE_", "XDG_", "PYTHONPATH"))}
    environ = kept | {
        "JAVA_HOME": str(java.home),
        "HOME": str(tmp_path),
        "PATH": f"{bare_python}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    script = tmp_path / "script.py"
    script.write_text(f"JARS = {paths!r}\nCATALOG = {local_catalog(tmp_path)!r}\n{_SCRIPT}")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kernels"] == [{"copy": 1}, {"arrow": 1}], told["refusals"]
    assert told["proofs"] == ["done", True, [True]]
    assert told["first"] == told["last"] == [os.path.realpath(bare_python / "python3"), []]
    assert (told["same"], told["exec"]) == (True, "python3")
    assert "kernels copy and arrow" not in done.stderr
