"""Descriptions of catalogs of every type on the test servers, as a user would write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

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
