"""The shortest way to a table's metadata: one query of a SQLite catalog, and nothing imported that takes long."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from neve.catalogs.sqlite import metadata_location

OLD = "CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location)"
NEW = f"{OLD[:-1]}, iceberg_type)"


def database(path: Path, create: str, *rows: tuple[str | None, ...]) -> str:
    """A catalog with these entries; returns its address."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(create)
        for row in rows:
            connection.execute(f"INSERT INTO iceberg_tables VALUES ({', '.join('?' * len(row))})", row)
    return f"sqlite:///{quote(str(path), safe=' +/')}"


@pytest.mark.parametrize("create", [OLD, NEW])
@pytest.mark.parametrize("place", ["catalog.db", "a b/catalog.db", "a#b/c%20d/ü.db"])
def test_finds_a_table_by_catalog_namespace_and_name(tmp_path: Path, create: str, place: str) -> None:
    last = () if create is OLD else ("TABLE",)
    rows = [(catalog, "db.raw", "t", f"/{catalog}.json", None, *last) for catalog in ("local", "other")]
    uri = database(tmp_path / place, create, *rows)
    assert metadata_location(uri, "local", ("db", "raw", "t")) == "/local.json"
    assert metadata_location(uri, "other", ("db", "raw", "t")) == "/other.json"
    assert metadata_location(uri, "third", ("db", "raw", "t")) is None
    assert metadata_location(uri, "local", ("db", "t")) is None


@pytest.mark.parametrize(("kind", "found"), [("TABLE", "/m.json"), (None, "/m.json"), ("VIEW", None)])
def test_a_view_is_no_table(tmp_path: Path, kind: str | None, found: str | None) -> None:
    uri = database(tmp_path / "catalog.db", NEW, ("local", "db", "t", "/m.json", None, kind))
    assert metadata_location(uri, "local", ("db", "t")) == found


@pytest.mark.parametrize(
    "uri", [None, "", "postgresql://host/db", "sqlite+pysqlite:///x.db", "sqlite:///x.db?timeout=3", "sqlite:///nowhere/x.db"]
)
def test_other_databases_are_left_to_their_own_clients(uri: str | None) -> None:
    assert metadata_location(uri, "local", ("db", "t")) is None


def test_a_database_that_is_missing_is_not_made(tmp_path: Path) -> None:
    assert metadata_location(f"sqlite:///{tmp_path}/catalog.db", "local", ("db", "t")) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a database"])
def test_what_is_no_catalog_has_no_table(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "catalog.db").write_bytes(content)
    assert metadata_location(f"sqlite:///{tmp_path}/catalog.db", "local", ("db", "t")) is None


_SCRIPT = """
import sys
from pathlib import Path
from neve.catalogs.embedded import open_warehouse
from neve.catalogs.opening import IcebergCatalog
from neve.operations.inspect import read
from neve.table.depth import Depth
from neve.table.state import TableName
name, settings = open_warehouse(sys.argv[1])
state = read(IcebergCatalog(name, settings, environ={}).open(TableName(catalog=name, namespace=("db",), name="t")), Depth.FILES)
assert len(state.files) == 3
print(sorted({"pyiceberg.catalog", "pyiceberg.table", "sqlalchemy", "pyspark", "boto3"} & set(sys.modules)))
"""


def test_a_table_of_a_warehouse_directory_is_read_without_pyiceberg_and_sqlalchemy(warehouse: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, warehouse], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
