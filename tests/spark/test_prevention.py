"""What prevention is good for: files made by the next ten writes before it, after it, and after it was taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.api import Neve
from neve.errors import CommitConflictError
from neve.rewrite.record import RunOutcome
from neve.settings import load_settings
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = {"write.distribution-mode": "none", "write.parquet.compression-codec": "gzip"}


@pytest.fixture
def table(spark: SparkSession, warehouse: Path) -> Bench:
    """Written by four tasks, each of which has rows of all four regions."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.prevent")
    spark.sql("DROP TABLE IF EXISTS local.prevent.scattered")
    bench = Bench(spark, warehouse, "prevent", "scattered")
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in OWN.items())
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, region INT) USING iceberg PARTITIONED BY (region) TBLPROPERTIES ({properties})")
    return bench


@pytest.fixture
def neve(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Neve]:
    settings = load_settings(environ={}, flags={"state.url": f"sqlite:///{tmp_path}/state.db"})
    with Neve.open(settings, warehouse=str(warehouse), environ={}) as opened:
        opened.connection.session = spark
        yield opened


def files_of_ten_writes(table: Bench) -> int:
    before = len(table.paths())
    for i in range(10):
        table.sql(f"INSERT INTO {{}} SELECT id, CAST(id % 4 AS INT) FROM range({100 * i}, {100 * i + 100}, 1, 4)")
    return len(table.paths()) - before


def properties_of(table: Bench) -> dict[str, str]:
    return {
        key: value
        for key, value in table.load().properties.items()
        if key in OWN or key.startswith(("neve.", "write.t", "write.s"))
    }


def test_the_next_ten_writes_make_a_quarter_of_the_files(table: Bench, neve: Neve) -> None:
    name = "prevent.scattered"
    assert files_of_ten_writes(table) == 160
    versions = len(table.load().metadata.metadata_log)
    proposed = neve.prevent(name)
    assert (proposed.dry_run, properties_of(table)) == (True, OWN)
    applied = neve.prevent(name, apply=True)
    assert (applied.outcome, applied.proposal.changes) == (RunOutcome.DONE, proposed.proposal.changes)
    assert len(table.load().metadata.metadata_log) == versions + 1
    wanted = {
        "write.target-file-size-bytes": "134217728",
        "write.parquet.compression-codec": "zstd",
        "write.distribution-mode": "hash",
        "write.spark.fanout.enabled": "true",
    }
    assert {key: value for key, value in properties_of(table).items() if key != "neve.prevention"} == wanted
    assert files_of_ten_writes(table) == 40
    assert len(table.duckdb()) == 2000
    assert neve.prevent(name).outcome is RunOutcome.NOTHING_TO_DO
    undone = neve.prevent(name, undo=True)
    assert ({change.key for change in undone.undone}, properties_of(table)) == (set(wanted), OWN)
    assert [run.kind for run in neve.runs(name)] == ["prevent", "prevent"]


def test_properties_that_others_change_in_between_are_not_overwritten(
    table: Bench, neve: Neve, monkeypatch: pytest.MonkeyPatch
) -> None:
    from neve.spark.table.bridge import TableBridge

    table.sql("INSERT INTO {} SELECT id, 1 FROM range(0, 10, 1, 1)")
    real = TableBridge.swap_properties

    def struck(self: TableBridge, *args: object) -> bool:
        table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.target-file-size-bytes' = '1048576')")
        return real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TableBridge, "swap_properties", struck)
    with pytest.raises(CommitConflictError, match="somebody else has just changed them"):
        neve.prevent("prevent.scattered", apply=True)
    assert properties_of(table) == {**OWN, "write.target-file-size-bytes": "1048576"}
