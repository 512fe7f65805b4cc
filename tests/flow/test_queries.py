"""Stated queries beside a plan: what they read now, what is predicted, and what is counted after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.health.queries import Condition, Planned, QueryGain, split_queries
from neve.operations.queries import count_again, predict
from neve.policy.model import Policy
from neve.rewrite.group import Tier
from neve.rewrite.plan import Plan
from neve.rewrite.planner import Request, plan
from neve.table.files import FileColumns
from neve.table.metrics import to_bytes
from neve.table.state import Column, TableState
from neve.table.units import MIB
from tests.builders.bounds import bounded
from tests.builders.files import make_files
from tests.builders.table_states import make_state

NOW = 10**12
A, B = Column(field_id=1, name="a", type="long"), Column(field_id=2, name="b", type="string")


class FakePlanner:
    """Knows the condition of each query, and the files that it reads; all of them unless told."""

    def __init__(self, condition: Condition, read: Sequence[int] | None = None) -> None:
        self.condition, self.read, self.asked = condition, read, list[Any]()

    def planned(self, snapshot_id: int | None, query: str) -> Planned:
        self.asked.append((snapshot_id, query))
        numbers = range(10_000) if self.read is None else self.read
        return Planned(query, self.condition, {f"file-{i}.parquet" for i in numbers}, 0.25)


def compare(kind: str, value: Any = None, term: str = "a") -> dict[str, Any]:
    return {"type": kind, "term": term, "values" if kind == "in" else "value": value}


def both(left: Condition, right: Condition, kind: str = "and") -> dict[str, Any]:
    return {"type": kind, "left": left, "right": right}


def wide_files(count: int, size: int = 128 * MIB) -> FileColumns:
    """Files that hold values of every kind: a from 0 to 1000, b from k-aa to k-zz."""
    rows = [{"size_bytes": size, "row_groups": 2, "snapshot_id": 7} for _ in range(count)]
    text = [(to_bytes("string", "k-aa"), to_bytes("string", "k-zz"))] * count
    return bounded(make_files(rows), {1: [(to_bytes("long", 0), to_bytes("long", 1000))] * count, 2: text})


def table_of(files: FileColumns) -> TableState:
    return make_state(files=files, fields=(A, B), default_sort_order_id=0, sort_orders=())


def clustered(state: TableState, by: str, **more: Any) -> Plan:
    words = {"strategy": "dimensional", "cluster-by": by, "queries": "q", **more}
    return plan(state, Policy.model_validate(words), now_ms=NOW, request=Request(tier=Tier.FULL))


def gain(condition: Condition, by: str = "sort(a)", count: int = 100) -> QueryGain:
    state = table_of(wide_files(count))
    (found,) = predict(clustered(state, by), state, FakePlanner(condition), {})
    return found


def test_queries_stand_between_semicolons_but_not_within_quotes() -> None:
    assert split_queries("a = 1; b = 'x;''y' ;; `c;d` > \"e;\";") == ("a = 1", "b = 'x;''y'", '`c;d` > "e;"')
    assert split_queries(" ; ") == ()


def test_what_is_read_now_is_what_the_engine_plans() -> None:
    state = table_of(wide_files(100))
    planner = FakePlanner(compare("eq", 5), read=[3, 4, 5])
    (found,) = predict(clustered(state, "sort(a)"), state, planner, {"file-4.parquet": 7})
    assert planner.asked == [(state.snapshot_id, "q")]
    assert found.before.model_dump() == {
        "files": 3,
        "row_groups": 2 + 7 + 2,
        "bytes": 3 * 128 * MIB,
        "planning_seconds": 0.25,
    }
    assert found.after is None


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        (compare("eq", 500), 1),
        (compare("in", [1, 400, 900]), 3),
        (compare("lt", 250), 26),
        (compare("gt-eq", 900), 11),
        (both(compare("gt-eq", 400), compare("lt-eq", 500)), 11),
        (both(compare("eq", 1), compare("eq", 999), "or"), 2),
        (both(compare("lt", 10), compare("lt", 20), "or"), 3),
        (both(compare("eq", 1), compare("eq", "k-mm", "b"), "or"), 100),
        (compare("eq", "k-mm", "b"), 100),
        (compare("not-eq", 5), 100),
        ({"type": "is-null", "term": "a"}, 100),
        ({"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "a"}, "value": 1}, 100),
        (True, 100),
        (compare("eq", 2000), 0),
        (compare("gt", 1001), 0),
    ],
)
def test_sorted_files_are_read_where_the_values_lie(condition: Condition, files: int) -> None:
    found = gain(condition)
    assert (found.predicted.files, found.before.files) == (files, 100)
    assert found.predicted.bytes == files * 128 * MIB
    assert found.predicted.row_groups == files


def test_along_a_curve_every_column_narrows_and_two_narrow_more() -> None:
    one, other = gain(compare("eq", 500), "hilbert(a, b)"), gain(compare("eq", "k-mm", "b"), "hilbert(a, b)")
    two = gain(both(compare("eq", 500), compare("eq", "k-mm", "b")), "hilbert(a, b)")
    assert one.predicted.files == other.predicted.files == 13
    assert two.predicted.files == 2


def test_bounds_that_are_not_known_narrow_nothing() -> None:
    files = wide_files(10)
    state = table_of(bounded(files, {1: [(None, None)] + [(to_bytes("long", 0), to_bytes("long", 9))] * 9}))
    (found,) = predict(clustered(state, "sort(a)"), state, FakePlanner(compare("eq", 5)), {})
    assert found.predicted.files == 10


def test_joined_files_are_read_if_one_of_them_was_and_the_others_as_before() -> None:
    rows: list[dict[str, Any]] = [{"size_bytes": 10 * MIB} for _ in range(36)] + [{"size_bytes": 128 * MIB}] * 3
    state = table_of(make_files([{"sequence_number": i, "path": f"file-{i}.parquet", **row} for i, row in enumerate(rows)]))
    planned = plan(state, Policy.model_validate({"queries": "q"}), now_ms=NOW)
    assert [len(group.files) for group in planned.groups] == [12, 12, 12]
    (found,) = predict(planned, state, FakePlanner(compare("eq", 5), read=[0, 5, 30, 36]), {})
    assert found.predicted.files == 2 + 1
    assert found.predicted.bytes == 240 * MIB + 128 * MIB
    (none,) = predict(planned, state, FakePlanner(compare("eq", 5), read=[]), {})
    assert (none.before.files, none.predicted.files, none.predicted.bytes) == (0, 0, 0)


def test_after_the_run_the_queries_are_counted_on_the_new_files() -> None:
    before = gain(compare("eq", 500))
    (found,) = count_again((before,), FakePlanner(True, read=[0, 1]), 42, wide_files(4, size=MIB))
    assert found.after is not None
    assert (found.after.files, found.after.bytes, found.after.row_groups) == (2, 2 * MIB, 4)
    assert (found.before, found.predicted, found.query) == (before.before, before.predicted, "q")


leaves = st.builds(compare, st.sampled_from(["eq", "lt", "gt", "gt-eq", "lt-eq", "not-eq"]), st.integers(-100, 1100))
conditions = st.recursive(leaves, lambda inner: st.builds(both, inner, inner, st.sampled_from(["and", "or"])), max_leaves=6)


@settings(deadline=None, max_examples=100)
@given(conditions)
def test_a_prediction_is_right_for_rows_that_are_spread_evenly(condition: Condition) -> None:
    """Against the truth: a thousand values in a hundred files that follow one another."""
    starts = np.arange(0, 1000, 10)
    truth = sum(any(holds(condition, value) for value in range(start, start + 10)) for start in starts.tolist())
    found = gain(condition)
    pieces = 1 + str(condition).count("'type'")
    assert truth - pieces <= found.predicted.files <= truth + pieces or has_not_equal(condition)


def holds(condition: Condition, value: int) -> bool:
    if isinstance(condition, bool):
        return condition
    kind = condition["type"]
    if kind in {"and", "or"}:
        sides = [holds(condition[side], value) for side in ("left", "right")]
        return all(sides) if kind == "and" else any(sides)
    than = condition["value"]
    return {
        "eq": value == than,
        "not-eq": value != than,
        "lt": value < than,
        "lt-eq": value <= than,
        "gt": value > than,
        "gt-eq": value >= than,
    }[kind]


def has_not_equal(condition: Condition) -> bool:
    return "not-eq" in str(condition)
