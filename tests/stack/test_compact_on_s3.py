"""A compaction as a user types it, on Apache's REST catalog and S3: same rows, few requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from stack.endpoints import RestEndpoint, S3Endpoint
from stack.proxy import FaultProxy, answer, delay

pytestmark = pytest.mark.stack

FILES = 12
ROWS = 8_000
"""Enough that column chunks are worth copying."""


@pytest.fixture
def table(rest: RestEndpoint) -> str:
    name = f"db_{uuid4().hex[:12]}.t"
    catalog = load_catalog("lake", **rest.properties())
    catalog.create_namespace(name.split(".")[0])
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    written = catalog.create_table(name, schema=schema)
    random = Random(1)
    for _ in range(FILES):
        ids = [random.getrandbits(62) for _ in range(ROWS)]
        written.append(pa.table({"id": ids, "text": [f"{random.getrandbits(64):x}" for _ in ids]}, schema=schema))
    return name


@pytest.fixture
def storage(s3: S3Endpoint, fault_proxy: Callable[[str], FaultProxy]) -> FaultProxy:
    return fault_proxy(s3.endpoint)


def compact(table: str, *, rest: RestEndpoint, s3: S3Endpoint, url: str, directory: Path, kernel: str) -> dict[str, Any]:
    keys = {"access-key-id": s3.access_key, "secret-access-key": "${env:TEST_SECRET}"}
    lake = {
        "type": "rest",
        "uri": rest.uri,
        "warehouse": rest.warehouse,
        "storage": {"s3": {"endpoint": url, "region": s3.region, "path-style-access": True, **keys}},
    }
    settings = {"catalogs": {"lake": lake}, "spark": {"master": "local[2]", "driver-memory": "1 GB"}}
    (directory / "neve.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "neve", "compact", table, "--config", str(directory / "neve.yaml"), "--json"]
    environ = {**os.environ, "TEST_SECRET": s3.secret_key}
    result = subprocess.run(
        [*command, "--force", "--kernel", kernel], env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr + result.stdout
    answered: dict[str, Any] = json.loads(result.stdout)
    return answered


def rows(rest: RestEndpoint, table: str) -> list[tuple[int, str]]:
    found = load_catalog("lake", **rest.properties()).load_table(table).scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("kernel", ["copy", "arrow"])
def test_a_table_on_s3_is_compacted_with_at_most_three_requests_per_input_file(
    kernel: str, table: str, rest: RestEndpoint, s3: S3Endpoint, storage: FaultProxy, tmp_path: Path
) -> None:
    before = rows(rest, table)
    inputs = {task.file.file_path for task in load_catalog("lake", **rest.properties()).load_table(table).scan().plan_files()}
    storage.faults.add(delay(0.02))
    answered = compact(table, rest=rest, s3=s3, url=storage.url, directory=tmp_path, kernel=kernel)
    assert answered["kernels"] == {kernel: 1}
    after = load_catalog("lake", **rest.properties()).load_table(table)
    assert rows(rest, table) == before
    assert len(list(after.scan().plan_files())) == 1
    names = {path.rsplit("/", 1)[1] for path in inputs}
    asked = Counter(r.target.split("?")[0].rsplit("/", 1)[1] for r in storage.requests.recent())
    assert set(names) <= set(asked)
    assert max(asked[name] for name in names) <= 3


def test_a_storage_that_fails_now_and_then_does_not_fail_the_run(
    table: str, rest: RestEndpoint, s3: S3Endpoint, storage: FaultProxy, tmp_path: Path
) -> None:
    before = rows(rest, table)
    storage.faults.add(answer(503, share=0.1, path=r"\.parquet"))
    compact(table, rest=rest, s3=s3, url=storage.url, directory=tmp_path, kernel="arrow")
    assert rows(rest, table) == before
