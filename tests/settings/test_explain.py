from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from neve.policy.model import knobs
from neve.settings.keys import leaves, settings_tree
from tests.builders.settings_files import Load


def test_shows_every_knob_and_every_value_with_its_origin(load: Load) -> None:
    text = """
    profile: prod
    catalogs: {lake: {type: rest, uri: http://x, token: {env: T}}}
    spark: {driver-memory: 4 GB, conf: {spark.sql.shuffle.partitions: 200}}
    cache: {ttl: 90 min, max-size: 1000000000}
    """
    rows = {row.key: (row.value, row.origin) for row in load(text, environ={"NEVE_LOG__FORMAT": "json"}).explain()}
    assert {
        "default-catalog": ("lake", "default"),
        "catalogs.lake.type": ("rest", "file neve.yaml"),
        "catalogs.lake.token": ("${env:T}", "file neve.yaml"),
        "catalogs.lake.vended-credentials": ("false", "default"),
        "spark.master": ("local[*]", "default"),
        "spark.driver-memory": ("4g", "file neve.yaml"),
        "spark.conf.spark.sql.shuffle.partitions": ("200", "file neve.yaml"),
        "cache.ttl": ("90 min", "file neve.yaml"),
        "cache.max-size": ("1,000,000,000 B", "file neve.yaml"),
        "inspect.python-max-files": ("2000000", "default"),
        "log.format": ("json", "variable NEVE_LOG__FORMAT"),
        "profile": ("prod", "file neve.yaml"),
        "policy.min-input-files": ("20", "profile prod"),
        "policy.small-file-threshold": ("64 MB (half of target-file-size)", "default"),
        "policy.snapshot-keep": ("7 days", "default"),
        "policy.compression-codec": ("the table's own", "default"),
        "policy.advise": ("true", "default"),
    }.items() <= rows.items()
    assert {f"policy.{key}" for key in knobs()} <= rows.keys()


def test_shows_where_state_and_cache_lie_by_default(load: Load) -> None:
    rows = {row.key: row.value for row in load().explain()}
    assert rows["state.url"].startswith("sqlite:////")
    assert rows["state.url"].endswith("/neve/state.db")
    assert rows["cache.directory"].endswith("/metadata")


def test_every_leaf_is_described() -> None:
    described = [(".".join(path), leaf.description) for path, leaf in leaves(settings_tree()) if path[-1] != "<name>"]
    assert len(described) > 50
    assert [key for key, description in described if not description.endswith(".")] == []


@pytest.mark.parametrize(
    ("given", "spark"), [("4 GB", "4g"), ("4g", "4g"), ("1536 MB", "1536m"), ("1.5 GiB", "1536m"), ("512Mi", "512m")]
)
def test_memory_is_given_to_spark_in_its_own_spelling(load: Load, given: str, spark: str) -> None:
    assert load(f"spark: {{executor-memory: {given}}}").settings.spark.executor_memory == spark


def test_the_only_catalog_is_the_default_one(load: Load) -> None:
    assert load("catalogs: {a: {type: glue}}").settings.catalog_name == "a"
    assert load("catalogs: {a: {type: glue}, b: {type: glue}}").settings.catalog_name is None
    assert load("{default-catalog: b, catalogs: {a: {type: glue}, b: {type: glue}}}").settings.catalog_name == "b"
    assert load("default-catalog: embedded").settings.catalog_name == "embedded"


def test_loading_settings_imports_nothing_heavy(place: Path) -> None:
    code = (
        "import sys; from neve.settings import load_settings; load_settings().explain();"
        "print([m for m in ('pyarrow','numpy','pyiceberg','pyspark','sqlalchemy','alembic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=place)
    assert done.stdout.strip() == "[]"
