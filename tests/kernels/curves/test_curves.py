"""Interleaving and Hilbert's curve, against references that work bit by bit and step by step."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import BadRequestError
from neve.kernels.curves.hilbert import hilbert
from neve.kernels.curves.zorder import Ranks, bits_for, interleave
from tests.builders.ordered_columns import LAW, bit_by_bit


@st.composite
def ranks(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    columns = draw(st.integers(1, 8))
    bits = draw(st.integers(1, bits_for(columns)))
    row = st.lists(st.integers(0, 2**bits - 1), min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=1, max_size=10)), bits


def test_a_key_of_64_bits_is_shared_by_the_columns() -> None:
    assert [bits_for(columns) for columns in range(1, 9)] == [16, 16, 16, 16, 12, 10, 9, 8]
    for columns in (0, 9):
        with pytest.raises(BadRequestError, match=f"through {columns} columns: a key has room for 1 to 8"):
            bits_for(columns)


@LAW
@given(ranks())
def test_interleaving_is_what_it_is_bit_by_bit(made: tuple[list[list[int]], int]) -> None:
    rows, bits = made
    assert interleave(np.array(rows, np.uint32), bits).tolist() == [bit_by_bit(row, bits) for row in rows]


@LAW
@given(ranks())
def test_where_no_rank_is_smaller_the_key_is_not_smaller(made: tuple[list[list[int]], int]) -> None:
    rows, bits = made
    least = np.minimum.accumulate(np.array(rows, np.uint32), axis=0)
    keys = interleave(least, bits)
    assert np.all(keys[1:] <= keys[:-1])


def test_more_bits_than_a_key_has_are_refused() -> None:
    for bits in (0, 17, 13):
        columns = 5 if bits == 13 else 2
        with pytest.raises(ValueError, match=f"{columns} columns of {bits} bits do not make a key"):
            interleave(np.zeros((1, columns), np.uint32), bits)


def cells(columns: int, bits: int) -> Ranks:
    return np.array(list(product(range(2**bits), repeat=columns)), np.uint32)


@pytest.mark.parametrize(("columns", "bits"), [(1, 10), (2, 1), (2, 5), (3, 4), (4, 3), (5, 2), (8, 1)])
def test_hilbert_visits_every_cell_once_and_steps_to_a_neighbour(columns: int, bits: int) -> None:
    grid = cells(columns, bits)
    keys = hilbert(grid, bits)
    assert sorted(keys.tolist()) == list(range(2 ** (columns * bits)))
    steps = np.abs(np.diff(grid[np.argsort(keys)].astype(np.int64), axis=0))
    assert set(steps.sum(axis=1).tolist()) == {1}


def test_hilbert_of_two_columns_is_the_curve_as_drawn() -> None:
    along = cells(2, 2)[np.argsort(hilbert(cells(2, 2), 2))].tolist()
    assert along == [
        [0, 0], [1, 0], [1, 1], [0, 1],
        [0, 2], [0, 3], [1, 3], [1, 2],
        [2, 2], [2, 3], [3, 3], [3, 2],
        [3, 1], [2, 1], [2, 0], [3, 0],
    ]  # fmt: skip


@LAW
@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_hilbert_of_full_width_tells_rows_apart_in_every_block(columns: int, seed: int) -> None:
    bits = bits_for(columns)
    random = np.random.default_rng(seed).integers(0, 2**bits, (40_000, columns), dtype=np.uint32)
    keys = hilbert(random, bits)
    assert len(np.unique(keys)) == len(np.unique(random, axis=0))
    assert np.array_equal(keys[20_000:], hilbert(random[20_000:], bits))
    coarse = hilbert(random >> np.uint32(bits - 1), 1) if bits > 1 else keys
    assert np.array_equal(keys >> np.uint64((bits - 1) * columns), coarse)


def test_no_rows_have_no_keys() -> None:
    for key in (interleave, hilbert):
        assert key(np.zeros((0, 3), np.uint32), 16).tolist() == []
