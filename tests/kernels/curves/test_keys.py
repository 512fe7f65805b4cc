"""Keys of whole rows: they follow the curve through the columns' ranks, and rows ordered by them are skipped well."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.kernels.curves.hilbert import hilbert
from neve.kernels.curves.keys import curve_keys, order_rows
from neve.kernels.curves.ranks import Boundaries
from neve.table.layout import Layout, LayoutKind
from tests.builders.ordered_columns import LAW, bit_by_bit, ordered, tables

FILES = 64


@LAW
@given(tables(max_columns=8))
def test_keys_compare_as_the_interleaved_ranks_of_all_types_do(made: tuple[Any, Any, Any]) -> None:
    _, _, columns = made
    boundaries = Boundaries.of(columns)
    ranks = boundaries.ranks(columns)
    expected = [bit_by_bit(row, boundaries.bits) for row in ranks.tolist()]
    assert curve_keys(columns, boundaries, LayoutKind.ZORDER).tolist() == expected
    assert curve_keys(columns, boundaries, LayoutKind.HILBERT).tolist() == hilbert(ranks, boundaries.bits).tolist()


@LAW
@given(tables(max_columns=4))
def test_a_row_that_is_nowhere_smaller_never_has_the_smaller_key(made: tuple[Any, Any, Any]) -> None:
    kinds, values, columns = made
    keys = curve_keys(columns, Boundaries.of(columns), LayoutKind.ZORDER).tolist()
    rows = [tuple(ordered(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in zip(*values, strict=True)]
    pairs = [(i, j) for i in range(len(rows)) for j in range(len(rows))]
    nowhere_greater = [(i, j) for i, j in pairs if all(a <= b for a, b in zip(rows[i], rows[j], strict=True))]
    assert [(i, j) for i, j in nowhere_greater if keys[i] > keys[j]] == []


@pytest.mark.parametrize("kind", ["z-order", "hilbert"])
@LAW
@given(data=st.data())
def test_rows_are_ordered_by_their_keys_and_ties_keep_their_order(kind: str, data: st.DataObject) -> None:
    kinds, _, columns = data.draw(tables())
    layout = Layout.parse(f"{kind}({', '.join(f'c{i}' for i in range(len(kinds)))})")
    keys = curve_keys(columns, Boundaries.of(columns), layout.kind).tolist()
    assert order_rows(columns, layout).to_pylist() == sorted(range(len(keys)), key=lambda row: keys[row])


def test_a_sorted_layout_is_sorted() -> None:
    columns = [pa.array(["b", "a", None, "b"]), pa.array([1, 2, 3, 4])]
    assert order_rows(columns, Layout.parse("sort(a, b desc)")).to_pylist() == [2, 1, 3, 0]


def test_no_rows_have_an_order() -> None:
    columns = [pa.array([], pa.string()), pa.array([], pa.int64())]
    for text in ("sort(a, b)", "z-order(a, b)", "hilbert(a, b)"):
        assert order_rows(columns, Layout.parse(text)).to_pylist() == []


def share_of_files_touched(order: Any, columns: list[pa.Array]) -> float:
    """Of files that hold 1/64 of the rows each, those whose bounds let a lookup of one value in; the mean over many values."""
    shares = []
    for column in columns:
        files = np.sort(np.array(column.take(order).to_pylist()).reshape(FILES, -1), axis=1)
        lower, upper = files[:, 0], files[:, -1]
        looked_up = np.array(column.to_pylist()[:500])[:, None]
        shares.append(((lower <= looked_up) & (looked_up <= upper)).mean())
    return float(np.mean(shares))


def by_first_eight_bytes(columns: list[pa.Array]) -> npt.NDArray[np.int64]:
    """Z-order as it is often made: each value gives its first eight bytes, whatever they tell."""
    rows = [[int.from_bytes(str(value).encode()[:8].ljust(8, b"\0")) for value in column.to_pylist()] for column in columns]
    keys = [bit_by_bit(list(row), 64) for row in zip(*rows, strict=True)]
    return np.array(sorted(range(len(keys)), key=lambda row: keys[row]))


@pytest.fixture(scope="module")
def prefixed() -> list[pa.Array]:
    """Names of which the first bytes tell nothing or little, in random order."""
    random = np.random.default_rng(5)
    customers, cities = random.integers(0, 10**6, FILES * 128), random.zipf(1.3, FILES * 128) % 5_000
    return [pa.array([f"customer_{i:07d}" for i in customers]), pa.array([f"city-{i:04d}" for i in cities])]


def test_lookups_of_prefixed_names_touch_four_times_fewer_files_than_by_their_first_bytes(prefixed: list[pa.Array]) -> None:
    naive = share_of_files_touched(by_first_eight_bytes(prefixed), prefixed)
    ranked = {
        kind: share_of_files_touched(order_rows(prefixed, Layout.parse(f"{kind}(a, b)")), prefixed)
        for kind in ("z-order", "hilbert")
    }
    assert naive > 0.5
    assert ranked["hilbert"] * 4 < naive
    assert ranked["z-order"] * 3 < naive


def test_a_sample_orders_a_large_table_as_well_as_all_its_rows(
    prefixed: list[pa.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.parse("hilbert(a, b)")
    exact = share_of_files_touched(order_rows(prefixed, layout), prefixed)
    monkeypatch.setattr("neve.kernels.curves.keys._SAMPLE_ROWS", 2_000)
    sampled = share_of_files_touched(order_rows(prefixed, layout), prefixed)
    assert sampled < exact * 1.1
