"""A session whose settings send reads and writes to another branch: work goes to the branch asked for, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.errors import BadRequestError
from neve.rewrite.group import Kernel
from neve.rewrite.planner import Request
from neve.rewrite.record import RunOutcome
from tests.builders.ttl_tables import Kept, maker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUDITED = [1, 2, 3, 4, 50]


@pytest.fixture
def table(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Iterator[Kept]:
    """Branch `audit` has one row more than main, and the session works on it."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.redirects")
    table = maker(spark, warehouse, tmp_path, "redirects")()
    for first in (1, 3):
        table.append(first, 40, 1)
    table.sql("ALTER TABLE {} CREATE BRANCH audit")
    table.append(50, 1, branch="audit")
    table.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.conf.set("spark.wap.branch", "audit")
    yield table
    spark.conf.unset("spark.wap.branch")


def test_compactions_and_checks_go_to_the_branch_that_was_asked_for_and_statistics_are_refused(table: Kept) -> None:
    name, audit = f"redirects.{table.bench.name}", table.bench.load().snapshot_by_name("audit")
    with table.open({}) as neve:
        record = neve.compact(name, request=Request(force=True, kernel=Kernel.SPARK), verify="content")
        with pytest.raises(BadRequestError, match=r"spark\.wap\.branch=audit sends its reads and writes"):
            neve.stats(name)
    loaded = table.bench.load()
    assert record.outcome is RunOutcome.DONE
    assert loaded.metadata.current_snapshot_id == record.snapshots[-1]
    assert loaded.snapshot_by_name("audit") == audit
    assert table.of_ref("audit") == AUDITED
    assert table.of_ref("main") == AUDITED[:-1]


def test_a_probe_that_would_read_another_branch_is_refused(table: Kept) -> None:
    name, query = f"redirects.{table.bench.name}", f"SELECT count(*) FROM {table.bench.sql_name}"
    reason = r"spark\.wap\.branch=audit sends its reads and writes"
    with table.open({}) as neve, pytest.raises(BadRequestError, match=reason) as refused:
        neve.compact(name, request=Request(force=True), probe_query=query)
    statement = str(refused.value.hint).split("`")[1]
    assert statement == 'spark.conf.unset("spark.wap.branch")'
    eval(statement, {"spark": table.bench.spark})  # noqa: S307 - the hint as it is printed
    with table.open({}) as neve:
        assert neve.compact(name, request=Request(force=True), probe_query=query).outcome is RunOutcome.DONE
