"""The little Avro writer, read back by pyiceberg's decoder."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import new_decoder

from neve.samples import avro


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_integers_come_back(value: int) -> None:
    assert new_decoder(avro.integer(value)).read_int() == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-64, b"\x7f"), (64, b"\x80\1"), (2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\1")],
)
def test_integers_are_zig_zag_varints(value: int, encoded: bytes) -> None:
    assert avro.integer(value) == encoded


@given(st.text())
def test_strings_come_back(value: str) -> None:
    assert new_decoder(avro.string(value)).read_utf8() == value


def test_an_empty_array_is_one_zero() -> None:
    assert avro.array([]) == b"\0"
    assert avro.array([b"\2", b"\4"]) == b"\4\2\4\0"


def test_a_container_is_cut_into_blocks_that_inflate_to_the_records() -> None:
    records = [bytes([n]) * 30_000 for n in range(5)]
    decoder = new_decoder(avro.container({"avro.schema": '"bytes"'}, records, sync=b"s" * 16))

    assert decoder.read(4) == b"Obj\x01"
    header = {decoder.read_utf8(): decoder.read_utf8() for _ in range(decoder.read_int())}
    assert decoder.read_int() == 0
    assert header == {"avro.schema": '"bytes"', "avro.codec": "deflate"}
    assert decoder.read(16) == b"s" * 16
    blocks = []
    for _ in range(2):
        count, packed = decoder.read_int(), decoder.read_bytes()
        assert decoder.read(16) == b"s" * 16
        blocks.append((count, zlib.decompress(packed, -15)))
    assert blocks == [(3, b"".join(records[:3])), (2, b"".join(records[3:]))]
