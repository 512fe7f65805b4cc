"""Writers of every kind and compactions by every kernel in any order: the table always shows the rows of a plain list.

The list knows nothing of files. What the table shows is read by Spark, which shares no code with the kernels; in format v3 each
row keeps its id for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from neve.maintenance.delete_files import Upkeep
from neve.rewrite.group import Kernel
from neve.rewrite.record import GroupState, RunOutcome
from tests.builders.spark_deletes import MERGE_ON_READ, delete_equal
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
VALUES: dict[str, tuple[Any, ...]] = {
    "INT": (None, 0, 1),
    "BIGINT": (None, 0, 1, 2**40),
    "FLOAT": (None, 0.5, 1.5),
    "DOUBLE": (None, 0.5, 0.1),
    "STRING": (None, "", "a"),
}
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}
SETTLED = {GroupState.COMMITTED, GroupState.DROPPED, GroupState.SUPERSEDED}

seeds = st.integers(0, 2**20)


@dataclass(eq=False)
class Column:
    """A column for as long as it lives; another with the same name is another column."""

    name: str
    kind: str


Row = dict[Column, Any]
"""Values by column; those of columns that the row is older than are absent, and read as null."""


class Writers(RuleBasedStateMachine):
    """`rows` is the truth, by id. Choices are numbers, reduced to what there is to choose from."""

    def __init__(self, make: Callable[[int, str], Bench]) -> None:
        super().__init__()
        self.make = make

    @initialize(
        version=st.sampled_from([2, 3]),
        scope=st.sampled_from(["file", "partition"]),
        is_partitioned=st.booleans(),
        last=st.sampled_from([*Kernel]),
    )
    def begin(self, version: int, scope: str, is_partitioned: bool, last: Kernel) -> None:
        self.version, self.last = version, last
        self.bench = self.make(version, scope)
        self.id, self.p = Column("id", "BIGINT"), Column("p", "INT")
        self.columns = [self.id, self.p, Column("k", "INT"), Column("s", "STRING"), Column("f", "FLOAT")]
        self.rows: dict[int, Row] = {}
        self.row_ids: dict[int, int] = {}
        self.touched: dict[int, int] = {}
        self.next_id = 0
        self.is_partitioned = False
        if is_partitioned:
            self.toggle_partitions()
        for seed in (11, 12, 13):
            self.append(5, seed)

    def sql(self, statement: str) -> Any:
        return self.bench.sql(statement)

    @rule(n=st.integers(1, 6), seed=seeds)
    def append(self, n: int, seed: int) -> None:
        rows = []
        for _ in range(n):
            seed = seed * 6364136223846793005 + 1442695040888963407 & 2**63 - 1
            row = {c: _chosen(VALUES[c.kind], seed >> 8 * i) for i, c in enumerate(self.columns[1:], 1)}
            row |= {self.id: self.next_id, self.p: (seed >> 5) % 2}
            self.rows[self.next_id] = row
            self.next_id += 1
            rows.append(row)
        names = ", ".join(c.name for c in self.columns)
        listed = ", ".join("(" + ", ".join(_literal(row[c], c.kind) for c in self.columns) + ")" for row in rows)
        self.sql(f"INSERT INTO {{}} ({names}) VALUES {listed}")

    @rule(modulus=st.integers(2, 5), rest=st.integers(0, 4))
    def delete_by_position(self, modulus: int, rest: int) -> None:
        self.sql(f"DELETE FROM {{}} WHERE id % {modulus} = {rest % modulus}")
        self._lose([i for i in self.rows if i % modulus == rest % modulus])

    @rule(modulus=st.integers(2, 5), which=seeds)
    def update(self, modulus: int, which: int) -> None:
        column = self._extra(which)
        value = _chosen(VALUES[column.kind], which)
        self.sql(f"UPDATE {{}} SET {column.name} = {_literal(value, column.kind)} WHERE id % {modulus} = 1")
        for i, row in self.rows.items():
            if i % modulus == 1:
                row[column] = value
                self.touched.pop(i, None)

    @rule(which=seeds, with_next=st.booleans(), everywhere=st.booleans())
    def delete_by_equality(self, which: int, with_next: bool, everywhere: bool) -> None:
        """By the values of a row that there is, in one or two columns."""
        if not self.rows:
            return
        model = _chosen(self.rows.values(), which)
        key = list(dict.fromkeys([self._extra(which), *([self._extra(which + 1)] if with_next else [])]))
        scope: dict[str, Any] = {}
        if self.is_partitioned and not everywhere:
            scope = {"spec_id": self._spec_id(), "partition": f"p={model[self.p]}"}
        concerned = set(self.rows)
        if scope:
            found = self.sql(f"SELECT id FROM {{}} WHERE _spec_id = {scope['spec_id']} AND p = {model[self.p]}").collect()
            concerned = {row.id for row in found}
        wanted = {c.name: model.get(c) for c in key}
        delete_equal(self.bench, [wanted], **(scope or {"spec_id": 0}))
        self._lose([i for i in concerned if all(self.rows[i].get(c) == model.get(c) for c in key)])

    @rule(change=st.sampled_from(["add", "drop", "rename", "widen"]), which=seeds)
    def change_schema(self, change: str, which: int) -> None:
        column = self._extra(which)
        if change == "add":
            self._add_column(which)
        elif change == "drop" and len(self.columns) > 3:
            self.sql(f"ALTER TABLE {{}} DROP COLUMN {column.name}")
            self.columns.remove(column)
        elif change == "rename":
            old, column.name = column.name, f"r{next(NUMBERS)}"
            self.sql(f"ALTER TABLE {{}} RENAME COLUMN {old} TO {column.name}")
        elif change == "widen" and column.kind in WIDER:
            column.kind = WIDER[column.kind]
            self.sql(f"ALTER TABLE {{}} ALTER COLUMN {column.name} TYPE {column.kind}")

    def _add_column(self, which: int) -> None:
        """Under the first name that is free, which a dropped column may have had."""
        used = {c.name for c in self.columns}
        column = Column(next(name for name in ("k", "s", "f", "c", f"c{which}") if name not in used), _chosen(VALUES, which))
        self.sql(f"ALTER TABLE {{}} ADD COLUMN {column.name} {column.kind}")
        self.columns.append(column)

    @rule(becomes_v3=st.booleans())
    def change_spec_or_version(self, becomes_v3: bool) -> None:
        if becomes_v3 and self.version == 2:
            self.sql("ALTER TABLE {} SET TBLPROPERTIES ('format-version' = '3')")
            self.version = 3
        else:
            self.toggle_partitions()

    def toggle_partitions(self) -> None:
        self.sql(f"ALTER TABLE {{}} {'DROP' if self.is_partitioned else 'ADD'} PARTITION FIELD p")
        self.is_partitioned = not self.is_partitioned

    @rule(kernel=st.sampled_from([*Kernel]), every=st.integers(1, 2))
    def compact(self, kernel: Kernel, every: int) -> None:
        """Of all files, or of every second."""
        paths = set(sorted(self.bench.paths())[::every])
        record = self.bench.compact(kernel, paths=paths)
        assert {group.state for group in record.groups} <= {GroupState.COMMITTED}, record.groups
        if every == 1:
            assert not self.bench.paths() & paths
            assert self._attached_deletes() == 0

    @rule(kernel=st.sampled_from([*Kernel]), strike=st.sampled_from(["append", "positions", "equality", "update"]), seed=seeds)
    def compact_while_others_write(self, kernel: Kernel, strike: str, seed: int) -> None:
        strikes: dict[str, Callable[[], object]] = {
            "append": lambda: self.append(2, seed),
            "positions": lambda: self.delete_by_position(3, seed % 3),
            "equality": lambda: self.delete_by_equality(seed, with_next=False, everywhere=seed % 2 == 0),
            "update": lambda: self.update(2, seed),
        }
        record = self.bench.compact(kernel, strike=strikes[strike])
        assert {group.state for group in record.groups} <= SETTLED, record.groups

    @rule(operation=st.sampled_from(Upkeep))
    def keep_up(self, operation: Upkeep) -> None:
        record = self.bench.keep_up(operation)
        assert record.outcome in (RunOutcome.DONE, RunOutcome.NOTHING_TO_DO), record
        kinds = {row.content for row in self.sql("SELECT content FROM {}.delete_files").collect()}
        assert operation is not Upkeep.CONVERT or 2 not in kinds

    def teardown(self) -> None:
        """However the history went, a compaction of all of it leaves the rows and no delete."""
        if hasattr(self, "bench"):
            self.compact(self.last, every=1)
            self.the_rows_are_those_of_the_list()

    @invariant()
    def the_rows_are_those_of_the_list(self) -> None:
        names = ", ".join(c.name for c in self.columns)
        lineage = ", _row_id, _last_updated_sequence_number" if self.version == 3 else ""
        self.sql("REFRESH TABLE {}")
        found = self.sql(f"SELECT {names}{lineage} FROM {{}}").collect()
        shown = sorted((tuple(row[c.name] for c in self.columns) for row in found), key=repr)
        assert shown == sorted((tuple(row.get(c) for c in self.columns) for row in self.rows.values()), key=repr)
        if self.version == 3:
            self._check_lineage({row.id: (row["_row_id"], row["_last_updated_sequence_number"]) for row in found})

    def _check_lineage(self, found: dict[int, tuple[int | None, int | None]]) -> None:
        """Rows of a table that became v3 get their ids with its next commit; from then on they keep them."""
        for i, (row_id, number) in found.items():
            if row_id is not None:
                assert self.row_ids.setdefault(i, row_id) == row_id, i
            if row_id is not None and number is not None:
                assert self.touched.setdefault(i, number) == number, i
        known = [row_id for row_id, _ in found.values() if row_id is not None]
        assert len(set(known)) == len(known)

    def _lose(self, ids: list[int]) -> None:
        for i in ids:
            del self.rows[i]

    def _extra(self, which: int) -> Column:
        return self.columns[2 + which % (len(self.columns) - 2)]

    def _spec_id(self) -> int:
        return self.bench.load().spec().spec_id

    def _attached_deletes(self) -> int:
        """Delete files of the newest snapshot that apply to a data file."""
        snapshot = self.bench.load().current_snapshot()
        assert snapshot is not None
        bridge = self.bench.bridge
        bridge.refresh()
        return len({key for file in bridge.scan(snapshot.snapshot_id, statistics=False) for key in file.deletes})


def _chosen(values: Collection[Any], which: int) -> Any:
    return list(values)[which % len(values)]


def _literal(value: Any, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    return f"'{value}'" if kind == "STRING" else f"CAST({value} AS {kind})"


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Callable[[int, str], Bench]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.machine")

    def make(version: int, scope: str) -> Bench:
        bench = Bench(spark, warehouse, "machine", f"t{next(NUMBERS)}", moves_deletes=True)
        properties = f"'format-version' = '{version}', 'write.delete.granularity' = '{scope}', {MERGE_ON_READ}"
        columns = "id BIGINT, p INT, k INT, s STRING, f FLOAT"
        bench.sql(f"CREATE TABLE {{}} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
        return bench

    return make


FEW = settings(
    max_examples=6,
    stateful_step_count=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
    database=None,
)


def test_the_rows_stay_what_writers_made_them(make: Callable[[int, str], Bench]) -> None:
    run_state_machine_as_test(lambda: Writers(make), settings=FEW)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_rows_stay_what_writers_made_them_over_many_histories(make: Callable[[int, str], Bench]) -> None:
    run_state_machine_as_test(lambda: Writers(make), settings=settings(FEW, max_examples=40, stateful_step_count=20))  # type: ignore[arg-type]
