"""Which bytes of a file a copy needs, in the order in which they stand there.

Used by `copying`. The pieces never overlap, and lie between the file's magic bytes and its footer: `footer` has checked the
latter, this module the former.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from neve.kernels.faults import CorruptFileError
from neve.kernels.parquet.footer import Footer
from neve.kernels.parquet.row_groups import MAX_GAP_BYTES, RowGroup


class Content(IntEnum):
    """What a piece is."""

    ROWS = 0
    BLOOM_FILTER = 1
    COLUMN_INDEX = 2
    OFFSET_INDEX = 3
    LINEAGE = 4


class CopiedRange(NamedTuple):
    """Bytes that are copied, or moved and rewritten."""

    offset: int
    length: int
    content: Content
    group: int
    column: int


def pieces_of(footer: Footer) -> list[CopiedRange]:
    """The pieces of one file, ascending; bytes after a row group that nobody refers to are copied along if they are few.

    Along, because a reader that does not believe a chunk's size reads what follows it: that must be the same as before.
    """
    found = sorted(_described(footer))
    limits = chain((piece.offset for piece in found[1:]), [footer.data_end])
    pieces = []
    for piece, limit in zip(found, limits, strict=False):
        length = piece.length
        if length < 0:
            length = limit - piece.offset
        gap = limit - piece.offset - length
        if gap < 0 or length == 0:
            raise CorruptFileError(footer.path, f"parts of it overlap at byte {limit}")
        if piece.content is Content.ROWS and gap <= MAX_GAP_BYTES:
            length += gap
        pieces.append(piece._replace(length=length) if length != piece.length else piece)
    return pieces


def _described(footer: Footer) -> list[CopiedRange]:
    found = []
    for number, group in enumerate(footer.groups):
        found.append(CopiedRange(group.start, group.end - group.start, Content.ROWS, number, 0))
        if group.incomplete:
            start = group.incomplete[0].start
            found.append(CopiedRange(start, group.incomplete[-1].end - start, Content.LINEAGE, number, 0))
        found += _references(number, group)
    return found


def _references(number: int, group: RowGroup) -> list[CopiedRange]:
    found = []
    for column, chunk in enumerate(group.chunks):
        if chunk.column_index is not None:
            found.append(CopiedRange(*chunk.column_index, Content.COLUMN_INDEX, number, column))
        if chunk.offset_index is not None:
            found.append(CopiedRange(*chunk.offset_index, Content.OFFSET_INDEX, number, column))
        if chunk.bloom is not None:
            found.append(CopiedRange(*chunk.bloom, Content.BLOOM_FILTER, number, column))
    return found
