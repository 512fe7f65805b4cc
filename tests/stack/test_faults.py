"""`neve inspect` when servers refuse, fail or fall silent: one clear line, a bounded wait, the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from stack.endpoints import RestEndpoint, S3Endpoint
from stack.proxy import FaultProxy, answer, cut, delay, drop

pytestmark = pytest.mark.stack

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})
BOUND_SECONDS = 60
"""No command may wait longer, whatever the servers do."""

Front = Callable[[str], FaultProxy]


@pytest.fixture
def table(rest: RestEndpoint) -> str:
    """A table with three manifests, behind the REST catalog, on S3."""
    name = f"db_{uuid4().hex[:12]}.t"
    catalog = load_catalog("lake", **rest.properties())
    catalog.create_namespace(name.split(".")[0])
    written = catalog.create_table(name, schema=ROWS.schema)
    for _ in range(3):
        written.append(ROWS)
    return name


class Machine:
    """A machine with its own settings, on which `neve` is typed."""

    def __init__(self, directory: Path, *, catalog: str, s3: S3Endpoint, s3_url: str) -> None:
        self.environ = {**os.environ, "TEST_SECRET": s3.secret_key, "NO_COLOR": "1", "COLUMNS": "200", "TEST_TOKEN": "t0ken"}
        keys = {"access-key-id": s3.access_key, "secret-access-key": "${env:TEST_SECRET}"}
        storage = {"s3": {"endpoint": s3_url, "region": s3.region, "path-style-access": True, **keys}}
        lake = {"type": "rest", "uri": catalog, "token": "${env:TEST_TOKEN}", "timeout": "4 s", "storage": storage}
        self.file = directory / "neve.yaml"
        self.file.write_text(yaml.safe_dump({"catalogs": {"lake": lake}, "cache": {"enabled": False}}))

    def inspect(self, table: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "neve", "inspect", table, "--config", str(self.file)]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)


@pytest.fixture
def fronts(rest: RestEndpoint, s3: S3Endpoint, fault_proxy: Front) -> tuple[FaultProxy, FaultProxy]:
    """Proxies before the catalog and before S3."""
    return fault_proxy(rest.uri), fault_proxy(s3.endpoint)


@pytest.fixture
def machine(fronts: tuple[FaultProxy, FaultProxy], s3: S3Endpoint, tmp_path: Path) -> Machine:
    catalog, storage = fronts
    return Machine(tmp_path, catalog=catalog.url, s3=s3, s3_url=storage.url)


def lines(result: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.strip()]


def assert_failed(result: subprocess.CompletedProcess[str], *, code: int, message: str) -> None:
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in lines(result) if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert message in errors[0]
    assert result.stdout == ""


def test_all_is_well_without_faults(machine: Machine, table: str) -> None:
    result = machine.inspect(table)
    assert (result.returncode, result.stderr) == (0, "")
    assert "3 data files" in result.stdout


def test_a_wrong_s3_secret_is_a_refused_request(machine: Machine, table: str) -> None:
    machine.environ["TEST_SECRET"] = "n0t-the-key"
    result = machine.inspect(table)
    assert_failed(result, code=2, message="access denied")
    assert "n0t-the-key" not in result.stderr


def test_s3_gone_in_the_middle_is_a_failure(machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]) -> None:
    fronts[1].faults.add(drop(path=r"-m0\.avro"))
    assert_failed(machine.inspect(table), code=1, message="Cannot read s3://")


def test_s3_answering_503_is_a_failure(machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]) -> None:
    fronts[1].faults.add(answer(503, path=r"\.avro"))
    assert_failed(machine.inspect(table), code=1, message=f"the storage at {fronts[1].url} answered 503")


def test_an_answer_cut_short_once_is_read_again(machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]) -> None:
    fronts[1].faults.add(cut(after_bytes=100, path=r"-m0\.avro", times=1))
    result = machine.inspect(table)
    assert (result.returncode, "3 data files" in result.stdout) == (0, True), result.stderr


def test_a_catalog_answering_503_is_a_failure(machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]) -> None:
    fronts[0].faults.add(answer(503))
    assert_failed(machine.inspect(table), code=1, message=f"the catalog at {fronts[0].url} answered 503")


def test_a_catalog_answering_503_once_is_asked_again(
    machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]
) -> None:
    fronts[0].faults.add(answer(503, times=1))
    assert machine.inspect(table).returncode == 0


@pytest.mark.parametrize("status", [401, 403, 419])
def test_an_expired_or_refused_token_is_a_refused_request(
    machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy], status: int
) -> None:
    fronts[0].faults.add(answer(status))
    result = machine.inspect(table)
    assert_failed(result, code=2, message="access denied")
    assert "t0ken" not in result.stderr


def test_a_catalog_that_never_answers_is_given_up(machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]) -> None:
    fronts[0].faults.add(delay(BOUND_SECONDS + 10))
    assert_failed(machine.inspect(table), code=1, message="the catalog did not answer")


def test_a_catalog_that_is_not_there_is_a_failure(tmp_path: Path, s3: S3Endpoint, unused_port: int) -> None:
    machine = Machine(tmp_path, catalog=f"http://127.0.0.1:{unused_port}", s3=s3, s3_url=s3.endpoint)
    assert_failed(machine.inspect("db.t"), code=1, message="the catalog did not answer")


def test_an_oauth2_credential_is_exchanged_for_a_token(
    machine: Machine, table: str, fronts: tuple[FaultProxy, FaultProxy]
) -> None:
    settings = yaml.safe_load(machine.file.read_text())
    settings["catalogs"]["lake"] |= {"credential": "${env:TEST_TOKEN}", "token": None}
    machine.file.write_text(yaml.safe_dump(settings))
    machine.environ["TEST_TOKEN"] = "client:secret"
    assert machine.inspect(table).returncode == 0
    assert {r.target for r in fronts[0].requests.recent() if r.method == "POST"} == {"/v1/oauth/tokens"}


def test_a_missing_table_is_a_bad_request(machine: Machine) -> None:
    assert_failed(machine.inspect("db.nope"), code=2, message="Cannot load table lake.db.nope: there is no such table")
