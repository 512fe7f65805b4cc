"""Brings the rows of an order into its layout's order, however many they are: what exceeds the memory becomes sorted runs on
local disk, which are merged. Called by `rewriting` between reading and writing. Rows that tie keep the order of the inputs.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.kernels.arrow.layout import Layouts
from neve.kernels.arrow.merging import BUFFER_SHARE, Columns, Longs, Rows, joined, merge
from neve.kernels.arrow.model import ArrowInput, RefusedError, SchemaMismatchError
from neve.kernels.arrow.naming import NameMapping
from neve.kernels.arrow.projection import Mismatch, project
from neve.kernels.arrow.reading import Reader
from neve.kernels.arrow.schema import arrow_type
from neve.table.layout import Layout, LayoutKind, SortField
from neve.table.units import GIB, KIB

_RUN_SHARE = 0.4
"""Of the memory, for the rows that are sorted at once: reading takes about as much, and later writing does."""
_RUN_MOST_BYTES = GIB  # one array of text has room for two
_SLICE_SHARE, _SPILLED_SHARE = 1 / 32, 1 / 1024
"""Of the memory, for what is given on at a time, and for what is read from a run at a time."""
_LEAST_SLICE_BYTES = 8 * KIB
_WRITE = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_SAMPLED_FILES, _SAMPLED_GROUPS, _SAMPLED_ROWS = 64, 4, 100_000
_CURVE_ROWS = 1 << 18
_CURVE = (SortField(name="curve"),)
_SIGN = np.uint64(1 << 63)


class Ordering:
    """A layout on the columns of a schema: what is compared of each row, and how."""

    def __init__(self, layout: Layout, schema: Mapping[str, Any]) -> None:
        """Raises RefusedError for a column or transform by which this kernel cannot order."""
        self._layout, self.is_sort = layout, layout.kind is LayoutKind.SORT
        self._sources = [_source(schema, field.name) for field in layout.fields]
        self.tops = sorted({path[0] for path, _ in self._sources})
        self._boundaries: Any = None
        self._compared([pa.nulls(0, arrow_type(field["type"])) for field in schema["fields"]])

    @property
    def needs_sample(self) -> bool:
        """Whether rows have no keys until `learn` was given some."""
        return not self.is_sort and self._boundaries is None

    def learn(self, columns: Columns) -> None:
        """Scales a curve to these rows."""
        from neve.kernels.curves.ranks import Boundaries

        compared = self._compared(columns)
        some = pa.array(np.arange(0, len(compared[0]), math.ceil(len(compared[0]) / _SAMPLED_ROWS) or 1))
        self._boundaries = Boundaries.of([column.take(some) for column in compared])

    def keys(self, columns: Columns) -> Columns:
        """What is compared of these rows: an array for each column of a sort order, or one of places on a curve."""
        compared = self._compared(columns)
        return compared if self.is_sort else [self._places(compared)]

    def indices(self, keys: Columns) -> Longs:
        """Where each row of the ordered whole comes from; rows that tie keep their order."""
        from neve.kernels.curves.sorting import sort_indices

        order: Longs = sort_indices(keys, self._layout.fields if self.is_sort else _CURVE).to_numpy().view(np.int64)
        return order

    def _places(self, compared: Columns) -> pa.Array:
        """Places on the curve, as signed numbers; of some rows at a time, since it takes much memory."""
        from neve.kernels.curves.keys import curve_keys

        parts = ([c.slice(start, _CURVE_ROWS) for c in compared] for start in range(0, len(compared[0]), _CURVE_ROWS))
        places = [curve_keys(part, self._boundaries, self._layout.kind) for part in parts]
        return pa.array((np.concatenate(places) ^ _SIGN).view(np.int64))

    def _compared(self, columns: Columns) -> Columns:
        # Not at the top of the module: these import this package.
        from neve.kernels.curves.sorting import comparable
        from neve.kernels.curves.transforms import transformed

        return [
            comparable(transformed(_below(columns, path), field.transform, kind))
            for field, (path, kind) in zip(self._layout.fields, self._sources, strict=True)
        ]


def in_order(rows: Iterable[Rows], ordering: Ordering, memory_bytes: int, sample: Callable[[], Columns]) -> Iterator[Rows]:
    """All rows in the layout's order. `sample` gives rows from all over, for a curve through more than fits the memory."""
    limit = min(int(memory_bytes * _RUN_SHARE), _RUN_MOST_BYTES)
    put_in_order = partial(_in_order, ordering=ordering, slice_bytes=int(memory_bytes * _SLICE_SHARE))
    held: list[Rows] = []
    held_bytes = 0
    with _Spill(int(memory_bytes * _SPILLED_SHARE)) as spill:
        for more in rows:
            if held and held_bytes + more.decoded_bytes > limit:
                if ordering.needs_sample:
                    ordering.learn(sample())
                spill.add(put_in_order(held))
                held_bytes = 0
            held.append(more)
            held_bytes += more.decoded_bytes
        if spill.runs:
            spill.add(put_in_order(held))
            yield from merge(spill.streams(), ordering, int(memory_bytes * BUFFER_SHARE))
        elif held:
            yield from put_in_order(held)


