"""Tables with deletes of every kind, compacted from plan to commit: Spark and DuckDB read the same rows before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from neve.api import Neve
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome
from neve.settings import load_settings
from neve.spark.tasks.staging import DELETE_CACHE
from tests.builders.spark_deletes import MERGE_ON_READ, delete_equal
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import duckdb_query, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
LINEAGE = "_row_id, _last_updated_sequence_number, *"
DELETE = "DELETE FROM {} WHERE id % 7 = 3 AND id < 25"

Act = Callable[[Bench], object]
Make = Callable[["Case"], Bench]


def sql(statement: str) -> Act:
    return lambda bench: bench.sql(statement)


def append(start: int, rows: int = 10) -> Act:
    return sql(f"INSERT INTO {{}} SELECT id, CAST(id % 2 AS INT), concat('v', id) FROM range({start}, {start + rows}, 1, 1)")


def equal(*ids: int) -> Act:
    return lambda bench: delete_equal(bench, [{"id": i} for i in ids])


@dataclass(frozen=True)
class Case:
    """How a table came to be, and what is gone in the end."""

    acts: tuple[Act, ...]
    gone: frozenset[int]
    version: int = 2
    scope: str = "file"
    partitions: str = ""
    refusals: int = 0
    """Groups that the spark kernel takes, with a reason."""


def values(column: str, *found: object) -> Act:
    return lambda bench: delete_equal(bench, [{column: value} for value in found])


def within(partition: str, *ids: int) -> Act:
    return lambda bench: delete_equal(bench, [{"id": i} for i in ids], partition=partition)


def everywhere(*ids: int) -> Act:
    """A global delete: of the first spec, which is unpartitioned."""
    return lambda bench: delete_equal(bench, [{"id": i} for i in ids], spec_id=0)


APPENDS = (append(0), append(10), append(20))
BY_POSITION = frozenset({3, 10, 17, 24})
UPGRADE = sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
DROP = sql("ALTER TABLE {} DROP COLUMN v")
CASES = {
    "position deletes of one file each": Case((*APPENDS, sql(DELETE)), BY_POSITION),
    "position deletes of a partition": Case((*APPENDS, sql(DELETE)), BY_POSITION, scope="partition"),
    "equality deletes": Case((append(0), append(10), equal(3, 12), append(20), equal(12, 25, 99)), frozenset({3, 12, 25})),
    "a row that came back": Case((append(0), append(10), equal(3, 12), append(12, 1), append(20)), frozenset({3})),
    "both": Case((*APPENDS, equal(5, 15), sql(DELETE), equal(29)), BY_POSITION | {5, 15, 29}),
    "vectors": Case((*APPENDS, sql(DELETE)), BY_POSITION, version=3),
    "vectors and equality deletes": Case((*APPENDS, equal(5, 15), sql(DELETE)), BY_POSITION | {5, 15}, version=3),
    "several columns to compare": Case((*APPENDS, equal(5), values("v", "v6", "v26"), equal(7)), frozenset({5, 6, 7, 26})),
    "partitions": Case(
        (*APPENDS, within("p=0", 4, 5), within("p=1", 7, 8), sql(DELETE)), BY_POSITION | {4, 7}, partitions="PARTITIONED BY (p)"
    ),
    "a delete of the whole table": Case(
        (append(0), sql("ALTER TABLE {} ADD PARTITION FIELD p"), append(10), append(20), everywhere(5, 12, 23)),
        frozenset({5, 12, 23}),
    ),
    "position deletes in a table that became v3": Case((*APPENDS, sql(DELETE), UPGRADE, append(30)), BY_POSITION),
    "a vector over position deletes": Case(
        (*APPENDS, sql(DELETE), UPGRADE, sql("DELETE FROM {} WHERE id IN (4, 11)"), append(30)), BY_POSITION | {4, 11}
    ),
    "rows that were updated": Case(
        (*APPENDS, sql("UPDATE {} SET v = 'new' WHERE id IN (4, 14)"), sql(DELETE)), BY_POSITION, version=3
    ),
    "deletes in Avro": Case(
        (*APPENDS, sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.format.default' = 'avro')"), sql(DELETE)),
        BY_POSITION,
        refusals=1,
    ),
}


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.deleted")

    def make(case: Case) -> Bench:
        bench = Bench(spark, warehouse, "deleted", f"t{next(NUMBERS)}", moves_deletes=True)
        properties = f"'format-version' = '{case.version}', 'write.delete.granularity' = '{case.scope}', {MERGE_ON_READ}"
        columns = "id BIGINT, p INT, v STRING"
        bench.sql(f"CREATE TABLE {{}} ({columns}) USING iceberg {case.partitions} TBLPROPERTIES ({properties})")
        for act in case.acts:
            act(bench)
        return bench

    return make


def everything(bench: Bench) -> list[str]:
    """All rows, with their lineage where the table has one, as Spark reads them."""
    return bench.rows(LINEAGE if bench.load().format_version == 3 else "*")


@pytest.mark.parametrize("name", CASES)
def test_deletes_are_applied_and_gone(name: str, make: Make) -> None:
    case = CASES[name]
    bench = make(case)
    before, files = everything(bench), bench.paths()
    assert set(bench.ids()) == set(range(40 if UPGRADE in case.acts else 30)) - case.gone
    assert len(bench.deletes()) > 0

    record = bench.compact()

    assert record.outcome is RunOutcome.DONE, record.groups
    used = [(group.kernel, len(group.refusals)) for group in record.groups]
    groups = len(used) - case.refusals
    assert sorted(used) == [(Kernel.ARROW, 0)] * groups + [(Kernel.SPARK, 1)] * case.refusals, record.groups
    assert everything(bench) == before
    assert bench.duckdb() == bench.rows()
    assert not bench.paths() & files
    assert bench.deletes() == set()
    assert len(record.snapshots) == 1


def test_an_equality_delete_on_a_dropped_column_is_still_applied(make: Make) -> None:
    bench = make(Case((*APPENDS, values("v", "v6", "v26"), DROP), frozenset({6, 26})))
    ids = [i for i in range(30) if i not in (6, 26)]
    assert bench.ids() == ids  # Spark finds the column in an older schema
    record = bench.compact()
    assert [(group.kernel, group.refusals) for group in record.groups] == [(Kernel.ARROW, ())]
    assert bench.ids() == ids
    assert [row["id"] for row in sorted(read_rows(bench), key=lambda row: row["id"])] == ids
    assert bench.deletes() == set()


@pytest.mark.parametrize("kernel", [Kernel.ARROW, Kernel.SPARK])
def test_a_key_that_was_widened_still_deletes(kernel: Kernel, make: Make) -> None:
    """Also where Spark has read the delete before: by default Iceberg would compare what it kept of it with the old type."""
    bench = make(Case(APPENDS, frozenset()))
    for number in range(4):
        bench.sql(f"ALTER TABLE {{}} ADD COLUMN k{number} INT")
        bench.sql(f"UPDATE {{}} SET k{number} = CAST(id AS INT)")
        delete_equal(bench, [{f"k{number}": number}])
        assert bench.ids() == list(range(number + 1, 30))
        bench.sql(f"ALTER TABLE {{}} ALTER COLUMN k{number} TYPE BIGINT")
        record = bench.compact(kernel)
        assert dict(record.kernels) == {kernel: 1}
        assert record.outcome is RunOutcome.DONE, record.groups
        assert bench.ids() == list(range(number + 1, 30))
    assert bench.deletes() == set()


def test_a_callers_session_that_keeps_deletes_in_memory_brings_no_row_back(make: Make) -> None:
    bench = make(Case(APPENDS, frozenset()))
    for number in range(4):
        bench.sql(f"ALTER TABLE {{}} ADD COLUMN k{number} INT")
        bench.sql(f"UPDATE {{}} SET k{number} = CAST(id AS INT)")
        delete_equal(bench, [{f"k{number}": number}])
        bench.spark.conf.set(DELETE_CACHE, "true")
        try:
            assert bench.ids() == list(range(number + 1, 30))
            bench.sql(f"ALTER TABLE {{}} ALTER COLUMN k{number} TYPE BIGINT")
            assert bench.compact(Kernel.SPARK).outcome is RunOutcome.DONE
            assert bench.spark.conf.get(DELETE_CACHE) == "true"
        finally:
            bench.spark.conf.set(DELETE_CACHE, "false")
        assert bench.ids() == list(range(number + 1, 30))
    assert bench.deletes() == set()


def read_rows(bench: Bench) -> list[dict[str, Any]]:
    return duckdb_query(f"SELECT * FROM iceberg_scan('{bench.load().metadata_location}')")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("scope", ["file", "partition"])
def test_deletes_that_other_files_need_stay(version: int, scope: str, make: Make) -> None:
    bench = make(Case((*APPENDS, sql(DELETE), equal(5, 25)), BY_POSITION | {5, 25}, version=version, scope=scope))
    first, second, third = sorted(bench.paths(), key=lambda path: min(pq.read_table(local(path))["id"].to_pylist()))
    before = everything(bench)

    record = bench.compact(paths={first, second})

    assert record.outcome is RunOutcome.DONE, record.groups
    assert third in bench.paths()
    assert (everything(bench), bench.duckdb()) == (before, bench.rows())
    # One equality delete, and what the third file has by position.
    assert len(bench.deletes()) == 2
    snapshot = bench.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    own = 2 if version == 3 or scope == "file" else 0  # in one file for the whole partition nothing can go
    assert int(snapshot.summary["removed-delete-files"] or 0) == own


@pytest.mark.parametrize("version", [2, 3])
def test_more_keys_than_a_task_may_hold_are_found_by_spark_first(
    version: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(Case((*APPENDS, equal(5, 15), sql(DELETE), equal(29)), BY_POSITION | {5, 15, 29}, version=version))
    before = everything(bench)
    monkeypatch.setattr("neve.spark.tasks.rewrite.has_many_keys", lambda _: True)
    record = bench.compact()
    assert [(group.kernel, group.refusals) for group in record.groups] == [(Kernel.ARROW, ())]
    assert (everything(bench), bench.duckdb()) == (before, bench.rows())
    assert bench.deletes() == set()
    directory = bench.warehouse / bench.namespace / bench.name / "data"
    scratch = {str(path) for path in directory.rglob("*resolved*")}
    assert scratch
    assert scratch == {*bench.quarantine.paths}


def test_rows_of_v3_are_copied_where_nothing_is_deleted(make: Make) -> None:
    bench = make(Case(APPENDS, frozenset(), version=3))
    before = everything(bench)
    record = bench.compact(Kernel.COPY)
    assert [(group.kernel, group.refusals) for group in record.groups] == [(Kernel.COPY, ())]
    assert (everything(bench), bench.duckdb()) == (before, bench.rows())
    assert len(bench.paths()) == 1


@pytest.mark.parametrize("kernel", [Kernel.ARROW, Kernel.SPARK])
def test_row_ids_survive_one_compaction_after_another(kernel: Kernel, make: Make) -> None:
    bench = make(Case((*APPENDS, sql(DELETE)), BY_POSITION, version=3))
    for act in (append(30), sql("UPDATE {} SET v = 'x' WHERE id = 1"), sql("DELETE FROM {} WHERE id = 31"), equal(2, 32)):
        act(bench)
        before = everything(bench)
        record = bench.compact(kernel)
        assert record.outcome is RunOutcome.DONE, record.groups
        assert (everything(bench), bench.duckdb()) == (before, bench.rows())
        assert bench.deletes() == set()


@pytest.mark.parametrize("version", [2, 3])
def test_the_content_is_proved_with_deletes_applied(version: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = make(Case((*APPENDS, equal(5, 15), sql(DELETE)), BY_POSITION | {5, 15}, version=version))
    before = everything(bench)
    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as neve:
        monkeypatch.setattr(neve.connection, "session", bench.spark)
        record = neve.compact(f"deleted.{bench.name}", request=Request(tier=Tier.FULL, force=True), verify="content")
    (group,) = record.groups
    assert (group.state, group.kernel) == (GroupState.COMMITTED, Kernel.ARROW), group
    assert group.proof is not None
    assert [check.holds for check in group.proof.checks if check.name == "content"] == [True]
    assert (everything(bench), bench.deletes()) == (before, set())
