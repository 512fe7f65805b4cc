"""Warehouses in a directory, with a SQLite catalog, and rows to write into them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "region": ["eu", "us"] * 5})
Build = Callable[..., Table]


def open_catalog(directory: Path) -> SqlCatalog:
    return SqlCatalog("local", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")
