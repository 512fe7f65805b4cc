"""Writes the footer of a copied file: the inputs' own bytes, with new numbers where an offset stood.

Used by `copying`. Nothing is decoded and encoded again: what is not an offset cannot change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from neve.kernels.parquet import thrift
from neve.kernels.parquet.agreement import Agreement
from neve.kernels.parquet.chunks import Chunk, Region
from neve.kernels.parquet.footer import MAGIC, Footer
from neve.kernels.parquet.row_groups import RowGroup

_MAX_FOOTER_BYTES = 2**31 - 1
# ColumnMetaData
_UNCOMPRESSED = 6


@dataclass(slots=True)
class MovedGroup:
    """A row group, the footer it is described in, and where its bytes went; filled while they are being copied."""

    footer: Footer
    group: RowGroup
    start: int = -1
    """Where it starts in the output."""
    blooms: dict[int, int] = field(default_factory=dict)
    """By column, where the bloom filter is now; its length has not changed."""
    column_indexes: dict[int, Region] = field(default_factory=dict)
    offset_indexes: dict[int, Region] = field(default_factory=dict)
    splice: MovedGroup | None = None
    """The row group of another file whose columns were put behind this one's."""

    @property
    def shift(self) -> int:
        """By how much its pages have moved."""
        return self.start - self.group.start

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All columns, spliced ones last."""
        return self.group.chunks + (self.splice.chunks if self.splice else ())


def footer_bytes(agreement: Agreement, groups: list[MovedGroup]) -> bytes:
    """The end of the file: footer, its length, the magic bytes."""
    rows = sum(moved.group.rows for moved in groups)
    raw = b"".join(_file_parts(agreement, groups, rows))
    if len(raw) > _MAX_FOOTER_BYTES:
        raise ValueError(f"a footer of {len(raw)} bytes is too long")
    return raw + len(raw).to_bytes(4, "little") + MAGIC


def _file_parts(agreement: Agreement, groups: list[MovedGroup], rows: int) -> Iterable[bytes]:
    yield b"\x15" + thrift.integer(agreement.version)
    yield b"\x19" + agreement.schema.raw
    yield b"\x16" + thrift.integer(rows)
    yield b"\x19" + thrift.list_head(len(groups), thrift.STRUCT)
    for ordinal, moved in enumerate(groups):
        yield group_bytes(moved, ordinal)
    last = 4
    for number, kind, value in (
        (5, thrift.LIST, agreement.key_values()),
        (6, thrift.BINARY, thrift.binary(agreement.created_by.encode())),
        (7, thrift.LIST, agreement.column_orders),
    ):
        if value is not None:
            yield thrift.field_head(number, kind, last) + value
            last = number
    yield b"\0"


def group_bytes(moved: MovedGroup, ordinal: int) -> bytes:
    """The row group's entry: its columns, what the input said of the whole, and its new place."""
    group, chunks = moved.group, moved.chunks
    parts = [b"\x19", thrift.list_head(len(chunks), thrift.STRUCT)]
    for part in (moved, moved.splice) if moved.splice else (moved,):
        for column, chunk in enumerate(part.group.chunks):
            _add_chunk(parts, chunk, part, column)
    parts += (
        _tail(moved),
        thrift.field_head(5, thrift.I64, group.last_field),
        thrift.integer(moved.start),
        b"\x16",
        thrift.integer(sum(chunk.size_bytes for chunk in chunks)),
        b"\x14",
        thrift.integer(ordinal),
        b"\0",
    )
    return b"".join(parts)


def _tail(moved: MovedGroup) -> bytes:
    """Total size, row count and sort order; the size is that of the pages before compression."""
    raw, group = moved.footer.raw, moved.group
    if moved.splice is None:
        return raw[group.tail]
    cut = sum(thrift.scan(raw, chunk.meta_start)[0].get(_UNCOMPRESSED, 0) for chunk in group.incomplete)
    start, end, total = group.total
    grown = max(total - cut, 0) + moved.splice.group.total.offset
    return raw[group.tail.start : start] + thrift.integer(grown) + raw[end : group.tail.stop]


def _add_chunk(parts: list[bytes], chunk: Chunk, moved: MovedGroup, column: int) -> None:
    # A chunk's own file offset is deprecated; 0 says that there is no copy of its metadata elsewhere.
    parts.append(b"\x26\0\x1c")
    raw, shift = moved.footer.raw, moved.shift
    copied = chunk.meta_start
    for start, end, offset in chunk.moves:
        parts += (raw[copied:start], thrift.integer(offset + shift))
        copied = end
    if chunk.bloom_move is not None:
        parts += (raw[copied : chunk.bloom_move.start], thrift.integer(moved.blooms[column]))
        copied = chunk.bloom_move.end
    parts.append(raw[copied : chunk.meta_end])
    last = 3
    if offset_index := moved.offset_indexes.get(column):
        parts += (b"\x16", thrift.integer(offset_index.offset), b"\x15", thrift.integer(offset_index.size_bytes))
        last = 5
    if column_index := moved.column_indexes.get(column):
        parts += (
            thrift.field_head(6, thrift.I64, last),
            thrift.integer(column_index.offset),
            b"\x15",
            thrift.integer(column_index.size_bytes),
        )
    parts.append(b"\0")
