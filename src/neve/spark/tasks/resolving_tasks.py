"""What `resolving` runs in Python tasks: keys out of files, and vectors out of deleted positions.

Keys go to Spark as rows (key, sequence, place, positions). A delete has no place. A data file's equal keys within 65,536 rows
are one row, so that no key, however frequent, makes a partition large; `place` is the file's number and the container of its
positions. Slot 0 of each file holds its name, for the task that writes its vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.kernels.arrow.constants import constant
from neve.kernels.arrow.layout import Layouts
from neve.kernels.arrow.model import ArrowInput, SchemaMismatchError
from neve.kernels.arrow.projection import Mismatch
from neve.kernels.arrow.reading import Reader
from neve.kernels.deletes.keys import check_fields, key_columns
from neve.kernels.deletes.puffin import store_vectors
from neve.kernels.deletes.roaring import Encoder
from neve.kernels.streams import BytesSource, Source
from neve.rewrite.equality_rows import KeyFile, KeyTask
from neve.spark.runtime.limits import keep_within_limit
from neve.spark.tasks.resolving_keys import Hashes, Screen, hashes, keys
from neve.storage.files import Storage
from neve.table.units import MIB

if TYPE_CHECKING:
    from pyspark import Broadcast

KEYS = "key binary, sequence long, place long, positions binary"
VECTORS = "file long, path string, size_bytes long, offset long, length long, cardinality long"
SLOT_BITS = 32
CONTAINER = 1 << 16
"""Rows in a piece at most, and under one container of a bitmap: no piece is in two of them."""
READ_BYTES = 128 * MIB
"""The reader's budget, an eighth of which is a window of a file."""
_MOST_POSITIONS = 4096
"""In one row: Spark keeps some thousand rows of an equal key in memory."""
_KEYS = pa.schema([("key", pa.binary()), ("sequence", pa.int64()), ("place", pa.int64()), ("positions", pa.binary())])
_NUMBERS = ("size_bytes", "offset", "length", "cardinality")
_VECTORS = pa.schema([("file", pa.int64()), ("path", pa.string()), *((name, pa.int64()) for name in _NUMBERS)])

Batches = Iterable[pa.RecordBatch]
Piece = tuple[KeyFile, int, dict[int, pa.Array]]
"""A file, the position of the first row, the key columns by field id."""


@dataclass(frozen=True)
class ReadKeys:
    """Keys of files as rows; of data files only those that pass the screen, if there is one."""

    properties: Mapping[str, str]
    fields: Sequence[Mapping[str, Any]]
    name_mapping: Sequence[Any] | None
    screen: Broadcast[bytes] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """The rows of the tasks in these batches."""
        keep_within_limit()
        screen = None if self.screen is None else Screen(np.frombuffer(self.screen.value, np.uint64))
        for text in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            files = KeyTask.model_validate_json(text).files
            if named := [file for file in files if file.number is not None]:
                yield _names(named)
            for file, start, columns in self._pieces(files):
                for realm in file.realms:
                    wanted = [columns[i] for i in realm.field_ids]
                    numbers = hashes(realm.number, wanted)
                    if file.number is None:
                        yield _delete_rows(file, keys(numbers, realm.number, wanted))
                    elif len(rows := _passing(numbers, screen)):
                        chosen = [column.take(pa.array(rows)) for column in wanted] if len(rows) < len(numbers) else wanted
                        low = (start % CONTAINER + rows).astype("<u2")
                        yield _data_rows(file, start, keys(numbers[rows], realm.number, chosen), low)

    def screened(self, text: str, words: int) -> bytes:
        """The screen of one task's deletes."""
        keep_within_limit()
        bits = np.zeros(words, np.uint64)
        screen = Screen(bits)
        for file, _, columns in self._pieces(KeyTask.model_validate_json(text).files):
            for realm in file.realms:
                screen.add(hashes(realm.number, [columns[i] for i in realm.field_ids]))
        return bits.tobytes()

    def _pieces(self, files: Sequence[KeyFile]) -> Iterator[Piece]:
        storage = Storage(self.properties)
        fields = check_fields(self.fields, sorted({i for file in files for realm in file.realms for i in realm.field_ids}))
        inputs = [ArrowInput(_source(storage, file), file.records) for file in files]
        layouts = Layouts([], [], self.name_mapping, keys=[field["id"] for field in fields])
        with closing(iter(Reader(inputs, layouts, READ_BYTES))) as opened_files:
            for opened in opened_files:
                file = files[opened.index]
                columns = key_columns(fields, opened.layout.schema, opened.layout.tops, _constants(file, fields))
                try:
                    for batch in opened.batches:
                        arrays, rows = batch.rows.columns, batch.rows.num_rows
                        built = {field["id"]: c.build(arrays, rows) for field, c in zip(fields, columns, strict=True)}
                        yield from _split(file, batch.start, rows, built)
                except (Mismatch, pa.ArrowException) as error:
                    raise SchemaMismatchError(f"Cannot read {file.path}: {error}") from error


def either(one: bytes, other: bytes) -> bytes:
    """The screen of two screens' keys."""
    return (np.frombuffer(one, np.uint64) | np.frombuffer(other, np.uint64)).tobytes()


def _source(storage: Storage, file: KeyFile) -> Source:
    return BytesSource(file.content, file.path) if file.content is not None else storage.source(file.path, file.size_bytes)


