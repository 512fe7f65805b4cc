"""64-bit hashing of whole numpy columns, in two independent lanes that together make 128 bits.

Everything here is arithmetic modulo 2^64, in which numpy wraps silently. Used by `values` and `rows`; nothing in it depends on
how values were batched, so that any split of the same rows gives the same hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Longs = npt.NDArray[np.int64]
Lanes = tuple[Words, Words]

STEP = np.uint64(0x9E3779B97F4A7C15)
"""What sets the words of a text, and the elements of a list, apart by their place."""

_LENGTH = np.uint64(0xD6E8FEB86659FD93)
_HALF, _THIRD = np.uint64(32), np.uint64(29)
_MULTIPLIERS = (
    (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)),
    (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)),
)


@dataclass(frozen=True)
class Seed:
    """What a column adds to its values before they are mixed, and what stands for null in it; by lane."""

    add: tuple[np.uint64, np.uint64]
    null: tuple[np.uint64, np.uint64]


@lru_cache(maxsize=10_000)
def seed_of(name: str, nth: int = 0) -> Seed:
    """The seed of the column of this name, or of the nth of several that share it."""
    digest = blake2b(f"{nth}:{name}".encode("utf-8", "surrogatepass"), digest_size=32).digest()
    words = np.frombuffer(digest, "<u8")
    return Seed((words[0], words[1]), (words[2], words[3]))


def mixed(words: Words, lane: int, add: np.uint64) -> Words:
    """A one-to-one scrambling of `words + add`, in which every bit depends on every other."""
    first, second = _MULTIPLIERS[lane]
    found: Words = words + add
    shifted = found >> _HALF
    found ^= shifted
    found *= first
    np.right_shift(found, _THIRD, out=shifted)
    found ^= shifted
    found *= second
    np.right_shift(found, _HALF, out=shifted)
    found ^= shifted
    return found


def seeded(keys: Lanes, seed: Seed) -> Lanes:
    """Keys of values turned into hashes that belong to one column."""
    return mixed(keys[0], 0, seed.add[0]), mixed(keys[1], 1, seed.add[1])


def added(lanes: Lanes, more: Lanes) -> Lanes:
    """Hashes of several columns joined into one, whatever their order."""
    return lanes[0] + more[0], lanes[1] + more[1]


def places(ends: Longs, counts: Longs) -> Longs:
    """0, 1, 2 ... within each run; runs follow each other, `ends` being where each stops."""
    whole = np.arange(ends[-1] if len(ends) else 0)
    whole -= np.repeat(ends - counts, counts)
    return whole


def summed(parts: Lanes, ends: Longs, lengths: Longs) -> Lanes:
    """The sum of each run of parts, and its length, as one key."""
    tail = lengths.view(np.uint64) * _LENGTH
    return _runs(parts[0], ends) + tail, _runs(parts[1], ends) + tail


def _runs(parts: Words, ends: Longs) -> Words:
    upto = np.zeros(len(parts) + 1, np.uint64)
    np.cumsum(parts, out=upto[1:])
    sums: Words = upto[ends]
    sums[1:] -= upto[ends[:-1]]
    return sums
