"""What all tests share: real servers (`stack`), one Spark session with a SQLite catalog named `local`, and a private home.

A process can have one Spark session. With several workers (`pytest -n 2`), each has its own session and warehouse.
"""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.register_assert_rewrite("tests.builders")  # before the first import, so that a failed assert shows its values

from tests.builders.local_catalog import local_catalog  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from neve.errors import NeveError
    from neve.table.state import TableName

pytest_plugins = ["stack.pytest_plugin"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and every process that a test interrupts would be as deaf.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--first-cases", action="store_true", help="run only the first case of each parametrized test")


@pytest.hookimpl(trylast=True)  # after `-m` has taken out what is slow
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--first-cases"):
        first = dict[str, pytest.Item]()
        for item in items:
            first.setdefault(item.nodeid.partition("[")[0], item)
        items[:] = first.values()


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State, cache and settings of whoever runs the tests stay out of them; downloaded jars are shared."""
    for variable in [
        name for name in os.environ if name.startswith("NEVE_") and not name.startswith(("NEVE_JARS", "NEVE_REQ"))
    ]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("NEVE_STATE__URL", f"sqlite:///{tmp_path / 'state.db'}")
    monkeypatch.setenv("NEVE_CACHE__DIRECTORY", str(tmp_path / "metadata-cache"))
    monkeypatch.setenv("NEVE_SPARK__CLASS_ARCHIVE", "existing")  # nothing is recorded behind a test's back


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """The command line configures logging for the process; the next test must not see it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in (
        "neve",
        "neve.cli",
        "neve.service",
        "py.warnings",
        "py4j",
        "urllib3",
        "boto3",
        "botocore",
        "s3transfer",
        "pyiceberg",
    ):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the tables of the catalog `local`."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """The Spark session of this process. Tests use namespaces of their own."""
    from neve.context.class_archives import prepare
    from neve.spark.runtime.session import SparkOptions, open_session

    prepare(SparkOptions(), ["sqlite"])  # once per machine; every JVM that a test starts takes half the CPU time
    # Most statements of a test run once: compiling them well takes longer than running them slowly (a third less CPU time).
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    options = SparkOptions(master="local[2]", driver_memory="1g", conf=quick)
    with open_session(options, catalog_conf=local_catalog(warehouse), needs=["sqlite"], app_name="neve-tests") as session:
        yield session


@pytest.fixture(scope="module")
def without_tables_of_other_modules(warehouse: Path) -> Iterator[None]:
    """Hides tables that other modules left, some of them broken on purpose, from the index of files."""
    from neve.context.connection import Connection

    database = warehouse / "catalog.db"
    if not database.exists():
        yield
        return
    with closing(sqlite3.connect(database)) as opened:
        left = {f"local.{namespace}.{name}" for namespace, name in opened.execute(_TABLES)}
    original = Connection.survey

    def survey(self: Connection) -> Iterator[TableName | tuple[str, NeveError]]:
        yield from (found for found in original(self) if isinstance(found, tuple) or str(found) not in left)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Connection, "survey", survey)
        yield


_TABLES = "SELECT table_namespace, table_name FROM iceberg_tables"
