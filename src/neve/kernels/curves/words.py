"""Values as rows of unsigned 64-bit words that compare as the values do: one for a number, as many as it takes for text.

Used by `ranks`. A value that has fewer words than another counts as if zeros followed; so "a" and "a\\0" are one, and no two
values change places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U64 = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

_SIGN = np.uint64(1 << 63)
_HEADS = np.array([(1 << 64) - (1 << 64 - 8 * i) for i in range(9)], np.uint64)
"""What is left of a word of which the first i bytes belong to the value."""


class SortWords(Protocol):
    """The words of a column."""

    @property
    def depth(self) -> int:
        """How many words the longest value has, at least 1."""
        ...

    def at(self, level: int, rows: Rows | slice) -> U64:
        """The word number `level` of these rows; what it is for a null means nothing."""
        ...


def words_of(column: pa.Array) -> SortWords:
    """The words of a column as `sorting.comparable` gives it."""
    if pa.types.is_large_binary(column.type):
        return _Bytes.of(column)
    if pa.types.is_decimal128(column.type):
        low, high = decimal_halves(column)
        return _Numbers((high ^ _SIGN, low))
    return _Numbers((_fixed_width(column, np.uint64) ^ _SIGN,))


def decimal_halves(column: pa.Array) -> tuple[U64, U64]:
    """The unscaled values of a decimal128 column: the low 64 bits, and the high ones, of which the first is the sign."""
    halves = _fixed_width(column, np.dtype((np.uint64, 2)))
    return halves[:, 0], halves[:, 1]


def _fixed_width(column: pa.Array, dtype: Any) -> Any:
    """The values of a column as they lie in memory; what lies under a null is anything."""
    count = len(column) + column.offset
    return np.frombuffer(column.buffers()[1] or b"", dtype, count)[column.offset :] if count else np.zeros(0, dtype)


@dataclass(frozen=True)
class _Numbers:
    words: tuple[U64, ...]

    @property
    def depth(self) -> int:
        return len(self.words)

    def at(self, level: int, rows: Rows | slice) -> U64:
        return self.words[level][rows]


@dataclass(frozen=True)
class _Bytes:
    at_byte: npt.NDArray[Any]  # the word that begins at each byte
    starts: Rows
    lengths: Rows

    @classmethod
    def of(cls, column: pa.Array) -> _Bytes:
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, np.int64, len(column) + 1 + column.offset)[column.offset :]
        first, last = int(ends[0]), int(ends[-1])
        padded = np.zeros(last - first + 8, np.uint8)
        if data is not None:
            padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
        # Overlapping itself, since a word may begin at any byte; the most significant byte comes first.
        at_byte = np.ndarray((last - first + 1,), ">u8", padded.data, strides=(1,))
        return cls(at_byte, ends[:-1] - first, np.diff(ends))

    @property
    def depth(self) -> int:
        return max(1, -(-int(self.lengths.max(initial=0)) // 8))

    def at(self, level: int, rows: Rows | slice) -> U64:
        left = np.clip(self.lengths[rows] - 8 * level, 0, 8)
        begins = np.where(left > 0, self.starts[rows] + 8 * level, 0)
        words: U64 = self.at_byte[begins].astype(np.uint64) & _HEADS[left]
        return words
