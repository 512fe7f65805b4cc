"""Damaged footers and the spark kernel: it commits the rows that a file holds, or leaves its group alone.

One run judges many files. `make test` tries 100 mutations, the slow test 2,000; a failure names seed file and number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.rewrite.record import GroupState
from tests.builders.damaged_tables import DamagedTable
from tests.builders.footer_mutations import Seed, seeds
from tests.builders.parquet_files import Struct, chunk, edited, group, meta, thrift
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
SAMPLE, SOAK, BATCH = 34, 667, 223
"""Mutations for each kind of seeds: of `make test`, of the slow test, and of one of its runs."""
SEEDS = {kind: [seed for seed in seeds() if seed.name.startswith(kind)] for kind in ("duckdb", "flat", "nested")}
GROUPED = next(seed for seed in SEEDS["flat"] if seed.name == "flat-page-index-groups")
"""Row groups of 13, 13, 13 and 1 rows."""


@pytest.fixture
def make(spark: SparkSession, warehouse: Path, tmp_path: Path) -> Callable[[list[Seed]], DamagedTable]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.footers")
    return lambda of: DamagedTable(Bench(spark, warehouse, "footers", f"t{next(NUMBERS)}"), of, tmp_path)


Make = Callable[[list[Seed]], DamagedTable]


@pytest.mark.parametrize("kind", SEEDS)
def test_the_spark_kernel_commits_what_a_damaged_file_holds_or_leaves_its_group_alone(make: Make, kind: str) -> None:
    table = make(SEEDS[kind])
    table.fill(range(SAMPLE))
    assert table.compact() == []
    assert table.counts["unreadable, failed"] > SAMPLE // 2
    assert table.counts["readable, committed"] > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", SEEDS)
def test_two_thousand_damaged_footers_and_the_spark_kernel(make: Make, kind: str) -> None:
    total = Counter[str]()
    for start in range(1_000_000, 1_000_000 + SOAK, BATCH):
        table = make(SEEDS[kind])
        table.fill(range(start, min(start + BATCH, 1_000_000 + SOAK)))
        assert table.compact() == []
        total += table.counts
    assert sum(total.values()) > SOAK * 0.9  # some mutations change nothing, and do not count
    assert total["readable, committed"] > SOAK // 20


def larger_group(footer: Struct) -> None:
    """Its middle is then beyond the end of the file, and Iceberg's reader leaves it out."""
    group(footer, 1)[6] = (thrift.I64, 10**6)


def smaller_group(footer: Struct) -> None:
    """Its middle is then before the file."""
    group(footer, 1)[6] = (thrift.I64, -(10**6))


def larger_chunk(footer: Struct) -> None:
    """More memory than the JVM has."""
    meta(footer, 0, 1)[7] = (thrift.I64, 2 * 10**9)


def larger_chunk_of_another_layout(footer: Struct) -> None:
    """The same in a file that cannot be copied."""
    larger_chunk(footer)
    meta(footer, 1, 2)[4] = (thrift.I32, 99)


def columns_swapped(footer: Struct) -> None:
    """Nothing is wrong with it: a chunk may be anywhere."""
    first, second = chunk(footer, 1, 1), chunk(footer, 1, 2)
    for key in {*first, *second}:
        first[key], second[key] = second[key], first[key]


REFUSED = (larger_group, smaller_group, larger_chunk, larger_chunk_of_another_layout)


def test_a_row_group_that_icebergs_reader_leaves_out_or_chokes_on_fails_its_group_alone(make: Make) -> None:
    table = make([GROUPED])
    with table.adding() as delta:
        for edit in (*REFUSED, columns_swapped):
            table.add(delta, edit.__name__, GROUPED, edited(GROUPED.data, edit), has_deletes=True)
    assert table.compact() == []
    states = {damage.name: table.groups[part].state for part, damage in enumerate(table.parts)}
    expected = {edit.__name__: GroupState.FAILED for edit in REFUSED} | {"columns_swapped": GroupState.COMMITTED}
    assert states == expected
    reasons = [table.groups[part].reason for part in range(len(REFUSED))]
    assert all(reason.startswith(f"Cannot read {table.parts[part].path}: its footer") for part, reason in enumerate(reasons))


@pytest.mark.parametrize("has_deletes", [True, False])
def test_rows_that_icebergs_reader_does_not_find_are_missed_by_the_proof(
    make: Make, monkeypatch: pytest.MonkeyPatch, has_deletes: bool
) -> None:
    """Whatever the reader follows: rows are counted, and deletes explain only rows that were read."""
    monkeypatch.setattr("neve.spark.table.opening.check_footer", lambda *_: None)
    table = make([GROUPED])
    with table.adding() as delta:
        table.add(delta, "larger group", GROUPED, edited(GROUPED.data, larger_group), has_deletes=has_deletes)
    assert table.compact() == []
    assert table.groups[0].state is GroupState.FAILED
    assert table.groups[0].reason == "verification failed: rows read: 47, expected 60"
