"""Deletes that land between execute and commit, on real tables: they move to the new files, and nothing is rewritten twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neve.api import Neve
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request
from neve.rewrite.record import GroupState, RunOutcome, RunRecord
from neve.settings import load_settings
from neve.spark.table.bridge import TableBridge
from neve.spark.tasks.rewrite import SparkEngine
from tests.builders.spark_deletes import MERGE_ON_READ, delete_equal
from tests.builders.spark_files import TableFiles
from tests.builders.spark_tables import Bench

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NUMBERS = count(1)
GROUPS = 12
COMMITTED, DROPPED = GroupState.COMMITTED, GroupState.DROPPED
KINDS = {"v2, a file each": (2, "file"), "v2, a partition each": (2, "partition"), "v3": (3, "file")}

Make = Callable[..., Bench]


@pytest.fixture(scope="module")
def make(spark: SparkSession, warehouse: Path) -> Make:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS local.late")

    def make(version: int, scope: str = "file", *, partitions: str = "PARTITIONED BY (p)", files: int = 2) -> Bench:
        """Ids from 0 on, 60 to a commit, spread evenly over twelve partitions."""
        bench = Bench(spark, warehouse, "late", f"t{next(NUMBERS)}", moves_deletes=True)
        properties = f"'format-version' = '{version}', 'write.delete.granularity' = '{scope}', {MERGE_ON_READ}"
        bench.sql(f"CREATE TABLE {{}} (id BIGINT, p INT) USING iceberg {partitions} TBLPROPERTIES ({properties})")
        for number in range(files):
            append(bench, 60 * number)
        return bench

    return make


def append(bench: Bench, start: int, rows: int = 60) -> None:
    bench.sql(f"INSERT INTO {{}} SELECT id, CAST(id % {GROUPS} AS INT) FROM range({start}, {start + rows}, 1, 1)")


def states(record: RunRecord) -> dict[GroupState, int]:
    return dict(Counter(group.state for group in record.groups))


def reads_right(bench: Bench, ids: list[int], *, since: int | None) -> None:
    """Every snapshot of ours since that one, and the table once others have written to it."""
    hand = TableFiles.on(bench, 0)
    snapshots = [snapshot.snapshot_id for snapshot in hand.snapshots()]
    for snapshot in snapshots[snapshots.index(since) :] if since is not None else snapshots[-1:]:
        assert hand.reads(snapshot) == ids
    append(bench, 1000, 1)
    assert hand.reads(hand.head()) == [*ids, 1000]


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
@pytest.mark.parametrize("kind", KINDS)
def test_deletes_land_on_every_group_of_a_plan_and_none_is_redone(kind: str, kernel: Kernel, make: Make) -> None:
    bench = make(*KINDS[kind])
    head = 0

    def strike() -> None:
        nonlocal head
        bench.sql("DELETE FROM {} WHERE id % 5 = 0")
        head = TableFiles.on(bench, 0).head()

    record = bench.compact(kernel, strike=strike)

    assert states(record) == {COMMITTED: GROUPS}, record.groups
    assert [group.kernel for group in record.groups] == [kernel] * GROUPS
    assert len(bench.engine.results) == GROUPS
    assert bench.quarantine.paths == []
    assert len(bench.paths()) == GROUPS
    assert len(bench.deletes()) == GROUPS
    reads_right(bench, [i for i in range(120) if i % 5], since=head)


@pytest.mark.parametrize("kind", KINDS)
def test_deletes_that_come_after_the_last_check_are_moved_too(kind: str, make: Make) -> None:
    bench = make(*KINDS[kind])
    bench.sql("DELETE FROM {} WHERE id % 5 = 0")
    record = bench.compact(strike_at_commit=lambda: bench.sql("DELETE FROM {} WHERE id % 7 = 0"))
    assert states(record) == {COMMITTED: GROUPS}, record.groups
    assert len(bench.engine.results) == GROUPS
    assert len(bench.paths()) == GROUPS
    reads_right(bench, [i for i in range(120) if i % 5 and i % 7], since=None)


@pytest.mark.parametrize("kind", KINDS)
def test_every_snapshot_on_the_way_reads_right_where_another_file_needs_the_delete_too(kind: str, make: Make) -> None:
    """Where one delete file names a file that stays, it cannot go, and Iceberg takes two snapshots."""
    bench = make(*KINDS[kind], partitions="")
    inputs = bench.paths()
    append(bench, 120)
    planned = TableFiles.on(bench, 0).head()

    record = bench.compact(paths=inputs, strike=lambda: bench.sql("DELETE FROM {} WHERE id % 5 = 0"))

    assert states(record) == {COMMITTED: 1}, record.groups
    snapshots = [snapshot.snapshot_id for snapshot in TableFiles.on(bench, 0).snapshots()]
    after = snapshots[snapshots.index(planned) + 1 :]
    assert len(after) == (3 if KINDS[kind][1] == "partition" else 2)
    reads_right(bench, [i for i in range(180) if i % 5], since=after[0])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_were_deleted_before_are_not_deleted_again(kind: str, make: Make) -> None:
    """A late vector holds the planned one, and a late delete file may repeat it: only what is new is moved."""
    bench = make(*KINDS[kind])
    bench.sql("DELETE FROM {} WHERE id % 5 = 0")

    record = bench.compact(strike=lambda: bench.sql("DELETE FROM {} WHERE id = 13"))

    assert states(record) == {COMMITTED: GROUPS}, record.groups
    counts = bench.sql("SELECT sum(record_count) AS n FROM {}.delete_files").collect()
    assert [row.n for row in counts] == [1]
    reads_right(bench, [i for i in range(120) if i % 5 and i != 13], since=record.snapshots[-1])


def test_lineage_goes_with_rows_that_are_moved_from(make: Make) -> None:
    bench = make(3)
    before: list[str] = []

    def strike() -> None:
        bench.sql("DELETE FROM {} WHERE id % 5 = 0")
        before.extend(bench.rows("_row_id, _last_updated_sequence_number, *"))

    record = bench.compact(strike=strike)
    assert states(record) == {COMMITTED: GROUPS}, record.groups
    assert bench.rows("_row_id, _last_updated_sequence_number, *") == before


def test_a_group_of_the_spark_kernel_is_planned_again_and_the_others_are_not(make: Make) -> None:
    bench = make(2)
    record = bench.compact(Kernel.SPARK, strike=lambda: bench.sql("DELETE FROM {} WHERE p = 3 AND id % 5 = 0"))
    assert states(record) == {COMMITTED: GROUPS - 1, DROPPED: 1}, record.groups
    (lost,) = (group for group in record.groups if group.state is DROPPED)
    assert (lost.partition, lost.reason.endswith("changed meanwhile")) == ("p=3", True)
    reads_right(bench, [i for i in range(120) if i % 12 != 3 or i % 5], since=record.snapshots[-1])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("moment", ["strike", "strike_at_commit"])
def test_a_late_equality_delete_costs_no_more_than_the_group_that_keeps_it_alive(version: int, moment: str, make: Make) -> None:
    bench = make(version)
    strike = {moment: lambda: delete_equal(bench, [{"id": 15}, {"id": 27}], partition="p=3")}
    record = bench.compact(**strike)  # type: ignore[arg-type]
    assert states(record) == {COMMITTED: GROUPS - 1, DROPPED: 1}, record.groups
    assert [group.partition for group in record.groups if group.state is DROPPED] == ["p=3"]
    reads_right(bench, [i for i in range(120) if i not in (15, 27)], since=record.snapshots[-1])
    assert bench.compact().outcome is RunOutcome.DONE
    assert bench.deletes() == set()
    assert bench.ids() == [*(i for i in range(120) if i not in (15, 27)), 1000]


@pytest.mark.parametrize("version", [2, 3])
def test_a_late_equality_delete_applies_to_the_outputs_where_an_older_file_stays(version: int, make: Make) -> None:
    bench = make(version, partitions="")
    inputs = bench.paths()
    append(bench, 120)

    def strike() -> None:
        delete_equal(bench, [{"id": 15}, {"id": 130}])
        bench.sql("DELETE FROM {} WHERE id = 16")

    record = bench.compact(paths=inputs, strike=strike)
    assert states(record) == {COMMITTED: 1}, record.groups
    reads_right(bench, [i for i in range(180) if i not in (15, 16, 130)], since=record.snapshots[-1])


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_by_others_costs_nothing(version: int, make: Make) -> None:
    """The rows that the equality delete meant are deleted by position now, and our outputs have never had them."""
    hand = converted_table(make, version)
    head = 0

    def strike() -> None:
        nonlocal head
        convert(hand, {0: [5, 6], 1: [5]})
        head = hand.head()

    record = hand.bench.compact(strike=strike)
    assert states(record) == {COMMITTED: 1}, record.groups
    assert hand.bench.deletes() == set()
    hand_reads(hand, [i for i in range(20) if i not in (5, 6, 15)], since=head)


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_by_others_that_deletes_more_is_moved(version: int, make: Make) -> None:
    hand = converted_table(make, version)
    head = 0

    def strike() -> None:
        nonlocal head
        convert(hand, {0: [5, 6, 7], 1: [5]})
        head = hand.head()

    record = hand.bench.compact(strike=strike)
    assert states(record) == {COMMITTED: 1}, record.groups
    hand_reads(hand, [i for i in range(20) if i not in (5, 6, 7, 15)], since=head)


def test_rows_that_came_back_meanwhile_are_not_lost(make: Make) -> None:
    """An equality delete is taken out, and one of its rows with it: ours would still leave that row out."""
    hand = converted_table(make, 2)
    record = hand.bench.compact(strike=lambda: convert(hand, {0: [5, 6]}))
    assert states(record) == {DROPPED: 1}, record.groups
    hand_reads(hand, [i for i in range(20) if i not in (5, 6)], since=hand.head())


def test_a_late_delete_in_avro_is_left_to_the_next_run(make: Make) -> None:
    bench = make(2, partitions="")
    bench.sql("ALTER TABLE {} SET TBLPROPERTIES ('write.delete.format.default' = 'avro')")
    record = bench.compact(strike=lambda: bench.sql("DELETE FROM {} WHERE id % 5 = 0"))
    assert states(record) == {DROPPED: 1}, record.groups
    assert re.search(r"^Cannot read deletes from .*\.avro: they are in avro", record.groups[0].reason)
    assert dict(bench.compact().kernels) == {Kernel.SPARK: 1}
    assert (bench.ids(), bench.deletes()) == ([i for i in range(120) if i % 5], set())


class Killed(BaseException):
    """Nobody catches it: the process might as well have died."""


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_land_before_a_run_is_resumed_are_moved(version: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each row went stands in the journal."""
    bench = make(version)
    bench.sql("DELETE FROM {} WHERE id % 5 = 0")

    def dying(*_: object, **__: object) -> None:
        raise Killed

    with Neve.open(load_settings(), warehouse=str(bench.warehouse)) as neve:
        monkeypatch.setattr(neve.connection, "session", bench.spark)
        with monkeypatch.context() as patched:
            patched.setattr(TableBridge, "rewrite", dying)
            with pytest.raises(Killed):
                neve.compact(f"late.{bench.name}", request=Request(tier=Tier.FULL, force=True))
        bench.sql("DELETE FROM {} WHERE id % 7 = 0")
        monkeypatch.setattr(SparkEngine, "run", lambda _, orders: iter(orders))  # a group that is redone would be no result
        (journalled,) = [found for found in neve.unfinished() if found.plan.table.name == bench.name]
        record = neve.resume(journalled.run_id)
    assert states(record) == {COMMITTED: GROUPS}, record.groups
    reads_right(bench, [i for i in range(120) if i % 5 and i % 7], since=record.snapshots[-1])


def converted_table(make: Make, version: int) -> TableFiles:
    """Two files with ten ids each, of which 5, 6 and 15 are deleted by equality."""
    bench = make(version, partitions="", files=0)
    bench.sql("ALTER TABLE {} DROP COLUMN p")
    for start in (0, 10):
        bench.sql(f"INSERT INTO {{}} SELECT id FROM range({start}, {start + 10}, 1, 1)")
    delete_equal(bench, [{"id": 5}, {"id": 6}, {"id": 15}])
    return TableFiles.on(bench, version)


def convert(hand: TableFiles, rows: dict[int, list[int]]) -> None:
    """Deletes of positions in these files, in place of the equality delete."""
    live = hand.live()
    (equality,) = live[0].described_deletes.values()
    added = [hand.deletes(live[index].data_file, positions) for index, positions in rows.items()]
    hand.bridge.row_delta(added, [equality], referenced=[file.path for file in live], head=hand.head(), summary={})


def hand_reads(hand: TableFiles, ids: list[int], *, since: int) -> None:
    snapshots = [snapshot.snapshot_id for snapshot in hand.snapshots()]
    for snapshot in snapshots[snapshots.index(since) :]:
        assert hand.reads(snapshot) == ids
