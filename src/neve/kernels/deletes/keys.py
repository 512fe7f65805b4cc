"""Key columns of data files and of equality delete files: found by field id, in structs too, in the type that the table has.

Used by `equality` on both sides, and on Spark where deletes are resolved. Equal keys have equal values here, null included:
floats come as their bits with one NaN, so that 0.0 and -0.0 differ, as in Java.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.arrow.casting import leaf_cast
from neve.kernels.arrow.layout import Layouts, path_to
from neve.kernels.arrow.model import ArrowInput, RefusedError, SchemaMismatchError
from neve.kernels.arrow.projection import Fill, Mismatch, filling
from neve.kernels.arrow.reading import Reader
from neve.kernels.arrow.schema import primitive
from neve.kernels.streams import Source
from neve.table.units import MIB

KeyFields = Sequence[Mapping[str, Any]]
_READING_BYTES = 64 * MIB
_NO_CONSTANTS: Mapping[int, Any] = {}


@dataclass(frozen=True)
class KeyColumn:
    """One key column in files of one layout: the way to it, or what stands for it where the file has none."""

    name: str
    kind: pa.DataType
    path: tuple[int, ...]
    fill: Fill

    def build(self, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        """Its values for a batch of the columns that were read."""
        if not self.path:
            return canonical(self.fill(rows))
        array = arrays[self.path[0]]
        if len(self.path) > 1:
            array = pc.struct_field(array, list(self.path[1:]))  # a missing struct has missing fields
        try:
            cast = leaf_cast(array.type, self.kind)
        except TypeError as error:
            raise Mismatch(f"column {self.name} is {error}") from error
        return canonical(cast(array) if cast else array)


def key_columns(
    fields: KeyFields, physical: pa.Schema, tops: Sequence[int], constants: Mapping[int, Any] = _NO_CONSTANTS
) -> list[KeyColumn]:
    """How keys are taken from a file with this schema of which the columns `tops` are read."""
    found = []
    for field in fields:
        path = path_to(physical, field["id"])
        at = (tops.index(path[0]), *path[1:]) if path else ()
        fill = filling({**field, "required": False}, constants)
        found.append(KeyColumn(field["name"], primitive(field["type"]), at, fill))
    return found


def canonical(array: pa.Array) -> pa.Array:
    """Values that Arrow compares as the specification does."""
    if not pa.types.is_floating(array.type):
        return array
    width = array.type.bit_width
    values = np.frombuffer(array.buffers()[1], f"<f{width // 8}", len(array) + array.offset)[array.offset :]
    nans = np.isnan(values)
    if nans.any():
        values = np.where(nans, values.dtype.type("nan"), values)
    bits = values.view(f"<i{width // 8}")
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(bits, mask=missing)


def check_fields(fields: KeyFields, equality_ids: Sequence[int]) -> list[Mapping[str, Any]]:
    """The fields of these ids, in the ids' order. Raises RefusedError for one that is unknown or of a type without equality."""
    known = {field["id"]: field for field in fields}
    for number in equality_ids:
        if number not in known:
            raise _refused(f"an equality delete compares field {number}, which no schema of the table has")
        kind = known[number]["type"]
        if not isinstance(kind, str) or primitive(kind) is None:
            named = kind if isinstance(kind, str) else kind["type"]
            raise _refused(f"an equality delete compares column {known[number]['name']} of type {named}")
    return [known[number] for number in equality_ids]


def read_keys(
    files: Sequence[tuple[Source, int]], fields: KeyFields, *, memory_bytes: int = _READING_BYTES
) -> Generator[tuple[int, list[pa.Array]]]:
    """The keys of equality delete files (source, records), batch by batch: the file's place, and one array per field."""
    inputs = [ArrowInput(source, records) for source, records in files]
    layouts = Layouts([], [], None, keys=[field["id"] for field in fields])
    with closing(iter(Reader(inputs, layouts, memory_bytes))) as opened_files:
        for opened in opened_files:
            layout = opened.layout
            columns = key_columns(fields, layout.schema, layout.tops)
            try:
                for batch in opened.batches:
                    arrays, rows = batch.rows.columns, batch.rows.num_rows
                    yield opened.index, [column.build(arrays, rows) for column in columns]
            except (Mismatch, pa.ArrowException) as error:
                raise SchemaMismatchError(f"Cannot read {files[opened.index][0].path}: {error}") from error


def _refused(reason: str) -> RefusedError:
    return RefusedError(f"Cannot rewrite with the arrow kernel: {reason}", hint="The spark kernel can.")
