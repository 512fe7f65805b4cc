"""The arrow kernel: decodes Parquet inputs and re-encodes them into files of the wanted size, without the deleted rows.

Streaming, in the order of the inputs (a sorted merge would order the pieces between reading and writing), counting as it goes:
the counts are of what was read, the outputs' metrics of what their footers say, so that a proof can compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from neve.core.positions import Runs
from neve.kernels.arrow.counting import Tally, blank, by_field, tally
from neve.kernels.arrow.encoding import Hints
from neve.kernels.arrow.goals import Goals
from neve.kernels.arrow.layout import Layout, Layouts
from neve.kernels.arrow.lineage import lineage_columns
from neve.kernels.arrow.model import ArrowInput, RefusedError, Rewritten, SchemaMismatchError, WriteOptions
from neve.kernels.arrow.naming import NameMapping
from neve.kernels.arrow.pending import Piece
from neve.kernels.arrow.projection import Mismatch, Projection, project
from neve.kernels.arrow.reading import Batch, Opened, Reader
from neve.kernels.arrow.refusing import refusal
from neve.kernels.arrow.schema import leaves, with_lineage
from neve.kernels.arrow.writing import RollingWriter
from neve.kernels.streams import Sink

_LEAVE_OUT = "Rewrite this group with the spark kernel, or leave the file out of the group."


def rewrite(
    inputs: Sequence[ArrowInput],
    schema: Mapping[str, Any],
    options: WriteOptions,
    open_sink: Callable[[int], Sink],
    *,
    name_mapping: NameMapping | None = None,
) -> Rewritten:
    """Rewrites the inputs under the table's current schema; `open_sink` is called with 0, 1, ... as outputs begin.

    No output is begun while there is no row to write. When it raises, the output being written is aborted and the completed
    ones are the caller's to remove.
    """
    if reason := refusal(schema, options):
        raise RefusedError(f"Cannot rewrite with the arrow kernel: {reason}", hint="The spark kernel can.")
    return _Rewrite(inputs, schema, options, open_sink, name_mapping).run()


class _Rewrite:
    def __init__(
        self,
        inputs: Sequence[ArrowInput],
        schema: Mapping[str, Any],
        options: WriteOptions,
        open_sink: Callable[[int], Sink],
        name_mapping: NameMapping | None,
    ) -> None:
        self._inputs = inputs
        self._options = options
        self._schema = with_lineage(schema) if options.row_lineage else schema
        fields = self._schema["fields"]
        text = [field["id"] for field in fields if field["type"] in ("string", "binary")]
        self._layouts = Layouts([field["id"] for field in fields], text if options.dictionary else [], name_mapping)
        self._hints = Hints()
        goals = Goals(options, sum(_kept_bytes(given) for given in inputs))
        self._writer = RollingWriter(self._schema, options, open_sink, goals, self._hints)
        self._leaves = leaves(self._schema)
        self._kept, self._dropped = blank(self._leaves), blank(self._leaves)
        self._rows_read = self._rows_dropped = 0
        self._plans: dict[tuple[Layout, tuple[Any, ...]], Projection] = {}

    def run(self) -> Rewritten:
        reader = Reader(self._inputs, self._layouts, self._options.memory_bytes)
        try:
            with closing(iter(reader)) as inputs:
                for opened in inputs:
                    for piece in self._pieces(opened):
                        self._writer.add(piece)
            outputs, positions = self._writer.finish()
        except BaseException:
            self._writer.abort()
            raise
        return Rewritten(
            outputs=outputs,
            rows_read=self._rows_read,
            rows_dropped=self._rows_dropped,
            kept=by_field(self._kept, self._leaves),
            dropped=by_field(self._dropped, self._leaves),
            positions=positions,
        )

    def _pieces(self, opened: Opened) -> Iterator[Piece]:
        given = self._inputs[opened.index]
        self._hints.note(opened.metadata, opened.layout.leaf_ids)
        self._writer.keep_dictionaries(self._layouts.dictionaries or frozenset())
        try:
            plan = self._plan(given, opened.layout)
            for batch in opened.batches:
                if (piece := self._piece(opened.index, batch, plan)) is not None:
                    yield piece
        except (Mismatch, pa.ArrowException) as error:
            raise SchemaMismatchError(f"Cannot read {given.source.path}: {error}", hint=_LEAVE_OUT) from error

    def _plan(self, given: ArrowInput, layout: Layout) -> Projection:
        key = (layout, tuple(sorted((i, repr(value)) for i, value in given.constants.items())))
        if key not in self._plans:
            kept = self._layouts.dictionaries or frozenset()
            self._plans[key] = project(self._schema, layout.schema, given.constants, kept)
        return self._plans[key]

    def _piece(self, index: int, batch: Batch, plan: Projection) -> Piece | None:
        given = self._inputs[index]
        columns = plan.apply(batch.rows)
        if self._options.row_lineage:
            columns[-2:] = lineage_columns(given, columns[-2:], batch.start)
        rows = batch.rows.num_rows
        whole = tally(columns)
        gone = _deleted(given, batch.start, batch.start + rows)
        runs = Runs.without(gone, batch.start, batch.start + rows)
        counts = whole
        if len(gone):
            mask = np.ones(rows, bool)
            mask[gone - batch.start] = False
            columns = [column.filter(pa.array(mask)) for column in columns]
            counts = tally(columns)
        self._note(rows, len(gone), whole, counts)
        stored = batch.stored_bytes * (rows - len(gone)) / rows
        return Piece(index, columns, runs, counts, stored) if len(gone) < rows else None

    def _note(self, rows: int, dropped: int, whole: Tally, kept: Tally) -> None:
        self._rows_read += rows
        self._rows_dropped += dropped
        self._kept += kept
        self._dropped += whole - kept


def _deleted(given: ArrowInput, start: int, stop: int) -> Any:
    if given.deleted is None or not len(given.deleted):
        return np.zeros(0, np.int64)
    low, high = np.searchsorted(given.deleted, [start, stop])
    return given.deleted[low:high]


def _kept_bytes(given: ArrowInput) -> float:
    gone = 0 if given.deleted is None else len(given.deleted)
    return given.source.size_bytes * max(given.records - gone, 0) / max(given.records, 1)
