"""One copied file in the making: row groups as they arrive, then page indexes, then the footer; and the account of it.

Used by `copying` alone. Only what is small is kept in memory: footers and page indexes. Row groups and bloom filters pass
through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neve.kernels.faults import CopyRefusedError, CorruptFileError, Objection
from neve.kernels.opening import framed, open_footer
from neve.kernels.parquet import indexes
from neve.kernels.parquet.agreement import Agreement
from neve.kernels.parquet.chunks import Region
from neve.kernels.parquet.footer import MAGIC, Footer
from neve.kernels.parquet.footer_writing import MovedGroup, footer_bytes
from neve.kernels.parquet.layout import Content, CopiedRange, pieces_of
from neve.kernels.parquet.pages import PageWalk
from neve.kernels.parquet.schema import PhysicalSchema
from neve.kernels.parquet.splicing import Lineage, Splice, by_group, completed, made
from neve.kernels.streams import Sink

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Buffers = Iterator[tuple[int, memoryview]]
"""Where some bytes of a file start, and the bytes; ascending."""


@dataclass(frozen=True, slots=True)
class ColumnCounts:
    """What the metadata of chunks says of a column; nulls only where every chunk has counted them."""

    values: int
    nulls: int | None


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """One leaf column of the output."""

    name: str
    field_id: int | None
    size_bytes: int
    counts: ColumnCounts
    """In the footers of the inputs, as our parser reads them."""
    written: ColumnCounts
    """In the footer of the output, as pyarrow reads it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was written, for the manifest and for the proof."""

    rows: int
    """In the footers of the inputs."""
    rows_written: int
    """In the footer of the output, as pyarrow reads it."""
    bytes: int
    row_groups: int
    split_offsets: tuple[int, ...]
    columns: tuple[CopiedColumn, ...]
    footer_bytes: int

    @property
    def column_bytes(self) -> dict[int, int]:
        """Compressed bytes by field id, for columns that have one."""
        return {column.field_id: column.size_bytes for column in self.columns if column.field_id is not None}

    @property
    def counts(self) -> dict[int, ColumnCounts]:
        """Values and nulls by field id, for columns that have one."""
        return {column.field_id: column.counts for column in self.columns if column.field_id is not None}

    @property
    def written(self) -> dict[int, ColumnCounts]:
        """The same in the output."""
        return {column.field_id: column.written for column in self.columns if column.field_id is not None}


class CopiedOutput:
    """Writes one file. Every failure leaves it to the caller to abort the sink."""

    def __init__(self, sink: Sink, *, row_lineage: bool = False) -> None:
        self.agreement = Agreement(row_lineage=row_lineage)
        self._sink = sink
        self._at = 0
        self._groups: list[MovedGroup] = []
        self._indexes: list[tuple[CopiedRange, MovedGroup, bytes]] = []
        self._write(MAGIC)

    def add(self, footer: Footer, pieces: list[CopiedRange], buffers: Buffers, lineage: Lineage | None = None) -> None:
        """Copies the row groups of one file, whose footer has joined the agreement; `lineage` is for those that lack it."""
        self._groups += self._copied(footer, pieces, buffers, by_group(footer, lineage) if lineage else [])

    def _copied(
        self, footer: Footer, pieces: list[CopiedRange], buffers: Buffers, lineages: Sequence[Lineage]
    ) -> list[MovedGroup]:
        groups = [MovedGroup(footer, group) for group in footer.groups]
        cursor = _Cursor(buffers)
        for piece in pieces:
            moved = groups[piece.group]
            if piece.content is Content.ROWS:
                moved.start = self._at
                self._copy_rows(moved, cursor, piece)
                if lineages and not moved.group.incomplete and len(moved.chunks) < len(self.agreement.schema.leaves):
                    self._splice(moved, made(moved.group.rows, lineages[piece.group]))
            elif piece.content is Content.LINEAGE:
                data = b"".join(cursor.views(piece))
                self._splice(moved, completed(footer, moved.group, data, lineages[piece.group]))
            elif piece.content is Content.BLOOM_FILTER:
                data = _checked(piece, moved, b"".join(cursor.views(piece)))
                moved.blooms[piece.column] = self._at
                self._write(data)
            else:
                self._indexes.append((piece, moved, b"".join(cursor.views(piece))))
        return groups

    def _copy_rows(self, moved: MovedGroup, cursor: _Cursor, piece: CopiedRange) -> None:
        """Page headers are compared with the footer while they are in memory anyway."""
        walk, at = PageWalk(moved.group, moved.footer.schema.leaves), piece.offset
        try:
            for view in cursor.views(piece):
                walk.feed(at, view)
                self._write(view)
                at += len(view)
            walk.finish()
        except Objection as objection:
            raise CopyRefusedError(f"{moved.footer.path}: {objection}") from objection

    def _splice(self, moved: MovedGroup, splice: Splice) -> None:
        (moved.splice,) = self._copied(splice.footer, pieces_of(splice.footer), iter([(0, memoryview(splice.data))]), [])

    def finish(self, split_min_bytes: int) -> Copied:
        """Writes what comes after the row groups; the sink is still to be closed."""
        # Near the footer and all of a kind together: some readers fetch whatever lies between the first and the last.
        self._write_indexes(Content.COLUMN_INDEX)
        self._write_indexes(Content.OFFSET_INDEX)
        end = footer_bytes(self.agreement, self._groups)
        opened = self._check_opens(end)
        self._write(end)
        rows = sum(moved.group.rows for moved in self._groups)
        copied = Copied(
            rows=rows,
            rows_written=rows,
            bytes=self._at,
            row_groups=len(self._groups),
            split_offsets=_split_offsets(self._groups, split_min_bytes),
            columns=_columns(self.agreement.schema, self._groups),
            footer_bytes=len(end),
        )
        return as_read_back(copied, opened)

    def _check_opens(self, end: bytes) -> pq.FileMetaData:
        """What pyarrow reads in the new footer. It holds the metadata of every input: where pyarrow does not open it, some
        input does not open either."""
        try:
            opened = open_footer("the copy", end)
        except CorruptFileError:
            for footer in {id(moved.footer): moved.footer for moved in self._groups}.values():
                open_footer(footer.path, framed(footer.raw))
            raise
        if opened is None:
            raise CopyRefusedError(f"{self.agreement.first.path}: pyarrow has no type for one of its columns")
        return opened

    def _write_indexes(self, content: Content) -> None:
        written = bytearray()
        for piece, moved, data in self._indexes:
            if piece.content is content:
                moved_data = _checked(piece, moved, data)
                places = moved.column_indexes if content is Content.COLUMN_INDEX else moved.offset_indexes
                places[piece.column] = Region(self._at + len(written), len(moved_data))
                written += moved_data
        if written:
            self._write(bytes(written))

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self._at += len(data)


class _Cursor:
    """Cuts pieces out of buffers that arrive one after the other."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._start = 0
        self._view = memoryview(b"")

    def views(self, piece: CopiedRange) -> Iterator[memoryview]:
        """The piece's bytes, in as many parts as the buffers make of them."""
        at, end = piece.offset, piece.offset + piece.length
        while at < end:
            while at >= self._start + len(self._view):
                self._start, self._view = next(self._buffers)
            part = self._view[at - self._start : end - self._start]
            yield part
            at += len(part)


