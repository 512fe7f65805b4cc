"""Odd keys on S3 with a REST catalog: what Iceberg's Java can keep works, what it cannot is refused, and stops nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog

from neve.catalogs.file_io import LiteralFileIO
from neve.table.location import address
from stack.endpoints import RestEndpoint, S3Endpoint
from stack.servers.s3 import client
from tests.builders.s3_contents import objects
from tests.builders.spark_driver import Driver, at_rest, write_settings

pytestmark = pytest.mark.stack

NAMESPACE = f"odd_{uuid4().hex[:8]}"
LATER = 10
# The server of the tests takes doubled slashes for one, and refuses single and double dots; S3 itself does neither.
ODD = {"spaces": "a%20b + ü c&=", "doubled": "a//b"}


@pytest.fixture(scope="module")
def driver(rest: RestEndpoint, s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    load_catalog("lake", **rest.properties()).create_namespace(NAMESPACE)
    with Driver(write_settings(tmp_path_factory.mktemp("driver"), at_rest(rest), s3), s3) as driver:
        yield driver


def make(driver: Driver, s3: S3Endpoint, name: str, key: str, columns: str = "id BIGINT") -> str:
    location = f"s3://{s3.bucket}/{NAMESPACE}/{key}"
    version = "TBLPROPERTIES ('format-version' = '3')" if "VARIANT" in columns else ""
    driver.sql(f"CREATE TABLE lake.{NAMESPACE}.{name} ({columns}) USING iceberg LOCATION '{location}' {version}")
    return location


def kept(driver: Driver, operation: str, table: str, **words: Any) -> dict[str, Any]:
    answered: dict[str, Any] = driver.ask("maintain", operation=operation, table=f"{NAMESPACE}.{table}", **words)
    assert "error" not in answered, answered
    return answered


def test_what_iceberg_cuts_is_refused_and_what_we_do_not_know_is_read(driver: Driver, s3: S3Endpoint) -> None:
    make(driver, s3, "variants", "variants", "id BIGINT, v VARIANT")
    make(driver, s3, "cut", "x#y")
    refused = driver.ask("compact", table=f"{NAMESPACE}.cut")
    assert refused["error"].startswith("BadRequestError: Cannot "), refused
    assert "has a `#` or a `?`, and Iceberg's FileIO for this store opens" in refused["error"]
    assert kept(driver, "inspect", "variants")["columns"] == 2


@pytest.mark.parametrize("name", ODD)
def test_every_operation_works_with_odd_keys(driver: Driver, s3: S3Endpoint, name: str) -> None:
    location = make(driver, s3, name, ODD[name])
    for start in (0, 10):
        driver.sql(f"INSERT INTO lake.{NAMESPACE}.{name} SELECT id FROM range({start}, {start + 10}, 1, 1)")
    done = driver.ask("compact", table=f"{NAMESPACE}.{name}")
    assert done.get("outcome") == "done", done
    with closing(client(s3)) as plain:
        orphan = f"{address(location).key}/data/orphan #1?.parquet"
        plain.put_object(Bucket=s3.bucket, Key=orphan, Body=b"PAR1")
    kept(driver, "expire", name, days=LATER, older_than="1d", keep=1)
    found = kept(driver, "orphans", name, days=LATER)
    assert found["taken"] == 1, found
    kept(driver, "settle", name, days=LATER + 2)
    fates = driver.ask("quarantined", table=f"{NAMESPACE}.{name}")
    # The test server lists doubled slashes as one.
    assert [fate for path, fate in fates.items() if path.endswith("/data/orphan #1?.parquet")] == ["trashed"], fates
    assert not any("orphan" in path for path in objects(s3, location.replace("//b", "/b")) if ".neve-trash" not in path)
    assert driver.ask("restore", run=found["run_id"])["files"] == 1
    assert kept(driver, "purge", name, days=LATER + 20)["files"] >= 3
    assert sorted(row["id"] for row in driver.sql(f"SELECT id FROM lake.{NAMESPACE}.{name}")) == list(range(20))


@pytest.mark.parametrize("key", ["a//b/m.avro", "a#b?c%20/m.avro", "ü +/m.avro"])
def test_python_reads_odd_keys(s3: S3Endpoint, key: str) -> None:
    names = {"endpoint": s3.endpoint, "region": s3.region, "access-key-id": s3.access_key, "secret-access-key": s3.secret_key}
    files = LiteralFileIO({f"s3.{name}": value for name, value in names.items()})
    with closing(client(s3)) as plain:
        plain.put_object(Bucket=s3.bucket, Key=f"{NAMESPACE}/{key}", Body=b"content")
    for scheme in ("s3", "s3a"):
        file = files.new_input(f"{scheme}://{s3.bucket}/{NAMESPACE}/{key}")
        assert (len(file), file.exists(), bytes(file.open().read())) == (7, True, b"content")
        gone = files.new_input(f"{scheme}://{s3.bucket}/{NAMESPACE}/{key}.gone")
        assert not gone.exists()
        with pytest.raises(FileNotFoundError):
            gone.open()
