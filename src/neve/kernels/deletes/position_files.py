"""Position delete files: Parquet files of (file_path, pos), read for some data files, written as Iceberg writes them.

Read by `loading`; written by conversion, upkeep and for late deletes in format v2. Bounds of both columns come back whole:
Iceberg takes a file whose path bounds are equal as belonging to that one data file, and prunes others by them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from neve.kernels.arrow.counting import tally
from neve.kernels.arrow.encoding import Encodings
from neve.kernels.arrow.layout import Layouts, ReadLayout
from neve.kernels.arrow.model import ArrowInput, ArrowOutput, WriteOptions
from neve.kernels.arrow.outputs import ParquetOutput, writer_properties
from neve.kernels.arrow.reading import Reader
from neve.kernels.arrow.schema import arrow_schema, leaves
from neve.kernels.faults import CorruptFileError
from neve.kernels.streams import Sink, Source
from neve.table.units import MIB

Longs = npt.NDArray[np.int64]
Positions = dict[str, Longs]
"""Deleted rows by data file, ascending, each once."""

PATH_ID, POS_ID = 2147483546, 2147483545
_FIELDS: list[dict[str, Any]] = [
    {"id": PATH_ID, "name": "file_path", "required": True, "type": "string"},
    {"id": POS_ID, "name": "pos", "required": True, "type": "long"},
]
_SCHEMA = {"type": "struct", "schema-id": 0, "fields": _FIELDS}
_READING_BYTES = 64 * MIB
_ROW_GROUP_ROWS = 1 << 20


def read_positions(
    files: Sequence[tuple[Source, int]], wanted: Collection[str] | None = None, *, memory_bytes: int = _READING_BYTES
) -> Generator[Positions]:
    """What each file (source, records) deletes, one after another: of the data files `wanted`, or of all that it names."""
    inputs = [ArrowInput(source, records) for source, records in files]
    layouts = Layouts([PATH_ID, POS_ID], [PATH_ID], None)
    chosen = None if wanted is None else _Chosen(sorted(path.encode() for path in wanted))
    with closing(iter(Reader(inputs, layouts, memory_bytes, choose=chosen))) as opened_files:
        for opened in opened_files:
            path = files[opened.index][0].path
            ids = list(opened.layout.leaf_ids.values())
            if sorted(ids) != [POS_ID, PATH_ID]:
                raise CorruptFileError(path, "it has no columns file_path and pos, as position deletes do")
            found = _Found(path, wanted)
            for batch in opened.batches:
                found.add(batch.rows.column(ids.index(PATH_ID)), batch.rows.column(ids.index(POS_ID)))
            yield found.positions()


@dataclass(frozen=True)
class _Chosen:
    """Row groups that may name one of these data files, by the bounds of their paths."""

    wanted: Sequence[bytes]

    def __call__(self, metadata: pq.FileMetaData, layout: ReadLayout) -> list[int]:
        leaf = next((i for i, top in layout.leaf_ids.items() if top == PATH_ID), 0)
        return [i for i in range(metadata.num_row_groups) if self._may_hold(metadata.row_group(i).column(leaf).statistics)]

    def _may_hold(self, statistics: pq.Statistics | None) -> bool:
        if statistics is None or not statistics.has_min_max:
            return True
        return any(statistics.min_raw <= path <= statistics.max_raw for path in self.wanted)


@dataclass
class _Found:
    """Gathers one file's positions by data file."""

    path: str
    wanted: Collection[str] | None
    parts: dict[str, list[Longs]] = field(default_factory=dict)

    def add(self, paths: pa.Array, places: pa.Array) -> None:
        if paths.null_count or places.null_count:
            raise CorruptFileError(self.path, "a position delete without a path or a position")
        encoded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
        codes, rows = encoded.indices.to_numpy(), places.to_numpy()
        order = np.argsort(codes, kind="stable")
        stops = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
        for code, name in enumerate(_names(encoded.dictionary)):
            start, stop = (stops[code - 1] if code else 0), stops[code]
            if start < stop and (self.wanted is None or name in self.wanted):
                self.parts.setdefault(name, []).append(rows[order[start:stop]])

    def positions(self) -> Positions:
        return {name: ascending(parts) for name, parts in self.parts.items()}


def _names(paths: pa.Array) -> list[str]:
    """Paths as the metadata spells them: what is not UTF-8 reads as Java reads it."""
    return [path.decode("utf-8", "replace") for path in paths.cast(pa.large_binary()).to_pylist()]


def ascending(parts: Sequence[Longs]) -> Longs:
    """All these positions together, ascending, each once."""
    whole = np.concatenate(parts) if len(parts) != 1 else parts[0]
    return np.unique(whole) if np.any(whole[1:] <= whole[:-1]) else whole


def write_positions(sink: Sink, positions: Mapping[str, Longs], *, codec: str = "zstd") -> ArrowOutput:
    """Writes one file of the positions (ascending, each once) of one data file or of several; aborts the sink on failure."""
    try:
        return _write(sink, positions, WriteOptions(codec=codec))
    except BaseException:
        sink.abort()
        raise


def _write(sink: Sink, positions: Mapping[str, Longs], options: WriteOptions) -> ArrowOutput:
    ordered = sorted((path for path in positions if len(positions[path])), key=str.encode)
    if not ordered:
        raise ValueError("Cannot write a position delete file: it would delete nothing")
    schema, columns = arrow_schema(_SCHEMA), leaves(_SCHEMA)
    widest = max(len(path.encode()) for path in ordered)
    encodings = Encodings(dictionaries=("file_path",), deltas=())
    properties = writer_properties(options, encodings, columns, row_group_rows=_ROW_GROUP_ROWS, widest_bytes=widest)
    file = ParquetOutput(sink, schema, columns, json.dumps(_SCHEMA), properties)
    codes = np.repeat(np.arange(len(ordered), dtype=np.int32), [len(positions[path]) for path in ordered])
    rows = np.concatenate([positions[path] for path in ordered])
    for at in range(0, len(rows), _ROW_GROUP_ROWS):
        paths = pa.array(ordered).take(pa.array(codes[at : at + _ROW_GROUP_ROWS]))
        table = pa.table([paths, pa.array(rows[at : at + _ROW_GROUP_ROWS])], schema=schema)
        file.write(table, tally([table.column(i).combine_chunks() for i in range(2)]))
    return file.close()
