"""Thrift's compact encoding, as far as Parquet uses it: stepping over values, decoding a few, encoding a few.

Used by every module that touches footers and page indexes. Nothing is turned into objects: a struct is known by where its
fields stand, and what nobody changes is copied as it is. Running off the end raises IndexError, nonsense ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12

_MAX_SHIFT = 63
_MAX_NUMBER = (1 << 64) - 1


class Span(NamedTuple):
    """One field of a struct: its id, its kind, and where its value stands."""

    field: int
    kind: int
    start: int
    end: int


def read_varint(buf: bytes, at: int) -> tuple[int, int]:
    """An unsigned number, and where it ends."""
    byte = buf[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = buf[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number > _MAX_NUMBER:
                raise ValueError("a number is longer than 64 bits")
            return number, at
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError("a number is longer than 64 bits")


def read_int(buf: bytes, at: int) -> tuple[int, int]:
    """A signed number of any width, and where it ends."""
    number, at = read_varint(buf, at)
    return (number >> 1) ^ -(number & 1), at


def decode_int(encoded: bytes) -> int:
    """A signed number that has been cut out already: half the time of `read_int`."""
    number = 0
    for byte in encoded[::-1]:
        number = number << 7 | byte & 0x7F
    return (number >> 1) ^ -(number & 1)


def read_binary(buf: bytes, at: int) -> bytes:
    """The bytes of a string whose length stands here."""
    length, at = read_varint(buf, at)
    return buf[at : at + length]


def read_list_head(buf: bytes, at: int) -> tuple[int, int, int]:
    """How many elements, of which kind, and where the first one starts."""
    head = buf[at]
    at += 1
    count = head >> 4
    if count == 15:
        count, at = read_varint(buf, at)
    return count, head & 0xF, at


def read_field_head(buf: bytes, at: int, last: int) -> tuple[int, int, int]:
    """The next field's id and kind, and where its value starts; id 0 means that the struct ended.

    Ids must ascend, as every Parquet writer has them: a field given twice would mean one thing to one reader and another to the
    next.
    """
    head = buf[at]
    at += 1
    if not head:
        return 0, 0, at
    if head >> 4:
        return last + (head >> 4), head & 0xF, at
    field, at = read_int(buf, at)
    if field <= last:
        raise ValueError(f"field {field} follows field {last}")
    return field, head & 0xF, at


def spans(buf: bytes, at: int) -> tuple[list[Span], int]:
    """The fields of the struct that starts here, and where it ends."""
    found: list[Span] = []
    last = 0
    while True:
        last, kind, start = read_field_head(buf, at, last)
        if not last:
            return found, start
        at = skip(buf, start, kind)
        found.append(Span(last, kind, start, at))


def scan(
    buf: bytes, at: int, last: int = 0, kinds: Mapping[int, int] = MappingProxyType({})
) -> tuple[dict[int, int], dict[int, tuple[int, int]], int]:
    """The integers of a struct by field id, the place of every field's value, and where the struct ends; `last` came before.

    A field of `kinds` must be of its kind. The hot path of a footer, hence the written-out varint.
    """
    numbers: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    while head := buf[at]:
        if head > 0xF:
            last += head >> 4
            start = at = at + 1
            kind = head & 0xF
        else:
            last, kind, start = read_field_head(buf, at, last)
            at = start
        if kinds and kinds.get(last, kind) != kind:
            raise ValueError(f"field {last} is of kind {kind}")
        if I16 <= kind <= I64:
            number = buf[at]
            at += 1
            if number > 0x7F:
                number, at = read_varint(buf, start)
            numbers[last] = (number >> 1) ^ -(number & 1)
        else:
            at = skip(buf, at, kind)
        places[last] = (start, at)
    return numbers, places, at + 1


def skip(buf: bytes, at: int, kind: int) -> int:
    """Where a value of this kind ends."""
    if kind == LIST:
        return _skip_list(buf, at)
    if kind == STRUCT:
        return skip_struct(buf, at)
    if kind == BINARY:
        length, at = read_varint(buf, at)
        return _within(buf, at + length)
    if I16 <= kind <= I64:
        while buf[at] > 0x7F:
            at += 1
        return at + 1
    if kind in (TRUE, FALSE):
        return at
    if kind == BYTE:
        return _within(buf, at + 1)
    if kind == DOUBLE:
        return _within(buf, at + 8)
    raise ValueError(f"kind {kind} is no part of Parquet's metadata")


def skip_struct(buf: bytes, at: int) -> int:
    """Where the struct that starts here ends; which fields it has is nobody's concern, since it is copied as it is."""
    while True:
        # Integers and flags, of which most structs consist, in one step.
        if flat := _FLAT_FIELDS.match(buf, at):
            at = flat.end()
        head = buf[at]
        at += 1
        if not head:
            return at
        if head <= 0xF:
            at = read_varint(buf, at)[1]
        at = skip(buf, at, head & 0xF)


