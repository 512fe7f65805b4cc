"""Commits of real Iceberg that change rows, and others, as their snapshots describe them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.health.row_changes import changes_rows
from neve.spark.table.bridge import TableBridge
from neve.table.state import TableName
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE = (
    "MERGE INTO {} t USING (SELECT id FROM range(8, 12)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = 9 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 0)"
)
OVERWRITE_PARTITIONS = "overwrite partitions"
STATEMENTS = (
    ("INSERT INTO {} SELECT id, 0 FROM range(0, 10)", "append", False),
    ("UPDATE {} SET v = 1 WHERE id = 3", "overwrite", True),
    ("DELETE FROM {} WHERE id = 4", None, True),  # `overwrite` by copy-on-write, `delete` by merge-on-read
    (MERGE, "overwrite", True),
    ("INSERT OVERWRITE {} SELECT id, 0 FROM range(0, 20)", "overwrite", True),  # by a filter: it looks like copy-on-write
    (OVERWRITE_PARTITIONS, "overwrite", False),
    (
        "CALL local.system.rewrite_data_files(table => 'changes.{name}', options => map('rewrite-all', 'true'))",
        "replace",
        False,
    ),
)


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")])
def test_the_commits_that_a_replaced_file_can_make_fail_are_told_apart(
    spark: SparkSession, warehouse: Path, version: int, mode: str
) -> None:
    bench = Bench(spark, warehouse, "changes", f"t{version}_{mode.replace('-', '_')}")
    modes = ", ".join(f"'write.{kind}.mode' = '{mode}'" for kind in ("update", "delete", "merge"))
    bench.sql(f"CREATE TABLE {{}} (id BIGINT, v BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '{version}', {modes})")
    for statement, _, _ in STATEMENTS:
        if statement == OVERWRITE_PARTITIONS:
            spark.range(20).selectExpr("id", "0L AS v").writeTo(f"local.changes.{bench.name}").overwritePartitions()
        else:
            bench.sql(statement.replace("{name}", bench.name))
    bridge = TableBridge(spark, TableName(catalog="local", namespace=("changes",), name=bench.name))
    head = bridge.head()
    assert head is not None
    found = [*reversed(bridge.ancestry(head, None))]
    told = [(one.operation, changes_rows(one.operation, one.summary)) for one in found]
    deleted = "overwrite" if mode == "copy-on-write" else "delete"
    assert told == [(operation or deleted, changed) for _, operation, changed in STATEMENTS]
    assert all(earlier.timestamp_ms <= later.timestamp_ms for earlier, later in pairwise(found))
    assert found[0].timestamp_ms > 1_600_000_000_000
    assert bridge.ancestry(head, None, most=2) == [*reversed(found[-2:])]
