"""Old data brought to the current partition spec, on real tables: every row where it belongs, and no delete lost or gained.

A delete by equality concerns one partition of one spec. What applied to the old files is applied by the rewrite or stops it;
what did not apply to them must not begin to (docs/adr/0007).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neve.api import Neve
from neve.policy.model import Policy
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.settings import load_settings
from neve.table.state import TableState
from tests.builders.evolved_tables import evolved
from tests.builders.spark_deletes import MERGE_ON_READ, delete_equal
from tests.builders.spark_tables import Bench
from tests.builders.table_contents import data_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count()
COMMITTED, DROPPED = GroupState.COMMITTED, GroupState.DROPPED
LATE = "a late equality delete applies, and not to files of another partition spec"

Make = Callable[..., "Respec"]


class Respec(Bench):
    """A table whose old data is to be brought to the current spec."""

    def plan(self, kernel: Kernel | None = None, **_: Any) -> tuple[TableState, Plan]:
        state = self.state()
        return state, plan(state, Policy.model_validate({"evolve-specs": True}), now_ms=10**13, request=Request(kernel=kernel))

    def homes(self) -> dict[str, list[int]]:
        """By spec and partition of the live data files, the ids that Spark reads from them."""
        self.sql("REFRESH TABLE {}")
        found: dict[str, list[int]] = {}
        for row in self.sql("SELECT id, _spec_id, _partition FROM {}").collect():
            values = [str(value) for value in row._partition if value is not None]
            found.setdefault(f"{row._spec_id}: {' '.join(values)}", []).append(row.id)
        return {home: sorted(ids) for home, ids in sorted(found.items())}


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.respec")

    def make(
        first: str = "PARTITIONED BY (shop)", change: str = "REPLACE PARTITION FIELD shop WITH kind", version: int = 2
    ) -> Respec:
        """Ids from 0 to 11 under the first spec, in two commits, and 100 to 103 under the second."""
        bench = Respec(spark, warehouse, "respec", f"t{next(NUMBERS)}", moves_deletes=True)
        properties = f"'format-version' = '{version}', {MERGE_ON_READ}"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, shop STRING, kind STRING) USING iceberg {first} TBLPROPERTIES ({properties})")
        for start in (0, 6):
            append(bench, start, 6)
        bench.sql(f"ALTER TABLE {{}} {change}")
        append(bench, 100, 4)
        return bench

    return make


def append(bench: Bench, start: int, rows: int) -> None:
    row = "id, concat('s', id % 2), IF(id % 3 = 0, NULL, concat('k', id % 3))"
    bench.sql(f"INSERT INTO {{}} SELECT {row} FROM range({start}, {start + rows}, 1, 1)")


def states(record: RunRecord) -> dict[GroupState, int]:
    return dict(Counter(group.state for group in record.groups))


AS_WRITTEN = {
    "0: s0": [0, 2, 4, 6, 8, 10],
    "0: s1": [1, 3, 5, 7, 9, 11],
    "1: ": [102],
    "1: k1": [100, 103],
    "1: k2": [101],
}
BROUGHT = {"1: ": [0, 3, 6, 9, 102], "1: k1": [1, 4, 7, 10, 100, 103], "1: k2": [2, 5, 8, 11, 101]}


@pytest.mark.parametrize("version", [2, 3])
def test_rows_come_to_the_partitions_of_the_current_spec(version: int, make: Make) -> None:
    bench = make(version=version)
    assert bench.homes() == AS_WRITTEN
    identity = "_row_id, _last_updated_sequence_number, *" if version == 3 else "*"
    before, files = bench.rows(identity), bench.paths()
    _, planned = bench.plan()
    assert sorted((group.partition, group.tier, group.kernel, len(group.files)) for group in planned.groups) == [
        ("shop=s0", Tier.FULL, Kernel.SPARK, 2),
        ("shop=s1", Tier.FULL, Kernel.SPARK, 2),
    ]
    assert {group.reason for group in planned.groups} == {"of spec 0 (shop: identity), brought to spec 1 (kind: identity)"}
    record = bench.compact()
    assert states(record) == {COMMITTED: 2}, record.groups
    assert bench.homes() == BROUGHT
    assert bench.rows(identity) == before
    assert len(bench.duckdb()) == 16
    assert len(bench.paths() & files) == 3
    assert [group.spec_id for group in bench.plan()[1].groups] == []


def test_unless_the_policy_asks_for_it_old_data_stays_where_it_is(make: Make) -> None:
    bench = make()
    planned = plan(bench.state(), Policy(), now_ms=10**13, request=Request(tier=Tier.FULL))
    assert {group.spec_id for group in planned.groups} == {0, 1}
    assert Kernel.SPARK not in {group.kernel for group in planned.groups}


@pytest.mark.parametrize(
    ("first", "change", "homes"),
    [
        ("", "ADD PARTITION FIELD kind", BROUGHT),
        ("PARTITIONED BY (shop)", "DROP PARTITION FIELD shop", {"1: ": [*range(12), 100, 101, 102, 103]}),
        ("PARTITIONED BY (bucket(3, id))", "REPLACE PARTITION FIELD bucket(3, id) WITH kind", BROUGHT),
    ],
    ids=["from none", "to none", "from buckets"],
)
def test_a_table_gains_loses_and_changes_its_partitions(
    first: str, change: str, homes: dict[str, list[int]], make: Make
) -> None:
    bench = make(first, change)
    before = bench.duckdb()
    record = bench.compact()
    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.homes() == homes
    assert bench.duckdb() == before


def test_a_spec_of_which_only_void_fields_are_left_is_one_to_come_from_and_to_go_to(make: Make) -> None:
    """In format v1 a field that is dropped stays in the spec as void."""
    bench = make("PARTITIONED BY (shop)", "DROP PARTITION FIELD shop", version=1)
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.homes() == {"1: ": [*range(12), 100, 101, 102, 103]}
    bench.sql("ALTER TABLE {} ADD PARTITION FIELD kind")
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.homes() == {home.replace("1:", "2:"): ids for home, ids in BROUGHT.items()}


@pytest.mark.parametrize(("first", "last"), [(1, 3), (2, 2)], ids=["v1 to v3", "v2"])
def test_a_table_evolved_in_every_way_is_brought_to_its_last_spec(
    first: int, last: int, spark: SparkSession, warehouse: Path
) -> None:
    table = evolved(spark, warehouse, first, last)
    bench = Respec(spark, warehouse, "ages", table.bench.name)
    columns = "_row_id, _last_updated_sequence_number, *" if last == 3 else "*"
    before, files = bench.rows(columns), bench.paths()
    record = bench.compact()
    assert states(record) == {COMMITTED: 16}, record.groups
    assert {file.spec_id for file in data_files(bench.load())} == {bench.state().default_spec_id}
    assert len(bench.paths() & files) == 7
    assert bench.rows(columns) == before
    wrong = "ts_day <> to_date(ts) OR (ts_day IS NULL) <> (ts IS NULL) OR (title_bucket_2 IS NULL) <> (title IS NULL)"
    assert bench.sql(f"SELECT count(*) AS n FROM (SELECT ts, title, _partition.* FROM {{}}) WHERE {wrong}").collect()[0].n == 0
    counts = [bench.sql(f"SELECT * FROM {{}} VERSION AS OF {snapshot}").count() for snapshot in table.snapshots[2::3]]
    assert counts == [18 * i for i in range(1, 10)]


def test_many_partitions_from_one_become_one_file_each(make: Make) -> None:
    bench = make("", "ADD PARTITION FIELD truncate(10, id)")
    bench.sql("ALTER TABLE {} DROP PARTITION FIELD truncate(10, id)")
    for start in (1000, 2500):
        append(bench, start, 1500)
    bench.sql("ALTER TABLE {} ADD PARTITION FIELD truncate(10, id)")
    before = bench.ids()
    record = bench.compact()
    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.ids() == before
    per_partition = Counter(str(file.partition) for file in data_files(bench.load()))
    assert len(per_partition) == 303
    assert {home: n for home, n in per_partition.items() if n > 1} == {}


def test_the_files_of_a_sorted_table_are_sorted_in_their_new_partitions(make: Make) -> None:
    bench = make()
    bench.sql("ALTER TABLE {} WRITE ORDERED BY id DESC")
    record = bench.compact()
    assert record.outcome is RunOutcome.DONE, record.groups
    assert bench.homes() == BROUGHT
    orders = Counter(file.sort_order_id for file in data_files(bench.load()))
    assert orders == {1: 6, 0: 3}  # of each of two groups a file in each of three partitions; those that were there stay


def test_deletes_on_old_files_are_applied_and_those_of_other_specs_do_not_begin_to_apply(make: Make) -> None:
    bench = make()
    delete_equal(bench, [{"id": 4}, {"id": 1}], spec_id=0, partition="shop=s0")
    delete_equal(bench, [{"id": 7}, {"id": 100}], spec_id=1, partition="kind=k1")  # 7 has that kind, in a file of the old spec
    bench.sql("DELETE FROM {} WHERE id = 11")
    gone = {4, 100, 11}
    before = [i for i in [*range(12), 100, 101, 102, 103] if i not in gone]
    assert bench.ids() == before
    record = bench.compact()
    assert set(states(record)) == {COMMITTED}, record.groups
    assert bench.ids() == before
    assert bench.homes()["1: k1"] == [1, 7, 10, 103]
    assert len(bench.duckdb()) == len(before)


@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_late_delete_of_the_new_partition_does_not_reach_rows_that_come_there(moment: str, make: Make) -> None:
    """Of the plan's age, the new files would be older than the delete and lose rows that it never concerned."""
    bench = make()

    def strike() -> None:
        delete_equal(bench, [{"id": 7}, {"id": 100}], spec_id=1, partition="kind=k1")

    record = bench.compact(**{moment: strike})  # type: ignore[arg-type]
    assert states(record) == {COMMITTED: 2}, record.groups
    assert bench.homes()["1: k1"] == [1, 4, 7, 10, 103]
    assert bench.ids() == [*range(12), 101, 102, 103]
    assert len(bench.duckdb()) == 15


