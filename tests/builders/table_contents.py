"""Reads tables back without the code under test: rows through DuckDB, files through pyiceberg's manifests."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table

from neve.table.files import FileColumns

if TYPE_CHECKING:
    pass


def duckdb_rows(table: Table) -> list[str]:
    """Every row as DuckDB sees it."""
    return plain_rows(duckdb_query(f"SELECT * FROM iceberg_scan('{table.metadata_location}')"))


def pyiceberg_rows(table: Table) -> list[str]:
    """Every row as pyiceberg sees it."""
    return plain_rows(table.scan().to_arrow().to_pylist())


def plain_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Sorted texts, so that NaN equals NaN, -0.0 differs from 0.0, and order does not matter."""
    return sorted(repr({key: _plain(value) for key, value in row.items()}) for row in rows)


def data_files(table: Table) -> list[DataFile]:
    """The live data files."""
    return [entry.data_file for entry in entries(table) if entry.data_file.content == DataFileContent.DATA]


def entries(table: Table) -> list[ManifestEntry]:
    """Every live entry of the current snapshot, deletes included."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]


def local(path: str) -> Path:
    """A file URL as a path."""
    return Path(path.removeprefix("file:").replace("///", "/", 1))


def duckdb_query(query: str) -> list[dict[str, Any]]:
    """A query with DuckDB's Iceberg functions at hand, loaded from wheels: nothing is downloaded."""
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for package in ("duckdb_extension_avro", "duckdb_extension_iceberg"):
            connection.execute(f"LOAD '{_extension(package)}'")
        connection.execute("SET TimeZone = 'UTC'")
        rows: list[dict[str, Any]] = connection.execute(query).to_arrow_table().to_pylist()
        return rows


def _extension(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.rglob("*.duckdb_extension"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def by_path(files: FileColumns) -> list[dict[str, object]]:
    """The rows in an order of their own, partitions spelled out."""
    names = pa.array([f"{p.spec_id}:{p.path}" for p in files.partitions])
    spelled = files.table.set_column(3, "partition", pc.take(names, files.table.column("partition")))
    if files.bounds is not None:
        for name in files.bounds.column_names:
            spelled = spelled.append_column(name, files.bounds.column(name))
    keys = [("path", "ascending"), ("content_offset", "ascending")]
    return list(spelled.sort_by(keys).to_pylist())
