"""Tables on every storage that can be had, through the description a user would write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from neve.catalogs.probe import probe_of_warehouse
from neve.operations.inspect import read
from neve.table.depth import Depth
from neve.table.state import TableName
from tests.builders.catalog_descriptions import Described, storage

pytestmark = pytest.mark.stack

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})
NAME = TableName(catalog="lake", namespace=("db",), name="t")


def on(kind: str, server: Callable[[str], Any], tmp_path: Path) -> Described:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}
    match kind:
        case "file":
            return Described({**catalog, "warehouse": str(tmp_path / "warehouse")})
        case "s3":
            s3 = server("s3")
            place = {"warehouse": f"s3://{s3.bucket}/{uuid4().hex}", "storage": storage(s3)}
            return Described({**catalog, **place}, {"TEST_S3_SECRET": s3.secret_key})
        case "gs":
            gcs = server("gcs")
            settings = {"gs": {"endpoint": gcs.endpoint, "token": "${env:TEST_TOKEN}"}}
            return Described(
                {**catalog, "warehouse": f"gs://{gcs.bucket}/{uuid4().hex}", "storage": settings}, {"TEST_TOKEN": "any"}
            )
        case "abfss":
            azure = server("azure")
            keys = {"account-name": azure.account, "account-key": "${env:TEST_KEY}", "endpoint": f"http://{azure.authority}"}
            place = {"warehouse": f"abfss://{azure.container}/{uuid4().hex}", "storage": {"abfss": keys}}
            return Described({**catalog, **place}, {"TEST_KEY": azure.key})
    raise ValueError(kind)


@pytest.fixture(params=["file", "s3", "gs", "abfss"])
def described(request: pytest.FixtureRequest, stack_server: Callable[[str], Any], tmp_path: Path) -> Described:
    return on(request.param, stack_server, tmp_path)


def test_a_table_is_written_and_looked_at(described: Described) -> None:
    client = described.open().client
    client.create_namespace("db")
    table = client.create_table(NAME.identifier, schema=ROWS.schema)
    table.append(ROWS)
    reader = described.open().open(NAME)
    state = read(reader, Depth.FILES)
    assert state.files is not None
    assert state.files.column("records").tolist() == [10]
    paths = state.files.table.column("path").to_pylist()
    assert reader.sample_row_groups(paths) == {paths[0]: 1}


def test_the_doctor_can_read_and_write_the_warehouse(described: Described) -> None:
    probe = probe_of_warehouse(described.model, described.environ)
    assert probe is not None
    assert probe() == f"{described.settings['warehouse']} can be read and written"
