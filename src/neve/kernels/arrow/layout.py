"""What a file's physical schema means for reading it: which leaves, which as dictionaries, how many rows at a time.

Files written alike share one layout, so that five hundred of them are planned once.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from neve.kernels.arrow.model import RefusedError
from neve.kernels.arrow.naming import NameMapping, assign_ids, children, field_id, has_ids
from neve.kernels.opening import without_arrow_schema
from neve.kernels.parquet.schema import PhysicalSchema

_DICTIONARY_BYTES_PER_VALUE = 4
# Older pyarrow knows no extension types here and gives storage anyway.
_PLAIN_STORAGE = (
    {"arrow_extensions_enabled": False}
    if "arrow_extensions_enabled" in inspect.signature(pq.ParquetFile.__init__).parameters
    else {}
)


def footer_of(tail: bytes) -> pq.FileMetaData:
    """The footer at the end of these bytes, without an Arrow schema. `ParquetFile` would list the schema's paths as well, which
    takes longer."""
    reader = ParquetReader()
    reader.open(pa.BufferReader(without_arrow_schema(tail)))
    return reader.metadata


@dataclass(eq=False)
class ReadLayout:
    """How files of one physical schema are read. Learns the size of decoded rows as it goes."""

    schema: pa.Schema  # with field ids
    tops: list[int]  # the top-level fields that are read
    leaves: list[int]  # the Parquet columns that are read
    leaf_ids: dict[int, int]  # field id of the top-level column that each belongs to
    dictionaries: frozenset[int]  # Parquet columns that are read as dictionaries
    seen_row_bytes: float = 0.0

    def open(self, handle: Any, metadata: pq.FileMetaData, buffer_bytes: int) -> Any:
        """The file, ready to be decoded on the calling thread alone."""
        reader = ParquetReader()
        reader.open(
            handle,
            metadata=metadata,
            read_dictionary=sorted(self.dictionaries) or None,
            buffer_size=buffer_bytes,
            pre_buffer=False,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,  # where a writer left one: re-encoded, damage would be sealed by a new checksum
            **_PLAIN_STORAGE,
        )
        return reader

    def batch_rows(self, group: pq.RowGroupMetaData, batch_bytes: int, cautious_rows: int) -> int:
        """Rows that decode to about this many bytes; few at first where dictionaries may hide long values."""
        stored = sum(group.column(i).total_uncompressed_size for i in self.leaves) / group.num_rows
        expected = max(self.seen_row_bytes, stored, len(self.leaves), 1.0)
        rows = max(int(batch_bytes / expected), 1)
        return rows if self.seen_row_bytes else min(rows, max(cautious_rows, 2**18 // max(len(self.leaves), 1)))

    def learn(self, batch: pa.RecordBatch) -> None:
        """Takes note of what rows need once decoded."""
        if batch.num_rows:
            self.seen_row_bytes = max(self.seen_row_bytes, batch.nbytes / batch.num_rows)


class Layouts:
    """The layouts of a work order's inputs. The first with rows decides which text columns stay dictionaries."""

    def __init__(
        self,
        wanted: Collection[int],
        text: Collection[int],
        name_mapping: NameMapping | None,
        *,
        keys: Collection[int] = (),
    ) -> None:
        """`wanted` and `text` are ids of top-level columns; those that hold a field of `keys`, in structs, are read too."""
        self._wanted = wanted
        self._keys = keys
        self._text = text
        self._name_mapping = name_mapping
        self._known: dict[bytes, ReadLayout] = {}
        self.dictionaries: frozenset[int] | None = None

    def of(self, metadata: pq.FileMetaData, schema: PhysicalSchema) -> ReadLayout:
        """The layout of this file, whose schema is `schema`. pyarrow compares columns, and not the groups that they are in."""
        if (layout := self._known.get(schema.raw)) is not None:
            return layout
        if schema.odd_ids is not None:
            raise RefusedError(schema.odd_ids)
        layout = self._plan(metadata)
        if metadata.num_row_groups:
            self._known[schema.raw] = layout
        return layout

    def _plan(self, metadata: pq.FileMetaData) -> ReadLayout:
        schema = identified(metadata, self._name_mapping)
        for_keys = {path[0] for key in self._keys if (path := path_to(schema, key))}
        tops: list[int] = []
        leaf_ids: dict[int, int] = {}
        text: dict[int, int] = {}
        at = 0
        for i, top in enumerate(schema):
            count, number = count_leaves(top), field_id(top)
            if number is not None and (number in self._wanted or i in for_keys):
                tops.append(i)
                leaf_ids |= dict.fromkeys(range(at, at + count), number)
                if number in self._text:
                    text[at] = number
            at += count
        if self.dictionaries is None and metadata.num_row_groups:
            self.dictionaries = frozenset(number for i, number in text.items() if repeats(metadata, i))
        dictionaries = frozenset(i for i, number in text.items() if number in (self.dictionaries or ()))
        return ReadLayout(schema, tops, list(leaf_ids), leaf_ids, dictionaries)


def repeats(metadata: pq.FileMetaData, leaf: int) -> bool:
    """Whether a text column's chunks are dictionaries that pay: few bytes per value."""
    chunks = [metadata.row_group(i).column(leaf) for i in range(metadata.num_row_groups)]
    values = sum(chunk.num_values for chunk in chunks)
    stored = sum(chunk.total_uncompressed_size for chunk in chunks)
    return bool(values) and all(has_dictionary(chunk) for chunk in chunks) and stored <= _DICTIONARY_BYTES_PER_VALUE * values


def has_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether the chunk's values are stored as a dictionary, in part at least."""
    return "RLE_DICTIONARY" in chunk.encodings or "PLAIN_DICTIONARY" in chunk.encodings


def identified(metadata: pq.FileMetaData, name_mapping: NameMapping | None) -> pa.Schema:
    """The file's schema with field ids, its own or the name mapping's."""
    schema = metadata.schema.to_arrow_schema()
    if has_ids(schema):
        return schema
    if name_mapping is None:
        raise RefusedError("it has no field ids and the table has no name mapping")
    return assign_ids(schema, name_mapping)


def path_to(schema: pa.Schema, number: int) -> tuple[int, ...]:
    """The way to a column that holds values, by places in structs; empty if there is none of this id."""
    return next((path for i, top in enumerate(schema) if (path := _below(top, i, number))), ())


def _below(field: pa.Field, place: int, number: int) -> tuple[int, ...]:
    if pa.types.is_struct(field.type):
        inside = (path for i, child in enumerate(children(field.type)) if (path := _below(child, i, number)))
        return next(((place, *path) for path in inside), ())
    return (place,) if field_id(field) == number else ()


def count_leaves(top: pa.Field) -> int:
    """Parquet columns below a field."""
    below = children(top.type)
    return sum(count_leaves(child) for child in below) if below else 1
