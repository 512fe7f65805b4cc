"""Reads inputs in batches, ahead of their use, within a memory budget and with few requests.

A small file is one request. A large one is its tail and then one request per window of row groups; only a row group larger than
the window is read in pieces, column by column. Used by `rewriting` for data, and by `kernels.deletes` for delete files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.kernels.arrow.layout import Layouts, ReadLayout, footer_of
from neve.kernels.arrow.model import ArrowInput, RefusedError
from neve.kernels.arrow.windows import Window, WindowedFile
from neve.kernels.faults import CorruptFileError
from neve.kernels.opening import check_footer
from neve.kernels.parquet.schema import PhysicalSchema
from neve.kernels.prefetch import Range, opening_range, read_ahead
from neve.table.units import KIB, MIB

_LEAST_BUFFER_BYTES = 64 * KIB
_BATCH_BYTES = 24 * MIB
_CAUTIOUS_ROWS = 4096
_ENCRYPTED = b"PARE"
Choose = Callable[[pq.FileMetaData, ReadLayout], Collection[int]]


@dataclass(frozen=True)
class DecodedBatch:
    """Rows of one input, as the file has them: where they start there, and the stored bytes that they took."""

    rows: pa.RecordBatch
    start: int
    stored_bytes: float


@dataclass(frozen=True)
class Opened:
    """One input with its footer read."""

    index: int
    layout: ReadLayout
    metadata: pq.FileMetaData
    batches: Iterator[DecodedBatch]


class Reader:
    """Opens inputs one after another while the next ones are on their way."""

    def __init__(
        self, inputs: Sequence[ArrowInput], layouts: Layouts, memory_bytes: int, *, choose: Choose | None = None
    ) -> None:
        """`choose` tells the row groups of a file that are needed; without it, all are."""
        self._inputs = inputs
        self._choose = choose
        self._layouts = layouts
        self._window_bytes = memory_bytes // 8
        self._known: PhysicalSchema | None = None

    def __iter__(self) -> Generator[Opened]:
        wanted = [opening_range(given.source, whole_bytes=self._window_bytes) for given in self._inputs]
        with closing(read_ahead(wanted, ahead_bytes=self._window_bytes)) as openings:
            for index, (asked, data) in enumerate(zip(wanted, openings, strict=True)):
                yield self._open(index, Window(asked.offset, pa.py_buffer(data)))

    def _open(self, index: int, first: Window) -> Opened:
        given = self._inputs[index]
        if first.data.size >= 4 and bytes(first.data.slice(first.data.size - 4)) == _ENCRYPTED:
            raise RefusedError(f"Cannot read {given.source.path}: it is encrypted", hint="The spark kernel can, with the keys.")
        try:
            tail = _whole_footer(given, first)
            end = bytes(tail.data.slice(max(tail.data.size - _footer_bytes(tail), 0)))
            self._known = check_footer(given.source.path, given.source.size_bytes, end, self._known)
            metadata = footer_of(end)
            layout = self._layouts.of(metadata, self._known)
        except RefusedError as refused:
            raise RefusedError(f"Cannot read {given.source.path}: {refused}", hint=refused.hint) from refused
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _corrupt(given, error) from error
        if metadata.num_rows != given.records:
            raise CorruptFileError(given.source.path, f"it holds {metadata.num_rows} rows, the table says {given.records}")
        return Opened(index, layout, metadata, self._batches(given, tail, metadata, layout))

    def _batches(
        self, given: ArrowInput, tail: Window, metadata: pq.FileMetaData, layout: ReadLayout
    ) -> Iterator[DecodedBatch]:
        try:
            yield from self._decode(given, tail, metadata, layout)
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(given, error) from error

    def _decode(self, given: ArrowInput, tail: Window, metadata: pq.FileMetaData, layout: ReadLayout) -> Iterator[DecodedBatch]:
        whole = tail.start == 0
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        starts = list(accumulate((group.num_rows for group in groups), initial=0))
        chosen = sorted(self._choose(metadata, layout)) if self._choose else range(len(groups))
        extents = [] if whole else [_extent(groups[i], layout.leaves) for i in chosen]
        streamed = any(stop - start > self._window_bytes for start, stop in extents)
        view = None if whole else WindowedFile(given.source, tail)
        handle: Any = pa.BufferReader(tail.data) if view is None else pa.PythonFile(view, mode="r")
        buffer_bytes = max(self._window_bytes // max(len(layout.leaves), 1), _LEAST_BUFFER_BYTES) if streamed else 0
        reader = layout.open(handle, metadata, buffer_bytes)
        if view is None or streamed:
            spans = [list(range(len(chosen)))]
            windows: Iterator[None] = iter([None])
        else:
            spans = _spans(extents, self._window_bytes)
            windows = self._shown(given, view, [(extents[s[0]][0], extents[s[-1]][1]) for s in spans])
        for span, _ in zip(spans, windows, strict=True):
            for i in (chosen[place] for place in span):
                yield from _all_rows(given, _row_group(reader, i, groups[i], layout, starts[i]), groups[i].num_rows)

    def _shown(self, given: ArrowInput, view: WindowedFile, extents: Sequence[tuple[int, int]]) -> Generator[None]:
        """Shows one window after another, the next one being fetched meanwhile."""
        wanted = [Range(given.source, start, stop - start) for start, stop in extents]
        with closing(read_ahead(wanted, ahead_bytes=2 * self._window_bytes)) as windows:
            for asked, data in zip(wanted, windows, strict=True):
                view.show(Window(asked.offset, pa.py_buffer(data)))
                yield None
                view.hide()


def _whole_footer(given: ArrowInput, first: Window) -> Window:
    length = _footer_bytes(first)
    if length <= first.data.size or length > given.source.size_bytes:
        return first
    start = given.source.size_bytes - length
    return Window(start, pa.py_buffer(given.source.read_at(start, length)))


def _footer_bytes(tail: Window) -> int:
    """How long the footer says that it is, with what follows it."""
    return int.from_bytes(bytes(tail.data.slice(max(tail.data.size - 8, 0), 4)), "little") + 8


def _all_rows(given: ArrowInput, batches: Iterator[DecodedBatch], rows: int) -> Iterator[DecodedBatch]:
    """A row group that gives fewer rows than its footer says would otherwise end as if it were complete."""
    seen = 0
    for batch in batches:
        seen += batch.rows.num_rows
        yield batch
    if seen != rows:
        raise CorruptFileError(given.source.path, f"a row group gives {seen} of its {rows} rows")


def _row_group(reader: Any, index: int, group: pq.RowGroupMetaData, layout: ReadLayout, start: int) -> Iterator[DecodedBatch]:
    if not group.num_rows:
        return
    stored = sum(group.column(i).total_compressed_size for i in layout.leaves) / group.num_rows
    rows = layout.batch_rows(group, _BATCH_BYTES, _CAUTIOUS_ROWS)
    # Columns by number: by name, one called `a.b` and the field b of a struct a would be the same.
    for batch in reader.iter_batches(rows, [index], column_indices=layout.leaves, use_threads=False):
        _check_dictionaries(batch)
        layout.learn(batch)
        yield DecodedBatch(batch, start, stored * batch.num_rows)
        start += batch.num_rows


def _check_dictionaries(batch: pa.RecordBatch) -> None:
    """Raises ArrowInvalid for a value that is not in its dictionary: columns that stay dictionaries are not decoded by pyarrow,
    which would notice."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column.indices) > column.indices.null_count:
            found = pc.min_max(column.indices).as_py()
            if found["min"] < 0 or found["max"] >= len(column.dictionary):
                raise pa.ArrowInvalid(f"Index {found['max']} is not in a dictionary of {len(column.dictionary)} values")


def _extent(group: pq.RowGroupMetaData, leaves: Sequence[int]) -> tuple[int, int]:
    """From the first to the last byte of a row group that is read."""
    starts, stops = [], []
    for i in leaves:
        column = group.column(i)
        offset = column.data_page_offset
        if column.has_dictionary_page and column.dictionary_page_offset:
            offset = min(offset, column.dictionary_page_offset)
        starts.append(offset)
        stops.append(offset + column.total_compressed_size)
    return min(starts, default=0), max(stops, default=0)


def _spans(extents: Sequence[tuple[int, int]], limit: int) -> list[list[int]]:
    """Neighbouring row groups that fit one window."""
    spans: list[list[int]] = []
    for i, (_, stop) in enumerate(extents):
        if spans and stop - extents[spans[-1][0]][0] <= limit:
            spans[-1].append(i)
        else:
            spans.append([i])
    return spans


def _corrupt(given: ArrowInput, error: Exception) -> CorruptFileError:
    return CorruptFileError(given.source.path, str(error).splitlines()[0] if str(error) else type(error).__name__)
