"""One real Spark session for all tests of this folder, with a SQLite catalog named `local`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.engines.spark.session import SparkOptions, open_session
from neve.kernels.arrow.refusing import counts_nested_nulls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent

# The pyarrow beside Spark 3.5 miscounts nulls below lists, so that the arrow kernel refuses them there.
# That Spark has no variant and no geometry either, and its Iceberg cannot read a table once a key of its deletes is dropped.
IS_OLD = not counts_nested_nulls()
collect_ignore = (
    [
        "test_arrow_schema_spark.py",
        "test_compact_nested.py",
        "test_evolution.py",
        "test_orders_apart.py",
        "test_v3_types.py",
        "test_deletes_machine.py",
    ]
    if IS_OLD
    else []
)
_DROPPED_KEYS = (
    "test_an_equality_delete_on_a_dropped_column_is_still_applied",
    "test_a_delete_on_a_column_that_was_dropped_since_is_converted",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not (IS_OLD and item.name.startswith(_DROPPED_KEYS))]
    for item in items:
        if _HERE in item.path.parents:
            # PySpark 3.5 asks it for the version of pandas, or of pyarrow.
            item.add_marker(pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning"))
            item.add_marker(pytest.mark.spark)
            # PySpark leaves the sockets it collects results over to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning"))


def local_catalog(directory: Path) -> dict[str, str]:
    """Spark's side of a SQLite catalog in this directory."""
    return {
        "spark.sql.catalog.local": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.local.type": "jdbc",
        "spark.sql.catalog.local.uri": f"jdbc:sqlite:file:{directory}/catalog.db",
        "spark.sql.catalog.local.jdbc.schema-version": "V1",
        "spark.sql.catalog.local.warehouse": str(directory),
    }


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of the catalog `local` are."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """A running session; tests use namespaces of their own."""
    options = SparkOptions(master="local[2]", driver_memory="1g")
    with open_session(options, catalog_conf=local_catalog(warehouse), needs=["sqlite"], app_name="neve-tests") as session:
        yield session


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> Iterator[SqlCatalog]:
    """The same catalog as pyiceberg opens it."""
    with closing(SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))) as opened:
        yield opened