def _checked(piece: CopiedRange, moved: MovedGroup, data: bytes) -> bytes:
    """The bytes as they are to be written at their new place."""
    try:
        return _REWRITES[piece.content](data, moved, piece.column)
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        what = piece.content.name.lower().replace("_", " ")
        raise CorruptFileError(moved.footer.path, f"the {what} at byte {piece.offset} makes no sense, {error}") from error


_REWRITES: dict[Content, Callable[[bytes, MovedGroup, int], bytes]] = {
    Content.BLOOM_FILTER: lambda data, moved, column: indexes.bloom_filter(data, moved.group.chunks[column]),
    Content.COLUMN_INDEX: lambda data, _moved, _column: indexes.column_index(data),
    Content.OFFSET_INDEX: lambda data, moved, column: indexes.offset_index(data, moved.group.chunks[column], moved.shift),
}


def _split_offsets(groups: list[MovedGroup], split_min_bytes: int) -> tuple[int, ...]:
    offsets: list[int] = []
    for moved in groups:
        if not offsets or moved.start - offsets[-1] >= split_min_bytes:
            offsets.append(moved.start)
    return tuple(offsets)


def as_read_back(copied: Copied, opened: pq.FileMetaData) -> Copied:
    """The account with what is in the output taken from its own footer, so that the proof compares two countings."""
    groups = [opened.row_group(i) for i in range(opened.num_row_groups)]
    columns = tuple(replace(column, written=_written(groups, i)) for i, column in enumerate(copied.columns))
    return replace(copied, rows_written=opened.num_rows, columns=columns)


def _columns(schema: PhysicalSchema, groups: list[MovedGroup]) -> tuple[CopiedColumn, ...]:
    found = []
    for column, leaf in enumerate(schema.leaves):
        chunks = [moved.chunks[column] for moved in groups]
        is_counted = all(0 <= chunk.nulls <= chunk.values for chunk in chunks)
        counts = ColumnCounts(
            values=sum(chunk.values for chunk in chunks),
            nulls=sum(chunk.nulls for chunk in chunks) if is_counted else None,
        )
        size_bytes = sum(chunk.size_bytes for chunk in chunks)
        found.append(CopiedColumn(leaf.name, leaf.field_id, size_bytes, counts, counts))
    return tuple(found)


def _written(groups: Sequence[pq.RowGroupMetaData], column: int) -> ColumnCounts:
    chunks = [group.column(column) for group in groups]
    statistics = [chunk.statistics for chunk in chunks]
    is_counted = all(each is not None and each.has_null_count for each in statistics)
    nulls = sum(each.null_count for each in statistics) if is_counted else None
    return ColumnCounts(sum(chunk.num_values for chunk in chunks), nulls)
