"""Clustering comes to rest, by property: rows are points, a rewrite cuts them into tiles, and nothing is left to choose."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from neve.health.clustering import NO_RUN, ClusteringChoice, choose
from neve.health.overlap import Boxes, row_shares
from neve.table.layout import LayoutKind
from tests.builders.bounds import long_ranges

Points = npt.NDArray[Any]

TARGET = 40
"""Rows of a file that is large enough; a row is a byte here."""

MAX_DEPTH = 6


def tiled(points: Points, files: int, axis: int = 0) -> list[Points]:
    """Halves of halves, along one column after the other, until there are so many files."""
    if files == 1:
        return [points]
    ordered, cut = points[np.argsort(points[:, axis], kind="stable")], len(points) * (files // 2) // files
    following = (axis + 1) % points.shape[1]
    return tiled(ordered[:cut], files // 2, following) + tiled(ordered[cut:], files - files // 2, following)


def rewritten(points: Points, kind: LayoutKind) -> list[Points]:
    files = max(1, round(len(points) / TARGET))
    if kind is LayoutKind.SORT:
        return np.array_split(points[np.lexsort(points.T[::-1])], files)
    return tiled(points, files)


class Table:
    """The files of one partition, and what became of them."""

    def __init__(self, kind: LayoutKind, files: list[Points], *, remembers: bool) -> None:
        self.kind, self.files, self.remembers = kind, list(files), remembers
        self.runs = [NO_RUN] * len(files)
        self.written = self.rewritten = self.last_run = 0

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return np.array([len(file) for file in self.files])

    def append(self, files: list[Points]) -> None:
        self.files += files
        self.runs += [NO_RUN] * len(files)
        self.written += sum(map(len, files))

    def choice(self) -> ClusteringChoice:
        ranges = long_ranges(np.array([file.min(axis=0) for file in self.files]), np.array([f.max(axis=0) for f in self.files]))
        [found] = choose(
            ranges,
            self.sizes,
            self.sizes,
            np.zeros(len(self.files), dtype=np.int32),
            max_depth=MAX_DEPTH,
            target_bytes=TARGET,
            kind=self.kind,
            runs=np.array(self.runs) if self.remembers else None,
        )
        return found

    def rewrite(self, chosen: npt.NDArray[np.int64]) -> int:
        gone = set(chosen.tolist())
        points = np.concatenate([self.files[i] for i in chosen])
        outputs = rewritten(points, self.kind)
        self.last_run += 1
        self.files = [file for i, file in enumerate(self.files) if i not in gone] + outputs
        self.runs = [run for i, run in enumerate(self.runs) if i not in gone] + [self.last_run] * len(outputs)
        self.rewritten += len(points)
        return len(points)

    def point_read(self) -> float:
        """The share of rows that a query for one value reads, over all columns."""
        ends = [np.array([getattr(file, end)(axis=0) for file in self.files]) for end in ("min", "max")]
        shares = row_shares(Boxes.of(long_ranges(*ends), np.arange(len(self.files))), self.sizes)
        return float((shares.mean(axis=1) * self.sizes).sum() / self.sizes.sum())


def random_points(random: np.random.Generator, rows: int, columns: int, shape: str) -> Points:
    """Whole numbers: spread evenly, skewed, few and repeated in the first column, or all columns nearly equal."""
    points = random.random((rows, columns))
    if shape == "skewed":
        points = np.exp(4 * random.standard_normal((rows, columns)))
    elif shape == "alike":
        points = points[:, :1] + points / 50
    whole = (points * 1e6).astype(np.int64)
    if shape == "few":
        whole[:, 0] %= 4
    return whole


def split(random: np.random.Generator, points: Points, files: int) -> list[Points]:
    """Files of uneven sizes, none empty."""
    cuts = np.sort(random.choice(np.arange(1, len(points)), files - 1, replace=False))
    return np.split(points, cuts)


shapes = st.sampled_from(["even", "skewed", "few", "alike"])
layouts = st.sampled_from([(LayoutKind.SORT, 1), (LayoutKind.SORT, 2), (LayoutKind.HILBERT, 2), (LayoutKind.ZORDER, 3)])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), layouts, shapes, st.integers(0, 60), st.integers(1, 40), st.booleans())
def test_choosing_after_a_rewrite_finds_nothing_or_less_and_then_nothing(
    seed: int, layout: tuple[LayoutKind, int], shape: str, base: int, fresh: int, remembers: bool
) -> None:
    random = np.random.default_rng(seed)
    kind, columns = layout
    clustered = rewritten(random_points(random, base * TARGET, columns, shape), kind) if base else []
    added = split(random, random_points(random, max(fresh + 1, fresh * TARGET // 3), columns, shape), fresh)
    table = Table(kind, clustered + added, remembers=remembers)
    sizes = []
    while len(chosen := table.choice().files):
        sizes.append(table.rewrite(chosen))
        assert len(sizes) <= 3
    assert sizes == sorted(set(sizes), reverse=True)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), layouts, shapes, st.integers(2, 60), st.randoms(use_true_random=False))
def test_the_same_files_are_chosen_in_any_order(
    seed: int, layout: tuple[LayoutKind, int], shape: str, files: int, order: Any
) -> None:
    random = np.random.default_rng(seed)
    table = Table(layout[0], split(random, random_points(random, files * 8, layout[1], shape), files), remembers=False)
    shuffled = list(range(files))
    order.shuffle(shuffled)
    other = Table(layout[0], [table.files[i] for i in shuffled], remembers=False)
    assert sorted(shuffled[i] for i in other.choice().files) == table.choice().files.tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), layouts, st.integers(15, 40))
def test_a_chosen_rewrite_takes_off_half_of_the_depth_or_more(seed: int, layout: tuple[LayoutKind, int], files: int) -> None:
    random = np.random.default_rng(seed)
    points = random_points(random, files * TARGET, layout[1], "even")
    table = Table(layout[0], np.array_split(points, files), remembers=False)
    choice = table.choice()
    assume(len(choice.files))
    table.rewrite(choice.files)
    assert table.choice().before.mean <= choice.before.mean / 2


@pytest.mark.parametrize("kind", [LayoutKind.SORT, LayoutKind.HILBERT])
def test_five_percent_of_new_rows_cost_five_percent_of_the_bytes_for_nearly_all_of_the_skipping(kind: LayoutKind) -> None:
    random = np.random.default_rng(7)
    columns = 1 if kind is LayoutKind.SORT else 2
    table = Table(kind, rewritten(random_points(random, 100 * TARGET, columns, "even"), kind), remembers=True)
    table.append(split(random, random_points(random, 5 * TARGET, columns, "even"), 20))
    while len(chosen := table.choice().files):
        table.rewrite(chosen)
    full = Table(kind, rewritten(np.concatenate(table.files), kind), remembers=True)
    assert table.rewritten <= 0.06 * table.sizes.sum()
    assert 1 - table.point_read() >= 0.95 * (1 - full.point_read())


@pytest.mark.parametrize("kind", [LayoutKind.SORT, LayoutKind.HILBERT])
@pytest.mark.parametrize("remembers", [False, True])
def test_many_small_appends_are_each_rewritten_a_few_times(kind: LayoutKind, remembers: bool) -> None:
    random = np.random.default_rng(11)
    columns = 1 if kind is LayoutKind.SORT else 2
    table = Table(kind, [], remembers=remembers)
    amplification = {}
    for number in range(1, 201):
        table.append(split(random, random_points(random, TARGET, columns, "even"), 2))
        while len(chosen := (found := table.choice()).files):
            table.rewrite(chosen)
        assert found.before.mean <= 1.5 * MAX_DEPTH
        amplification[number] = table.rewritten / table.written
    assert amplification[200] <= math.log2(400)
    assert amplification[200] - amplification[50] <= 2 * math.log2(200 / 50)
