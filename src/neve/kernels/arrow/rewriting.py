"""The arrow kernel: decodes Parquet inputs and re-encodes them into files of the wanted size, without the deleted rows.

Streaming, in the order of the inputs or in that of a layout (`sorting`, `merging`), counting as it goes: the counts are of what
was read, the outputs' metrics of what their footers say, so that a proof can compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from neve.kernels.arrow.counting import Tally, blank, by_field, tally
from neve.kernels.arrow.encoding import Hints
from neve.kernels.arrow.goals import Goals
from neve.kernels.arrow.layout import Layouts, ReadLayout
from neve.kernels.arrow.lineage import lineage_columns
from neve.kernels.arrow.merging import BUFFER_SHARE, Columns, OneOfMany, Rows, can_read_at_once, merge
from neve.kernels.arrow.model import (
    ArrowInput,
    DeletedKeys,
    Find,
    Positions,
    RefusedError,
    Rewritten,
    SchemaMismatchError,
    WriteOptions,
)
from neve.kernels.arrow.naming import NameMapping
from neve.kernels.arrow.pending import PendingRows
from neve.kernels.arrow.projection import Mismatch, Projection, project
from neve.kernels.arrow.reading import DecodedBatch, Opened, Reader
from neve.kernels.arrow.refusing import refusal
from neve.kernels.arrow.schema import leaves, with_lineage
from neve.kernels.arrow.sorting import Ordering, in_order, sample_rows
from neve.kernels.arrow.writing import RollingWriter
from neve.kernels.streams import Sink
from neve.table.layout import Layout as RowLayout
from neve.table.positions import Runs

_NOWHERE = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))
_LEAVE_OUT = "Rewrite this group with the spark kernel, or leave the file out of the group."


def rewrite(
    inputs: Sequence[ArrowInput],
    schema: Mapping[str, Any],
    options: WriteOptions,
    open_sink: Callable[[int], Sink],
    *,
    name_mapping: NameMapping | None = None,
    deleted_keys: Sequence[DeletedKeys] = (),
    layout: RowLayout | None = None,
    inputs_sorted: bool = False,
) -> Rewritten:
    """Rewrites the inputs under the table's current schema; `open_sink` is called with 0, 1, ... as outputs begin.

    Rows that `deleted_keys` find are left out like those that are deleted by position; their memory is part of the budget.
    With a layout, rows come out in its order, from one output to the next. Inputs that already have it are merged, if the
    memory allows to read them all at once; UnsortedError tells that one has not.

    No output is begun while there is no row to write. When it raises, the output being written is aborted and the completed
    ones are the caller's to remove.
    """
    if reason := refusal(schema, options):
        raise RefusedError(f"Cannot rewrite with the arrow kernel: {reason}", hint="The spark kernel can.")
    rewriting = _Rewrite(inputs, schema, options, open_sink, name_mapping, deleted_keys)
    return rewriting.run(Ordering(layout, schema) if layout else None, inputs_sorted=inputs_sorted)


class _Rewrite:
    def __init__(
        self,
        inputs: Sequence[ArrowInput],
        schema: Mapping[str, Any],
        options: WriteOptions,
        open_sink: Callable[[int], Sink],
        name_mapping: NameMapping | None,
        deleted_keys: Sequence[DeletedKeys],
    ) -> None:
        self._inputs = inputs
        self._name_mapping = name_mapping
        self._keys = deleted_keys
        self._options = options = _without(options, sum(keys.size_bytes for keys in deleted_keys))
        self._schema = with_lineage(schema) if options.row_lineage else schema
        fields = self._schema["fields"]
        text = [field["id"] for field in fields if field["type"] in ("string", "binary")]
        key_ids = {number for keys in deleted_keys for number in keys.field_ids}
        wanted, dictionaries = [field["id"] for field in fields], text if options.dictionary else []
        self._layouts = Layouts(wanted, dictionaries, name_mapping, keys=key_ids)
        self._hints = Hints()
        self._goals = Goals(options, sum(_kept_bytes(given) for given in inputs))
        self._writer = RollingWriter(self._schema, options, open_sink, self._goals, self._hints)
        self._leaves = leaves(self._schema)
        self._kept, self._dropped = blank(self._leaves), blank(self._leaves)
        self._rows_read = self._rows_dropped = 0
        self._plans: dict[tuple[ReadLayout, tuple[Any, ...]], Projection] = {}

    def run(self, ordering: Ordering | None, *, inputs_sorted: bool) -> Rewritten:
        pieces = self._read() if ordering is None else self._ordered(ordering, inputs_sorted=inputs_sorted)
        try:
            with closing(pieces):
                for piece in pieces:
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
            positions=positions if ordering is None else None,
        )

    def _read(self) -> Generator[PendingRows]:
        with closing(iter(Reader(self._inputs, self._layouts, self._options.memory_bytes))) as inputs:
            for opened in inputs:
                yield from self._pieces(opened)

    def _ordered(self, ordering: Ordering, *, inputs_sorted: bool) -> Generator[PendingRows]:
        memory_bytes = self._options.memory_bytes
        with ExitStack() as stack:
            if inputs_sorted and ordering.is_sort and can_read_at_once(self._inputs, len(self._leaves), memory_bytes):
                streams = [stack.enter_context(closing(self._stream(i))) for i in range(len(self._inputs))]
                named = zip((given.source.path for given in self._inputs), streams, strict=True)
                ordered = merge(named, ordering, int(memory_bytes * BUFFER_SHARE))
            else:
                pieces = stack.enter_context(closing(self._read()))
                rows = (Rows(piece.columns, piece.stored_bytes) for piece in pieces)
                ordered = in_order(rows, ordering, memory_bytes, partial(self._sample, ordering.tops))
            for some in ordered:
                yield PendingRows(-1, some.columns, _NOWHERE, tally(some.columns), some.stored_bytes)

    def _stream(self, index: int) -> Generator[Rows]:
        reader = OneOfMany(self._inputs[index], self._layouts, self._options.memory_bytes, len(self._inputs))
        with closing(iter(reader)) as inputs:
            for opened in inputs:
                for piece in self._pieces(replace(opened, index=index)):
                    yield Rows(piece.columns, piece.stored_bytes)

    def _sample(self, tops: Sequence[int]) -> Columns:
        """Rows from all over the inputs: all columns have their places, but only these top-level ones are there."""
        some = {"fields": [self._schema["fields"][i] for i in tops]}
        columns = sample_rows(self._inputs, some, self._name_mapping, self._options.memory_bytes)
        by_place = dict(zip(tops, columns, strict=True))
        return [by_place.get(i) for i in range(len(self._schema["fields"]))]

    def _pieces(self, opened: Opened) -> Iterator[PendingRows]:
        given = self._inputs[opened.index]
        self._hints.note(opened.metadata, opened.layout.leaf_ids)
        self._writer.keep_dictionaries(self._layouts.dictionaries or frozenset())
        try:
            plan = self._plan(given, opened.layout)
            finders = [find for keys in self._keys if (find := keys.finder(given, opened.layout)) is not None]
            deleted = given.deleted_positions()
            for batch in opened.batches:
                gone = self._gone(batch, deleted, finders)
                if (piece := self._piece(opened.index, batch, plan, gone)) is not None:
                    yield piece
        except (Mismatch, pa.ArrowException) as error:
            raise SchemaMismatchError(f"Cannot read {given.source.path}: {error}", hint=_LEAVE_OUT) from error

    def _plan(self, given: ArrowInput, layout: ReadLayout) -> Projection:
        key = (layout, tuple(sorted((i, repr(value)) for i, value in given.constants.items())))
        if key not in self._plans:
            kept = self._layouts.dictionaries or frozenset()
            try:
                self._plans[key] = project(self._schema, layout.schema, given.constants, kept, tops=layout.tops)
            except RefusedError as refused:
                raise RefusedError(f"Cannot read {given.source.path}: {refused}", hint="The spark kernel can.") from refused
        return self._plans[key]

    def _gone(self, batch: DecodedBatch, deleted: Positions, finders: Sequence[Find]) -> Positions:
        """Positions of the batch's rows that are deleted."""
        low, high = np.searchsorted(deleted, [batch.start, batch.start + batch.rows.num_rows])
        by_position = deleted[low:high]
        found = [places for find in finders if len(places := find(batch.rows))]
        if not found:
            return by_position
        gone = np.unique(np.concatenate([by_position, *(places + batch.start for places in found)]))
        # Only deletes by position were known when the goals were set.
        self._goals.to_come -= batch.stored_bytes * (len(gone) - len(by_position)) / batch.rows.num_rows
        return gone

    def _piece(self, index: int, batch: DecodedBatch, plan: Projection, gone: Positions) -> PendingRows | None:
        columns = plan.apply(batch.rows)
        if self._options.row_lineage:
            columns[-2:] = lineage_columns(self._inputs[index], columns[-2:], batch.start)
        rows = batch.rows.num_rows
        whole = tally(columns)
        runs = Runs.without(gone, batch.start, batch.start + rows)
        counts = whole
        if len(gone):
            mask = np.ones(rows, bool)
            mask[gone - batch.start] = False
            columns = [column.filter(pa.array(mask)) for column in columns]
            counts = tally(columns)
        self._note(rows, len(gone), whole, counts)
        stored = batch.stored_bytes * (rows - len(gone)) / rows
        return PendingRows(index, columns, runs, counts, stored) if len(gone) < rows else None

    def _note(self, rows: int, dropped: int, whole: Tally, kept: Tally) -> None:
        self._rows_read += rows
        self._rows_dropped += dropped
        self._kept += kept
        self._dropped += whole - kept


def _kept_bytes(given: ArrowInput) -> float:
    return given.source.size_bytes * max(given.records - given.deleted_count, 0) / max(given.records, 1)


def _without(options: WriteOptions, size_bytes: int) -> WriteOptions:
    """The options with what keys leave of the memory."""
    return replace(options, memory_bytes=max(options.memory_bytes - size_bytes, options.memory_bytes // 2))
