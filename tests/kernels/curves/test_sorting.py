"""Sorted order: exactly Python's, for every type, direction and place of nulls."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.kernels.arrow.model import RefusedError
from neve.kernels.curves.sorting import comparable, sort_indices
from neve.table.layout import SortField
from tests.builders.ordered_columns import KINDS, LAW, Kind, tables


def reference(kinds: list[Kind], values: list[list[Any]], fields: list[SortField]) -> list[int]:
    """Sorted field by field, the last first: Python's sort is stable, in reverse too."""
    rows = list(range(len(values[0])))
    for kind, column, field in reversed(list(zip(kinds, values, fields, strict=True))):
        known = [row for row in rows if column[row] is not None]
        missing = [row for row in rows if column[row] is None]
        keys = {row: kind.key(column[row]) for row in known}
        known.sort(key=keys.__getitem__, reverse=field.descending)
        rows = missing + known if field.nulls_first else known + missing
    return rows


@LAW
@given(tables(), st.data())
def test_rows_are_sorted_as_python_sorts_them(made: tuple[Any, Any, Any], data: st.DataObject) -> None:
    kinds, values, columns = made
    fields = [
        SortField(name=f"c{i}", descending=data.draw(st.booleans()), nulls_first=data.draw(st.booleans()))
        for i in range(len(kinds))
    ]
    assert sort_indices(columns, fields).to_pylist() == reference(kinds, values, fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.name}-{kind.arrow}")
@LAW
@given(data=st.data())
def test_arrow_compares_comparable_columns_as_python_compares_the_values(kind: Kind, data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(kind.values, kind.values), min_size=1, max_size=20))
    left, right = (comparable(kind.array([pair[side] for pair in pairs])) for side in (0, 1))
    assert left.type == right.type
    assert pc.less(left, right).to_pylist() == [kind.key(a) < kind.key(b) for a, b in pairs]
    assert pc.equal(left, right).to_pylist() == [kind.key(a) == kind.key(b) for a, b in pairs]


def test_nulls_stand_where_the_field_says_in_either_direction() -> None:
    column = pa.array([1, None, 3])
    found = {
        (descending, first): sort_indices([column], [SortField(name="a", descending=descending, nulls_first=first)]).to_pylist()
        for descending in (False, True)
        for first in (False, True)
    }
    assert found == {
        (False, False): [0, 2, 1],
        (False, True): [1, 0, 2],
        (True, False): [2, 0, 1],
        (True, True): [1, 2, 0],
    }


def test_nan_is_the_greatest_number_and_zeros_tie() -> None:
    column = pa.array([math.nan, 0.0, math.inf, -0.0, None, -math.inf])
    ascending, descending = SortField(name="a"), SortField(name="a", descending=True, nulls_first=False)
    assert sort_indices([column], [ascending]).to_pylist() == [4, 5, 1, 3, 2, 0]
    assert sort_indices([column], [descending]).to_pylist() == [0, 2, 1, 3, 5, 4]


def test_a_column_of_nothing_keeps_the_order() -> None:
    fields = [SortField(name="a"), SortField(name="b", descending=True)]
    assert sort_indices([pa.nulls(3), pa.nulls(3, pa.string())], fields).to_pylist() == [0, 1, 2]
    assert sort_indices([pa.chunked_array([], pa.int32()), pa.array([], pa.string())], fields).to_pylist() == []


def test_chunks_with_dictionaries_of_their_own_are_one_column() -> None:
    column = pa.chunked_array([pa.array(["c", "a"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()])
    assert sort_indices([column], [SortField(name="a", nulls_first=False)]).to_pylist() == [1, 2, 0, 3]


def test_a_type_without_order_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"Cannot order rows by a column of type list<.*>: its values have no order"):
        sort_indices([pa.array([[1]])], [SortField(name="a")])
