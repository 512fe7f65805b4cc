"""Rows that wait to become a row group: decoded columns, where they came from, and what was counted in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from neve.kernels.arrow.counting import Tally, tally
from neve.table.positions import Runs


@dataclass(frozen=True)
class PendingRows:
    """Consecutive kept rows of one input."""

    index: int
    columns: Sequence[pa.Array]
    runs: Runs
    counts: Tally
    stored_bytes: float

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.columns[0])

    @property
    def decoded_bytes(self) -> int:
        """What they take in memory."""
        return sum(column.nbytes for column in self.columns)

    def split(self, rows: int) -> tuple[PendingRows, PendingRows]:
        """The first so many rows, and the rest."""
        first, rest = [c.slice(0, rows) for c in self.columns], [c.slice(rows) for c in self.columns]
        here, there = self.runs.split(rows)
        counts, stored = tally(first), self.stored_bytes * rows / self.rows
        return (
            PendingRows(self.index, first, here, counts, stored),
            PendingRows(self.index, rest, there, self.counts - counts, self.stored_bytes - stored),
        )


@dataclass
class Pending:
    """The row group to be."""

    pieces: list[PendingRows] = field(default_factory=list)
    rows: int = 0
    decoded_bytes: int = 0
    stored_bytes: float = 0.0

    def add(self, piece: PendingRows) -> None:
        """Takes more rows."""
        self.pieces.append(piece)
        self.rows += piece.rows
        self.decoded_bytes += piece.decoded_bytes
        self.stored_bytes += piece.stored_bytes

    def table(self, schema: pa.Schema) -> pa.Table:
        """All rows, without a copy; dictionaries become one, since a row group has only one."""
        columns = [
            pa.chunked_array([piece.columns[i] for piece in self.pieces], type=kind.type) for i, kind in enumerate(schema)
        ]
        return pa.Table.from_arrays(columns, schema=schema).unify_dictionaries()
