"""Z-order: the bits of several ranks, taken in turn, make one number. Called by `keys` and by `hilbert`.

Where no rank is smaller, the number is not smaller.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from neve.errors import BadRequestError

MAX_COLUMNS = 8
MAX_BITS = 16

Ranks = npt.NDArray[np.uint32]
Keys = npt.NDArray[np.uint64]


def bits_for(columns: int) -> int:
    """How many bits each of so many columns gets in a key of 64."""
    if not 1 <= columns <= MAX_COLUMNS:
        raise BadRequestError(
            f"Cannot lay rows along a curve through {columns} columns: a key has room for 1 to {MAX_COLUMNS}",
            hint="Name the columns that queries filter by most.",
        )
    return min(MAX_BITS, 64 // columns)


def interleave(ranks: Ranks, bits: int) -> Keys:
    """The keys of rows of ranks, each of so many bits: every column's first bit, then the second; the first column leads."""
    rows, columns = ranks.shape
    if not 1 <= bits <= bits_for(columns):
        raise ValueError(f"{columns} columns of {bits} bits do not make a key")
    spread = _spread(columns)
    keys = np.zeros(rows, np.uint64)
    for i in range(columns):
        keys |= spread[ranks[:, i]] << np.uint64(columns - 1 - i)
    return keys


@lru_cache(maxsize=MAX_COLUMNS)
def _spread(step: int) -> Keys:
    """Every number of so many bits as a column of `step` may have, with its bits `step` apart."""
    numbers = np.arange(1 << bits_for(step), dtype=np.uint64)
    found = np.zeros_like(numbers)
    for bit in range(bits_for(step)):
        found |= (numbers >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * step)
    return found
