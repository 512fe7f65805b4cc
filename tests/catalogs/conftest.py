"""A small warehouse on disk, written with pyiceberg, and a count of what is read from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neve.catalogs.cache import MetadataCache
from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from tests.builders.noted_reads import reads_noted
from tests.builders.warehouses import ROWS


@pytest.fixture
def cache(tmp_path: Path) -> MetadataCache:
    return MetadataCache(tmp_path / "cache", max_bytes=10**8, ttl_seconds=3600)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    name, settings = open_warehouse(str(tmp_path / "warehouse"), create=True)
    client = IcebergCatalog(name, settings, environ={}).client
    client.create_namespace("db")
    table = client.create_table("db.t", schema=ROWS.schema)
    for _ in range(3):
        table.append(ROWS)
    return tmp_path / "warehouse"


@pytest.fixture
def catalog_at(cache: MetadataCache) -> Callable[[Path], IcebergCatalog]:
    def make(warehouse: Path) -> IcebergCatalog:
        name, settings = open_warehouse(str(warehouse))
        return IcebergCatalog(name, settings, environ={}, cache=cache)

    return make


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The locations opened for reading, in order."""
    return reads_noted(monkeypatch)
