"""Ranks instead of values: where a value stands among boundaries that a sample gave. Made on the driver, used in every task.

Curves interleave ranks, so that each column gives all its bits whatever its values are: text with a common prefix, skewed
numbers, few distinct values. A greater value never has a smaller rank; null has rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.curves.search import Search
from neve.kernels.curves.sorting import Column, comparable, plain
from neve.kernels.curves.words import Rows, words_of
from neve.kernels.curves.zorder import Ranks, bits_for

_T = pa.types
_FINEST = 4096
"""Runs of less than this part of the sample are not parted: no table has so many files that it would show."""


@dataclass(frozen=True, eq=False)
class Boundaries:
    """The boundaries of each column, and the ranks between them. Pickles into a few bytes per boundary."""

    bits: int
    columns: tuple[_Scale, ...]

    @classmethod
    def of(cls, columns: Sequence[Column], bits: int | None = None) -> Self:
        """From a sample; ranks get so many bits, by default what a key has room for."""
        most = bits_for(len(columns))
        bits = most if bits is None else bits
        if not 1 <= bits <= most:
            raise ValueError(f"{len(columns)} columns of {bits} bits do not make a key")
        return cls(bits, tuple(_Scale.of(column, bits) for column in columns))

    def ranks(self, columns: Sequence[Column]) -> Ranks:
        """A row of ranks for each row; columns are as in the sample, up to Iceberg's type promotions."""
        found = [scale.ranks(column) for scale, column in zip(self.columns, columns, strict=True)]
        return np.array(found, np.uint32).T


@dataclass(frozen=True, eq=False)
class _Scale:
    """One column's boundaries; `codes` are the ranks below the first of them, between any two, and from the last."""

    kind: pa.DataType
    search: Search
    codes: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, column: Column, bits: int) -> Self:
        array = comparable(column)
        counted = array.drop_null().value_counts()
        order = pc.sort_indices(counted.field("values"))
        values, weights = counted.field("values").take(order), counted.field("counts").take(order).to_numpy()
        nulls = 1 if array.null_count else 0
        starts, codes = _balanced(np.append([array.null_count][:nulls], weights), bits)
        return cls(_widest(column), Search.between(words_of(values), starts[1:] - nulls), codes)

    def ranks(self, column: Column) -> npt.NDArray[np.uint32]:
        array = comparable(column)
        if _widest(column) != self.kind:
            raise TypeError(f"Cannot rank a column of type {column.type}: its sample was of type {self.kind}")
        found = self.codes[self.search.count(words_of(array), len(array))]
        if array.null_count:
            found[array.is_null().to_numpy(zero_copy_only=False)] = 0
        return found


def _widest(column: Column) -> pa.DataType:
    """The type to which Iceberg may promote this one; a time zone is but a label."""
    none = plain(column[:0])
    kind = none.type
    if _T.is_floating(kind):
        return pa.float64()
    if _T.is_temporal(kind):
        return pa.timestamp(kind.unit) if _T.is_timestamp(kind) else kind
    return comparable(none).type


def _balanced(weights: npt.NDArray[np.int64], bits: int) -> tuple[Rows, npt.NDArray[np.uint32]]:
    """Where runs of ascending values begin, and a rank for each run: every bit halves a run's weight as well as values let it.

    So a value that is half of the sample takes one bit from the others, and ten values spread over all ranks.
    """
    before = np.concatenate([[0], np.cumsum(weights)])
    small = before[-1] // _FINEST
    starts, codes = np.zeros(1, np.int64), np.zeros(1, np.uint32)
    for _ in range(bits):
        ends = np.append(starts[1:], len(weights))
        split = (ends - starts > 1) & (before[ends] - before[starts] > small)
        low, high = starts[split], ends[split]
        twice = before[low] + before[high]
        cut = np.searchsorted(2 * before, twice)
        cut -= twice - 2 * before[cut - 1] < 2 * before[cut] - twice
        at = np.flatnonzero(split) + 1
        starts = np.insert(starts, at, np.clip(cut, low + 1, high - 1))
        codes = np.insert(codes << np.uint32(1), at, codes[split] << np.uint32(1) | np.uint32(1))
    return starts, codes
