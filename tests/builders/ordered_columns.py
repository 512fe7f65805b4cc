"""Columns of every Iceberg type that has an order, with hard values, and the expected order in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

LAW = settings(deadline=None, max_examples=50)

INTS = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, -5e-324])
FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])
# Pieces of a word's length and others, so that texts agree in one, two or three words and differ after them.
PIECES = st.lists(st.sampled_from(["", "a", "b", "user_000", "user_001", "aaaaaaaa", "é", "\U0001f600", "￿"]), max_size=4)
TEXT = PIECES.map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
BYTES = st.lists(st.sampled_from([b"", b"\0", b"\xff", b"a", b"\0" * 8, b"prefix__"]), max_size=4).map(b"".join)


@dataclass(frozen=True)
class Kind:
    """An Iceberg type: its Arrow type, its values as Arrow stores them, and what Python orders them by."""

    name: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    key: Callable[[Any], Any] = lambda value: value

    def array(self, values: list[Any]) -> pa.Array:
        if pa.types.is_temporal(self.arrow):
            stored = pa.int32() if self.arrow.bit_width == 32 else pa.int64()
            return pa.array(values, stored).view(self.arrow)
        if isinstance(self.arrow, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(self.arrow, pa.array(values, self.arrow.storage_type))
        return pa.array(values, self.arrow)


def number(value: float) -> tuple[bool, float]:
    """NaN after all numbers; Python itself has -0.0 equal to 0.0."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    around_a_word = [n for n in (2**64, 2**64 + 1, -(2**64), 2**64 - 1, 0, -1) if abs(n) <= most]
    return (st.integers(-most, most) | st.sampled_from(around_a_word)).map(lambda n: Decimal(f"{n}E-{scale}"))


def text_bytes(value: str) -> bytes:
    return value.encode()


KINDS = [
    Kind("boolean", pa.bool_(), st.booleans()),
    Kind("int", pa.int32(), INTS),
    Kind("long", pa.int64(), LONGS),
    Kind("float", pa.float32(), FLOATS, number),
    Kind("double", pa.float64(), DOUBLES, number),
    Kind("decimal(9, 2)", pa.decimal128(9, 2), decimals(9, 2)),
    Kind("decimal(38, 5)", pa.decimal128(38, 5), decimals(38, 5)),
    Kind("date", pa.date32(), INTS),
    Kind("time", pa.time64("us"), st.integers(0, 86_399_999_999)),
    Kind("timestamp", pa.timestamp("us"), LONGS),
    Kind("timestamptz", pa.timestamp("us", "UTC"), LONGS),
    Kind("timestamp_ns", pa.timestamp("ns"), LONGS),
    Kind("string", pa.string(), TEXT, text_bytes),
    Kind("string", pa.large_string(), TEXT, text_bytes),
    Kind("string", pa.string_view(), TEXT, text_bytes),
    Kind("string", pa.dictionary(pa.int32(), pa.string()), TEXT, text_bytes),
    Kind("binary", pa.binary(), BYTES),
    Kind("fixed[9]", pa.binary(9), BYTES.map(lambda value: value[:9].ljust(9, b"\0"))),
    Kind("uuid", pa.binary(16), st.binary(min_size=16, max_size=16)),
    Kind("uuid", pa.uuid(), st.binary(min_size=16, max_size=16)),
]


@st.composite
def chunked(draw: st.DrawFn, array: pa.Array) -> pa.Array | pa.ChunkedArray:
    """The same rows as an array, as a slice of a longer one, or in chunks."""
    shape = draw(st.sampled_from(["whole", "slice", "chunks"]))
    if shape == "whole":
        return array
    if shape == "slice":
        return pa.concat_arrays([array[:1], array, array[-1:]]).slice(min(1, len(array)), len(array))
    cut = draw(st.integers(0, len(array)))
    return pa.chunked_array([array[:cut], array[cut:]], array.type)


@st.composite
def tables(
    draw: st.DrawFn, *, max_columns: int = 3, max_rows: int = 30, kinds: list[Kind] | None = None
) -> tuple[list[Kind], list[list[Any]], list[pa.Array | pa.ChunkedArray]]:
    """Columns of some kinds: the kinds, the values in Python, and the columns in Arrow. Values repeat."""
    chosen = draw(st.lists(st.sampled_from(kinds or KINDS), min_size=1, max_size=max_columns))
    rows = draw(st.integers(0, max_rows))
    values = []
    for kind in chosen:
        some = draw(st.lists(st.none() | kind.values, min_size=1, max_size=max(rows, 1)))
        values.append(draw(st.lists(st.sampled_from(some), min_size=rows, max_size=rows)))
    columns = [draw(chunked(kind.array(column))) for kind, column in zip(chosen, values, strict=True)]
    return chosen, values, columns


def bit_by_bit(row: list[int], bits: int) -> int:
    digits = "".join(f"{rank:0{bits}b}"[bit] for bit in range(bits) for rank in row)
    return int(digits, 2)


def ordered(kind: Kind, value: Any) -> tuple[bool, Any]:
    """What Python orders by, null first."""
    return (False, None) if value is None else (True, kind.key(value))
