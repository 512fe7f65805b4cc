"""Deleted positions as they wait until their data file is opened: packed, since an order may have very many of them.

Made by `loading`, unpacked by the arrow kernel, one input at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.kernels.arrow.model import DeletedRows, Positions
from neve.kernels.deletes.position_files import ascending
from neve.kernels.deletes.puffin import read_vector
from neve.kernels.deletes.roaring import decode, encode


@dataclass(frozen=True)
class Vector:
    """A deletion vector as its Puffin file has it."""

    blob: bytes
    path: str
    count: int

    def positions(self) -> Positions:
        """Ascending, each once."""
        return read_vector(self.blob, self.path, cardinality=self.count)


@dataclass(frozen=True)
class Packed:
    """Positions from a file of them, as a bitmap: a quarter of the memory at most."""

    bitmap: bytes
    count: int

    @classmethod
    def of(cls, positions: Positions) -> Packed:
        """From ascending positions."""
        return cls(encode(positions), len(positions))

    def positions(self) -> Positions:
        """Ascending, each once."""
        return decode(self.bitmap)


@dataclass(frozen=True)
class Together:
    """What several deletes say of one data file; a row that two of them name counts twice until they are unpacked."""

    parts: Sequence[DeletedRows]

    @property
    def count(self) -> int:
        """How many rows, at most."""
        return sum(part.count for part in self.parts)

    def positions(self) -> Positions:
        """Ascending, each once."""
        return ascending([part.positions() for part in self.parts])
