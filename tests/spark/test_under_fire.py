"""A writer that never stops: every compaction commits beside it, and no row is lost, doubled or revived."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from neve.api import Neve
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from tests.builders.table_contents import duckdb_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

COMPACTIONS = 10
EVERY_SECONDS = 0.2


class Appender(threading.Thread):
    """Appends ten rows at a time, with ids that never repeat, until it is told to stop."""

    def __init__(self, warehouse: Path, table: str) -> None:
        super().__init__()
        self._warehouse, self._table = warehouse, table
        self._stopped = threading.Event()
        self.appended = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        catalog = SqlCatalog("local", uri=f"sqlite:///{self._warehouse / 'catalog.db'}", warehouse=str(self._warehouse))
        try:
            while not self._stopped.wait(EVERY_SECONDS):
                self._append(catalog)
        except BaseException as error:
            self.failure = error
        finally:
            catalog.close()

    def _append(self, catalog: SqlCatalog) -> None:
        ids = range(self.appended, self.appended + 10)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {i}" for i in ids]})
        while True:
            try:
                catalog.load_table(self._table).append(rows)
            except CommitFailedException:  # we were quicker; an appender tries again
                continue
            self.appended += 10
            return

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.fixture
def table(warehouse: Path) -> Iterator[str]:
    namespace = f"fire_{uuid4().hex[:12]}"
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    catalog.create_namespace(namespace)
    catalog.create_table(f"{namespace}.t", schema=pa.schema([("id", pa.int64()), ("text", pa.string())]))
    yield f"{namespace}.t"
    catalog.close()


def test_ten_compactions_commit_beside_a_writer_that_appends_five_times_a_second(
    spark: SparkSession, warehouse: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Appender(warehouse, table)
    writer.start()
    records: list[Any] = []
    try:
        with Neve.open(load_settings(), warehouse=str(warehouse)) as neve:
            monkeypatch.setattr(neve.connection, "session", spark)
            while len(records) < COMPACTIONS:
                record = neve.compact(table, request=Request(force=True))
                if record.outcome is not RunOutcome.NOTHING_TO_DO:
                    records.append(record)
    finally:
        writer.stop()
    assert writer.failure is None
    assert [record.outcome for record in records] == [RunOutcome.DONE] * COMPACTIONS
    catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse / 'catalog.db'}", warehouse=str(warehouse))
    location = catalog.load_table(table).metadata_location
    catalog.close()
    (seen,) = duckdb_query(
        f"SELECT count(*) AS rows, count(DISTINCT id) AS ids, min(id) AS low, max(id) AS high FROM iceberg_scan('{location}')"
    )
    assert seen == {"rows": writer.appended, "ids": writer.appended, "low": 0, "high": writer.appended - 1}
