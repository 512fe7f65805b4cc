"""What selective queries read, told from bounds alone (docs/clustering.md). Pure; for inspection and for predicting a gain.

Typical queries ask one column for one value, or for a hundredth of the rows; stated ones are `query_gain`'s. A file counts as
read wherever its bounds do not rule it out, as in every engine that reads Iceberg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from neve.health.clustering import KEPT_AT_MOST, ClusteringLimits, Outcome, choose, layout_columns
from neve.health.not_due import NotDue, Unit, nearest
from neve.health.overlap import Boxes
from neve.table.bounds import Mask, Ranges, Ranks
from neve.table.files import DATA, FileColumns
from neve.table.frozen import Frozen
from neve.table.layout import Layout, LayoutKind
from neve.table.state import Column

QUERIES = 100
"""Typical queries for each column, spread evenly over the rows."""

RANGE_SHARE = 0.01
"""The share of the rows that a typical range asks for."""


@dataclass(frozen=True)
class TypicalReads:
    """The shares of all files and of all bytes that a query reads, on average."""

    files: float
    bytes: float


Rewritten = tuple[Ranks, Outcome]
"""Files of one partition by index, and what a run makes of them."""


def typical_reads(
    ranges: Ranges, sizes: npt.NDArray[Any], rows: npt.NDArray[Any], *, share: float = 0.0, run: Sequence[Rewritten] = ()
) -> tuple[TypicalReads, ...]:
    """For each column, what queries read that ask it for one value, or for a `share` of the rows; predicted after a `run`."""
    return _reads(ranges, Boxes.of(ranges, np.arange(len(ranges))), sizes, rows, share, run)


def _reads(
    ranges: Ranges,
    boxes: Boxes,
    sizes: npt.NDArray[Any],
    rows: npt.NDArray[Any],
    share: float,
    run: Sequence[Rewritten],
) -> tuple[TypicalReads, ...]:
    kept = np.ones(len(ranges), dtype=np.bool_)
    for files, _ in run:
        kept[files] = False
    total = int(kept.sum()) + sum(outcome.files for _, outcome in run)
    found = []
    for i in range(len(ranges.columns)):
        first, last = _queries(boxes.middles[:, i], np.where(_known(ranges, i), np.maximum(rows, 1), 0), share)
        met, read = _met(boxes, i, np.flatnonzero(kept), sizes, first, last)
        for group, outcome in run:
            within = (2 * boxes.lower[group, i].min() <= last) & (first <= 2 * boxes.upper[group, i].max())
            part = float(within.mean()) * min(1.0, float(outcome.shares[i]) + share)
            met, read = met + part * outcome.files, read + part * float(sizes[group].sum())
        found.append(TypicalReads(files=met / max(total, 1), bytes=read / max(float(sizes.sum()), 1.0)))
    return tuple(found)


def _known(ranges: Ranges, i: int) -> Mask:
    return np.asarray((ranges.lower[:, i] >= 0) & (ranges.upper[:, i] < len(ranges.keys[i])))


def _queries(middles: Ranks, weights: npt.NDArray[Any], share: float) -> tuple[Ranks, Ranks]:
    """Where each query begins and ends: in the middles of the files that hold the first row asked for, and the last."""
    order = np.argsort(middles, kind="stable")
    order = order[weights[order] > 0]
    if not len(order):
        return np.zeros(QUERIES, dtype=np.int64), np.zeros(QUERIES, dtype=np.int64)
    below = np.cumsum(weights[order])
    at = (np.arange(QUERIES) + 0.5) / QUERIES
    first, last = (np.searchsorted(below, np.clip(at + off, 0, 1) * below[-1]) for off in (-share / 2, share / 2))
    return middles[order[first]], middles[order[last]]


def _met(boxes: Boxes, i: int, files: Ranks, sizes: npt.NDArray[Any], first: Ranks, last: Ranks) -> tuple[float, float]:
    """How many files, and how many of their bytes, the queries meet on average: those that began less those that had ended."""
    met = np.zeros((2, len(first)))
    for edges, side, ends, sign in ((boxes.lower, "right", last, 1), (boxes.upper, "left", first, -1)):
        order = files[np.argsort(edges[files, i], kind="stable")]
        count = np.searchsorted(2 * edges[order, i], ends, side=side)  # type: ignore[call-overload]
        met += sign * np.stack((count, np.concatenate(([0], np.cumsum(sizes[order])))[count]))
    return float(met[0].mean()), float(met[1].mean())


class ColumnClustering(Frozen):
    """One clustering column: how many files lie over one of its values, and the share of the table's bytes that queries on it
    alone read, for one value and for a hundredth of the rows; now, and predicted after a run."""

    name: str
    depth: float
    point_read: float
    point_read_after: float
    range_read: float
    range_read_after: float


class Clustering(Frozen):
    """How well a table follows its layout, and what a clustering run would do. Depth: the mean over rows, and the worst.

    A run is `advised` only if queries on the layout's columns would read much less; `not_due` says why it is not.
    """

    layout: str
    depth: float
    worst_depth: float
    depth_after: float
    columns: tuple[ColumnClustering, ...]
    run_files: int
    run_bytes: int
    advised: bool = False
    not_due: tuple[NotDue, ...] = ()


def assess_clustering(
    files: FileColumns,
    columns: Sequence[Column],
    layout: Layout,
    *,
    max_depth: float,
    target_bytes: int,
    runs: npt.NDArray[Any] | None = None,
    chosen: Mask | None = None,
) -> Clustering:
    """Depth and skipping of the live data files, read with bounds; `columns` are the table's, `runs` and `chosen` as in
    `choose`."""
    live = np.flatnonzero(files.column("content") == DATA)
    sizes, rows, homes = (files.column(name)[live] for name in ("size_bytes", "records", "partition"))
    ranges = Ranges.of(files, layout_columns(layout, columns)).take(live)
    choices = choose(
        ranges.coarsened([field.transform for field in layout.fields]),
        sizes,
        rows,
        homes,
        max_depth=max_depth,
        target_bytes=target_bytes,
        kind=layout.kind,
        runs=None if runs is None else runs[live],
        chosen=None if chosen is None else chosen[live],
    )
    limits = ClusteringLimits(layout.kind, len(ranges.columns), max_depth, target_bytes)
    run = [(choice.files, limits.outcome(int(sizes[choice.files].sum()))) for choice in choices if len(choice.files)]
    weights = np.bincount(homes, np.maximum(rows, 1))
    shares = np.array([weights[choice.partition] for choice in choices]) / max(weights.sum(), 1)
    depths = np.array([choice.before.columns for choice in choices]).reshape(len(choices), len(ranges.columns))
    by_column = _by_column(ranges, sizes, rows, run, shares @ depths)
    kept = [
        choice.not_due.model_copy(update={"where": files.partitions[choice.partition].path or None})
        for choice in choices
        if choice.not_due is not None
    ]
    too_little = _too_little(layout.kind, by_column, int(sizes.sum()), target_bytes) if run else None
    return Clustering(
        layout=str(layout),
        depth=float(shares @ [choice.before.mean for choice in choices]),
        worst_depth=max((choice.before.worst for choice in choices), default=0.0),
        depth_after=float(shares @ [choice.predicted.mean for choice in choices]),
        columns=by_column,
        run_files=sum(len(group) for group, _ in run),
        run_bytes=sum(int(sizes[group].sum()) for group, _ in run),
        advised=bool(run) and too_little is None,
        not_due=(too_little,) if too_little is not None else () if run else nearest(kept),
    )


def _too_little(kind: LayoutKind, columns: Sequence[ColumnClustering], size: int, target_bytes: int) -> NotDue | None:
    """Why a run is not worth it by what queries read: of the first column where rows are sorted, of all columns along a curve.

    It has to leave three quarters of their bytes at most, and to spare each query a file of the target size: below that, a
    query reads a whole file anyway.
    """
    asked = columns[:1] if kind is LayoutKind.SORT else columns
    now, after = (sum(getattr(column, name) for column in asked) / len(asked) for name in ("point_read", "point_read_after"))
    if after > now * KEPT_AT_MOST:
        return NotDue(
            rule="read-gain",
            what="bytes that a query for one value reads after a run, as a share of what it reads now",
            measured=round(after / now, 3) if now else 1.0,
            threshold=KEPT_AT_MOST,
            comparison="up to",
            unit=Unit.RATIO,
            until="the table has more files of the target size, or they overlap more",
        )
    if (saved := (now - after) * size) < target_bytes:
        return NotDue(
            rule="read-size",
            what="bytes that a run spares a query for one value",
            measured=round(saved),
            threshold=target_bytes,
            unit=Unit.BYTES,
            knob="target-file-size",
            until="the table is larger",
        )
    return None


def _by_column(
    ranges: Ranges, sizes: npt.NDArray[Any], rows: npt.NDArray[Any], run: Sequence[Rewritten], depths: Sequence[float]
) -> tuple[ColumnClustering, ...]:
    if not len(ranges):
        return ()
    boxes = Boxes.of(ranges, np.arange(len(ranges)))
    columns = zip(
        ranges.columns,
        depths,
        *(_reads(ranges, boxes, sizes, rows, share, done) for share in (0.0, RANGE_SHARE) for done in ((), run)),
        strict=True,
    )
    return tuple(
        ColumnClustering(
            name=column.name,
            depth=float(depth),
            point_read=point.bytes,
            point_read_after=point_after.bytes,
            range_read=wide.bytes,
            range_read_after=wide_after.bytes,
        )
        for column, depth, point, point_after, wide, wide_after in columns
    )
