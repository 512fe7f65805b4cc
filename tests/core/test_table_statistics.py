"""Whether statistics have aged, and of which columns they are made."""

from __future__ import annotations

from typing import Any

import pytest

from neve.errors import BadRequestError
from neve.maintenance.statistics import THETA, plan_statistics
from neve.policy.model import Policy
from neve.table.state import Column, PartitionSpec, Sketch, StatisticsFile, TableState
from tests.builders.tables import make_snapshot, make_table

POLICY = Policy()
COLUMNS = ("ts", "city", "amount")


def sketched(snapshot_id: int, *field_ids: int, kind: str = THETA) -> StatisticsFile:
    sketches = tuple(Sketch(field_ids=(field_id,), kind=kind, distinct=9) for field_id in field_ids)
    return StatisticsFile(snapshot_id=snapshot_id, path=f"s{snapshot_id}", size_bytes=1, sketches=sketches)


def table(**changes: Any) -> TableState:
    """1,000 rows at snapshot 1, then 60 more, then a compaction of all, then 30 deleted."""
    snapshots = (
        make_snapshot(1, added_records=1000, total_records=1000),
        make_snapshot(2, parent=1, added_records=60, total_records=1060),
        make_snapshot(3, parent=2, operation="replace", added_records=1060, deleted_records=1060, total_records=1060),
        make_snapshot(4, parent=3, operation="delete", added_position_deletes=30, total_records=1060),
    )
    partitions = (StatisticsFile(snapshot_id=4, path="p4", size_bytes=1),)
    return make_table(**{"snapshots": snapshots, "snapshot_id": 4, "partition_statistics": partitions} | changes)


def test_a_table_without_statistics_gets_them_of_every_column_and_partition() -> None:
    plan = plan_statistics(table(partition_statistics=()), POLICY)
    assert (plan.columns, plan.partitions, plan.changed) == (COLUMNS, True, None)
    assert plan.reason == "there are no statistics of the table as it was before"


@pytest.mark.parametrize(("share", "is_due"), [(0.09, True), (0.0900001, False), (0.2, False), (0.01, True)])
def test_rows_added_and_removed_since_decide_and_compactions_do_not_count(share: float, is_due: bool) -> None:
    policy = Policy.model_validate({"stats-change": share})
    plan = plan_statistics(table(statistics=(sketched(1, 1, 2, 3),)), policy)
    assert plan.changed == 0.09
    assert (plan.columns, plan.partitions) == (COLUMNS if is_due else (), False)
    assert plan.is_empty is not is_due


def test_the_reason_tells_both_numbers() -> None:
    plan = plan_statistics(table(statistics=(sketched(1, 1, 2, 3),)), POLICY)
    assert plan.reason == "9.0% of the rows have changed since the last ones, less than 10.0% (stats-change)"
    assert [str(rule) for rule in plan.not_due] == [
        "share of the rows changed since the last statistics: 0.09, due from 0.1 (stats-change), with 10 more changed rows"
    ]


def test_a_table_without_a_snapshot_gets_statistics_once_it_is_written() -> None:
    (rule,) = plan_statistics(make_table(), POLICY).not_due
    assert str(rule) == "the table has no snapshot, due once rows are written"


def test_statistics_whose_way_to_the_present_is_expired_count_as_aged() -> None:
    whole = table(statistics=(sketched(1, 1, 2, 3),))
    plan = plan_statistics(whole.model_copy(update={"snapshots": whole.snapshots[2:]}), POLICY)
    assert (plan.columns, plan.changed) == (COLUMNS, None)


def test_statistics_of_another_branch_do_not_count() -> None:
    other = make_snapshot(9, parent=1, added_records=5, total_records=1005)
    state = table(statistics=(sketched(9, 1, 2, 3),))
    plan = plan_statistics(state.model_copy(update={"snapshots": (*state.snapshots, other)}), POLICY)
    assert plan.columns == COLUMNS


def test_a_column_without_statistics_makes_them_due() -> None:
    plan = plan_statistics(table(statistics=(sketched(3, 1, 2),)), POLICY)
    assert (plan.columns, plan.reason) == (COLUMNS, "there are none for amount")


def test_a_new_file_for_the_same_snapshot_keeps_the_columns_of_the_old_one() -> None:
    plan = plan_statistics(table(statistics=(sketched(4, 3, 1),)), POLICY, columns=["city"])
    assert plan.columns == ("amount", "ts", "city")


def test_statistics_of_another_kind_are_not_replaced() -> None:
    plan = plan_statistics(table(statistics=(sketched(4, 1, kind="histogram"),)), POLICY)
    assert plan.is_empty
    assert plan.reason == "this snapshot has statistics of another kind, in whose place ours would be"


def test_force_makes_what_is_there_already() -> None:
    plan = plan_statistics(table(statistics=(sketched(4, 1, 2, 3),)), POLICY, force=True)
    assert (plan.columns, plan.partitions) == (COLUMNS, True)


def test_columns_come_from_the_call_then_from_the_policy() -> None:
    policy = Policy.model_validate({"stats-columns": "city, amount"})
    assert plan_statistics(table(), policy).columns == ("city", "amount")
    assert plan_statistics(table(), policy, columns=["ts", "ts"]).columns == ("ts",)


def test_a_column_that_cannot_be_counted_is_refused() -> None:
    fields = (
        *table().fields,
        Column(field_id=4, name="place.lat", type="double"),
        Column(field_id=5, name="geo", type="geometry"),
    )
    state = table(fields=fields)
    assert plan_statistics(state, POLICY).columns == COLUMNS
    for name in ("place.lat", "geo", "nothing"):
        with pytest.raises(BadRequestError, match=rf"Cannot count the values of {name}: c\.db\.t has no such column"):
            plan_statistics(state, POLICY, columns=[name])


def test_a_table_without_partitions_has_no_statistics_of_them() -> None:
    plain = PartitionSpec(spec_id=0, fields=())
    plan = plan_statistics(table(specs=(plain,), partition_statistics=()), POLICY, force=True)
    assert (plan.columns, plan.partitions) == (COLUMNS, False)


def test_an_empty_table_has_none() -> None:
    plan = plan_statistics(make_table(), POLICY)
    assert (plan.is_empty, plan.reason) == (True, "the table has no snapshot")
