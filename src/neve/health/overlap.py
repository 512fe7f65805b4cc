"""How deep files lie on one another, from their bounds (docs/clustering.md). Pure; used by clustering and inspection.

A file is a box: its range in each clustering column. The depth at a point is how many boxes of one partition hold it. Points
are the middles of files, weighted by rows; the same files in another order give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from neve.table.bounds import Mask, Ranges, Ranks

SAMPLES = 128
"""Points at which a partition is looked at; one with fewer files is looked at in the middle of each."""

_CHUNK = 1 << 14

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Overlap:
    """Depth of one partition: the mean over rows, the worst point, and the mean for each column taken by itself."""

    mean: float
    worst: float
    columns: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Layers:
    """Depth at the points, apart for each class of files. What no rewrite can part counts once wherever there is some of it."""

    points: Ranks  # [points, columns], in halves of a rank
    shares: Numbers  # of the rows that each point stands for
    depth: Numbers  # [classes, points]
    columns: Numbers  # [classes, points, columns]
    still: Numbers  # [points]: 1 where a file of one single point lies
    still_columns: Numbers  # [points, columns]

    def overlap(self, classes: int | None = None, *, extra: Numbers | float = 0.0, by_column: Numbers | float = 0.0) -> Overlap:
        """Of the first classes only; `extra` depth at each point, and `by_column`, is added."""
        depth = self.depth[:classes].sum(axis=0) + self.still + extra
        columns = self.columns[:classes].sum(axis=0) + self.still_columns + by_column
        # Rounded, so that sums taken in another order stay on the same side of a limit.
        mean, *by_column_mean = np.round([self.shares @ depth, *(self.shares @ columns)], 9).tolist()
        return Overlap(mean=mean, worst=float(depth.max()), columns=tuple(by_column_mean))


@dataclass(frozen=True, eq=False)
class Boxes:
    """Files of one partition: ranks among this partition's own bounds, `[files, columns]`, and which ranges are one point."""

    lower: Ranks
    upper: Ranks
    single: Mask

    def __len__(self) -> int:
        return len(self.lower)

    @classmethod
    def of(cls, ranges: Ranges, files: npt.NDArray[Any]) -> Self:
        """Some of the files, all of one partition."""
        part = ranges.take(files)
        lower, upper = np.empty_like(part.lower), np.empty_like(part.upper)
        for i in range(lower.shape[1]):
            _, ranks = np.unique(np.concatenate((part.lower[:, i], part.upper[:, i])), return_inverse=True)
            lower[:, i], upper[:, i] = ranks[: len(part)], ranks[len(part) :]
        return cls(lower, upper, part.single)

    @cached_property
    def middles(self) -> Ranks:
        """A point in each box, in halves of a rank: a bound, where a row is known to be, or between two if none is inside."""
        sums = self.lower + self.upper
        return np.where(self.upper - self.lower < 2, sums, sums - sums % 2)


def each_partition(partition: npt.NDArray[Any]) -> Iterator[tuple[int, Ranks]]:
    """Every partition that has files, with their indices in order."""
    order = np.argsort(partition, kind="stable")
    values, starts = np.unique(partition[order], return_index=True)
    yield from zip(values.tolist(), np.split(order, starts[1:]), strict=False)


def row_shares(boxes: Boxes, rows: npt.NDArray[Any]) -> Numbers:
    """For each file and column, the share of all rows that lie in its range: how often a query for one value meets the file."""
    weights = np.maximum(rows, 1)
    shares: Numbers = np.empty_like(boxes.lower, dtype=np.float64)
    for i in range(boxes.lower.shape[1]):
        below = np.concatenate(
            ([0.0], np.cumsum(np.bincount(boxes.middles[:, i], weights, 2 * int(boxes.upper[:, i].max()) + 1)))
        )
        shares[:, i] = (below[2 * boxes.upper[:, i] + 1] - below[2 * boxes.lower[:, i]]) / below[-1]
    return shares


def stretch(boxes: Boxes, rows: npt.NDArray[Any], *, curve: bool = True) -> Numbers:
    """How many times more of the space than of the rows a file's box takes: 1 for a file of a table that is all clustered.

    Along a curve boxes should be as long as wide, so the space is that of the cube with the same average side: a long thin box
    counts as stretched. Otherwise it is the product of the sides.
    """
    shares = row_shares(boxes, rows)
    weights = np.maximum(rows, 1).astype(np.int64)
    space = shares.mean(axis=1) ** shares.shape[1] if curve else shares.prod(axis=1)
    return np.asarray(space / (weights / weights.sum()))


def layers(
    boxes: Boxes,
    rows: npt.NDArray[Any],
    *,
    weights: npt.NDArray[Any] | None = None,
    classes: npt.NDArray[Any] | None = None,
) -> Layers:
    """The files of one partition at its points. A file counts `weights` times (1 each); `classes` are numbers from 0."""
    chosen, shares = _sampled(boxes.middles, rows)
    group = np.zeros(len(boxes), dtype=np.int64) if classes is None else classes.astype(np.int64)
    times = np.ones(len(boxes)) if weights is None else weights.astype(np.float64)
    height = int(group.max(initial=0)) + 1
    depth, columns = np.zeros((height, len(chosen))), np.zeros((height, *chosen.shape))
    still, still_columns = np.zeros(len(chosen)), np.zeros(chosen.shape)
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(height + 1))
    for number in range(height):
        for start in range(edges[number], edges[number + 1], _CHUNK):
            files = order[start : min(start + _CHUNK, edges[number + 1])]
            all_single, inside = boxes.single[files].all(axis=1), np.ones((len(chosen), len(files)), dtype=np.bool_)
            for i in range(chosen.shape[1]):
                point = chosen[:, i, None]
                hit = (2 * boxes.lower[files, i] <= point) & (point <= 2 * boxes.upper[files, i])
                inside &= hit
                columns[number, :, i] += _counted(hit, np.where(boxes.single[files, i], 0, times[files]))
                still_columns[:, i] = np.maximum(still_columns[:, i], hit[:, boxes.single[files, i]].any(axis=1))
            depth[number] += _counted(inside, np.where(all_single, 0, times[files]))
            still = np.maximum(still, inside[:, all_single].any(axis=1))
    return Layers(chosen, shares, depth, columns, still, still_columns)


def overlap(boxes: Boxes, rows: npt.NDArray[Any], *, weights: npt.NDArray[Any] | None = None) -> Overlap:
    """Depth of one partition's files: exact for `SAMPLES` files or fewer, at as many points otherwise."""
    return layers(boxes, rows, weights=weights).overlap()


def _counted(hits: npt.NDArray[np.bool_], times: Numbers) -> Numbers:
    """Weighted hits by point. Counting is much faster than multiplying, and nearly every file counts once."""
    once, odd = times == 1, (times != 1) & (times != 0)
    counted: Numbers = np.count_nonzero(hits if once.all() else hits[:, once], axis=1).astype(np.float64)
    if odd.any():
        counted += hits[:, odd] @ times[odd]
    return counted


def _sampled(points: Ranks, rows: npt.NDArray[Any]) -> tuple[Ranks, Numbers]:
    weights = np.maximum(rows, 1).astype(np.int64)
    order = np.lexsort(points.T[::-1]) if points.shape[1] else np.arange(len(points))
    below = np.cumsum(weights[order])
    if len(points) <= SAMPLES:
        return points[order], weights[order] / below[-1]
    at = (np.arange(SAMPLES) + 0.5) / SAMPLES * below[-1]
    return points[order[np.searchsorted(below, at)]], np.full(SAMPLES, 1 / SAMPLES)