@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_late_delete_of_an_old_partition_stops_its_group_and_no_other(moment: str, make: Make) -> None:
    bench = make()

    def strike() -> None:
        delete_equal(bench, [{"id": 4}, {"id": 1}], spec_id=0, partition="shop=s0")

    record = bench.compact(**{moment: strike})  # type: ignore[arg-type]
    assert states(record) == {COMMITTED: 1, DROPPED: 1}, record.groups
    (lost,) = [group for group in record.groups if group.state is DROPPED]
    assert lost.partition == "shop=s0"
    assert lost.reason.startswith(LATE)
    expected = [i for i in [*range(12), 100, 101, 102, 103] if i != 4]
    assert bench.ids() == expected
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.ids() == expected
    assert {home[0] for home in bench.homes()} == {"1"}
    assert len(bench.duckdb()) == 15


def test_a_late_delete_of_the_whole_table_stops_every_group(make: Make) -> None:
    bench = make("", "ADD PARTITION FIELD kind")
    record = bench.compact(strike=lambda: delete_equal(bench, [{"id": 4}, {"id": 101}], spec_id=0))
    assert states(record) == {DROPPED: 1}, record.groups
    expected = [i for i in [*range(12), 100, 102, 103] if i != 4]
    assert bench.ids() == expected
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.ids() == expected


