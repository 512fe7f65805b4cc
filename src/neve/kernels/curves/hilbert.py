"""Hilbert's curve: the place of rows of ranks along it. Called by `keys`.

The curve visits every cell once and goes from each to a neighbour, so that a stretch of it has no far-off cells as z-order's
have. By Skilling's method (2004): exchanges and inversions from the highest bit down, then a Gray code.
"""

from __future__ import annotations

import numpy as np

from neve.kernels.curves.zorder import Keys, Ranks, interleave

_BLOCK_ROWS = 16_384
"""Few enough that the columns of a block stay in the processor's cache."""


def hilbert(ranks: Ranks, bits: int) -> Keys:
    """How far along the curve each row of ranks lies, each rank of so many bits."""
    keys = np.empty(len(ranks), np.uint64)
    for start in range(0, max(len(ranks), 1), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        axes = np.array(ranks[block].T, np.uint32, order="C")
        keys[block] = interleave(_along(axes, bits).T, bits)
    return keys


def _along(axes: Ranks, bits: int) -> Ranks:
    """Turns coordinates, one row for each column, into numbers whose interleaved bits are the place on the curve."""
    first, last = axes[0], axes[-1]
    for bit in range(bits - 1, 0, -1):
        below = np.uint32((1 << bit) - 1)
        for axis in axes:
            inverted = (axis >> np.uint32(bit) & np.uint32(1)) * below
            exchanged = (first ^ axis) & (inverted ^ below)
            first ^= exchanged | inverted
            if axis is not first:
                axis ^= exchanged
    for i in range(1, len(axes)):
        axes[i] ^= axes[i - 1]
    # Each bit is inverted as often as a higher one is set in the last.
    flips = last >> np.uint32(1)
    for distance in (1, 2, 4, 8):
        flips ^= flips >> np.uint32(distance)
    axes ^= flips
    return axes
