"""Walks the page headers of row groups while their bytes pass by, and compares them with what the footer says.

Used by `output`. Nothing is read for it and no page is decoded. A footer may be well-formed and still wrong about its pages:
with another codec, offset, size or number of values, readers fail or misread. Such a file raises Objection: another kernel
decodes it and finds out whether its rows can be read.
"""

from __future__ import annotations

import re
from typing import NamedTuple, cast

from neve.kernels.faults import Objection
from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.chunks import Chunk, skip_statistics
from neve.kernels.parquet.format import ENCODINGS, PAGE_HEADER
from neve.kernels.parquet.row_groups import RowGroup
from neve.kernels.parquet.schema import ParquetLeaf

_DATA, _INDEX, _DICTIONARY, _DATA_V2 = range(4)
# PageHeader: type, sizes, and the header of each type
_TYPE, _PLAIN_BYTES, _STORED_BYTES, _HEADERS = 1, 2, 3, {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
_VALUES, _LEVEL_BYTES, _IS_COMPRESSED = 1, (5, 6), 7
_MAX_HEADER_BYTES = 16 * 1024 * 1024
_UNCOMPRESSED, _SNAPPY, _GZIP, _BROTLI, _ZSTD, _LZ4_RAW = 0, 1, 2, 4, 6, 7
_MAGIC = {_GZIP: b"\x1f\x8b", _ZSTD: b"\x28\xb5\x2f\xfd"}
_PEEK_BYTES = 10
_RECOGNIZED = frozenset({_UNCOMPRESSED, _SNAPPY, *_MAGIC})
_UNMARKED = {_BROTLI: "brotli", _LZ4_RAW: "lz4_raw"}
"""Codecs whose pages begin like anything: the first page of a chunk is unpacked to see that it can be."""

_PARTS = {b"int": thrift.NATURAL_32, b"any": thrift.VARINT, b"encoding": thrift.enum_pattern(ENCODINGS)}
# Type, (sizes), checksum, and the header of its type, without statistics and its end; anything else takes the long way.
_DATA_HEADER = re.compile(
    rb"\x15\x00\x15(%(int)s)\x15(%(int)s)(?:\x2c|\x15%(any)s\x1c)\x15(%(int)s)(?:\x15%(encoding)s){3}" % _PARTS,
    re.DOTALL,
)
_DICTIONARY_HEADER = re.compile(
    rb"\x15\x04\x15(%(int)s)\x15(%(int)s)(?:\x4c|\x15%(any)s\x3c)\x15(%(int)s)\x15%(encoding)s[\x11\x12]?" % _PARTS,
    re.DOTALL,
)
_STATISTICS, _ENDS = b"\x1c", b"\0\0"
_int, varint = thrift.decode_int, thrift.varint


class Page(NamedTuple):
    """What a page's header says, and how long the header is."""

    type: int
    plain_bytes: int
    stored_bytes: int
    values: int
    levels_bytes: int
    """Bytes before the values that are never compressed."""
    is_compressed: bool
    header_bytes: int


class PageWalk:
    """Walks the pages of one row group; fed with its bytes in ascending order."""

    def __init__(self, group: RowGroup, leaves: tuple[ParquetLeaf, ...]) -> None:
        self._columns = iter(zip(group.chunks, leaves, strict=False))
        self._chunk, self._leaf = next(self._columns)
        self._at = self._chunk.start
        self._values = 0
        self._is_first = True
        self._has_data = False
        self._carried = b""
        self._is_done = False

    def feed(self, offset: int, view: memoryview) -> None:
        """Takes the bytes that start at this offset of the file; what is cut off at their end is kept for the next."""
        if self._carried:
            offset, view = offset - len(self._carried), memoryview(self._carried + bytes(view))
            self._carried = b""
        end = offset + len(view)
        while not self._is_done and self._at < end:
            if self._is_first and self._chunk.end <= end and is_common(view, offset, self._chunk, self._leaf):
                self._next()
                continue
            page, first = self._read(view, self._at - offset)
            if page is None or len(first) < self._wanted(page):
                if end >= self._chunk.end:
                    raise self._objection(f"the page at byte {self._at} is cut off")
                self._carry(view[self._at - offset :])
                return
            self._step(page, first)

    def _read(self, view: memoryview, at: int) -> tuple[Page | None, bytes]:
        """A page's header and the first bytes of its values; None where the header is cut off."""
        try:
            page = read_page(view, at)
        except IndexError:
            return None, b""
        except ValueError as error:
            raise self._objection(f"a page header at byte {self._at} makes no sense, {error}") from error
        start = at + page.header_bytes + page.levels_bytes
        return page, bytes(view[start : start + self._wanted(page)])

    def _wanted(self, page: Page) -> int:
        """How much of a page's values is needed to recognize its codec."""
        stored = max(page.stored_bytes - page.levels_bytes, 0)
        return stored if self._is_first and self._chunk.codec in _UNMARKED else min(stored, _PEEK_BYTES)

    def finish(self) -> None:
        """Raises unless every page has been seen."""
        if not self._is_done:
            raise self._objection("its pages end early")

    def _carry(self, rest: memoryview) -> None:
        if len(rest) > _MAX_HEADER_BYTES:
            raise self._objection(f"a page header at byte {self._at} is longer than {_MAX_HEADER_BYTES} bytes")
        self._carried = bytes(rest)

    def _step(self, page: Page, first: bytes) -> None:
        chunk = self._chunk
        if page.type == _DICTIONARY:
            if not self._is_first:
                raise self._objection("its dictionary is not its first page")
        elif page.type in (_DATA, _DATA_V2):
            if not self._has_data and chunk.data_page not in (self._at, chunk.start):
                raise self._objection(f"its first data page is at byte {self._at}, not at {chunk.data_page}")
            self._has_data = True
            self._values += page.values
        self._check_codec(page, first)
        self._is_first = False
        self._at += page.header_bytes + page.stored_bytes
        if self._at > chunk.end:
            raise self._objection(f"a page ends at byte {self._at}, the chunk at {chunk.end}")
        if self._at == chunk.end:
            if self._values != chunk.values:
                raise self._objection(f"its pages have {self._values} values, its chunk {chunk.values}")
            self._next()

    def _check_codec(self, page: Page, first: bytes) -> None:
        stored, plain = page.stored_bytes - page.levels_bytes, page.plain_bytes - page.levels_bytes
        if min(stored, plain) < 0:
            raise self._objection(f"a page at byte {self._at} has levels that are longer than itself")
        if not stored or not page.is_compressed:
            return
        codec = self._chunk.codec
        if codec == _UNCOMPRESSED:
            fits = stored == plain
        elif codec == _SNAPPY:
            fits = _starts_with_length(first, plain)
        elif codec in _UNMARKED:
            fits = not self._is_first or _unpacks(first, _UNMARKED[codec], plain)
        elif codec in _MAGIC:
            fits = first.startswith(_MAGIC[codec])
        else:
            raise self._objection(f"codec {codec} cannot be recognized in its pages")
        if not fits:
            raise self._objection(f"a page at byte {self._at} is not compressed with codec {codec}")

    def _next(self) -> None:
        column = next(self._columns, None)
        if column is None:
            self._is_done = True
            return
        self._chunk, self._leaf = column
        self._at, self._values, self._is_first, self._has_data = self._chunk.start, 0, True, False

    def _objection(self, reason: str) -> Objection:
        return Objection(f"the pages of column {self._leaf.name} are not as its footer says: {reason}")


def is_common(view: memoryview, offset: int, chunk: Chunk, leaf: ParquetLeaf) -> bool:
    """Whether a chunk that is in these bytes consists of a dictionary, if any, and pages of version 1, all as its footer says.

    The hot path of a copy: whatever differs is walked again page by page, which says why.
    """
    at, end, data = chunk.start - offset, chunk.end - offset, chunk.data_page - offset
    if chunk.codec not in _RECOGNIZED:
        return False
    values, pattern = 0, _DATA_HEADER if at == data else _DICTIONARY_HEADER
    while at < end:
        header = pattern.match(view, at)
        if header is None:
            return False
        plain, stored, count = header.groups()
        at = _header_end(view, header.end(), leaf)
        if not at or not _is_packed(view, at, chunk.codec, plain, stored):
            return False
        at += _int(stored)
        if pattern is _DATA_HEADER:
            values += _int(count)
        elif at != data:
            return False
        pattern = _DATA_HEADER
    return at == end and values == chunk.values


def _header_end(view: memoryview, at: int, leaf: ParquetLeaf) -> int:
    """Where a page starts whose header goes on here with statistics or nothing; 0 if it goes on otherwise."""
    if view[at : at + 1] == _STATISTICS:
        try:
            at = skip_statistics(cast("bytes", view), at + 1, leaf)[1]
        except (ValueError, IndexError, Objection):
            return 0
    return at + 2 if view[at : at + 2] == _ENDS else 0


def _is_packed(view: memoryview, at: int, codec: int, plain: bytes, stored: bytes) -> bool:
    """Whether a page looks like its codec's; sizes as the header encodes them."""
    if codec == _UNCOMPRESSED:
        return plain == stored
    magic = varint(_int(plain)) if codec == _SNAPPY else _MAGIC[codec]
    return stored == b"\0" or view[at : at + len(magic)] == magic


def read_page(view: memoryview, at: int) -> Page:
    """The page header that starts here; raises IndexError where it is cut off, ValueError where it is none."""
    length = 1024
    while True:
        data = bytes(view[at : at + length])
        try:
            header, end = strict.decode(data, 0, PAGE_HEADER)
            break
        except IndexError:
            if len(data) < length or length >= _MAX_HEADER_BYTES:
                raise
            length *= 16
    type_ = header[_TYPE]
    of_type = header.get(_HEADERS.get(type_, 0), {})
    if type_ in _HEADERS and not of_type:
        raise ValueError(f"a page of type {type_} has another type's header")
    levels = sum(of_type[field] for field in _LEVEL_BYTES) if type_ == _DATA_V2 else 0
    numbers = (header[_PLAIN_BYTES], header[_STORED_BYTES], of_type.get(_VALUES, 0), levels)
    if min(numbers) < 0:
        raise ValueError(f"a number is {min(numbers)}")
    is_compressed = of_type.get(_IS_COMPRESSED, True) if type_ == _DATA_V2 else True
    return Page(type_, *numbers, is_compressed, end)


def _unpacks(data: bytes, codec: str, length: int) -> bool:
    import pyarrow as pa

    try:
        return len(pa.Codec(codec).decompress(data, length)) == length
    except (pa.ArrowException, OSError, ValueError):
        return False


def _starts_with_length(first: bytes, length: int) -> bool:
    """Whether a Snappy block says that it unpacks to so many bytes."""
    try:
        return thrift.read_varint(first, 0)[0] == length
    except (IndexError, ValueError):
        return False
