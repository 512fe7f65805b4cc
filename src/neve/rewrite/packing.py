"""Cuts the files of a partition into bins, each of which becomes one good file.

Files stay in the order in which they were written, so that rows that arrived together stay together and readers can still skip
by time. All partitions are cut at once over columns; only a partition whose files are too coarse for even cuts is looked at
again. Called by `rewrite.planner`; pure.

Guarantees: each file is in exactly one bin; a bin never exceeds max(2 x target, its largest file); the order of the input does
not matter; no bin is below half the target where this or the spread cut gives a better one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]


def bins_wanted(total_bytes: Column, target_bytes: int) -> Column:
    """How many files the bytes of each partition should become: sizes between 0.75 and 1.5 of the target, or one file."""
    return np.maximum(1, np.floor(total_bytes / target_bytes + 0.5)).astype(np.int64)


def sort_indices(keys: Column) -> Column:
    """The stable order of integers from 0 on, 16 bits at a time: numpy sorts these by radix, six times as fast."""
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    while (keys := keys >> 16).any():
        order = order[np.argsort(keys[order].astype(np.uint16), kind="stable")]
    return order


def pack(partition: Column, sizes: Column, order: Column, target_bytes: int) -> Column:
    """The bin of each file, numbered from 0 over all partitions in their order. `order` ranks files within a partition.

    A file of the target's size or more is a bin of its own: nothing is gained by adding to it.
    """
    result = np.empty(len(sizes), dtype=np.int64)
    joined = np.flatnonzero(sizes < target_bytes)
    whole = np.flatnonzero(sizes >= target_bytes)
    result[joined] = _join(partition[joined], sizes[joined], order[joined], target_bytes)
    result[whole] = len(sizes) + order[whole]
    keys = _sorted_by(partition, result)
    step = np.diff(result[keys], prepend=-1) != 0
    numbered = np.empty(len(sizes), dtype=np.int64)
    numbered[keys] = np.cumsum(step | (np.diff(partition[keys], prepend=-1) != 0)) - 1
    return numbered


def _sorted_by(first: Column, second: Column) -> Column:
    return sort_indices(first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second)


def _join(partition: Column, sizes: Column, order: Column, target_bytes: int) -> Column:
    if not len(sizes):
        return np.zeros(0, dtype=np.int64)
    by = _sorted_by(partition, order)
    starts = np.flatnonzero(np.diff(partition[by], prepend=-1))
    ends = np.append(starts[1:], len(by))
    rank = np.repeat(np.arange(len(starts)), ends - starts)
    totals = np.add.reduceat(sizes[by], starts)
    wanted = np.minimum(bins_wanted(totals, target_bytes), ends - starts)
    local = _contiguous(sizes[by], rank, starts, totals, wanted)
    local = _mend(local, sizes[by], starts, ends, target_bytes)
    result = np.empty(len(by), dtype=np.int64)
    result[by] = local
    return result


def _contiguous(sizes: Column, rank: Column, starts: Column, totals: Column, wanted: Column) -> Column:
    """Cuts where the running total passes equal shares; the middle of a file decides on which side it goes."""
    running = np.cumsum(sizes) - sizes
    inside = running - running[starts][rank] + sizes / 2
    share = np.maximum(totals, 1) / wanted
    cut: Column = np.minimum((inside / share[rank]).astype(np.int64), wanted[rank] - 1)
    return cut


def _mend(local: Column, sizes: Column, starts: Column, ends: Column, target: int) -> Column:
    """Where an even cut left a bin too light or too heavy, tries the other cuts and keeps the best."""
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part, cuts = sizes[start:end], local[start:end]
        if cuts[-1] == 0 or _fault(cuts, part, target) == 0:
            continue
        count = int(cuts.max()) + 1
        candidates = [cuts, *(_spread(part, n) for n in (count, count - 1, count + 1))]
        local[start:end] = min(candidates, key=lambda cut: _fault(cut, part, target))
    return local


def _spread(sizes: Column, count: int) -> Column:
    """Largest first, each into the lightest bin: the evenest sums there are, at the price of the order."""
    sums = np.zeros(max(count, 1))
    cut = np.zeros(len(sizes), dtype=np.int64)
    for i in np.argsort(-sizes, kind="stable"):
        lightest = int(np.argmin(sums))
        cut[i] = lightest
        sums[lightest] += sizes[i]
    return cut


def _fault(cut: Column, sizes: Column, target: int) -> float:
    """0 for bins that are all right, else how far the worst is off; too heavy is worse than too light."""
    sums = np.bincount(cut, weights=sizes)
    sums = sums[sums > 0]
    limit = max(2 * target, int(sizes.max(initial=0)))
    heavy = max(0.0, float(sums.max(initial=0)) - limit) / target
    light = max(0.0, target / 2 - float(sums.min(initial=target))) / target
    return 10 * heavy + light