def _in_order(held: list[Rows], ordering: Ordering, slice_bytes: int) -> Iterator[Rows]:
    """These rows in order, slice by slice; empties the list."""
    whole = joined(held)
    if ordering.needs_sample:
        ordering.learn(whole.columns)
    order = ordering.indices(ordering.keys(whole.columns))
    for part in _cuts(len(whole), whole.decoded_bytes, slice_bytes):
        yield whole.take(order[part])


def _cuts(rows: int, size_bytes: int, slice_bytes: int) -> Iterator[slice]:
    step = max(int(rows * max(slice_bytes, _LEAST_SLICE_BYTES) / max(size_bytes, 1)), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def sample_rows(
    inputs: Sequence[ArrowInput], schema: Mapping[str, Any], name_mapping: NameMapping | None, memory_bytes: int
) -> Columns:
    """Some rows of some of the inputs, deleted ones too, of the columns that the schema has."""
    with_rows = [given for given in inputs if given.records]
    chosen = with_rows[:: math.ceil(len(with_rows) / _SAMPLED_FILES)]
    share = _SAMPLED_ROWS / sum(given.records for given in chosen)
    layouts = Layouts([field["id"] for field in schema["fields"]], (), name_mapping)
    found: list[Rows] = []
    with closing(iter(Reader(chosen, layouts, memory_bytes // 4, choose=_spread))) as files:
        for opened in files:
            given = chosen[opened.index]
            read = sum(opened.metadata.row_group(i).num_rows for i in _spread(opened.metadata, opened.layout))
            every = max(int(read / max(share * given.records, 1)), 1)
            try:
                plan = project(schema, opened.layout.schema, given.constants, tops=opened.layout.tops)
                for batch in opened.batches:
                    places = np.arange(0, batch.rows.num_rows, every)
                    found.append(Rows(plan.apply(batch.rows), 0.0).take(places))
            except (Mismatch, pa.ArrowException) as error:
                raise SchemaMismatchError(f"Cannot read {given.source.path}: {error}") from error
    return joined(found).columns


def _spread(metadata: pq.FileMetaData, _: object) -> set[int]:
    """A few row groups from the first to the last."""
    return set(np.linspace(0, metadata.num_row_groups - 1, _SAMPLED_GROUPS).astype(int).tolist())


class _Spill:
    """Sorted runs in one file without a name: it is gone with the process, however that ends."""

    def __init__(self, slice_bytes: int) -> None:
        self.runs: list[list[tuple[int, int, float]]] = []
        self._slice_bytes = slice_bytes
        self._file: Any = None

    def __enter__(self) -> _Spill:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take is not missed any more
                self._file.close()

    def add(self, rows: Iterator[Rows]) -> None:
        """Writes a run."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=_local_directory())  # noqa: SIM115 - closed on exit
            parts = (more.slice(c.start, c.stop - c.start) for more in rows for c in self._cut(more))
            self.runs.append([(self._file.tell(), self._file.write(_packed(part)), part.stored_bytes) for part in parts])
            self._file.flush()
        except OSError as error:
            reason = f"sorting needs more local disk than there is ({error.strerror or error})"
            raise RefusedError(f"Cannot rewrite with the arrow kernel: {reason}", hint="The spark kernel can.") from error

    def streams(self) -> Iterator[tuple[str, Iterator[Rows]]]:
        """The runs, each with a name."""
        return ((f"run {number}", map(self._read, run)) for number, run in enumerate(self.runs))

    def _cut(self, rows: Rows) -> Iterator[slice]:
        return _cuts(len(rows), rows.decoded_bytes, self._slice_bytes)

    def _read(self, place: tuple[int, int, float]) -> Rows:
        start, length, stored = place
        self._file.seek(start)
        data = self._file.read(length)
        return Rows(pa.ipc.open_stream(data, options=_READ).read_next_batch().columns, stored)


def _packed(rows: Rows) -> pa.Buffer:
    """Rows in Arrow's stream format, each slice with the dictionaries that it needs."""
    columns = [_with_fewer_entries(column) for column in rows.columns]
    batch = pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema, options=_WRITE) as stream:
        stream.write_batch(batch)
    return out.getvalue()


def _with_fewer_entries(column: pa.Array) -> pa.Array:
    """Without the entries of a long dictionary that are not used."""
    long = pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column) // 8
    return column.dictionary_decode().dictionary_encode() if long else column


def _local_directory() -> str | None:
    """Where Spark has its tasks put such files, None outside of a task."""
    given = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((directory for directory in given if directory and Path(directory).is_dir()), None)


def _source(schema: Mapping[str, Any], name: str) -> tuple[tuple[int, ...], str]:
    found = _find(schema["fields"], name)
    if found is None:
        raise RefusedError(f"Cannot order rows by {name}: the table has no such column outside of lists and maps")
    return found


def _find(fields: Sequence[Mapping[str, Any]], name: str) -> tuple[tuple[int, ...], str] | None:
    """The way to a column by places in structs, and its type."""
    for i, field in enumerate(fields):
        kind = field["type"]
        if field["name"] == name and isinstance(kind, str):
            return (i,), kind
        inside = kind["fields"] if isinstance(kind, Mapping) and kind["type"] == "struct" else ()
        if name.startswith(f"{field['name']}.") and (found := _find(inside, name.removeprefix(f"{field['name']}."))):
            return (i, *found[0]), found[1]
    return None


def _below(columns: Columns, path: tuple[int, ...]) -> pa.Array:
    return pc.struct_field(columns[path[0]], list(path[1:])) if len(path) > 1 else columns[path[0]]
