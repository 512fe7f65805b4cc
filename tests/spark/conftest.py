"""Tests on real Spark: their markers, the tests that PySpark 3.5 cannot run, and the catalog as pyiceberg opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from neve.kernels.arrow.refusing import counts_nested_nulls

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
_NOT_ON_OLD = (
    "test_an_equality_delete_on_a_dropped_column_is_still_applied",
    "test_a_delete_on_a_column_that_was_dropped_since_is_converted",
    "test_tables_we_cannot_understand_do_not_stop_the_others",
    "test_variant_columns_are_compacted_unchanged",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not (IS_OLD and item.name.startswith(_NOT_ON_OLD))]
    for item in items:
        if _HERE in item.path.parents:
            # PySpark 3.5 asks it for the version of pandas, or of pyarrow.
            item.add_marker(pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning"))
            item.add_marker(pytest.mark.spark)
            # PySpark leaves the sockets it collects results over to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="module")
def catalog(warehouse: Path) -> Iterator[SqlCatalog]:
    """The same catalog as pyiceberg opens it."""
    with closing(SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _own_tables(without_tables_of_other_modules: None) -> None:
    """Each module sees its own tables only."""
