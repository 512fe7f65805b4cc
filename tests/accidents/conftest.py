"""One Spark session for all accidents, ended before other folders start theirs; and tables to have accidents with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.engines.spark.session import SparkOptions, open_session
from tests.accidents.sites import Make, Site, making
from tests.spark.conftest import local_catalog
from tests.spark.rewriting import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE = Path(__file__).parent
_NUMBERS = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning"))
            # PySpark leaves the sockets it collects results over to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*unclosed <socket:pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of the catalog `local` are."""
    return tmp_path_factory.mktemp("accidents")


@pytest.fixture(scope="package")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    options = SparkOptions(master="local[2]", driver_memory="1g")
    with open_session(options, catalog_conf=local_catalog(warehouse), needs=["sqlite"], app_name="neve-tests") as session:
        session.sql("CREATE NAMESPACE local.accidents")
        yield session


@pytest.fixture
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    """A name in the catalog that no table has yet."""
    return Bench(spark, warehouse, "accidents", f"t{next(_NUMBERS)}")


@pytest.fixture
def benches(spark: SparkSession, warehouse: Path) -> Callable[[], Bench]:
    """More of them."""
    return lambda: Bench(spark, warehouse, "accidents", f"t{next(_NUMBERS)}")


@pytest.fixture
def sites(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Make]:
    """Makes tables with files of a known age."""
    with making(spark, warehouse, tmp_path) as make:
        yield make


@pytest.fixture
def site(sites: Make) -> Site:
    """One of them."""
    return sites()
