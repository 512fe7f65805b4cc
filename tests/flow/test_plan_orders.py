"""From a plan with a layout to work orders: which of them are ordered, and which need only be merged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import VerificationError
from neve.operations.execute import work_orders
from neve.rewrite.plan import Plan
from neve.table.files import FileColumns
from neve.table.layout import Layout, sorted_by
from tests.builders.commit_scenes import SPECS
from tests.builders.fake_tables import FakeTable, FakeWriter, plan_of


def in_layout(plan: Plan, layout: Layout | None, *, ordered: bool, sort_order_ids: list[int]) -> Plan:
    column = plan.files.table.schema.get_field_index("sort_order_id")
    field = plan.files.table.schema.field(column)
    files = FileColumns(plan.files.table.set_column(column, field, pa.array(sort_order_ids, field.type)), plan.files.partitions)
    groups = replace(plan.groups, ordered=np.full(len(plan.groups), int(ordered)))
    return plan.model_copy(update={"layout": layout, "groups": groups, "files": files})


SORTED = sorted_by(4, ("id asc nulls-first",))
CURVE = Layout.parse("hilbert(id, v)")


@pytest.mark.parametrize(
    ("layout", "ordered", "ids", "expected"),
    [
        (SORTED, True, [4, 4], (SORTED, True)),
        (SORTED, True, [4, 0], (SORTED, False)),
        (SORTED, False, [4, 4], (None, False)),
        (CURVE, True, [0, 0], (CURVE, False)),
        (None, False, [0, 0], (None, False)),
    ],
)
def test_an_order_says_how_its_rows_are_ordered_and_whether_its_inputs_are(
    layout: Layout | None, ordered: bool, ids: list[int], expected: tuple[Layout | None, bool]
) -> None:
    table = FakeTable()
    table.append(1)
    table.append(2)
    plan = in_layout(plan_of(table), layout, ordered=ordered, sort_order_ids=ids)
    writer = FakeWriter(table)
    live = {file.path: file for file in writer.scan(plan.snapshot_id)}
    (order,) = work_orders(plan, plan.groups, live, writer, SPECS)
    assert (order.layout, order.inputs_sorted) == expected


def test_no_order_is_made_of_files_of_several_partitions() -> None:
    table = FakeTable()
    table.append(1)
    table.append(2)
    plan, writer = plan_of(table), FakeWriter(table)
    live = {file.path: file for file in writer.scan(plan.snapshot_id)}
    path = min(live)
    live[path] = replace(live[path], data_file={**live[path].data_file, "partition": ["q"]})
    with pytest.raises(VerificationError, match=r"^Cannot rewrite partition .*: its files are of several partitions"):
        work_orders(plan, plan.groups, live, writer, SPECS)
