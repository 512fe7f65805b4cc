"""Every catalog that can be had, as one parameter: a description, and the same table registered in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from neve.catalogs.opening import IcebergCatalog
from neve.settings import CatalogSettings
from stack.endpoints import S3Endpoint

FAMILIES = ("sqlite", "postgres", "hadoop", "rest", "nessie", "glue", "hive")

Server = Callable[[str], Any]


@dataclass(frozen=True)
class Described:
    """A catalog of one family, ready to be opened."""

    settings: dict[str, Any]
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> CatalogSettings:
        return CatalogSettings.model_validate(self.settings)

    def open(self, cache: Any = None) -> IcebergCatalog:
        return IcebergCatalog("lake", self.model, environ=self.environ, cache=cache)


def storage(s3: S3Endpoint) -> dict[str, Any]:
    keys = {"access-key-id": s3.access_key, "secret-access-key": "${env:TEST_S3_SECRET}"}
    return {"s3": {"endpoint": s3.endpoint, "region": s3.region, "path-style-access": True, **keys}}


def describe(family: str, server: Server, tmp_path: Path) -> Described:
    """The description a user would write for this family, its tables on the S3 server."""
    s3: S3Endpoint = server("s3")
    environ = {"TEST_S3_SECRET": s3.secret_key}
    own = f"s3://{s3.bucket}/{uuid4().hex}"
    common = {"warehouse": own, "storage": storage(s3)}
    match family:
        case "sqlite":
            return Described({"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", **common}, environ)
        case "postgres":
            postgres = server("postgres")
            url = f"postgresql+psycopg2://{postgres.user}:${{env:TEST_PASSWORD}}@{postgres.host}:{postgres.port}/{postgres.database}"
            return Described({"type": "sql", "uri": url, **common}, {**environ, "TEST_PASSWORD": postgres.password})
        case "hadoop":
            return Described({"type": "hadoop", **common}, environ)
        case "rest":
            rest = server("rest")
            return Described({"type": "rest", "uri": rest.uri, "storage": storage(s3)}, environ)
        case "nessie":
            nessie = server("nessie")
            return Described({"type": "nessie", "uri": nessie.uri, "ref": "main", "storage": storage(s3)}, environ)
        case "glue":
            glue = server("glue")
            return Described({"type": "glue", "uri": glue.endpoint, **common}, environ)
        case "hive":
            hive = server("hive")
            return Described({"type": "hive", "uri": hive.uri, "warehouse": hive.warehouse}, environ)
    raise ValueError(family)


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
