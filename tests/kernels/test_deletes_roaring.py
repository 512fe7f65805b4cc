"""Roaring bitmaps: the same bytes as the reference library writes, and every form that it may write is read."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from neve.kernels.deletes.roaring import Encoder, Longs, decode, encode


@st.composite
def positions(draw: st.DrawFn) -> Longs:
    """Stretches, sparse values and full containers, near container and 32-bit edges, too."""
    bases = st.sampled_from([0, 65_530, 65_536, 3 * 65_536, 2**31, 2**32 - 4, 2**32, 5 * 2**32 + 7, 2**62])
    pieces = []
    for base in draw(st.lists(bases, max_size=4)):
        length = draw(st.sampled_from([1, 2, 3, 100, 4095, 4096, 4097, 65_536, 70_000]))
        step = draw(st.sampled_from([1, 2, 7]))
        pieces.append(base + step * np.arange(length, dtype=np.int64))
    sparse = draw(st.lists(st.integers(0, 2**40), max_size=20))
    return np.unique(np.concatenate([*pieces, np.array(sparse, np.int64)]))


@settings(max_examples=60, deadline=None)
@given(positions())
def test_the_bytes_are_those_of_the_reference_library_with_runs(rows: Longs) -> None:
    reference = BitMap64(rows.tolist())
    reference.run_optimize()
    assert encode(rows) == reference.serialize()
    assert decode(encode(rows)).tolist() == rows.tolist()


@settings(max_examples=30, deadline=None)
@given(positions())
def test_bitmaps_without_runs_are_read(rows: Longs) -> None:
    assert decode(BitMap64(rows.tolist()).serialize()).tolist() == rows.tolist()


@settings(max_examples=30, deadline=None)
@given(positions(), st.integers(1, 50_000))
def test_positions_that_come_bit_by_bit_give_the_same_bytes(rows: Longs, at_a_time: int) -> None:
    encoder = Encoder()
    for start in range(0, len(rows), at_a_time):
        encoder.add(rows[start : start + at_a_time])
    assert (encoder.finish(), encoder.cardinality) == (encode(rows), len(rows))


def test_empty_bitmaps_between_others_are_read() -> None:
    """Java writes one for every 2^32 positions up to the last."""
    one = BitMap64([2**32 + 5]).serialize()
    padded = struct.pack("<QIII", 2, 0, 12346, 0) + one[8:]
    assert decode(padded).tolist() == [2**32 + 5]


def test_no_positions_make_an_empty_bitmap() -> None:
    assert encode(np.zeros(0, np.int64)) == bytes(8)
    assert decode(bytes(8)).tolist() == []


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [-1, 3]])
def test_positions_that_do_not_ascend_are_not_encoded(rows: list[int]) -> None:
    with pytest.raises(ValueError, match="Cannot encode positions: they must ascend, each once, from 0 on"):
        encode(np.array(rows, np.int64))


def test_positions_that_go_back_in_a_later_call_are_not_encoded() -> None:
    encoder = Encoder()
    encoder.add(np.array([5], np.int64))
    with pytest.raises(ValueError, match="they must ascend"):
        encoder.add(np.array([5], np.int64))


def _of(*containers: bytes) -> bytes:
    return struct.pack("<QI", 1, 0) + b"".join(containers)


ARRAY = struct.pack("<IIHHI", 12346, 1, 0, 1, 16)
RUNS = struct.pack("<IBHH", 12347, 1, 0, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends too early"),
        (encode(np.arange(0, 200, 2))[:-1], "ends too early"),
        (encode(np.arange(200))[:-3], "ends too early"),
        (encode(np.arange(0, 20_000, 2))[:-1], "ends too early"),
        (encode(np.arange(5)) + b"\0", "1 bytes follow the bitmap"),
        (_of(struct.pack("<II", 99, 0)), "has cookie 99"),
        (struct.pack("<QI", 1, 2**31) + bytes(8), "is negative"),
        (_of(ARRAY, struct.pack("<HH", 7, 7)), "do not ascend"),
        (_of(RUNS, struct.pack("<HHH", 1, 0, 4)), "holds 5 positions and says 4"),
    ],
)
def test_a_damaged_bitmap_is_told_from_a_right_one(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(data)
