"""Probe queries on real Spark: what they answer before and after, and which statements are refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from neve.errors import BadRequestError
from neve.rewrite.content import Fingerprint, Measured, probe_result
from neve.rewrite.group import Kernel
from neve.spark.tasks.probe import Probe, require_query
from neve.table.state import TableName
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PySpark 3.5 compares versions with it.
pytestmark = pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning")
TABLE = TableName(catalog="local", namespace=("probe",), name="t")


@pytest.fixture(scope="module")
def bench(spark: SparkSession, warehouse: Path) -> Bench:
    bench = Bench(spark, warehouse, "probe", "t")
    bench.sql("CREATE TABLE {} (id BIGINT, v DOUBLE) USING iceberg TBLPROPERTIES ('format-version' = '2')")
    for start in range(0, 40, 10):
        bench.sql(f"INSERT INTO {{}} SELECT id, rand(7) FROM range({start}, {start + 10}, 1, 1)")
    return bench


def test_a_compaction_changes_no_answer_and_a_write_does(bench: Bench) -> None:
    query = Probe(bench.spark, "SELECT id % 3 AS k, sum(v), count(*) FROM local.probe.t GROUP BY 1 ORDER BY 1", TABLE)
    before = query.measure()
    bench.compact(Kernel.ARROW)
    after = query.measure()
    add_row_unseen(bench)
    changed = query.measure()

    assert (before.answer.rows, before.runs) == (3, 3)
    assert before.seconds > 0
    assert probe_result(before, after, others_committed=False).equal is True
    assert changed.answer != after.answer


def add_row_unseen(bench: Bench) -> None:
    """As somebody else would, so that this session's catalog does not notice."""
    with closing(bench.catalog()) as catalog:
        table = catalog.load_table("probe.t")
        table.append(pa.table({"id": pa.array([1000]), "v": pa.array([1.0])}))


def test_a_table_that_is_kept_in_memory_is_no_measure_of_its_files(bench: Bench) -> None:
    query = Probe(bench.spark, "SELECT count(*) FROM local.probe.t", TABLE, limit_seconds=0)
    bench.sql("CACHE TABLE {}")
    with pytest.raises(BadRequestError, match=r"`local`.`probe`.`t` is cached, and its files would not be read$") as caught:
        query.measure()
    assert caught.value.hint == "Run `UNCACHE TABLE local.probe.t` first."
    bench.spark.sql(caught.value.hint.split("`")[1])
    assert query.measure().answer.rows == 1


def test_a_limit_cuts_the_number_of_runs(bench: Bench) -> None:
    assert Probe(bench.spark, "SELECT 1", TABLE, limit_seconds=0).measure().runs == 1


def test_columns_may_share_a_name_and_have_odd_ones(bench: Bench) -> None:
    one, other = (
        Probe(bench.spark, f"SELECT {a} AS `a.b`, {b} AS `a.b`, {a} AS `x y`", TABLE, limit_seconds=0).measure().answer
        for a, b in ((1, 2), (2, 1))
    )
    assert one != other


def measured(answer: int, seconds: float) -> Measured:
    return Measured(sql="SELECT 1", answer=Fingerprint(rows=answer), seconds=seconds, runs=3)


def test_what_differs_is_not_comparable_where_others_committed() -> None:
    alone = probe_result(measured(1, 1.0), measured(2, 1.0), others_committed=False)
    among = probe_result(measured(1, 1.0), measured(2, 1.0), others_committed=True)
    told = "answered 1 rows, hash 00000000000000000000000000000000 before, 2 rows, hash 00000000000000000000000000000000 after"
    assert (alone.equal, alone.note) == (False, told)
    assert (among.equal, among.note) == (None, f"not comparable, since others committed meanwhile: {told}")
    assert probe_result(measured(1, 1.0), measured(1, 1.0), others_committed=True).equal is True


@pytest.mark.parametrize(("after", "slower"), [(1.2, False), (1.21, True), (0.1, False)])
def test_more_than_a_fifth_slower_is_told(after: float, slower: bool) -> None:
    assert probe_result(measured(1, 1.0), measured(1, after), others_committed=False).slower is slower


@pytest.mark.parametrize("sql", ["select 1", "  -- why\n/* SELECT? */ ((SELECT 1))", "WITH x AS (SELECT 1) SELECT * FROM x"])
def test_queries_are_taken_for_queries(bench: Bench, sql: str) -> None:
    assert Probe(bench.spark, sql, TABLE, limit_seconds=0).measure().answer.rows == 1


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("DELETE FROM local.probe.t", "it begins with DELETE, and only queries are run"),
        ("  ", "it is empty, and only queries are run"),
        ("-- SELECT 1", "it is empty, and only queries are run"),
        ("/* SELECT */ DROP TABLE local.probe.t", "it begins with DROP, and only queries are run"),
    ],
)
def test_a_statement_is_refused_before_spark_is_asked(sql: str, reason: str) -> None:
    with pytest.raises(BadRequestError, match=f"^Cannot probe with .*: {reason}$"):
        require_query(sql)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("WITH x AS (SELECT 1L AS id, 1D AS v) INSERT INTO local.probe.t SELECT * FROM x", "it would change something"),
        ("SELECT 1; DELETE FROM local.probe.t", ".*PARSE_SYNTAX_ERROR.*"),
        ("SELECT (", ".*PARSE_SYNTAX_ERROR.*"),
    ],
)
def test_a_statement_that_only_looks_like_a_query_is_refused(bench: Bench, sql: str, reason: str) -> None:
    before = bench.ids()
    with pytest.raises(BadRequestError, match=f"^Cannot probe with .*: {reason}$"):
        Probe(bench.spark, sql, TABLE)
    assert bench.ids() == before


@pytest.mark.parametrize(
    ("sql", "reason"),
    [("SELECT * FROM local.probe.nowhere", "TABLE_OR_VIEW_NOT_FOUND"), ("SELECT raise_error('no') FROM range(1)", "no")],
)
def test_a_query_that_cannot_be_answered_is_the_callers_mistake(bench: Bench, sql: str, reason: str) -> None:
    with pytest.raises(BadRequestError, match=f"^Cannot probe with '?\"?SELECT .*: .*{reason}"):
        Probe(bench.spark, sql, TABLE).measure()
