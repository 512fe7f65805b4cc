"""Column chunks as a footer describes them: where their bytes are, and which numbers move when the bytes do.

Used by `row_groups`. Most of the time that a copy spends on footers goes here, so the layout that all common writers share is
recognised by three patterns; anything else is read field by field, with the same result.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from neve.kernels.faults import Objection
from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.format import CODECS, COLUMN_CHUNK, ENCODINGS, PAGE_TYPES, STATISTICS
from neve.kernels.parquet.schema import BYTE_ARRAY, ParquetLeaf

# ColumnChunk
_FILE_PATH, _FILE_OFFSET, _META, _OFFSET_INDEX, _COLUMN_INDEX, _CRYPTO = 1, 2, 3, 4, 6, (8, 9)
_LAST_KNOWN_CHUNK = 9
# ColumnMetaData
_TYPE, _PATH, _VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 1, 3, 5, 6, 7, 9, 10, 11
_PAGES = (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE)
_CODEC, _STATISTICS, _BLOOM, _BLOOM_BYTES, _SIZES, _LAST_KNOWN_META = 4, 12, 14, 15, 16, 17
# Statistics
_NULLS = 3
_STATISTICS_KINDS = {number: field.kind for number, field in STATISTICS.fields.items()}
# SizeStatistics
_UNENCODED, _REPETITIONS, _DEFINITIONS = 1, 2, 3


class Region(NamedTuple):
    """Bytes elsewhere in the file that a chunk refers to; -1 bytes when the footer does not say how many."""

    offset: int
    size_bytes: int


class Move(NamedTuple):
    """A number that changes, an offset nearly always, and where it stands in the raw footer."""

    start: int
    end: int
    offset: int


class Chunk(NamedTuple):
    """One column of one row group."""

    start: int
    size_bytes: int
    values: int
    nulls: int
    """-1 when its statistics do not tell."""
    meta_start: int
    meta_end: int
    moves: tuple[Move, ...]
    """Its page offsets, which shift with its bytes."""
    bloom: Region | None
    bloom_move: Move | None
    column_index: Region | None
    offset_index: Region | None
    codec: int

    @property
    def data_page(self) -> int:
        """Where its first data page is."""
        return self.moves[0].offset

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.start + self.size_bytes


def parse_chunk(raw: bytes, at: int, leaf: ParquetLeaf) -> tuple[Chunk, int]:
    """The column chunk that starts here, and where its description ends; whatever contradicts the format raises ValueError."""
    return parse_quickly(raw, at, leaf) or parse_carefully(raw, at, leaf)


# The head of each field below is its distance from the one before and its kind, as in thrift.field_head.
_ENCODING = thrift.enum_pattern(ENCODINGS)
_OPENING = re.compile(
    # file offset, metadata: type, encodings
    rb"\x26%(int)s\x1c\x15(.)\x19%(encodings)s"
    % {b"int": thrift.VARINT, b"encodings": thrift.list_pattern(thrift.I32, _ENCODING)},
    re.DOTALL,
)
_NUMBERS = re.compile(
    # (codec), (values), uncompressed size, (compressed size), (data page), (dictionary page)
    rb"\x15(%(codec)s)\x16(%(long)s)\x16%(long)s\x16(%(long)s)\x26(%(long)s)(?:\x26(%(long)s))?"
    % {b"long": thrift.NATURAL, b"codec": thrift.enum_pattern(CODECS)},
    re.DOTALL,
)
_ENCODING_COUNT = rb"\x15%s\x15%s\x15%s\x00" % (thrift.enum_pattern(PAGE_TYPES), _ENCODING, thrift.NATURAL_32)
_CLOSING = re.compile(
    # encoding statistics, size statistics, (end of the metadata), (offset index), its length, (column index), its length
    rb"(?:\x19%(counts)s)?"
    # Size statistics: unencoded bytes, repetition levels, definition levels; any of them may be missing.
    rb"(?:\x3c(?:(\x16%(long)s)(?:\x19(%(longs)s)(?:\x19(%(longs)s))?|\x29(%(longs)s))?"
    rb"|\x29(%(longs)s)(?:\x19(%(longs)s))?|\x39(%(longs)s))?\x00)?\x00()"
    rb"(?:\x16(%(long)s)\x15(%(int)s)\x16(%(long)s)\x15(%(int)s))?\x00"
    % {
        b"long": thrift.NATURAL,
        b"int": thrift.NATURAL_32,
        b"longs": thrift.list_pattern(thrift.I64, thrift.NATURAL),
        b"counts": thrift.list_pattern(thrift.STRUCT, _ENCODING_COUNT),
    },
    re.DOTALL,
)
_END, _FIRST_REFERENCE = 8, 9
_int = thrift.decode_int
# By whether a dictionary page stands between the data page and the statistics.
_STATISTICS_HEAD = {True: 0x1C, False: 0x3C}


def parse_quickly(raw: bytes, at: int, leaf: ParquetLeaf) -> tuple[Chunk, int] | None:
    """A chunk of the common layout, or None."""
    opening = _OPENING.match(raw, at)
    if opening is None or opening[1] != leaf.type_byte or not raw.startswith(leaf.path_field, opening.end()):
        return None
    numbers = _NUMBERS.match(raw, opening.end() + len(leaf.path_field))
    if numbers is None or raw[numbers.end()] != _STATISTICS_HEAD[numbers[5] is not None]:
        return None
    nulls, at = skip_statistics(raw, numbers.end() + 1, leaf)
    closing = _CLOSING.match(raw, at)
    if closing is None or not _sizes_fit(closing, leaf):
        return None
    codec, values, size, data, dictionary = [_int(part) if part else 0 for part in numbers.groups()]
    offset_index, column_index = None, None
    if closing[_FIRST_REFERENCE] is not None:
        parts = closing.groups()[_FIRST_REFERENCE - 1 :]
        offset_index = Region(_int(parts[0]), _int(parts[1]))
        column_index = Region(_int(parts[2]), _int(parts[3]))
    data_move = Move(*numbers.span(4), data)
    moves = (data_move, Move(*numbers.span(5), dictionary)) if dictionary else (data_move,)
    start = dictionary if 0 < dictionary < data else data
    meta_start, meta_end = opening.start(1) - 1, closing.end(_END)
    chunk = Chunk(start, size, values, nulls, meta_start, meta_end, moves, None, None, column_index, offset_index, codec)
    return chunk, closing.end()


def _sizes_fit(closing: re.Match[bytes], leaf: ParquetLeaf) -> bool:
    """Whether levels are counted for as many levels as the column has; the long way says what is wrong."""
    unencoded, *levels = closing.groups()[: _END - 1]
    repetitions, definitions = levels[0] or levels[3], levels[1] or levels[2] or levels[4] or levels[5]
    return (
        (unencoded is None or leaf.type == BYTE_ARRAY)
        and (repetitions is None or repetitions[0] >> 4 in (0, leaf.repetition_levels))
        and (definitions is None or definitions[0] >> 4 in (0, leaf.definition_levels))
    )


def parse_carefully(raw: bytes, at: int, leaf: ParquetLeaf) -> tuple[Chunk, int]:
    """Any chunk, field by field."""
    unknown: list[str] = []
    decoded, checked_end = strict.decode(raw, at, COLUMN_CHUNK, unknown)
    start = _meta_start(raw, at, leaf)
    numbers, places, meta_end = thrift.scan(raw, start)
    _check_label(raw, numbers, places, leaf)
    check_values(decoded[_META], leaf)
    if unknown:
        raise Objection(f"{unknown[0]}, which this version does not know")
    references, reference_places, end = thrift.scan(raw, meta_end, _META)
    if reference_places:
        _refuse_encrypted(reference_places, leaf)
    data, dictionary, bloom = numbers[_DATA_PAGE], numbers.get(_DICTIONARY_PAGE, 0), numbers.get(_BLOOM, 0)
    chunk = Chunk(
        start=dictionary if 0 < dictionary < data else data,
        size_bytes=numbers[_COMPRESSED],
        values=numbers[_VALUES],
        nulls=skip_statistics(raw, places[_STATISTICS][0], leaf)[0] if _STATISTICS in places else -1,
        meta_start=start,
        meta_end=meta_end,
        # An offset of 0 stands for none.
        moves=tuple([Move(*places[field], numbers[field]) for field in _PAGES if numbers.get(field)]),
        bloom=Region(bloom, numbers.get(_BLOOM_BYTES, -1)) if bloom else None,
        bloom_move=Move(*places[_BLOOM], bloom) if bloom else None,
        column_index=_region(references, _COLUMN_INDEX),
        offset_index=_region(references, _OFFSET_INDEX),
        codec=numbers[_CODEC],
    )
    if end != checked_end:
        raise ValueError(f"the chunk of column {leaf.name} ends at two places")
    return chunk, end


def check_values(meta: strict.Decoded, leaf: ParquetLeaf) -> None:
    """Raises ValueError where numbers of a chunk's metadata cannot be, or where pyarrow would end the process over them."""
    for field in (_VALUES, _UNCOMPRESSED, _COMPRESSED, *_PAGES, _BLOOM, _BLOOM_BYTES):
        if meta.get(field, 0) < 0:
            raise ValueError(f"field {field} of the metadata of column {leaf.name} is {meta[field]}")
    sizes = meta.get(_SIZES, {})
    if _UNENCODED in sizes and leaf.type != BYTE_ARRAY:
        raise ValueError(f"column {leaf.name} has unencoded sizes, and only byte arrays have these")
    for field, levels in ((_REPETITIONS, leaf.repetition_levels), (_DEFINITIONS, leaf.definition_levels)):
        if sizes.get(field) and len(sizes[field]) != levels:
            raise ValueError(f"column {leaf.name} counts {len(sizes[field])} levels in field {field} and has {levels}")


