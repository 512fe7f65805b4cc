"""Tables to have accidents with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.builders.cleanup_tables import Make, Site, making
from tests.builders.spark_tables import Bench

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


@pytest.fixture(scope="module", autouse=True)
def _own_tables(request: pytest.FixtureRequest) -> None:
    """Each module sees its own tables only, in a namespace that exists."""
    own = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    if any("spark" in getattr(item, "fixturenames", ()) for item in own):
        request.getfixturevalue("spark").sql("CREATE NAMESPACE IF NOT EXISTS local.accidents")
        request.getfixturevalue("without_tables_of_other_modules")


@pytest.fixture
def bench(benches: Callable[[], Bench]) -> Bench:
    """A name in the catalog that no table has yet."""
    return benches()


@pytest.fixture
def benches(spark: SparkSession, warehouse: Path) -> Iterator[Callable[[], Bench]]:
    """More of them. Their tables are dropped afterwards: one that an accident broke would be in doubt for all others."""
    made = list[Bench]()

    def make() -> Bench:
        made.append(Bench(spark, warehouse, "accidents", f"t{next(_NUMBERS)}"))
        return made[-1]

    yield make
    for one in made:
        with closing(one.catalog()) as catalog, suppress(NoSuchTableError):
            catalog.drop_table(("accidents", one.name))


@pytest.fixture
def sites(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Make]:
    """Makes tables with files of a known age."""
    with making(spark, warehouse, tmp_path) as make:
        yield make


@pytest.fixture
def site(sites: Make) -> Site:
    """One of them."""
    return sites()
