"""`iceberg-compact`: a catalog by its URI, then what `neve compact` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from neve.api import Neve
from neve.cli.iceberg_compact import URI_VARIABLE, app, catalog_of, partitions_of
from neve.errors import BadRequestError
from neve.rewrite.record import RunOutcome
from neve.samples import SAMPLES
from neve.settings import load_settings
from neve.table.units import MIB
from tests.builders.run_records import make_empty_record, make_record

URI = f"${{env:{URI_VARIABLE}}}"


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="iceberg-compact")


@pytest.mark.parametrize(
    ("uri", "settings"),
    [
        ("https://host/catalog", {"type": "rest", "uri": "https://host/catalog"}),
        ("http://host:19120/api/v2", {"type": "nessie", "uri": "http://host:19120/api/v2"}),
        ("sqlite:////lake/catalog.db", {"type": "sql", "uri": "sqlite:////lake/catalog.db", "warehouse": "/lake"}),
        ("sqlite:///catalog.db", {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "."}),
        ("thrift://host:9083", {"type": "hive", "uri": "thrift://host:9083"}),
        ("https://me@host/catalog", {"type": "rest", "uri": URI}),
        ("https://host/catalog?token=x", {"type": "rest", "uri": URI}),
        ("glue", {"type": "glue"}),
        ("glue:eu-west-1", {"type": "glue", "storage.s3.region": "eu-west-1"}),
    ],
)
def test_the_kind_of_catalog_is_told_by_its_uri(uri: str, settings: dict[str, str]) -> None:
    found = catalog_of(uri, name="lake")
    assert found.settings == {f"catalogs.lake.{key}": value for key, value in settings.items()}
    assert found.warehouse is None
    loaded = load_settings(flags=dict(found.settings), environ={})
    assert loaded.settings.catalogs["lake"].type == settings["type"]


def test_a_warehouse_goes_with_the_catalog() -> None:
    found = catalog_of("postgresql://host/db", name="lake", warehouse="s3://bucket/lake")
    assert found.settings["catalogs.lake.warehouse"] == "s3://bucket/lake"
    hidden = catalog_of("postgresql://me:hidden@host/db", name="lake", warehouse="s3://bucket/lake")
    assert hidden.settings["catalogs.lake.uri"] == URI
    assert load_settings(flags=dict(found.settings), environ={}).settings.catalogs["lake"].type == "sql"


@pytest.mark.parametrize("uri", ["./lake", "/lake", "file:///lake", "s3://bucket/lake"])
def test_a_place_is_a_warehouse(uri: str) -> None:
    found = catalog_of(uri, name="lake")
    assert (found.warehouse, found.settings) == (uri, {})
    with pytest.raises(BadRequestError, match=f"^Cannot use --warehouse /b: the catalog is the directory {uri} already$"):
        catalog_of(uri, name="lake", warehouse="/b")


def test_other_databases_are_refused_without_showing_the_uri() -> None:
    with pytest.raises(BadRequestError, match=r"^Cannot open a catalog at mysql:\.\.\.: known are http, ") as refused:
        catalog_of("mysql://me:hidden@host/db", name="lake")
    assert "hidden" not in str(refused.value)


def test_partitions_are_patterns_or_predicates() -> None:
    assert partitions_of(None) == ([], None)
    assert partitions_of(["day=2025-01-*", "a=1/b=x"]) == (["day=2025-01-*", "a=1/b=x"], None)
    assert partitions_of(["day = DATE '2025-01-17'", "a=1"]) == (["a=1"], "((day = DATE '2025-01-17'))")
    assert partitions_of(["x > 1", "y<2"], "z = 3") == ([], "(z = 3) AND ((x > 1) OR (y<2))")


@pytest.mark.parametrize("kind", ["directory", "database", "variable"])
def test_a_dry_run_is_the_plan(kind: str, neve: Any, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = {"directory": str(warehouse)}.get(kind, f"sqlite:///{warehouse}/catalog.db")
    if kind == "variable":
        monkeypatch.setenv("CATALOG_URI", uri)
    named = [] if kind == "variable" else ["--catalog-uri", uri]
    flags = ["--strategy", "time-series", "--target-size-mb", "64", "--min-size-mb", "32", "--partition", "country=d*"]
    flags += ["--set", "policy.cold-after=20000 days"]
    result = run(*named, "--table", "db.v1", *flags, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    spoken = [
        "--strategy",
        "time-series",
        "--cold-after",
        "20000 days",
        "--target-file-size",
        "64 MiB",
        "--min-file-size",
        "32 MiB",
        "--partition",
        "country=d*",
    ]
    expected = neve("plan", "db.v1", "--warehouse", str(warehouse), *spoken, "--json")
    told, plan = json.loads(result.stdout), json.loads(expected.stdout)
    assert {**told, "planned_at_ms": 0} == {**plan, "planned_at_ms": 0}
    assert (told["policy"]["target_file_size_bytes"], told["policy"]["strategy"]) == (64 * MIB, "time-series")
    assert told["input_files"] > 0


@pytest.mark.parametrize(("outcome", "code"), [(RunOutcome.DONE, 0), (RunOutcome.PARTLY_DONE, 3), (RunOutcome.FAILED, 1)])
def test_the_outcome_is_the_exit_code(warehouse: Path, monkeypatch: pytest.MonkeyPatch, outcome: RunOutcome, code: int) -> None:
    monkeypatch.setattr(Neve, "compact", lambda *_, **__: make_record(outcome=outcome))
    result = run("--catalog-uri", str(warehouse), "--table", "db.v1", "--json")
    assert (result.exit_code, json.loads(result.stdout)["outcome"]) == (code, outcome.value)
    assert "neve runs show 3f9c0a1b" in run("--catalog-uri", str(warehouse), "--table", "db.v1").stdout


def test_a_run_that_had_nothing_to_do_and_is_not_recorded_is_not_to_be_shown(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Neve, "compact", lambda *_, **__: make_empty_record())
    told = run("--catalog-uri", str(warehouse), "--table", "db.v1").stdout
    assert "3f9c0a1b" not in told
    assert "neve inspect local.db.events" in told


def test_a_name_without_a_namespace_is_in_the_default_one(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Neve, "compact", lambda _, table, **__: asked.append(table) or make_record())
    assert run("--catalog-uri", str(warehouse), "--table", "events").exit_code == 0
    assert asked == ["default.events"]


def test_an_expiry_after_the_compaction_is_passed_on_and_refused_in_a_dry_run(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    keys = ("expire_snapshots", "snapshot_retention_hours")
    monkeypatch.setattr(Neve, "compact", lambda *_, **words: asked.append([words[key] for key in keys]) or make_record())
    place = ["--catalog-uri", str(warehouse), "--table", "v1"]
    assert run(*place, "--expire-snapshots", "--snapshot-retention-hours", "168").exit_code == 0
    assert run(*place).exit_code == 0
    assert asked == [[True, 168], [False, None]]
    monkeypatch.undo()
    refused = run(*place, "--expire-snapshots", "--dry-run")
    assert refused.exit_code == 2
    assert "neve expire default.v1 --dry-run" in refused.stderr


def test_a_catalog_that_does_not_answer_is_told_and_its_password_is_not(warehouse: Path) -> None:
    uri = "postgresql://me:hidden@127.0.0.1:1/db"
    result = run("--catalog-uri", uri, "--table", "db.v1", "--warehouse", str(warehouse), "--json")
    assert result.exit_code in (1, 2)
    assert json.loads(result.stdout)["error"]["message"].startswith("Cannot ")
    assert "hidden" not in result.output


def test_a_missing_flag_is_a_usage_error() -> None:
    result = run("--catalog-uri", "glue")
    assert result.exit_code == 2
    assert "--table" in result.stderr


@pytest.mark.spark
def test_a_table_is_compacted_for_real(tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    with Neve.open(load_settings(), warehouse=str(place), create_warehouse=True) as opened, opened.demo_target("db") as target:
        SAMPLES["floats"].build(target, scale=0.2)
        before = sorted(map(str, target.load("floats").scan().to_arrow().to_pylist()))
    arguments = ["--catalog-uri", f"sqlite:///{place}/catalog.db", "--table", "db.floats", "--target-size-mb", "64", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", "from neve.cli.iceberg_compact import main; main()", *arguments],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["outcome"], record["files_compacted"], record["files_written"]) == ("done", 5, 1)
    with Neve.open(load_settings(), warehouse=str(place)) as opened, opened.demo_target("db") as target:
        assert sorted(map(str, target.load("floats").scan().to_arrow().to_pylist())) == before
