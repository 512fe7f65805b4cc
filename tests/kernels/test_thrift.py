"""Thrift's compact encoding: stepping over anything, decoding and encoding numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.kernels.parquet import thrift

INTEGERS = st.integers(-(2**63), 2**63 - 1)


def zigzag(number: int) -> bytes:
    return thrift.varint((number << 1) ^ (number >> 63))


def values(depth: int = 3) -> st.SearchStrategy[tuple[int, Any]]:
    """A kind and a value of it."""
    simple = st.one_of(
        st.tuples(st.sampled_from([thrift.TRUE, thrift.FALSE]), st.none()),
        st.tuples(st.just(thrift.BYTE), st.binary(min_size=1, max_size=1)),
        st.tuples(st.sampled_from([thrift.I16, thrift.I32, thrift.I64]), INTEGERS),
        st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(thrift.BINARY), st.binary(max_size=300)),
    )
    if depth == 0:
        return simple
    inner = values(depth - 1)
    structs = st.dictionaries(st.integers(1, 40), inner, max_size=6)
    lists = st.tuples(st.sampled_from([thrift.I64, thrift.STRUCT, thrift.BINARY, thrift.TRUE]), st.integers(0, 20))
    return st.one_of(simple, st.tuples(st.just(thrift.STRUCT), structs), st.tuples(st.just(thrift.LIST), lists))


def encode(kind: int, value: Any) -> bytes:
    """A plain encoder, written apart from the code under test."""
    if kind in (thrift.TRUE, thrift.FALSE):
        return b""
    if kind in (thrift.I16, thrift.I32, thrift.I64):
        return zigzag(value)
    if kind == thrift.BINARY:
        return thrift.varint(len(value)) + value
    if kind == thrift.LIST:
        element, count = value
        item = {thrift.I64: zigzag(-300), thrift.STRUCT: b"\x15\x02\x11\x00", thrift.BINARY: b"\x03abc", thrift.TRUE: b"\x01"}
        head = bytes([count << 4 | element]) if count < 15 else bytes([0xF0 | element]) + thrift.varint(count)
        return head + item[element] * count
    if kind == thrift.STRUCT:
        out, last = b"", 0
        for field in sorted(value):
            inner_kind, inner = value[field]
            delta = field - last
            out += bytes([delta << 4 | inner_kind]) if delta < 16 else bytes([inner_kind]) + zigzag(field)
            out += encode(inner_kind, inner)
            last = field
        return out + b"\0"
    return bytes(value)


@given(INTEGERS)
def test_an_integer_reads_back_and_says_where_it_ends(number: int) -> None:
    encoded = zigzag(number)
    assert thrift.read_int(b"\xff" + encoded + b"\xff", 1) == (number, 1 + len(encoded))
    assert thrift.decode_int(encoded) == number


@given(st.integers(0, 2**62))
def test_a_written_integer_is_a_signed_one(number: int) -> None:
    assert thrift.integer(number) == zigzag(number)


@given(values())
def test_any_value_is_stepped_over_exactly(value: tuple[int, Any]) -> None:
    kind, content = value
    encoded = encode(kind, content)
    assert thrift.skip(b"\x55" + encoded + b"\x55\x55", 1, kind) == 1 + len(encoded)


@given(st.dictionaries(st.integers(1, 60), values(), max_size=8))
def test_scanning_and_listing_a_struct_agree(fields: dict[int, tuple[int, Any]]) -> None:
    encoded = encode(thrift.STRUCT, fields)
    spans, end = thrift.spans(encoded, 0)
    numbers, places, scanned_end = thrift.scan(encoded, 0)
    assert (end, scanned_end) == (len(encoded), len(encoded))
    assert {span.field: (span.start, span.end) for span in spans} == places
    assert numbers == {f: v for f, (kind, v) in fields.items() if kind in (thrift.I16, thrift.I32, thrift.I64)}
    assert [encoded[span.start : span.end] for span in spans] == [encode(*fields[f]) for f in sorted(fields)]


@pytest.mark.parametrize("kind", [thrift.STRUCT, thrift.LIST, thrift.BINARY, thrift.I64, thrift.DOUBLE, thrift.BYTE])
def test_a_value_that_runs_off_the_end_is_an_index_error(kind: int) -> None:
    beginnings = {thrift.STRUCT: b"\x15\x80", thrift.LIST: b"\xf6\xff\x01\x80", thrift.BINARY: b"\x05abcd", thrift.I64: b"\x80"}
    with pytest.raises(IndexError):
        thrift.skip(beginnings.get(kind, b""), 0, kind)


def test_a_list_that_claims_more_strings_than_there_are_bytes_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        thrift.skip(b"\xf8\xff\xff\xff\xff\x0f\x01a", 0, thrift.LIST)


def test_maps_are_no_part_of_parquet() -> None:
    with pytest.raises(ValueError, match="kind 11 is no part of Parquet's metadata"):
        thrift.skip(b"\0", 0, 11)


@pytest.mark.parametrize("encoded", [b"\x15\x02\x05\x02\x02\x00", b"\x15\x02\x05\x00\x02\x00"])
def test_a_field_given_twice_or_out_of_order_is_refused(encoded: bytes) -> None:
    for read in (thrift.spans, thrift.scan):
        with pytest.raises(ValueError, match=r"field [01] follows field 1"):
            read(encoded, 0)


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="a number is longer than 64 bits"):
        thrift.read_varint(b"\x80" * 10 + b"\x01", 0)


def test_field_and_list_heads_are_those_of_the_specification() -> None:
    assert thrift.field_head(11, thrift.I64, 9) == b"\x26"
    assert thrift.list_head(14, thrift.STRUCT) == b"\xec"
    assert thrift.list_head(300, thrift.STRUCT) == b"\xfc\xac\x02"
    assert thrift.binary(b"abc") == b"\x03abc"