def _constants(file: KeyFile, fields: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    kinds = {field["id"]: field["type"] for field in fields}
    given = {i: value for i, value in file.constants.items() if i in kinds}
    return {i: constant(kinds[i], value) for i, value in given.items()}


def _split(file: KeyFile, start: int, rows: int, columns: Mapping[int, pa.Array]) -> Iterator[Piece]:
    at = 0
    while at < rows:
        length = min(rows - at, CONTAINER - (start + at) % CONTAINER)
        yield file, start + at, {i: column.slice(at, length) for i, column in columns.items()}
        at += length


def _names(files: Sequence[KeyFile]) -> pa.RecordBatch:
    numbers = np.array([file.number for file in files], np.int64)
    # Keys that no row has: those are longer.
    unlike = pa.array([number.tobytes() for number in numbers], pa.binary())
    return _rows(unlike, 0, pa.array(numbers << SLOT_BITS), pa.array([file.path.encode() for file in files], pa.binary()))


def _delete_rows(file: KeyFile, found: pa.Array) -> pa.RecordBatch:
    once = found.unique()
    return _rows(once, file.sequence_number, pa.nulls(len(once), pa.int64()), pa.nulls(len(once), pa.binary()))


def _passing(numbers: Hashes, screen: Screen | None) -> npt.NDArray[np.int64]:
    return np.arange(len(numbers)) if screen is None else np.flatnonzero(screen.passes(numbers))


def _data_rows(file: KeyFile, start: int, found: pa.Array, low: npt.NDArray[np.uint16]) -> pa.RecordBatch:
    """Equal keys with all their positions, which lie in one container, as two bytes each."""
    encoded = found.dictionary_encode()
    codes = encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    codes, low = codes[order], low[order]
    count = np.arange(len(codes))
    begins = np.concatenate(([True], codes[1:] != codes[:-1]))
    rank = count - np.maximum.accumulate(np.where(begins, count, 0))
    heads = np.flatnonzero(rank % _MOST_POSITIONS == 0)
    offsets = (2 * np.append(heads, len(codes))).astype(np.int32)
    positions = pa.Array.from_buffers(pa.binary(), len(heads), [None, pa.py_buffer(offsets), pa.py_buffer(low)])
    place = ((file.number or 0) << SLOT_BITS) + start // CONTAINER + 1
    chosen = encoded.dictionary.take(pa.array(codes[heads]))
    return _rows(chosen, file.sequence_number, pa.array(np.full(len(heads), place)), positions)


def _rows(found: pa.Array, sequence: int, places: pa.Array, positions: pa.Array) -> pa.RecordBatch:
    sequences = pa.array(np.full(len(found), sequence, np.int64))
    return pa.RecordBatch.from_arrays([found, sequences, places, positions], schema=_KEYS)


@dataclass(frozen=True)
class WriteVectors:
    """Takes (place, positions) by place, writes vectors into Puffin files, and says where each data file's is.

    `apart`, each has a file of its own: Iceberg's Java API expires a Puffin file although another of its vectors is live.
    """

    properties: Mapping[str, str]
    prefix: str
    apart: bool

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """One line per vector; no file where there is none."""
        keep_within_limit()
        numbers: list[int] = []
        vectors = _vectors(batches, numbers)
        storage = Storage(self.properties)
        lines: list[tuple[int, str, int, int, int, int]] = []
        for first in vectors:
            path = f"{self.prefix}-{uuid4().hex}.puffin"
            written, size = store_vectors(storage, path, [first] if self.apart else chain([first], vectors))
            new = numbers[len(lines) :]
            lines += [(n, path, size, v.offset, v.length, v.cardinality) for n, v in zip(new, written, strict=True)]
        if lines:
            columns = [pa.array(column, field.type) for column, field in zip(zip(*lines, strict=True), _VECTORS, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=_VECTORS)


def _vectors(batches: Batches, numbers: list[int]) -> Iterator[tuple[str, Encoder]]:
    """Each data file that has deleted rows; its number is added to `numbers`. One bitmap is in memory at a time."""
    name, number, encoder = "", -1, Encoder()
    for place, data in _by_place(batches):
        if slot := place & ((1 << SLOT_BITS) - 1):
            low = np.unique(np.frombuffer(data, "<u2"))
            encoder.add(low.astype(np.int64) + (slot - 1) * CONTAINER)
            continue
        if encoder.cardinality:
            numbers.append(number)
            yield name, encoder
        name, number, encoder = data.decode("utf-8", "replace"), place >> SLOT_BITS, Encoder()
    if encoder.cardinality:
        numbers.append(number)
        yield name, encoder


def _by_place(batches: Batches) -> Iterator[tuple[int, bytes]]:
    """Each place once, with all that was said of it."""
    last = -1
    parts: list[bytes] = []
    for batch in batches:
        places = batch.column(0).to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)] if len(places) else []
        for start, stop in pairwise(edges):
            if parts and places[start] != last:
                yield last, b"".join(parts)
                parts = []
            last = int(places[start])
            parts.append(_data(batch.column(1).slice(start, stop - start)))
    if parts:
        yield last, b"".join(parts)


def _data(values: pa.Array) -> bytes:
    """All bytes of these, end to end."""
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    return bytes(memoryview(values.buffers()[2])[offsets[0] : offsets[-1]])
