"""Where each input row went: runs of rows that stayed together, as columns.

Filled by the arrow kernel, kept with its outputs, asked when a delete lands on an input that has been rewritten already.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

Longs = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Runs:
    """Rows of one input that are kept, as stretches of consecutive positions."""

    starts: Longs
    lengths: Longs

    @classmethod
    def without(cls, deleted: Longs, start: int, stop: int) -> Self:
        """What is left of `start` to `stop` without these ascending positions within it."""
        edges = np.concatenate(([start - 1], deleted, [stop]))
        starts, lengths = edges[:-1] + 1, np.diff(edges) - 1
        return cls(starts[lengths > 0], lengths[lengths > 0])

    def split(self, rows: int) -> tuple[Runs, Runs]:
        """The first so many rows, and the rest."""
        ends = np.cumsum(self.lengths)
        at = int(np.searchsorted(ends, rows, side="left"))
        over = int(ends[at]) - rows if at < len(ends) else 0
        first, rest = self.lengths[: at + 1].copy(), self.lengths[at:].copy()
        starts = self.starts[at:].copy()
        if at < len(ends):
            first[-1] -= over
            starts[:1] += rest[:1] - over
            rest[:1] = over
        kept = rest > 0
        return Runs(self.starts[: at + 1], first), Runs(starts[kept], rest[kept])


@dataclass(frozen=True, eq=False)
class PositionMap:
    """Runs ordered by input and position; all columns have one entry per run."""

    inputs: Longs
    input_starts: Longs
    lengths: Longs
    outputs: Longs
    output_starts: Longs

    def __len__(self) -> int:
        return len(self.inputs)

    def locate(self, index: int, positions: Longs) -> tuple[Longs, Longs]:
        """Output and position there of rows of one input; -1 for rows that were not kept."""
        low, high = np.searchsorted(self.inputs, [index, index + 1])
        if low == high:
            return np.full(len(positions), -1, np.int64), np.full(len(positions), -1, np.int64)
        starts = self.input_starts[low:high]
        run = np.searchsorted(starts, positions, side="right") - 1
        at = low + np.maximum(run, 0)
        offset = positions - self.input_starts[at]
        found = (run >= 0) & (offset < self.lengths[at])
        return np.where(found, self.outputs[at], -1), np.where(found, self.output_starts[at] + offset, -1)

    def left_out(self, index: int, records: int) -> Longs:
        """The rows of one input, which has so many, that went nowhere."""
        low, high = np.searchsorted(self.inputs, [index, index + 1])
        kept = np.zeros(records + 1, np.int64)
        np.add.at(kept, self.input_starts[low:high], 1)
        np.add.at(kept, self.input_starts[low:high] + self.lengths[low:high], -1)
        return np.flatnonzero(np.cumsum(kept)[:-1] == 0)

    def to_text(self) -> str:
        """Compressed, for journals and results: rows that were deleted here and there make many runs."""
        columns = np.stack([getattr(self, name) for name in _COLUMNS])
        return base64.b64encode(zlib.compress(np.diff(columns, axis=1, prepend=0).astype("<i8").tobytes(), 1)).decode()

    @classmethod
    def from_text(cls, text: Any) -> Self:
        """The inverse of `to_text`."""
        if isinstance(text, cls):
            return text
        steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8").reshape(len(_COLUMNS), -1)
        return cls(*np.cumsum(steps, axis=1, dtype=np.int64))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.from_text, serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v.to_text())
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "contentEncoding": "base64"}

    @classmethod
    def build(cls, pieces: Sequence[tuple[int, Runs, int, int]]) -> Self:
        """From (input, runs, output, first position there), in writing order; stretches that touch are joined."""
        if not pieces:
            return cls(_NONE, _NONE, _NONE, _NONE, _NONE)
        sizes = [len(runs.starts) for _, runs, _, _ in pieces]
        lengths = np.concatenate([runs.lengths for _, runs, _, _ in pieces])
        columns = (
            np.repeat(np.array([piece[0] for piece in pieces], np.int64), sizes),
            np.concatenate([runs.starts for _, runs, _, _ in pieces]),
            lengths,
            np.repeat(np.array([piece[2] for piece in pieces], np.int64), sizes),
            np.concatenate([first + np.cumsum(runs.lengths) - runs.lengths for _, runs, _, first in pieces]),
        )
        order = np.lexsort((columns[1], columns[0]))
        return cls(*(column[order] for column in columns))._joined()

    def _joined(self) -> Self:
        breaks = np.ones(len(self), bool)
        breaks[1:] = (
            (np.diff(self.inputs) != 0)
            | (np.diff(self.outputs) != 0)
            | (self.input_starts[1:] != self.input_starts[:-1] + self.lengths[:-1])
            | (self.output_starts[1:] != self.output_starts[:-1] + self.lengths[:-1])
        )
        at = np.flatnonzero(breaks)
        lengths = np.add.reduceat(self.lengths, at)
        return type(self)(self.inputs[at], self.input_starts[at], lengths, self.outputs[at], self.output_starts[at])


_COLUMNS = ("inputs", "input_starts", "lengths", "outputs", "output_starts")
