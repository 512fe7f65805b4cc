"""Bins of files: the guarantees of `neve.rewrite.packing`, by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.rewrite.packing import bins_wanted, pack

TARGET = 128

partitions = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 300), st.integers(0, 10_000)),
    min_size=0,
    max_size=150,
    unique_by=lambda f: f[2],
)


def packed(files: list[tuple[int, int, int]], target: int = TARGET) -> np.ndarray:
    partition, sizes, order = (np.array([f[i] for f in files], dtype=np.int64) for i in range(3))
    return pack(partition, sizes, order, target)


def sums(files: list[tuple[int, int, int]], bins: np.ndarray) -> dict[int, int]:
    totals: dict[int, int] = {}
    for file, number in zip(files, bins, strict=True):
        totals[int(number)] = totals.get(int(number), 0) + file[1]
    return totals


@given(partitions)
def test_every_file_is_in_one_bin_and_no_bin_spans_partitions(files: list[tuple[int, int, int]]) -> None:
    bins = packed(files)
    assert len(bins) == len(files)
    owners: dict[int, int] = {}
    for file, number in zip(files, bins, strict=True):
        assert owners.setdefault(int(number), file[0]) == file[0]
    assert sorted(owners) == list(range(len(owners)))


@given(partitions)
def test_no_bin_exceeds_twice_the_target_or_its_largest_file(files: list[tuple[int, int, int]]) -> None:
    small = [(p, min(s, TARGET // 2), o) for p, s, o in files]
    assert all(total <= 2 * TARGET for total in sums(small, packed(small)).values())


@given(partitions, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(files: list[tuple[int, int, int]], random: object) -> None:
    shuffled = list(files)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = {file: int(number) for file, number in zip(files, packed(files), strict=True)}
    second = {file: int(number) for file, number in zip(shuffled, packed(shuffled), strict=True)}
    assert first == second


@settings(max_examples=300)
@given(st.lists(st.integers(1, TARGET // 2 - 1), min_size=1, max_size=100))
def test_needs_no_more_bins_than_the_optimum_and_leaves_none_half_empty(sizes: list[int]) -> None:
    files = [(0, size, i) for i, size in enumerate(sizes)]
    totals = sums(files, packed(files))
    optimum_at_least = -(-sum(sizes) // TARGET)
    assert len(totals) <= max(1, optimum_at_least)
    if len(totals) > 1:
        assert min(totals.values()) >= TARGET / 2


def test_files_written_together_stay_together() -> None:
    files = [(0, 16, i) for i in range(32)]
    assert packed(files).tolist() == [i // 8 for i in range(32)]


@pytest.mark.parametrize(("total", "bins"), [(1, 1), (128, 1), (191, 1), (192, 2), (319, 2), (320, 3), (1280, 10)])
def test_the_number_of_bins_follows_the_bytes(total: int, bins: int) -> None:
    assert bins_wanted(np.array([total]), TARGET).tolist() == [bins]


def test_a_million_files_are_packed() -> None:
    random = np.random.default_rng(1)
    count = 1_000_000
    partition = random.integers(0, 1000, count)
    sizes = random.integers(1, 30, count)
    bins = pack(partition, sizes, np.arange(count), TARGET)
    totals = np.bincount(bins, weights=sizes)
    assert totals.max() <= 2 * TARGET
    assert totals.min() >= TARGET / 2
