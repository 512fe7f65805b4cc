"""`neve serve` on real Spark: one round carries out what policies want, and finishes what a worker left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.builders.table_contents import duckdb_query, duckdb_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLICIES = """
kind: policy
name: merge
tables: lake.sales.*
operations:
  - compact
triggers:
  small-files: 5
  at-most-every: 1 h
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A warehouse with a table of 8 small files, its settings and policies."""
    (tmp_path / "neve.yaml").write_text(
        f"default-catalog: lake\n"
        f"catalogs:\n  lake:\n    type: sql\n    uri: sqlite:///{tmp_path}/lake.db\n    warehouse: {tmp_path}/lake\n"
        f"state:\n  url: sqlite:///{tmp_path}/state.db\n"
        f"spark:\n  driver-memory: 1 GB\n",
        encoding="utf-8",
    )
    (tmp_path / "policies.yaml").write_text(POLICIES, encoding="utf-8")
    with table_catalog(tmp_path) as catalog:
        catalog.create_namespace("sales")
        table = catalog.create_table("sales.orders", schema=pa.schema([("id", pa.int64())]))
        for number in range(8):
            table.append(pa.table({"id": pa.array([number], pa.int64())}))
    return tmp_path


TARGETS = """
service:
  targets:
    submitted:
      kind: submit
      master: local[1]
      conf:
        spark.sql.shuffle.partitions: 2
"""


def table_catalog(directory: Path) -> closing[SqlCatalog]:
    return closing(SqlCatalog("lake", uri=f"sqlite:///{directory}/lake.db", warehouse=str(directory / "lake")))


def neve(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "neve", *arguments, "--config", str(directory / "neve.yaml")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NEVE_")}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)


def files_and_rows(directory: Path) -> tuple[int, list[str]]:
    with table_catalog(directory) as catalog:
        table = catalog.load_table("sales.orders")
        return len(list(table.scan().plan_files())), duckdb_rows(table)


def listed_jobs(directory: Path) -> Iterator[dict[str, str]]:
    told = neve(directory, "jobs", "list", "--json")
    yield from json.loads(told.stdout)["jobs"]


def test_one_round_compacts_what_a_policy_wants_and_the_next_one_does_nothing(directory: Path) -> None:
    before = files_and_rows(directory)
    assert before[0] == 8
    first = neve(directory, "serve", "--once", "--policies", str(directory / "policies.yaml"))
    assert first.returncode == 0, first.stderr
    assert "lake.sales.orders: compact is done: Compacted 8 files into 1" in first.stderr
    assert files_and_rows(directory) == (1, before[1])
    second = neve(directory, "serve", "--once")
    assert second.returncode == 0, second.stderr
    [job] = listed_jobs(directory)
    assert (job["state"], job["policy"], job["outcome"]) == ("done", "merge", "done")


def test_a_job_of_a_submit_target_runs_by_spark_submit(directory: Path) -> None:
    settings, policies = directory / "neve.yaml", directory / "policies.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + TARGETS, encoding="utf-8")
    policies.write_text(f"{POLICIES}target: submitted\n", encoding="utf-8")
    before = files_and_rows(directory)
    told = neve(directory, "serve", "--once", "--policies", str(policies))
    assert told.returncode == 0, told.stderr
    [job] = listed_jobs(directory)
    assert (job["target"], job["target_reason"], job["state"]) == ("submitted", "the policy names it", "done"), told.stderr
    assert files_and_rows(directory) == (1, before[1])
    run = neve(directory, "runs", "show", str(job["run_id"]), "--json")
    assert json.loads(run.stdout)["run"]["outcome"] == "done"


def test_the_history_of_the_service_is_read_by_spark_and_duckdb_and_maintained_like_any_table(
    directory: Path, spark: SparkSession
) -> None:
    settings = directory / "neve.yaml"
    settings.write_text(settings.read_text(encoding="utf-8") + "service:\n  history-namespace: lake.neve\n", encoding="utf-8")
    for arguments in ([], ["--policies", str(directory / "policies.yaml")], [], []):
        told = neve(directory, "serve", "--once", *arguments)
        assert told.returncode == 0, told.stderr
    with table_catalog(directory) as catalog:
        runs, health = (catalog.load_table(("neve", name)) for name in ("runs", "health"))
        seen = duckdb_rows(health)
        assert len(list(health.scan().plan_files())) > 1
        [run] = duckdb_query(f"SELECT table_name, operation, outcome FROM iceberg_scan('{runs.metadata_location}')")
    assert run == {"table_name": "lake.sales.orders", "operation": "compact", "outcome": "done"}
    by_spark = spark.read.format("iceberg").load(runs.metadata_location).select("table_name", "files_compacted", "finished")
    [row] = by_spark.collect()
    assert (row.table_name, row.files_compacted) == ("lake.sales.orders", 8)
    told = neve(directory, "compact", "neve.health", "--force")
    assert told.returncode == 0, told.stderr
    again = neve(directory, "serve", "--once")
    assert again.returncode == 0, again.stderr
    with table_catalog(directory) as catalog:
        health = catalog.load_table(("neve", "health"))
        assert set(seen) <= set(duckdb_rows(health))
        by_spark = spark.read.format("iceberg").load(health.metadata_location)
        assert by_spark.count() == by_spark.select("table_uuid", "inspected").distinct().count()
        listed = neve(directory, "policy", "list", "--json")
    assert "neve-history" in listed.stdout
