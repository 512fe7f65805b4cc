"""Chooses each leaf column's encoding from what the inputs' footers say and from a sample of the rows about to be written.

pyarrow would try a dictionary for every column and give up late; asking only where it pays saves a third of the work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.kernels.arrow.counting import leaf_arrays
from neve.kernels.arrow.layout import has_dictionary
from neve.kernels.arrow.model import WriteOptions
from neve.kernels.arrow.schema import ROW_ID, ArrowLeaf
from neve.table.units import MIB

_SAMPLE_ROWS = 32_768
_SAMPLE_BYTES = 4 * MIB
_SAMPLE_PLACES = 4
_WORTH = 0.75
DELTA = "DELTA_BINARY_PACKED"


@dataclass(frozen=True)
class Encodings:
    """Parquet paths of the columns with dictionaries, and of those packed by differences."""

    dictionaries: tuple[str, ...]
    deltas: tuple[str, ...]


@dataclass
class Hints:
    """What footers told so far, by the field id of a top-level column."""

    seen: set[int] = field(default_factory=set)
    dictionaries: set[int] = field(default_factory=set)
    deltas: set[int] = field(default_factory=set)

    def note(self, metadata: pq.FileMetaData, leaf_ids: Mapping[int, int]) -> None:
        """Takes note of one input's first row group."""
        if not metadata.num_row_groups:
            return
        group = metadata.row_group(0)
        for leaf, top in leaf_ids.items():
            chunk = group.column(leaf)
            self.seen.add(top)
            if has_dictionary(chunk):
                self.dictionaries.add(top)
            if DELTA in chunk.encodings:
                self.deltas.add(top)

    def allow_dictionary(self, top: int) -> bool:
        """A column that no input stored as a dictionary is not tried; one that no input had may be."""
        return top not in self.seen or top in self.dictionaries


def choose(
    columns: Sequence[pa.ChunkedArray], leaves: Sequence[ArrowLeaf], tops: Sequence[int], hints: Hints, options: WriteOptions
) -> Encodings:
    """Encodings for a file that starts with these columns; `tops` are the top-level ids of the leaves."""
    rows = len(columns[0])
    samples = [leaf for column in columns for leaf, _ in leaf_arrays(_sample(column))]
    dictionaries, deltas = [], []
    for leaf, top, sample in zip(leaves, tops, samples, strict=True):
        if options.dictionary and hints.allow_dictionary(top) and _dictionary_pays(sample, leaf.kind, rows, options):
            dictionaries.append(leaf.path)
        elif (options.delta_integers or top in hints.deltas or top == ROW_ID) and _delta_pays(sample):
            deltas.append(leaf.path)
    return Encodings(tuple(dictionaries), tuple(deltas))


def _sample(column: pa.ChunkedArray) -> pa.Array:
    """Rows from several places, each in one piece, so that order and repetition both show."""
    rows = len(column)
    affordable = int(_SAMPLE_BYTES * rows / max(column.nbytes, 1))
    piece = max(min(_SAMPLE_ROWS, rows, affordable) // _SAMPLE_PLACES, 1)
    starts = [place * (rows - piece) // max(_SAMPLE_PLACES - 1, 1) for place in range(_SAMPLE_PLACES)]
    parts = [chunk for start in dict.fromkeys(starts) for chunk in column.slice(start, piece).chunks if len(chunk)]
    if parts and pa.types.is_dictionary(parts[0].type):
        parts = [part.dictionary_decode() for part in parts]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, column.type)


def _dictionary_pays(sample: pa.Array, kind: str, rows: int, options: WriteOptions) -> bool:
    values = sample.drop_null()
    count = len(values)
    if kind == "boolean" or not count:
        return False
    few, many = (pc.count_distinct(part).as_py() for part in (values.slice(0, max(count // 4, 1)), values))
    # Distinct values grow like a power of the rows seen; two samples give the exponent.
    growth = max(math.log(many / few) / math.log(4), 0.0) if count >= 4 else 1.0
    total = count / len(sample) * rows
    distinct = min(many * (max(total, count) / count) ** growth, max(total, count))
    width = values.nbytes / count
    size = distinct * width + total * math.ceil(math.log2(max(distinct, 2))) / 8
    return bool(distinct * width <= options.dictionary_bytes and size < _WORTH * total * width)


def _delta_pays(sample: pa.Array) -> bool:
    kind = sample.type
    if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind)):
        return False
    width = kind.bit_width
    integers = sample.drop_null().view(pa.int64() if width == 64 else pa.int32()).to_numpy()
    if len(integers) < 2:
        return False
    steps = np.diff(integers.astype(np.float64))
    # Single jumps between the places of the sample must not decide.
    low, high = np.quantile(steps, [0.01, 0.99])
    return bool(math.log2(high - low + 2) <= _WORTH * width)