def _skip_list(buf: bytes, at: int) -> int:
    head = buf[at]
    count, kind, at = (head >> 4, head & 0xF, at + 1) if head < 0xF0 else read_list_head(buf, at)
    if kind == BINARY:
        return _skip_strings(buf, at, count)
    if kind in (TRUE, FALSE, BYTE):
        return _within(buf, at + count)
    if (pattern := _FLAT_LISTS.get(head)) and (flat := pattern.match(buf, at)):
        return flat.end()
    for _ in range(count):
        at = skip(buf, at, kind)
    return at


def _skip_strings(buf: bytes, at: int, count: int) -> int:
    for _ in range(count):
        length = buf[at]
        at += 1
        if length > 0x7F:
            length, at = read_varint(buf, at - 1)
        at += length
    return _within(buf, at)


# Patterns step over what has no lengths inside, at the speed of C; whatever they do not match takes the long way.
VARINT = rb"[\x80-\xff]{0,8}+[\x00-\x7f]"
"""Matches one integer of at most 63 bits."""
_EVEN_SMALL, _EVEN_LARGE = (b"".join(rb"\x%02x" % byte for byte in range(low, low + 0x80, 2)) for low in (0, 0x80))
NATURAL = rb"(?:[%s]|[%s][\x80-\xff]{0,7}+[\x00-\x7f])" % (_EVEN_SMALL, _EVEN_LARGE)
"""Matches one integer that is not negative."""
NATURAL_32 = rb"(?:[%s]|[%s][\x80-\xff]{0,2}+[\x00-\x7f])" % (_EVEN_SMALL, _EVEN_LARGE)
"""Matches one that fits 32 bits with room to spare; a larger one takes the long way."""
_HEADS = {kind: b"".join(rb"\x%02x" % (delta << 4 | kind) for delta in range(1, 16)) for kind in (TRUE, FALSE, I16, I32, I64)}
_FIELDS = rb"(?:[%s]%s|[%s])" % (_HEADS[I16] + _HEADS[I32] + _HEADS[I64], VARINT, _HEADS[TRUE] + _HEADS[FALSE])
_FLAT_FIELDS = re.compile(_FIELDS + rb"++", re.DOTALL)
_ELEMENTS = {I32: VARINT, I64: VARINT, STRUCT: _FIELDS + rb"*+\x00"}
_LISTS = {count << 4 | kind: rb"(?:%s){%d}" % (_ELEMENTS[kind], count) for kind in _ELEMENTS for count in range(15)}
_FLAT_LISTS = {head: re.compile(pattern, re.DOTALL) for head, pattern in _LISTS.items()}


def list_pattern(kind: int, element: bytes) -> bytes:
    """Matches a short list of such elements, with its head."""
    return rb"(?:%s)" % b"|".join(rb"\x%02x(?:%s){%d}" % (count << 4 | kind, element, count) for count in range(15))


def enum_pattern(values: Iterable[int]) -> bytes:
    """Matches one of these small numbers."""
    return rb"[%s]" % b"".join(rb"\x%02x" % (value << 1) for value in sorted(values))


def _within(buf: bytes, at: int) -> int:
    if at > len(buf):
        raise IndexError("a value reaches beyond the end")
    return at


def varint(number: int) -> bytes:
    """An unsigned number."""
    if number < 0x80:
        return _SMALL[number]
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = [bytes([number]) for number in range(0x80)]


def integer(number: int) -> bytes:
    """A number that is not negative, as a signed one of any width."""
    return varint(number << 1)


def binary(data: bytes) -> bytes:
    """A string with its length."""
    return varint(len(data)) + data


def list_head(count: int, kind: int) -> bytes:
    """What stands before a list's elements."""
    return bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + varint(count)


def field_head(field: int, kind: int, last: int) -> bytes:
    """What stands before a field's value; ids must ascend by less than 16, as Parquet's do."""
    return bytes([(field - last) << 4 | kind])
