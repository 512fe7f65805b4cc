"""Keys of equality deletes as bytes that are equal exactly where the keys are, and a filter that screens most others out.

Used in Python tasks of `resolving`, on columns as `kernels.deletes.keys` gives them. Each key begins with a hash: Spark sorts
by the first eight bytes, which in keys such as URLs tell nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.content.values import joined

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_SPREAD = 0x9E3779B97F4A7C15
_ONE, _LOW = np.uint64(1), np.uint64(63)
_MOST_WORDS_LOG2 = 21
_BITS_PER_KEY, _LEAST_BITS_PER_KEY = 16, 4


def hashes(realm: int, columns: Sequence[pa.Array]) -> Hashes:
    """A number for each key, the same in every process."""
    found = joined([str(i) for i in range(len(columns))], columns.__getitem__, len(columns[0]))[0]
    return found ^ np.uint64(realm * _SPREAD % 2**64)


def keys(numbers: Hashes, realm: int, columns: Sequence[pa.Array]) -> pa.Array:
    """The keys: their hashes, then what has a fixed width (nulls and lengths too), then texts one after the other."""
    rows = len(numbers)
    fixed = [_as_bytes(numbers), np.broadcast_to(_as_bytes(np.array([realm], "<u4")), (rows, 4))]
    texts = []
    for column in columns:
        missing = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else np.zeros(rows, bool)
        fixed.append(_as_bytes(missing))
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            texts.append(column.cast(pa.binary()).fill_null(b""))
            fixed.append(_as_bytes(pc.binary_length(texts[-1]).to_numpy()))
        else:
            fixed.append(np.where(missing[:, None], np.uint8(0), _values(column)))
    head = np.ascontiguousarray(np.concatenate(fixed, axis=1))
    found = pa.Array.from_buffers(pa.binary(head.shape[1]), rows, [None, pa.py_buffer(head)]).cast(pa.binary())
    return pc.binary_join_element_wise(found, *texts, b"") if texts else found


def _values(column: pa.Array) -> Bytes:
    """Values of a fixed width as bytes; under a null lies anything."""
    plain = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    width = plain.type.bit_width // 8
    return np.frombuffer(plain.buffers()[1], np.uint8, len(plain) * width, plain.offset * width).reshape(len(plain), width)


def _as_bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


class Screen:
    """A Bloom filter whose bits for one key lie in one word: one look at memory for each key."""

    def __init__(self, words: Hashes) -> None:
        self._words = words
        self._shift = np.uint64(64 - (len(words).bit_length() - 1))

    @staticmethod
    def words_for(keys: int) -> int | None:
        """How large a filter for so many keys is; None where one of bounded size would hold too little back."""
        if keys * _LEAST_BITS_PER_KEY > 64 << _MOST_WORDS_LOG2:
            return None
        wanted = max(keys * _BITS_PER_KEY // 64, 16)
        return 1 << min((wanted - 1).bit_length(), _MOST_WORDS_LOG2)

    def add(self, numbers: Hashes) -> None:
        """Keys, by their hashes."""
        place, bits = self._bits(numbers)
        np.bitwise_or.at(self._words, place, bits)

    def passes(self, numbers: Hashes) -> npt.NDArray[np.bool_]:
        """Which keys may have been added; all that were are among them."""
        place, bits = self._bits(numbers)
        found: npt.NDArray[np.bool_] = (self._words[place] & bits) == bits
        return found

    def _bits(self, numbers: Hashes) -> tuple[Any, Hashes]:
        bits = np.zeros(len(numbers), np.uint64)
        for shift in (0, 6, 12, 18):
            bits |= _ONE << ((numbers >> np.uint64(shift)) & _LOW)
        return (numbers >> self._shift).astype(np.int64), bits