def extent(chunk: strict.Decoded) -> tuple[int, int] | None:
    """Where a decoded chunk starts and ends, None where its bytes are in another file or its metadata is encrypted."""
    if _META not in chunk or _FILE_PATH in chunk:
        return None
    meta = chunk[_META]
    data, dictionary = meta[_DATA_PAGE], meta.get(_DICTIONARY_PAGE, 0)
    start = dictionary if 0 < dictionary < data else data
    return start, start + meta[_COMPRESSED]


def _meta_start(raw: bytes, at: int, leaf: ParquetLeaf) -> int:
    field, kind, at = thrift.read_field_head(raw, at, 0)
    if field == _FILE_PATH:
        raise Objection(f"column {leaf.name} keeps its bytes in another file")
    if (field, kind) != (_FILE_OFFSET, thrift.I64):
        raise ValueError(f"the chunk of column {leaf.name} starts with field {field}")
    field, kind, at = thrift.read_field_head(raw, thrift.skip(raw, at, kind), field)
    if (field, kind) != (_META, thrift.STRUCT):
        raise Objection(f"column {leaf.name} has no metadata in the footer")
    return at


def _check_label(raw: bytes, numbers: dict[int, int], places: dict[int, tuple[int, int]], leaf: ParquetLeaf) -> None:
    refuse_unknown(places, _LAST_KNOWN_META, "a column chunk")
    start, end = places[_PATH]
    if numbers[_TYPE] != leaf.type or raw[start:end] != leaf.path_bytes:
        raise ValueError(f"the chunk of column {leaf.name} is labelled as another column's")


