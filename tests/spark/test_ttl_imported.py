"""Imported files whose metadata tells other times than their rows: TTL goes by what readers see and keeps the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.errors import StorageError
from neve.rewrite.record import RunOutcome
from tests.builders.parquet_files import edited, group, thrift
from tests.builders.ttl_tables import NOON, Kept, Make, import_times, maker, other_column_of_that_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD, YESTERDAY = datetime(2020, 1, 1, tzinfo=UTC), NOON - timedelta(days=1)


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.imported")
    return maker(spark, warehouse, tmp_path_factory.mktemp("state"), "imported")


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def table(make: Make, request: pytest.FixtureRequest) -> Kept:
    return make(mode=request.param)


def enforced(table: Kept, column: str = "ts") -> tuple[int, int, int]:
    """Previews and enforces; returns files dropped, rows deleted and files left, which must be the same in both."""
    preview = table.ttl(column=column)
    record = table.ttl(column=column, enforce=True)
    assert (record.counts, record.unproved, record.outcome) == (preview.counts, preview.unproved, preview.outcome)
    return record.counts.files_dropped, record.counts.rows_deleted, record.counts.files_left


def test_milliseconds_are_read_row_by_row(table: Kept, tmp_path: Path) -> None:
    """Iceberg's manifest has them as microseconds, so in January 1970."""
    import_times(table, tmp_path / "f.parquet", "ms", [YESTERDAY, OLD])
    import_times(table, tmp_path / "g.parquet", "ms", [YESTERDAY], first=10)
    assert enforced(table) == (0, 1, 0)
    assert table.ids() == [0, 10]


def test_a_column_that_readers_find_empty_is_kept(table: Kept, tmp_path: Path) -> None:
    import_times(table, tmp_path / "f.parquet", "us", [OLD])
    other_column_of_that_name(table)
    preview = table.ttl(column="created")
    assert preview.outcome is RunOutcome.NOTHING_TO_DO
    assert [(file.reason, file.left) for file in preview.unproved] == [
        ("it has no column that readers take for created", False)
    ]
    assert enforced(table, "created") == (0, 0, 0)
    assert table.bench.ids() == [0]


def test_files_without_field_ids_go_whole_where_the_name_mapping_finds_the_column(table: Kept, tmp_path: Path) -> None:
    import_times(table, tmp_path / "f.parquet", "us", [OLD])
    import_times(table, tmp_path / "g.parquet", "us", [YESTERDAY], first=10)
    assert enforced(table) == (1, 0, 0)
    assert table.ids() == [10]


def test_a_file_whose_partition_is_past_and_whose_rows_are_not_is_kept(make: Make, tmp_path: Path) -> None:
    table = make("d DATE", "PARTITIONED BY (d)")
    import_times(table, tmp_path / "in" / "d=2020-01-01" / "f.parquet", "d", [YESTERDAY])  # and its rows say yesterday
    import_times(table, tmp_path / "also" / "d=2020-01-01" / "f.parquet", None, [OLD], first=10)  # has no column d, as in Hive
    table.insert("SELECT 20, DATE '2020-01-02'")
    assert enforced(table, "d") == (2, 0, 0)
    assert table.bench.ids() == [0]


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_of_such_a_file_stay_when_others_are_deleted(make: Make, tmp_path: Path, mode: str) -> None:
    table = make("d DATE", mode=mode)
    table.insert("SELECT 20, DATE '2020-01-02' UNION ALL SELECT 21, DATE '2025-06-14'")
    table.sql("ALTER TABLE {} ADD PARTITION FIELD d")
    import_times(table, tmp_path / "in" / "d=2020-01-01" / "f.parquet", "d", [YESTERDAY])
    assert enforced(table, "d") == (0, 1, 0)
    assert table.bench.ids() == [0, 21]


@pytest.mark.parametrize("has_deletes", [False, True])
def test_a_file_of_which_icebergs_reader_leaves_out_rows_is_not_rewritten(
    make: Make, tmp_path: Path, has_deletes: bool
) -> None:
    """Its footer claims a wrong size of a row group, which other readers do not use."""
    table, path = make(mode="copy-on-write"), tmp_path / "f.parquet"
    import_times(table, path, "us", [YESTERDAY, OLD, OLD], group_rows=1)
    if has_deletes:
        table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        table.sql("DELETE FROM {} WHERE id = 2")
        table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    before = path.read_bytes()
    path.write_bytes(edited(before, lambda footer: group(footer).update({6: (thrift.I64, 8191)})))
    assert path.stat().st_size == len(before)
    found = r"Iceberg's reader finds 2 rows in 1 data file and the table has 3"
    with pytest.raises(StorageError, match=f"^Cannot count rows past their time: {found}$"):
        enforced(table)
    assert [row.split("'id': ")[1][0] for row in table.bench.duckdb()] == (["0", "1"] if has_deletes else ["0", "1", "2"])
