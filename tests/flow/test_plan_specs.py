"""Plans with `evolve-specs`: files of older partition specs are brought to the current one, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.policy.model import Policy
from neve.policy.rewrite_knobs import STRATEGIES
from neve.rewrite.group import Kernel, Tier
from neve.rewrite.planner import Request, plan
from neve.table.files import Partition
from neve.table.state import PartitionField, PartitionSpec, TableState
from neve.table.units import GIB, MIB
from tests.builders.files import make_files
from tests.builders.table_states import make_state

NOW = 10**12
HOMES = (Partition(0, "month=1"), Partition(0, "month=2"), Partition(1, "day=1"), Partition(1, "day=2"))


def spec(spec_id: int, transform: str) -> PartitionSpec:
    field = PartitionField(name=transform, transform=transform, source_id=2, field_id=1000 + spec_id)
    return PartitionSpec(spec_id=spec_id, fields=(field,))


def state_of(rows: list[dict[str, Any]]) -> TableState:
    specs = (spec(0, "month"), spec(1, "day"))
    return make_state(files=make_files(rows, HOMES), specs=specs, default_spec_id=1, default_sort_order_id=0)


def policy(**more: Any) -> Policy:
    return Policy.model_validate({"evolve-specs": True, **more})


def test_a_whole_partition_of_an_older_spec_is_one_group_whatever_its_files_are() -> None:
    state = state_of([{"partition": 0, "size_bytes": 128 * MIB}] * 10 + [{"partition": 2, "size_bytes": 128 * MIB}] * 10)
    planned = plan(state, policy(), now_ms=NOW)
    (group,) = planned.groups
    assert (group.partition, group.spec_id, group.tier, group.kernel) == ("month=1", 0, Tier.FULL, Kernel.SPARK)
    assert (len(group.files), group.outputs, group.ordered) == (10, 10, False)
    assert group.reason == "of spec 0 (month: month), brought to spec 1 (day: day)"
    assert group.kernel_reason == "rows go to partitions of the current spec"


def test_groups_of_older_specs_are_cut_at_the_largest_size_that_a_group_may_have() -> None:
    state = state_of([{"partition": 0, "size_bytes": 512 * MIB}] * 8)
    planned = plan(state, policy(**{"max-group-size": 2 * GIB}), now_ms=NOW)
    assert sum(len(group.files) for group in planned.groups) == 8
    assert 2 <= len(planned.groups) <= 4
    assert all(group.input_bytes <= 2 * GIB for group in planned.groups)


@pytest.mark.parametrize("kernel", [Kernel.COPY, Kernel.ARROW])
def test_no_other_kernel_can_be_pinned_for_them(kernel: Kernel) -> None:
    planned = plan(state_of([{"partition": 0}, {"partition": 0}]), policy(), now_ms=NOW, request=Request(kernel=kernel))
    assert [group.kernel for group in planned.groups] == [Kernel.SPARK]


def test_partitions_that_were_not_asked_for_stay_in_their_spec() -> None:
    rows = [{"partition": 0}, {"partition": 1}]
    planned = plan(state_of(rows), policy(), now_ms=NOW, request=Request(partitions=("month=2",)))
    assert [group.partition for group in planned.groups] == ["month=2"]


files = st.lists(st.fixed_dictionaries({"partition": st.integers(0, 3), "size_bytes": st.integers(1, 300 * MIB)}), max_size=40)


@settings(deadline=None)
@given(rows=files, strategy=st.sampled_from(STRATEGIES))
def test_every_file_of_an_older_spec_is_in_a_group_and_the_others_are_planned_as_without_it(
    rows: list[dict[str, Any]], strategy: str
) -> None:
    state = state_of(rows)
    evolving, plain = (plan(state, policy(strategy=strategy, **{"evolve-specs": on}), now_ms=NOW) for on in (True, False))
    old = {f"file-{i}.parquet" for i, row in enumerate(rows) if row["partition"] < 2}
    assert {path for group in evolving.groups if group.spec_id == 0 for path in evolving.paths(group)} == old
    assert {group.kernel for group in evolving.groups if group.spec_id == 0} <= {Kernel.SPARK}

    def current(planned: Any) -> list[Any]:
        return sorted((g.partition, g.tier, g.kernel, planned.paths(g)) for g in planned.groups if g.spec_id == 1)

    assert current(evolving) == current(plain)
