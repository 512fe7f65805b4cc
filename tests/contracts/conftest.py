"""Every catalog that can be had, as one parameter: a description, and the same table registered in it."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from stack.endpoints import S3Endpoint
from tests.builders.catalog_descriptions import FAMILIES, Described, Server, describe


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def described(family: str, stack_server: Server, tmp_path: Path) -> Described:
    return describe(family, stack_server, tmp_path)


@pytest.fixture
def original(family: str, stack_server: Server, tmp_path: Path) -> Table:
    """The table that the catalog is shown: written on S3, through a catalog that plays no further part.

    A Hive metastore opens the location that it is told of, and the one to be had knows local files only.
    """
    s3: S3Endpoint = stack_server("s3")
    own = str(tmp_path / "original") if family == "hive" else f"s3://{s3.bucket}/{uuid4().hex}"
    catalog = load_catalog(
        "original",
        type="sql",
        uri=f"sqlite:///{tmp_path / 'original.db'}",
        warehouse=own,
        **s3.properties(),
    )
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array(range(100), pa.int64()), "region": ["eu", "us", None, "ap"] * 25})
    table = catalog.create_table("db.events", schema=rows.schema)
    with table.update_spec() as update:
        update.add_identity("region")
    for _ in range(3):
        table.append(rows)
    return table
