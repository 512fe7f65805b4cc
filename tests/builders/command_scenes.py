"""A working directory in which every command that Neve shows or documents can be run, and the real values for its arguments.

It has a neve.yaml with a catalog and a profile, and the table db.events with everything that examples name: columns,
partitions, a branch. Runs to show, roll back, resume or restore are made when a command needs one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from neve import job
from neve.api import Neve
from neve.cli import iceberg_compact
from neve.cli.app import app
from neve.context.connection import Connection
from neve.rewrite.planner import Request
from neve.scheduling.job import Decision
from neve.scheduling.observation import Observation
from neve.settings import load_settings
from neve.spark.caller.session import active
from neve.spark.table.bridge import TableBridge
from neve.state import StateStore
from tests.builders.parsed_commands import Parsed
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "db.events"
SETTINGS = """
catalogs:
  local: {{type: sql, warehouse: {warehouse}}}
state: {{url: "sqlite:///{directory}/state.db"}}
cache: {{directory: {directory}/cache}}
profiles:
  prod:
    policy: {{max-files: 5000}}
"""
COLUMNS = "id BIGINT, ts TIMESTAMP, day DATE, region STRING, city STRING, amount DOUBLE, kind STRING"
POLICIES = """
kind: policy
name: streams
tables: local.db.*
operations: compact
triggers: {{small-files: {number}}}
"""
PROPERTIES = {
    "neve.auto-tags": "daily 2",
    "neve.ttl": "3650 days",
    "neve.ttl-column": "ts",
    "neve.cluster-by": "city, amount",
    "write.delete.mode": "merge-on-read",
}


@dataclass
class Scene:
    """The place, and what is made in it on demand."""

    spark: SparkSession
    warehouse: Path
    directory: Path
    made: dict[str, int] = field(default_factory=dict)

    def create(self) -> None:
        """Writes the settings and the tables."""
        settings = SETTINGS.format(warehouse=self.warehouse, directory=self.directory)
        (self.directory / "neve.yaml").write_text(settings, encoding="utf-8")
        (self.directory / "demo-warehouse").symlink_to(self.warehouse)
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS local.db")
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES.items())
        self.sql(f"CREATE TABLE {TABLE} ({COLUMNS}) USING iceberg PARTITIONED BY (day, region) TBLPROPERTIES ({properties})")
        for start in range(0, 40, 10):
            self.insert(start)
        self.sql(f"ALTER TABLE {TABLE} CREATE BRANCH audit")
        self.sql(f"DELETE FROM {TABLE} WHERE id = 7")
        self.sql("CREATE TABLE db.days (id BIGINT, day STRING) USING iceberg")
        self.sql("INSERT INTO db.days VALUES (1, '20200101')")

    def sql(self, statement: str) -> None:
        """Runs a statement over tables of the namespace db."""
        self.spark.sql(statement.replace(" db.", " local.db."))

    def insert(self, start: int, table: str = TABLE) -> None:
        """Ten rows of two days and one city."""
        self.sql(
            f"INSERT INTO {table} SELECT id, TIMESTAMP '2025-01-15 10:00:00', DATE '2025-01-15' + CAST(id % 2 AS INT), 'eu', "
            f"'Rome', CAST(id AS DOUBLE), 'click' FROM range({start}, {start + 10}, 1, 1)"
        )

    def run(self, args: list[str], program: str = "neve", stdin: str | None = None) -> Any:
        """Runs a command in this process, with the settings of the place and no others."""
        called = {"iceberg-compact": iceberg_compact.app, "neve.job": job.app}.get(program, app)
        with pytest.MonkeyPatch.context() as patched, active(self.spark):
            patched.chdir(self.directory)
            patched.setenv("CATALOG_URI", str(self.warehouse))
            for name in [name for name in os.environ if name.startswith("NEVE_") and name != "NEVE_JARS_CACHE"]:
                patched.delenv(name)
            return CliRunner().invoke(called, args, prog_name=program, input=stdin)

    def filled(self, parsed: Parsed) -> list[str]:
        """The arguments with real values in place of those that stand for one."""
        given: dict[str, Any] = {**dict.fromkeys(parsed.missing, "1"), **parsed.given}
        args = parsed.path.split()
        for name, value in given.items():
            args += parsed.spelled(name, self._value(parsed, name, value))
        lasts = parsed.path == "serve" and not given.keys() & {"once", "lasting"}  # it would not end by itself
        return [*args, "--for", "1s"] if lasts else args

    def _value(self, parsed: Parsed, name: str, value: Any) -> Any:
        """Keeps values that mean the same everywhere, such as durations and columns."""
        if name == "run":
            return self._run_for(parsed)
        if name == "job":
            return self._job()
        if name == "table":
            return self._table_for(parsed)
        if parsed.path.startswith("policy ") and name in ("file", "name", "by", "pattern"):
            return self._policy_value(name, value)
        made: Mapping[str, Callable[[], Any]] = {
            "catalog": lambda: "local",
            "branch": lambda: "audit" if value == "1" else value,
            "profile": lambda: "prod",
            "config": lambda: "neve.yaml",
            "warehouse": lambda: "demo-warehouse",
            "catalog_uri": lambda: (
                f"sqlite:///{self.warehouse}/catalog.db" if value.startswith("sqlite:") else str(self.warehouse)
            ),
            "namespace": lambda: value if value == "db" else "local",
            "snapshot_ids": lambda: [str(self.bench(TABLE).load().snapshots()[0].snapshot_id)],
            "inventory": self._inventory,
            "policies": lambda: self._policy_value("file", value),
            "order": lambda: value if value == "-" else self._order(),
            "file": lambda: str(self.directory / f"copy{self._next('copy')}.db"),
            "strategy": lambda: "small-files",
            "older_than": lambda: "30 days" if value == "1" else value,
        }
        return made[name]() if name in made else value

    def _policy_value(self, name: str, value: Any) -> Any:
        # Never the same as before, so that a file always changes something.
        text = POLICIES.format(number=1000 + self._next("policies"))
        (self.directory / "policies.yaml").write_text(text, encoding="utf-8")
        if name in ("name", "pattern"):
            assert self.run(["policy", "apply", "-f", "policies.yaml"]).exit_code == 0
        return {"file": "policies.yaml", "name": "streams"}.get(name, value)

    def _job(self) -> str:
        """A job of the service that waits, on a table that the service knows."""
        seen = Observation(table=f"local.{TABLE}", uuid="1", metadata_location="", observed_ms=1)
        decision = Decision(table=seen.table, table_uuid=seen.uuid, operation="compact", reason="an example")
        with StateStore.open(f"sqlite:///{self.directory}/state.db") as store:
            store.fleet.record([seen])
            [made] = store.jobs.enqueue([decision], 1)
        return made.job_id

    def bench(self, table: str) -> Bench:
        """The table as other readers see it."""
        namespace, _, name = table.rpartition(".")
        return Bench(self.spark, self.warehouse, namespace, name)

    def _next(self, kind: str) -> int:
        self.made[kind] = self.made.get(kind, 0) + 1
        return self.made[kind]

    def _table_for(self, parsed: Parsed) -> str:
        if "format" in parsed.given:
            return "db.days"
        if parsed.path == "restore":
            return self.scratch
        if parsed.path == "hint" or parsed.path.startswith("jobs "):
            self._job()
            return f"local.{TABLE}"
        return f"local.{TABLE}" if parsed.program == "neve.job" else TABLE

    def _run_for(self, parsed: Parsed) -> str:
        """A run that this command can do something with."""
        makes: Mapping[str, Callable[[], str]] = {
            "resume": self._interrupted,
            "rollback": self._compacted,
            "restore": self._quarantined,
            "quarantine settle": lambda: self._quarantined(TABLE),
        }
        return makes.get(parsed.path, self._compacted)()

    def new_table(self) -> str:
        """A table of 20 rows in two files that no other command uses."""
        self.scratch = f"db.scratch{self._next('scratch')}"
        self.sql(f"CREATE TABLE {self.scratch} ({COLUMNS}) USING iceberg")
        for start in (0, 10):
            self.insert(start, self.scratch)
        return self.scratch

    scratch: str = ""

    def _compacted(self) -> str:
        result = self.run(["compact", self.new_table(), "--force", "--json"])
        assert result.exit_code == 0, result.output
        return str(json.loads(result.stdout)["run_id"])

    def _interrupted(self) -> str:
        def interrupt(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(TableBridge, "rewrite", interrupt)
            result = self.run(["compact", self.new_table(), "--force"])
        assert result.exit_code == 130, result.output
        unfinished = [
            run for run in json.loads(self.run(["runs", "list", "--json"]).stdout)["runs"] if run["finished_ms"] is None
        ]
        return str(unfinished[0]["run_id"])

    def _quarantined(self, table: str | None = None) -> str:
        table = table or self.new_table()
        self.sql(f"DELETE FROM {table} WHERE id = {self._next('deleted')}")
        oldest = self.bench(table).load().snapshots()[0].snapshot_id
        result = self.run(["expire", table, "--snapshot-id", str(oldest), "--json"])
        assert result.exit_code == 0, result.output
        return str(json.loads(result.stdout)["run_id"])

    def _inventory(self) -> str:
        file = self.directory / "inventory.csv"
        files = [path for path in (self.warehouse / "db" / "events").rglob("*") if path.is_file()]
        lines = [f"{path},{path.stat().st_size},{path.stat().st_mtime_ns // 1_000_000}" for path in files]
        file.write_text("\n".join(["path,size,modified", *lines, ""]), encoding="utf-8")
        return str(file)

    def _order(self) -> str:
        file = self.directory / f"order{self._next('order')}.json"
        with Neve.open(load_settings(environ={}), warehouse=str(self.warehouse), environ={}) as neve:
            order, *_ = neve.work_orders(neve.plan(self.new_table(), request=Request(force=True)))
        file.write_text(order.model_dump_json(), encoding="utf-8")
        return str(file)


@contextmanager
def staged(spark: SparkSession, warehouse: Path, directory: Path) -> Iterator[Scene]:
    """A scene whose commands use this Spark session."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Connection, "spark", spark)
        patched.setenv("COLUMNS", "200")
        scene = Scene(spark, warehouse, directory)
        scene.create()
        yield scene
