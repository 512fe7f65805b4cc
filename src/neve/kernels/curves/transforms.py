"""The transforms of a sort order's fields, on whole columns. Called by the arrow kernel before it sorts.

The results order rows as Iceberg's own would: a transform that is not done here, or not for this type, is refused by name and
left to the spark kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.curves.sorting import Column, comparable, plain, refused, with_nulls_of
from neve.kernels.curves.words import decimal_halves

_T = pa.types
_SPELLING = re.compile(r"(?P<name>[a-z]+)(?:\[(?P<width>\d+)\])?")
_LEAST = np.iinfo(np.int64).min
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_MAX_WIDTH = 2**31 - 1
_UNITS = {
    "date": ("year", "month", "day"),
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), ("year", "month", "day", "hour")),
}

Apply = Callable[[pa.Array], pa.Array]


def transformed(column: Column, transform: str, iceberg_type: str) -> pa.Array:
    """The column as a field with this transform orders it; nulls stay null. Raises RefusedError for what is not done here."""
    apply = _applying(transform.lower(), iceberg_type)
    if apply is None:
        raise refused(
            f"Cannot sort with the arrow kernel: it has no transform {transform} of a column of type {iceberg_type}",
            hint="The spark kernel can.",
        )
    return apply(plain(column))


def _applying(transform: str, iceberg_type: str) -> Apply | None:
    found = _SPELLING.fullmatch(transform)
    if found is None:
        return None
    if found["width"] is not None:
        width = int(found["width"])
        return _truncating(width, iceberg_type) if found["name"] == "truncate" and 0 < width <= _MAX_WIDTH else None
    if found["name"] in ("identity", "void"):
        return _as_it_is if found["name"] == "identity" else _nothing
    return _cutting_time(found["name"], iceberg_type)


def _as_it_is(column: pa.Array) -> pa.Array:
    return column


def _nothing(column: pa.Array) -> pa.Array:
    return pa.nulls(len(column), column.type)


def _truncating(width: int, iceberg_type: str) -> Apply | None:
    if iceberg_type in ("int", "long"):
        return partial(_truncated_numbers, width=width)
    if iceberg_type.startswith("decimal("):
        return partial(_truncated_decimals, width=width)
    if iceberg_type == "string":
        return partial(_first_characters, width=width)
    return partial(pc.binary_slice, start=0, stop=width) if iceberg_type == "binary" else None


def _first_characters(column: pa.Array, width: int) -> pa.Array:
    """Texts cut to so many characters; a byte that is not UTF-8 counts as one."""
    try:
        return pc.utf8_slice_codeunits(column, start=0, stop=width)
    except pa.ArrowInvalid:
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        cut = [None if data is None else _cut(data, width) for data in plain.cast(pa.large_binary()).to_pylist()]
        return pa.array(cut, pa.large_binary()).cast(plain.type, safe=False)


def _cut(data: bytes, width: int) -> bytes:
    return data.decode("utf-8", "surrogateescape")[:width].encode("utf-8", "surrogateescape")


def _truncated_numbers(column: pa.Array, width: int) -> pa.Array:
    values = column.cast(pa.int64()).fill_null(0).to_numpy()
    with np.errstate(over="ignore"):
        cut = values - values % width
    # Below the least number there is none to cut down to; wrapped around, it would come last instead of first.
    return with_nulls_of(column, np.where(cut > values, _LEAST, cut))


def _truncated_decimals(column: pa.Array, width: int) -> pa.Array:
    """On unscaled values of 128 bits; a width has at most 31, so that no product overflows."""
    column = comparable(column)
    low, high = decimal_halves(column)
    wide = np.uint64(width)
    carried = (high.view(np.int64) % np.int64(width)).astype(np.uint64) * np.uint64(2**64 % width)
    rest = (carried + low % wide) % wide
    cut = np.stack([low - rest, high - (low < rest)], axis=1)
    found = pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(cut)])
    return pc.if_else(column.is_valid(), found, pa.scalar(None, column.type))


def _cutting_time(unit: str, iceberg_type: str) -> Apply | None:
    return partial(_calendar, unit=unit) if unit in _UNITS.get(iceberg_type, ()) else None


def _calendar(column: pa.Array, unit: str) -> pa.Array:
    """Years, months, days or hours since 1970 in UTC, counted downwards before it."""
    ticks = comparable(column).fill_null(0).to_numpy()
    if unit == "hour":
        return with_nulls_of(column, ticks // (_PER_DAY[column.type.unit] // 24))
    days = ticks if _T.is_date(column.type) else ticks // _PER_DAY[column.type.unit]
    if unit != "day":
        days = days.view("M8[D]").astype("M8[M]" if unit == "month" else "M8[Y]").view(np.int64)
    return with_nulls_of(column, days)
