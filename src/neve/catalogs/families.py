"""One entry per catalog family: how each client is told to open it.

A family is three small functions over the same description: properties for pyiceberg, properties for Spark's catalog, and the
jars Spark needs. Families that pyiceberg lacks or bounds badly have a file of their own (`hadoop`, `hive`, `rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from neve.catalogs.storage import TIMEOUT
from neve.errors import BadRequestError
from neve.kernels.request_counts import count
from neve.settings.catalog import CatalogSettings
from neve.settings.databases import CONNECT_SECONDS, CONNECT_TIMEOUT, bounded_url, driver_url
from neve.table.location import address

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

Properties = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """How a kind of catalog is opened."""

    load: Callable[[str, Mapping[str, str]], Catalog]
    python: Callable[[CatalogSettings], Properties]
    spark: Callable[[CatalogSettings], Properties]
    needs: Callable[[CatalogSettings], set[str]] = lambda settings: set()  # noqa: ARG005


def family(settings: CatalogSettings) -> Family:
    """The family of a described catalog."""
    return _FAMILIES[settings.type]


def _load(module: str, name: str) -> Callable[[str, Mapping[str, str]], Catalog]:
    """Imports late: most installations use one family, and some need an extra."""

    def load(catalog: str, properties: Mapping[str, str]) -> Catalog:
        import importlib

        loaded: Catalog = getattr(importlib.import_module(module), name)(catalog, **properties)
        return loaded

    return load


def _load_sql(catalog: str, properties: Mapping[str, str]) -> Catalog:
    """A SQL catalog whose statements are counted."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import event

    loaded = SqlCatalog(catalog, **properties)
    event.listen(loaded.engine, "before_cursor_execute", lambda *_: count("catalog"))
    return loaded


def _sql_python(settings: CatalogSettings) -> Properties:
    uri = bounded_url(settings.uri) if settings.uri else None
    return {"uri": uri, "warehouse": _absolute(settings.warehouse), "pool_pre_ping": "true"}


def _absolute(warehouse: str | None) -> str | None:
    """A relative directory as an absolute one: it is written into the tables that are made in it."""
    if not warehouse or address(warehouse).path != warehouse or ":" in warehouse.partition("/")[0]:
        return warehouse  # it has a scheme
    return str(Path(warehouse).absolute())


def _sql_spark(settings: CatalogSettings) -> Properties:
    from sqlalchemy.engine import make_url

    url = make_url(driver_url(settings.uri or ""))
    if url.get_backend_name() == "sqlite":
        # Two writers meet at the database file: wait for the other's lock, as the Python side does, rather than fail.
        return {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{_jdbc_file(url.database)}?busy_timeout=30000",
            "jdbc.schema-version": "V1",
        }
    if url.get_backend_name() == "postgresql":
        uri = f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}"
        wait = url.query.get(CONNECT_TIMEOUT, str(CONNECT_SECONDS))
        return {
            "type": "jdbc",
            "uri": uri,
            "jdbc.connectTimeout": wait,
            "jdbc.loginTimeout": wait,  # for the answer of the server; by default the driver waits for ever
            "jdbc.user": url.username,
            "jdbc.password": url.password,
            "jdbc.schema-version": "V1",
        }
    raise BadRequestError(
        f"Cannot open catalog in Spark: {url.get_backend_name()} is not a database that a sql catalog supports",
        hint="Use sqlite:///PATH or postgresql://USER@HOST/DB.",
    )


def _jdbc_file(database: str | None) -> str:
    """A path as the driver takes it: for one with a question mark, only a URI tells it from options."""
    return f"file:{quote(database)}" if database and "?" in database else str(database)


def _sql_needs(settings: CatalogSettings) -> set[str]:
    return {"sqlite"} if (settings.uri or "").startswith("sqlite") else {"postgres"}


_SPARK_ANSWER_MS = 600_000
"""How long Spark waits for an answer of a REST catalog, which is for ever by default. Longer than the Python client waits: a
commit may take a server long, and one without an answer has to be looked for in the table."""
_DELEGATION = "header.X-Iceberg-Access-Delegation"


def _rest_python(settings: CatalogSettings) -> Properties:
    delegation = {_DELEGATION: "vended-credentials" if settings.vended_credentials else ""}
    bounded = {TIMEOUT: settings.timeout_seconds}
    return {"uri": settings.uri, "warehouse": settings.warehouse, **_rest_auth(settings), **delegation, **bounded}


def _rest_spark(settings: CatalogSettings) -> Properties:
    vended = {_DELEGATION: "vended-credentials"} if settings.vended_credentials else {}
    waits = {"rest.client.connection-timeout-ms": CONNECT_SECONDS * 1000, "rest.client.socket-timeout-ms": _SPARK_ANSWER_MS}
    return {"type": "rest", "uri": settings.uri, **_rest_auth(settings), **vended, **waits}


def _rest_auth(settings: CatalogSettings) -> Properties:
    return {
        "token": settings.token,
        "credential": settings.credential,
        "oauth2-server-uri": settings.oauth2_server_uri,
        "scope": settings.scope,
    }


def _nessie_uri(settings: CatalogSettings) -> str:
    """Nessie serves Iceberg's REST protocol, one base address per reference."""
    root = (settings.uri or "").rstrip("/")
    for suffix in ("/api/v2", "/api/v1", "/iceberg"):
        root = root.removesuffix(suffix)
    return f"{root}/iceberg/{quote(settings.ref or 'main', safe='')}"


def _at_nessie(build: Callable[[CatalogSettings], Properties]) -> Callable[[CatalogSettings], Properties]:
    """Unless told that nothing is wanted of it, Nessie has Spark's requests for files signed by itself, and then refuses to."""
    return lambda settings: {_DELEGATION: "", **build(settings), "uri": _nessie_uri(settings)}


def _glue_python(settings: CatalogSettings) -> Properties:
    s3 = settings.storage.s3
    return {
        "glue.endpoint": settings.uri,
        "glue.region": s3.region,
        "glue.access-key-id": s3.access_key_id,
        "glue.secret-access-key": s3.secret_access_key,
        "glue.session-token": s3.session_token,
        "warehouse": settings.warehouse,
    }


def _glue_spark(settings: CatalogSettings) -> Properties:
    return {"type": "glue", "glue.endpoint": settings.uri}


def _hive_python(settings: CatalogSettings) -> Properties:
    return {"uri": settings.uri, "warehouse": settings.warehouse, TIMEOUT: settings.timeout_seconds}


def _hive_spark(settings: CatalogSettings) -> Properties:
    return {"type": "hive", "uri": settings.uri}


def _hadoop_python(settings: CatalogSettings) -> Properties:
    return {"warehouse": settings.warehouse}


def _hadoop_spark(settings: CatalogSettings) -> Properties:
    return {"type": "hadoop", "lock-impl": settings.lock_manager}


_REST = _load("neve.catalogs.rest", "BoundedRestCatalog")
_FAMILIES = {
    "sql": Family(_load_sql, _sql_python, _sql_spark, _sql_needs),
    "rest": Family(_REST, _rest_python, _rest_spark),
    "nessie": Family(_REST, _at_nessie(_rest_python), _at_nessie(_rest_spark)),
    "glue": Family(_load("pyiceberg.catalog.glue", "GlueCatalog"), _glue_python, _glue_spark, lambda _: {"aws"}),
    "hive": Family(_load("neve.catalogs.hive", "BoundedHiveCatalog"), _hive_python, _hive_spark),
    "hadoop": Family(_load("neve.catalogs.hadoop", "HadoopCatalog"), _hadoop_python, _hadoop_spark),
}
