"""Gathers rows into row groups and row groups into files, by estimated size and within the memory budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from neve.kernels.arrow.encoding import Hints, choose
from neve.kernels.arrow.goals import Goals
from neve.kernels.arrow.model import ArrowOutput, WriteOptions
from neve.kernels.arrow.outputs import ParquetOutput, writer_properties
from neve.kernels.arrow.pending import Pending, PendingRows
from neve.kernels.arrow.projection import dictionary_of
from neve.kernels.arrow.schema import arrow_schema, leaves
from neve.kernels.streams import Sink
from neve.table.positions import PositionMap, Runs

_PENDING_SHARE = 0.55
"""Of the memory budget; the rest is for windows being read, a batch being decoded, and a column being encoded."""
_SLACK = 1.1
"""A batch that overshoots by less is not cut, which would only make crumbs."""


class RollingWriter:
    """Writes pieces in the order given. Rows of one file stay in that order, so positions can be mapped."""

    def __init__(
        self, schema: Mapping[str, Any], options: WriteOptions, open_sink: Callable[[int], Sink], goals: Goals, hints: Hints
    ) -> None:
        self.leaves = leaves(schema)
        self._schema = schema
        self._tops = [field["id"] for field in schema["fields"] for _ in leaves({"fields": [field]})]
        self._options = options
        self._open_sink = open_sink
        self._goals = goals
        self._hints = hints
        self._dictionaries: frozenset[int] = frozenset()
        self._pending = Pending()
        self._file: ParquetOutput | None = None
        self._outputs: list[ArrowOutput] = []
        self._moves: list[tuple[int, Runs, int, int]] = []

    def keep_dictionaries(self, field_ids: frozenset[int]) -> None:
        """Text columns that arrive as dictionaries; said once, before the first piece."""
        self._dictionaries = field_ids

    def add(self, piece: PendingRows) -> None:
        """Takes rows; writes a row group whenever enough have come together."""
        rest: PendingRows | None = piece
        while rest is not None:
            room = self._room(rest)
            now, rest = (rest, None) if rest.rows <= room else rest.split(room)
            self._pending.add(now)
            if rest is not None or self._is_enough():
                self._flush()

    def finish(self) -> tuple[tuple[ArrowOutput, ...], PositionMap]:
        """Writes what is left. No rows at all means no file."""
        if self._pending.rows:
            self._flush()
        if self._file is not None:
            self._close()
        return tuple(self._outputs), PositionMap.build(self._moves)

    def abort(self) -> None:
        """Gives up the file being written; those completed are the caller's."""
        if self._file is not None:
            self._file.abort()
            self._file = None

    @property
    def _written(self) -> int:
        return self._file.size_bytes if self._file is not None else 0

    def _room(self, piece: PendingRows) -> int:
        """Rows of the piece that the row group still takes."""
        rows = self._options.row_group_rows
        by_rows = rows - self._pending.rows if rows else piece.rows
        goal = self._goals.row_group_bytes(self._written) / self._goals.ratio
        per_row = piece.stored_bytes / piece.rows
        if self._pending.stored_bytes + piece.stored_bytes <= goal * _SLACK or not per_row:
            return max(by_rows, 1)
        return max(min(by_rows, int((goal - self._pending.stored_bytes) / per_row) + 1), 1)

    def _is_enough(self) -> bool:
        pending = self._pending
        if self._options.row_group_rows and pending.rows >= self._options.row_group_rows:
            return True
        if pending.decoded_bytes >= self._options.memory_bytes * _PENDING_SHARE:
            return True
        return pending.stored_bytes * self._goals.ratio >= self._goals.row_group_bytes(self._written)

    def _flush(self) -> None:
        pending, self._pending = self._pending, Pending()
        table = pending.table(self._arrow_schema(written=False))
        file = self._file = self._file or self._open(table)
        at = file.rows
        for piece in pending.pieces:
            self._moves.append((piece.index, piece.runs, len(self._outputs), at))
            at += piece.rows
        counts = np.sum([piece.counts for piece in pending.pieces], axis=0)
        stored = pending.stored_bytes
        del pending
        self._goals.wrote(stored, file.write(self._as_written(table), counts))
        if self._goals.is_full(file.size_bytes):
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                self._outputs.append(file.close())
            except BaseException:
                file.abort()
                raise

    def _open(self, table: pa.Table) -> ParquetOutput:
        encodings = choose(table.columns, self.leaves, self._tops, self._hints, self._options)
        rows, widest = table.num_rows, max(column.nbytes for column in table.columns) / table.num_rows
        properties = writer_properties(self._options, encodings, self.leaves, row_group_rows=rows, widest_bytes=widest)
        stored_schema = json.dumps(self._schema, separators=(",", ":"), ensure_ascii=False)
        schema = self._arrow_schema(written=True)
        return ParquetOutput(self._open_sink(len(self._outputs)), schema, self.leaves, stored_schema, properties)

    def _arrow_schema(self, *, written: bool) -> pa.Schema:
        schema = arrow_schema(self._schema, written=written)
        for i, field in enumerate(self._schema["fields"]):
            if field["id"] in self._dictionaries:
                schema = schema.set(i, schema.field(i).with_type(dictionary_of(field["type"])))
        return schema

    def _as_written(self, table: pa.Table) -> pa.Table:
        """With uuids marked as such; everything else is as it will be written already."""
        return table.cast(self._arrow_schema(written=True)) if any(leaf.kind == "uuid" for leaf in self.leaves) else table
