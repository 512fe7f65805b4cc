"""Where the rows of outputs lie, from where those of the inputs lay: the bounds that a rewrite leaves behind. Pure.

Called by `rewriting`. A file is a box of its bounds with its rows spread evenly inside, columns independent of one another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bench.simulation.table import Array
from neve.table.layout import LayoutKind


@dataclass(frozen=True)
class Boxes:
    """Boxes with their rows; a box reaches from `low` up to, without, `high` in each column."""

    low: Array
    high: Array
    rows: Array

    @property
    def hull(self) -> tuple[Array, Array]:
        """The bounds of all together, both included."""
        held = self.rows > 0 if (self.rows > 0).any() else np.ones(len(self.rows), dtype=bool)
        return np.floor(self.low[held].min(axis=0)), np.ceil(self.high[held].max(axis=0)) - 1


def boxes_of(lower: Array, upper: Array, rows: Array) -> Boxes:
    """From bounds of whole numbers, both included."""
    return Boxes(lower.astype(np.float64), upper.astype(np.float64) + 1, rows.astype(np.float64))


def in_sequence(boxes: Boxes, count: int) -> list[tuple[Array, Array]]:
    """The bounds of `count` outputs that take the inputs' rows one after another."""
    if count == 1:
        return [boxes.hull]
    ends = np.cumsum(boxes.rows)
    cuts = np.linspace(0, ends[-1], count + 1)
    starts = ends - boxes.rows
    found = []
    for low, high in pairwise(cuts.tolist()):
        inside = np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0)
        found.append(replace(boxes, rows=inside).hull)
    return found


def ordered(boxes: Boxes, count: int, kind: LayoutKind, columns: list[int]) -> list[tuple[Array, Array]]:
    """The bounds of `count` outputs of equally many rows in a layout's order.

    A sort cuts the first column, the next only inside a single value; a curve halves one column after the other.
    """
    if count == 1:
        return [boxes.hull]
    extent = (boxes.high[boxes.rows > 0].max(axis=0) - boxes.low[boxes.rows > 0].min(axis=0))[columns]
    column = next((c for c, wide in zip(columns, extent, strict=True) if wide > 1), columns[0])
    first = count // 2
    left, right = _cut(boxes, column, first / count)
    after = columns
    if kind is not LayoutKind.SORT:
        place = columns.index(column) + 1
        after = columns[place:] + columns[:place]
    return [*ordered(left, first, kind, after), *ordered(right, count - first, kind, after)]


def _cut(boxes: Boxes, column: int, share: float) -> tuple[Boxes, Boxes]:
    """Two halves along a column, the first with this share of the rows."""
    low, high = boxes.low[:, column], boxes.high[:, column]
    place = _quantile(low, high, boxes.rows, share)
    below = np.clip((place - low) / (high - low), 0, 1)
    left_high, right_low = boxes.high.copy(), boxes.low.copy()
    left_high[:, column] = np.minimum(high, max(place, low.min()))
    right_low[:, column] = np.maximum(low, min(place, high.max()))
    left = Boxes(boxes.low, np.maximum(left_high, boxes.low), boxes.rows * below)
    right = Boxes(np.minimum(right_low, boxes.high), boxes.high, boxes.rows * (1 - below))
    return _held(left), _held(right)


def _held(boxes: Boxes) -> Boxes:
    kept = boxes.rows > 1e-9
    return Boxes(boxes.low[kept], boxes.high[kept], boxes.rows[kept]) if kept.any() else boxes


def _quantile(low: Array, high: Array, rows: Array, share: float) -> float:
    """Below which value this share of the rows lies: each box adds its density between its ends."""
    density = rows / (high - low)
    ends = np.concatenate([low, high])
    order = np.argsort(ends, kind="stable")
    ends, steps = ends[order], np.concatenate([density, -density])[order]
    slopes = np.cumsum(steps)[:-1]
    total = np.concatenate([[0.0], np.cumsum(slopes * np.diff(ends))])
    return float(np.interp(share * rows.sum(), np.maximum.accumulate(total), ends))
