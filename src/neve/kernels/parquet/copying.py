"""The engine of the `copy` kernel: Parquet files concatenated by copying row groups byte for byte under a new footer.

Called with open sources and one sink, by a task or a process of its own. No page is decoded, save those of row lineage that
has gaps. What cannot be moved this way is refused with a reason; a file that contradicts itself raises CorruptFileError;
whatever goes wrong, the sink is aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat

from neve.kernels.faults import CopyRefusedError, CorruptFileError
from neve.kernels.parquet.agreement import Agreement
from neve.kernels.parquet.footer import Footer, footer_in, tail_length
from neve.kernels.parquet.layout import CopiedRange, pieces_of
from neve.kernels.parquet.output import Buffers, ColumnCounts, Copied, CopiedColumn, CopiedOutput
from neve.kernels.parquet.schema import PhysicalSchema
from neve.kernels.parquet.splicing import Lineage, without_incomplete
from neve.kernels.prefetch import Range, coalesced, opening_range, read_ahead
from neve.kernels.streams import Sink, Source
from neve.table.units import MIB

__all__ = [
    "SPLIT_MIN_BYTES",
    "ChunkCount",
    "ColumnCounts",
    "Copied",
    "CopiedColumn",
    "copy_row_groups",
    "count_chunks",
    "read_footers",
    "refusal",
]

SPLIT_MIN_BYTES = 32 * MIB
_NONE = "there are no files"

OpenFile = tuple[Footer, list[CopiedRange], Buffers]


@dataclass(frozen=True, slots=True)
class ChunkCount:
    """How finely the output would be cut, for the policy that decides whether a copy would still read well."""

    chunks: int
    data_bytes: int
    footer_bytes: int
    """About as long as the output's footer."""

    @property
    def average_bytes(self) -> float:
        """Per column chunk."""
        return self.data_bytes / self.chunks if self.chunks else 0.0


def count_chunks(footers: Iterable[Footer]) -> ChunkCount:
    """Adds up what the footers say; nothing is read."""
    chunks = data_bytes = length = 0
    for footer in footers:
        length += len(footer.raw)
        for group in footer.groups:
            chunks += len(group.chunks)
            data_bytes += group.end - group.start
    return ChunkCount(chunks, data_bytes, length)


def read_footers(sources: Sequence[Source]) -> list[Footer]:
    """The footers of all files, one request each, several at a time."""
    footers: list[Footer] = []
    known: PhysicalSchema | None = None
    lengths = [tail_length(source.size_bytes) for source in sources]
    wanted = (Range(source, source.size_bytes - length, length) for source, length in zip(sources, lengths, strict=True))
    with closing(read_ahead(wanted)) as tails:
        for source, tail in zip(sources, tails, strict=True):
            footers.append(footer_in(source, tail, known=known))
            known = footers[-1].schema
    return footers


def refusal(footers: Sequence[Footer], *, row_lineage: bool = False) -> str | None:
    """Why these files cannot be concatenated, in words, or None; `row_lineage` if every row's must be in the output."""
    agreement = Agreement(row_lineage=row_lineage)
    reasons = (agreement.objection_to(footer) for footer in footers)
    return next((reason for reason in reasons if reason is not None), None) if footers else _NONE


def copy_row_groups(
    sources: Sequence[Source],
    footers: Sequence[Footer] | None,
    sink: Sink,
    *,
    split_min_bytes: int = SPLIT_MIN_BYTES,
    lineage: Sequence[Lineage] | None = None,
) -> Copied:
    """Writes all row groups of the sources, in order, into the sink and completes it.

    With footers, each source is read with one request per 32 MiB. Without, a small file is read whole with one request, its
    footer included; the copy is then given up when a later file turns out not to fit.
    With `lineage`, one for each source, every row carries its own in the output (format v3): the file's first row id plus the
    row's position, and the file's sequence number, unless the file stores others.
    Raises CopyRefusedError, CorruptFileError, and what sources and sink raise; the sink has been aborted then.
    """
    try:
        if footers is not None and (reason := refusal(footers, row_lineage=lineage is not None)):
            raise CopyRefusedError(reason)
        with closing(_opened(sources, footers, row_lineage=lineage is not None)) as files:
            copied = _copied(files, CopiedOutput(sink, row_lineage=lineage is not None), split_min_bytes, lineage)
        sink.close()
    except BaseException:
        sink.abort()
        raise
    return copied


def _copied(files: Iterable[OpenFile], output: CopiedOutput, split_min_bytes: int, lineage: Sequence[Lineage] | None) -> Copied:
    for (footer, pieces, buffers), mine in zip(files, repeat(None) if lineage is None else lineage, strict=lineage is not None):
        if (reason := output.agreement.objection_to(footer)) is not None:
            raise CopyRefusedError(reason)
        output.add(footer, pieces, buffers, mine)
    if output.agreement.is_empty:
        raise CopyRefusedError(_NONE)
    return output.finish(split_min_bytes)


def _opened(sources: Sequence[Source], footers: Sequence[Footer] | None, *, row_lineage: bool) -> Generator[OpenFile]:
    prepared = without_incomplete if row_lineage else _as_it_is
    return _opened_blindly(sources, prepared) if footers is None else _opened_knowingly(sources, footers, prepared)


def _as_it_is(footer: Footer) -> Footer:
    return footer


def _opened_knowingly(
    sources: Sequence[Source], footers: Sequence[Footer], prepared: Callable[[Footer], Footer]
) -> Generator[OpenFile]:
    for source, footer in zip(sources, footers, strict=True):
        if source.size_bytes != footer.size_bytes:
            changed = f"it had {footer.size_bytes} bytes when its footer was read and has {source.size_bytes} now"
            raise CorruptFileError(source.path, changed)
    footers = [prepared(footer) for footer in footers]
    layouts = [pieces_of(footer) for footer in footers]
    wanted = [_ranges(source, pieces, source.size_bytes) for source, pieces in zip(sources, layouts, strict=True)]
    with closing(read_ahead(chain.from_iterable(wanted))) as arriving:
        for footer, pieces, ranges in zip(footers, layouts, wanted, strict=True):
            yield footer, pieces, ((part.offset, memoryview(next(arriving))) for part in ranges)


def _opened_blindly(sources: Sequence[Source], prepared: Callable[[Footer], Footer]) -> Generator[OpenFile]:
    openings = [opening_range(source) for source in sources]
    known: PhysicalSchema | None = None
    with closing(read_ahead(openings)) as arriving:
        for opening, data in zip(openings, arriving, strict=True):
            footer = prepared(footer_in(opening.source, data, known=known))
            known = footer.schema
            pieces = pieces_of(footer)
            with closing(_arriving(_ranges(opening.source, pieces, opening.offset))) as before:
                yield footer, pieces, chain(before, [(opening.offset, memoryview(data))])


def _ranges(source: Source, pieces: list[CopiedRange], until: int) -> list[Range]:
    return coalesced(source, ((piece.offset, piece.length) for piece in pieces), until=until)


def _arriving(ranges: list[Range]) -> Generator[tuple[int, memoryview]]:
    if not ranges:
        return
    with closing(read_ahead(ranges)) as arriving:
        for wanted, data in zip(ranges, arriving, strict=True):
            yield wanted.offset, memoryview(data)