@pytest.mark.parametrize("version", [2, 3])
def test_a_late_delete_by_position_stops_its_group(version: int, make: Make) -> None:
    bench = make(version=version)
    record = bench.compact(strike=lambda: bench.sql("DELETE FROM {} WHERE id = 4"))
    assert states(record) == {COMMITTED: 1, DROPPED: 1}, record.groups
    expected = [i for i in [*range(12), 100, 101, 102, 103] if i != 4]
    assert bench.ids() == expected
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.ids() == expected


def test_groups_that_keep_their_spec_are_committed_apart_and_late_deletes_go_on_applying_to_them(make: Make) -> None:
    bench = make()
    for start in range(104, 204, 20):
        append(bench, start, 20)

    def strike() -> None:
        delete_equal(bench, [{"id": 7}, {"id": 100}], spec_id=1, partition="kind=k1")

    record = bench.compact(strike=strike)
    assert set(states(record)) == {COMMITTED}, record.groups
    assert len(record.snapshots) == 2
    assert bench.ids() == [*range(12), *range(101, 204)]
    assert len(bench.duckdb()) == 115


def test_a_property_of_the_table_asks_for_it_and_a_branch_takes_it_proved_by_content(make: Make, tmp_path: Path) -> None:
    bench = make()
    delete_equal(bench, [{"id": 4}], spec_id=0, partition="shop=s0")
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('neve.evolve-specs' = 'true')")
    bench.sql("ALTER TABLE {} CREATE BRANCH audit")
    homes, head = bench.homes(), bench.load().current_snapshot()
    settings = load_settings(flags={"state.url": f"sqlite:///{tmp_path}/state.db"}, environ={})
    with Neve.open(settings, warehouse=str(bench.warehouse), environ={}) as neve:
        neve.connection.session = bench.spark
        record = neve.compact(f"respec.{bench.name}", request=Request(branch="audit"), verify="content")
    assert states(record) == {COMMITTED: 2}, record.groups
    checks = [check.detail for group in record.groups if group.proof for check in group.proof.checks if check.name == "content"]
    assert len(checks) == 2
    assert bench.homes() == homes
    table = bench.load()
    assert table.current_snapshot() == head
    on_branch = table.scan(snapshot_id=table.metadata.refs["audit"].snapshot_id)
    assert {task.file.spec_id for task in on_branch.plan_files()} == {1}
    ids = bench.sql("SELECT id FROM {} VERSION AS OF 'audit'").collect()
    assert sorted(row.id for row in ids) == [i for i in [*range(12), 100, 101, 102, 103] if i != 4]
