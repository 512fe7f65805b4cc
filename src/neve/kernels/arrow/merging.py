"""Merges sorted streams of rows into one, in rounds that fit the memory: the inputs of an order, or the runs of `sorting`.

Called by `rewriting` and `sorting`. Stable: rows with equal keys keep the order of the streams. What comes out is sorted,
whatever went in: a stream that is not is found out before any row of it lands in a wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.arrow.layout import Layouts, ReadLayout
from neve.kernels.arrow.model import ArrowInput, UnsortedError
from neve.kernels.arrow.reading import DecodedBatch, Reader
from neve.kernels.arrow.windows import Window
from neve.table.units import MIB

if TYPE_CHECKING:
    from neve.kernels.arrow.sorting import Ordering

BUFFER_SHARE = 1 / 16
"""Of the memory, for what is held of all streams: it is held up to three times, and the writer takes more than half."""
_WINDOWS = 8  # that fill a reader's memory
_LEAST_COLUMN_BYTES = MIB  # a request that is worth it, and a page to decode
_PROBES = 64
"""Rows of a stream that are looked at first, to leave those out of a round that come too late for it."""

Longs = npt.NDArray[np.int64]
Columns = Sequence[pa.Array]


@dataclass(frozen=True)
class Rows:
    """Rows on their way from reading to writing, and the bytes that they took where they were stored."""

    columns: Columns
    stored_bytes: float

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def decoded_bytes(self) -> int:
        """What they take in memory."""
        return sum(column.nbytes for column in self.columns)

    def slice(self, start: int, rows: int) -> Rows:
        """So many rows, without a copy."""
        return Rows([column.slice(start, rows) for column in self.columns], self.stored_bytes * rows / len(self))

    def take(self, places: Longs) -> Rows:
        """The rows at these places, in their order."""
        indices = pa.array(places)
        return Rows([column.take(indices) for column in self.columns], self.stored_bytes * len(places) / len(self))


def joined(parts: list[Rows]) -> Rows:
    """All rows in one piece; empties the list, so that no column is held twice for longer than it takes to join it."""
    stored = sum(part.stored_bytes for part in parts)
    columns: list[Columns] = list(zip(*(part.columns for part in parts), strict=True))
    parts.clear()
    whole = []
    while columns:
        whole.append(concatenated(columns.pop(0)))
    return Rows(whole, stored)


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """One array; of several dictionaries, one that has the values of all."""
    if len(arrays) == 1:
        return arrays[0]
    if pa.types.is_dictionary(arrays[0].type):
        arrays = pa.chunked_array(arrays).unify_dictionaries().chunks
    return pa.concat_arrays(arrays)


def merge(streams: Iterable[tuple[str, Iterator[Rows]]], ordering: Ordering, buffer_bytes: int) -> Iterator[Rows]:
    """The rows of all streams in order; the streams, each with a name for messages, hold about so many bytes together."""
    live = [_Stream(name, source, ordering) for name, source in streams]
    last: list[Columns] = []
    while live := [stream for stream in live if stream.fill(max(buffer_bytes // len(live), 1))]:
        owners, places = _next_rows(live, ordering, last)
        counts = np.bincount(owners, minlength=len(live))
        if (late := np.flatnonzero(places >= counts[owners])).size:
            raise _unsorted(live[owners[late[0]]])
        last = [live[owners[-1]].keys_at(places[-1:])]
        parts = [part for stream, count in zip(live, counts, strict=True) for part in stream.pop(int(count))]
        yield joined(parts).take((np.cumsum(counts) - counts)[owners] + places)


def _next_rows(live: Sequence[_Stream], ordering: Ordering, last: Sequence[Columns]) -> tuple[Longs, Longs]:
    """The streams and places of the rows of this round, in order: those up to the first end of what is known of a stream.

    `last` is the key of the row before them. Streams that are sorted give their first rows, each once.
    """
    ends, stop = _reach(live, ordering)
    keys = [*last, *(stream.keys(end) for stream, end in zip(live, ends, strict=True))]
    firsts = len(last) + np.cumsum(ends) - ends
    order = ordering.indices(together(keys))
    if stop is not None:
        # Rows that tie with the last one of a stream may follow it there, so those of later streams have to wait.
        order = order[: np.flatnonzero(order == firsts[stop] + ends[stop] - 1)[0] + 1]
    owners = np.searchsorted(firsts, order, side="right") - 1
    if last and order[0] != 0:
        raise _unsorted(live[owners[0]])
    return owners[len(last) :], (order - firsts[owners])[len(last) :]


def _reach(live: Sequence[_Stream], ordering: Ordering) -> tuple[Longs, int | None]:
    """How many rows of each stream have to be looked at, and the stream whose last row so far ends the round, if one does."""
    lengths = np.array([len(stream) for stream in live])
    going_on = [number for number, stream in enumerate(live) if not stream.ended]
    if not going_on:
        return lengths, None
    probes = [np.unique(np.linspace(0, length - 1, _PROBES).astype(np.int64)) for length in lengths]
    order = ordering.indices(together([stream.keys_at(places) for stream, places in zip(live, probes, strict=True)]))
    ranks = np.split(np.argsort(order), np.cumsum([len(places) for places in probes])[:-1])
    stop = min(going_on, key=lambda number: int(ranks[number][-1]))
    within = [np.count_nonzero(mine <= ranks[stop][-1]) for mine in ranks]
    ends = [np.append(places, length)[count] for places, length, count in zip(probes, lengths, within, strict=True)]
    ends[stop] = lengths[stop]
    return np.array(ends), stop


def together(keys: Sequence[Columns]) -> list[pa.Array]:
    """Keys one after another."""
    return [pa.concat_arrays(arrays) for arrays in zip(*keys, strict=True)]


def _unsorted(stream: _Stream) -> UnsortedError:
    return UnsortedError(f"Cannot merge {stream.name}: it is not sorted, although the table says so", hint="Sort it anew.")


class _Stream:
    """What is in memory of one stream, with the keys."""

    def __init__(self, name: str, source: Iterator[Rows], ordering: Ordering) -> None:
        self.name, self.ended = name, False
        self._source, self._ordering = source, ordering
        self._parts: list[Rows] = []
        self._keys: Columns = ()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def fill(self, wanted_bytes: int) -> bool:
        """Reads on until there are so many bytes; whether there is any row."""
        held = sum(part.decoded_bytes for part in self._parts)
        keys = [self._keys] if self._parts else []
        while held < wanted_bytes and (rows := next(self._source, None)) is not None:
            self._parts.append(rows)
            keys.append(self._ordering.keys(rows.columns))
            held += rows.decoded_bytes
        self.ended = held < wanted_bytes
        self._keys = together(keys)
        return bool(self._parts)

    def keys(self, rows: int) -> Columns:
        """The keys of the first rows."""
        return [column.slice(0, rows) for column in self._keys]

    def keys_at(self, places: Longs) -> Columns:
        """The keys of these rows."""
        return [column.take(pa.array(places)) for column in self._keys]

    def pop(self, rows: int) -> Iterator[Rows]:
        """Gives its first rows away."""
        self._keys = [column.slice(rows) for column in self._keys]
        while rows:
            first = self._parts.pop(0)
            count = min(rows, len(first))
            if count < len(first):
                self._parts.insert(0, first.slice(count, len(first) - count))
            yield first.slice(0, count)
            rows -= count


class OneOfMany(Reader):
    """Reads an input while others are open too: with its share of the memory, and few rows at a time."""

    def __init__(self, given: ArrowInput, layouts: Layouts, memory_bytes: int, many: int) -> None:
        super().__init__([given], layouts, memory_bytes // many)
        self._batch_bytes = int(memory_bytes * BUFFER_SHARE) // many // 2

    def _batches(
        self, given: ArrowInput, tail: Window, metadata: pq.FileMetaData, layout: ReadLayout
    ) -> Iterator[DecodedBatch]:
        return super()._batches(given, tail, metadata, _InSmallBatches(**vars(layout), most_bytes=self._batch_bytes))


@dataclass(eq=False)
class _InSmallBatches(ReadLayout):
    most_bytes: int = 0

    def batch_rows(self, group: pq.RowGroupMetaData, batch_bytes: int, cautious_rows: int) -> int:
        return super().batch_rows(group, min(batch_bytes, self.most_bytes), cautious_rows)


def can_read_at_once(inputs: Sequence[ArrowInput], leaves: int, memory_bytes: int) -> bool:
    """Whether the inputs can be read side by side: each whole, or with enough memory for each of its columns."""
    window = memory_bytes // len(inputs) // _WINDOWS
    return window >= leaves * _LEAST_COLUMN_BYTES or all(given.source.size_bytes <= window for given in inputs)