def _refuse_encrypted(places: dict[int, tuple[int, int]], leaf: ParquetLeaf) -> None:
    if any(field in places for field in _CRYPTO):
        raise Objection(f"column {leaf.name} is encrypted")
    refuse_unknown(places, _LAST_KNOWN_CHUNK, "a column chunk")


def refuse_unknown(places: dict[int, tuple[int, int]], last_known: int, what: str) -> None:
    """Raises Objection when a struct has fields beyond those that the specification had when this was written."""
    # A field of a later specification may be an offset, which nobody here would know to shift.
    if places and next(reversed(places)) > last_known:
        raise Objection(f"{what} has field {next(reversed(places))}, which this version does not know")


def _region(references: dict[int, int], field: int) -> Region | None:
    offset = references.get(field, 0)
    return Region(offset, references.get(field + 1, 0)) if offset else None


def skip_statistics(raw: bytes, at: int, leaf: ParquetLeaf) -> tuple[int, int]:
    """The number of nulls, -1 when it is not told, and where the statistics end."""
    nulls, field = -1, 0
    while head := raw[at]:
        field, kind, at = (field + (head >> 4), head & 0xF, at + 1) if head > 0xF else thrift.read_field_head(raw, at, field)
        if kind != (expected := _STATISTICS_KINDS.get(field, kind)) and (kind, expected) != (thrift.FALSE, thrift.TRUE):
            raise ValueError(f"field {field} of the statistics of column {leaf.name} is of kind {kind}")
        if kind == thrift.BINARY:
            length = raw[at]
            at += 1
            if length > 0x7F:
                length, at = thrift.read_varint(raw, at - 1)
            if leaf.width and length != leaf.width:
                raise Objection(f"column {leaf.name} has a bound of {length} bytes and values of {leaf.width}")
            at += length
        elif field == _NULLS:
            nulls, at = thrift.read_int(raw, at)
        else:
            at = strict.skip_unknown(raw, at, kind)
    return nulls, at + 1
