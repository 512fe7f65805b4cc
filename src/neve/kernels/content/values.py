"""A hash for every value of an Arrow array of any Iceberg type, the same in whichever encoding the value comes.

Dictionaries, large and view types, and promoted types (int to long, float to double, a wider decimal) hash like the plain
value; a uuid hashes like its text, as which Spark reads it. NaN is one value, 0.0 and -0.0 are two, null is none. A map is a
set of entries. Called by `rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import NeveError
from neve.kernels.arrow.schema import parquet_name
from neve.kernels.content.mixing import STEP, Lanes, Longs, Seed, Words, added, mixed, places, seed_of, seeded, summed

_T = pa.types
_ZERO = np.uint64(0)
_ELEMENT, _KEY, _VALUE = seed_of("element"), seed_of("key"), seed_of("value")
_HIGH = (np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))
_NANOS = np.uint64(0x27D4EB2F165667C5)
_TAILS = np.array([(1 << 8 * i) - 1 for i in range(9)], np.uint64)
_NAN = np.float64("nan")
_DAY_MS = 86_400_000
_PER_MICRO = {"s": 1_000_000, "ms": 1_000, "us": 1}
_IN_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class UnhashableError(NeveError):
    """A column has a type of which no two engines agree how its values look in Arrow."""

    code = "content-unsupported"


def hashes(array: pa.Array, seed: Seed) -> Lanes:
    """One hash per value, nulls included."""
    if isinstance(array.type, pa.BaseExtensionType):
        return hashes(_uuid_text(array.storage) if array.type == pa.uuid() else array.storage, seed)
    if _T.is_dictionary(array.type):
        return _of_dictionary(array, seed)
    found = seeded(_keys(array), seed)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        for lane, null in zip(found, seed.null, strict=True):
            lane[missing] = null
    return found


def _of_dictionary(array: pa.DictionaryArray, seed: Seed) -> Lanes:
    if len(array.dictionary) > len(array):
        return hashes(array.dictionary_decode(), seed)
    entries = hashes(array.dictionary, seed)
    at = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
    chosen = at.to_numpy(zero_copy_only=False)
    first, second = (np.append(lane, null)[chosen] for lane, null in zip(entries, seed.null, strict=True))
    return first, second


def _keys(array: pa.Array) -> Lanes:
    """What is mixed: the value itself where it fits 64 bits, else a sum of hashes of its parts, by lane."""
    kind = array.type
    for applies, keys in _KEYS:
        if applies(kind):
            return keys(array)
    raise UnhashableError(f"Cannot fingerprint a column of type {kind}: no two engines agree on its form")


def _both(words: Any) -> Lanes:
    found: Words = words.astype(np.int64, copy=False).view(np.uint64)
    return found, found


def _fixed(array: pa.Array, dtype: str) -> Any:
    """The values of a fixed-width array as they lie in memory; what lies under a null is anything."""
    return np.frombuffer(array.buffers()[1], dtype, len(array) + array.offset)[array.offset :]


def _nulls(array: pa.Array) -> Lanes:
    return _both(np.zeros(len(array), np.int64))


def _booleans(array: pa.Array) -> Lanes:
    return _both(_fixed(array.cast(pa.uint8()), "u1"))


def _integers(array: pa.Array) -> Lanes:
    sign = "u" if _T.is_unsigned_integer(array.type) else "i"
    return _both(_fixed(array, f"<{sign}{array.type.bit_width // 8}"))


def _dates(array: pa.Array) -> Lanes:
    return _both(_fixed(array, "<i4") if _T.is_date32(array.type) else _fixed(array, "<i8") // _DAY_MS)


def _times(array: pa.Array) -> Lanes:
    ticks = _fixed(array, f"<i{array.type.bit_width // 8}").astype(np.int64)
    return _both(ticks * _IN_NANOS[array.type.unit])


def _moments(array: pa.Array) -> Lanes:
    """Microseconds; nanoseconds beyond them are set apart, since a whole timestamp in nanoseconds would end in 2262."""
    ticks, unit = _fixed(array, "<i8"), array.type.unit
    if unit != "ns":
        return _both(ticks if unit == "us" else ticks * _PER_MICRO[unit])
    micros, rest = np.divmod(ticks, 1000)
    return _both((micros.view(np.uint64) + rest.view(np.uint64) * _NANOS).view(np.int64))


def _floats(array: pa.Array) -> Lanes:
    wide = _fixed(array, f"<f{array.type.bit_width // 8}").astype(np.float64)
    wide[np.isnan(wide)] = _NAN
    return _both(wide.view(np.int64))


def _decimals(array: pa.Array) -> Lanes:
    if not _T.is_decimal128(array.type):
        array = array.cast(pa.decimal128(38, array.type.scale))
    halves = _fixed(array, "<V16").view("<u8").reshape(-1, 2)
    return halves[:, 0] + halves[:, 1] * _HIGH[0], halves[:, 0] + halves[:, 1] * _HIGH[1]


def _fixed_bytes(array: pa.Array) -> Lanes:
    width = array.type.byte_width
    return _words(array.buffers()[1], (np.arange(len(array) + 1) + array.offset) * width)


def _bytes(array: pa.Array) -> Lanes:
    width = "<i8" if _T.is_large_string(array.type) or _T.is_large_binary(array.type) else "<i4"
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, width, len(array) + 1 + array.offset)[array.offset :]
    return _words(data, ends.astype(np.int64))


def _views(array: pa.Array) -> Lanes:
    return _bytes(array.cast(pa.large_string() if _T.is_string_view(array.type) else pa.large_binary()))


def _words(data: pa.Buffer | None, offsets: Longs) -> Lanes:
    """Bytes as words of eight, the last one filled up with zeros; an empty text is one empty word."""
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, np.uint8)
    if data is not None:
        padded[:-8] = np.frombuffer(data, np.uint8)[first:last]
    # A word may start at any byte: the view overlaps itself.
    at_byte = np.ndarray((last - first + 1,), "<u8", padded.data, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    counts = np.maximum((lengths + 7) >> 3, 1)
    tails = _TAILS[lengths - 8 * (counts - 1)]
    if counts.max(initial=1) == 1:
        words = at_byte[starts] & tails
        ends = np.arange(1, len(starts) + 1)
    else:
        ends = np.cumsum(counts)
        order = places(ends, counts)
        words = at_byte[np.repeat(starts, counts) + 8 * order]
        words[ends - 1] &= tails
        words += order.view(np.uint64) * STEP
    return summed((mixed(words, 0, _ZERO), mixed(words, 1, _ZERO)), ends, lengths)


def _structs(array: pa.Array) -> Lanes:
    return joined([array.type.field(i).name for i in range(array.type.num_fields)], array.field, len(array))


def joined(names: list[str], column: Callable[[int], pa.Array], rows: int) -> Lanes:
    """The columns of a struct or of a row as one key, each known by its name and not by its place.

    Names are taken as Parquet spells them, since nested ones come from files so.
    """
    found: Lanes = (np.zeros(rows, np.uint64), np.zeros(rows, np.uint64))
    for i, name in enumerate(names):
        found = added(found, hashes(column(i), seed_of(parquet_name(name), names[:i].count(name))))
    return found


def _lists(array: pa.Array) -> Lanes:
    offsets, values = _span(array, array.values)
    lengths = np.diff(offsets)
    place = places(offsets[1:], lengths).view(np.uint64) * STEP
    first, second = hashes(values, _ELEMENT)
    return summed((mixed(first + place, 0, _ZERO), mixed(second + place, 1, _ZERO)), offsets[1:], lengths)


def _maps(array: pa.Array) -> Lanes:
    offsets, keys = _span(array, array.keys)
    _, items = _span(array, array.items)
    first, second = added(hashes(keys, _KEY), hashes(items, _VALUE))
    return summed((mixed(first, 0, _ZERO), mixed(second, 1, _ZERO)), offsets[1:], np.diff(offsets))


def _span(array: pa.Array, values: pa.Array) -> tuple[Longs, pa.Array]:
    """Offsets from 0, and the child values that they speak of."""
    offsets: Longs = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets - offsets[0], values.slice(offsets[0], offsets[-1] - offsets[0])


def _uuid_text(storage: pa.Array) -> pa.Array:
    """Sixteen bytes as the thirty-six characters that Spark reads."""
    raw = _fixed(storage, "<V16").view(np.uint8).reshape(-1, 16)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.full((len(raw), 36), ord("-"), np.uint8)
    text[:, _HIGH_DIGITS], text[:, _LOW_DIGITS] = digits[raw >> 4], digits[raw & 15]
    found = pa.Array.from_buffers(pa.binary(36), len(raw), [None, pa.py_buffer(text.tobytes())])
    return pc.if_else(storage.is_valid(), found, None) if storage.null_count else found


_DASHES = (8, 13, 18, 23)
_DIGITS = [i for i in range(36) if i not in _DASHES]
_HIGH_DIGITS, _LOW_DIGITS = _DIGITS[::2], _DIGITS[1::2]


def _any(*checks: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(check(kind) for check in checks)


_KEYS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Lanes]], ...] = (
    (_T.is_integer, _integers),
    (_any(_T.is_string, _T.is_binary, _T.is_large_string, _T.is_large_binary), _bytes),
    (_T.is_floating, _floats),
    (_T.is_timestamp, _moments),
    (_T.is_decimal, _decimals),
    (_T.is_boolean, _booleans),
    (_T.is_date, _dates),
    (_T.is_struct, _structs),
    (_any(_T.is_list, _T.is_large_list), _lists),
    (_T.is_map, _maps),
    (_T.is_fixed_size_binary, _fixed_bytes),
    (_T.is_time, _times),
    (_any(_T.is_string_view, _T.is_binary_view), _views),
    (_T.is_null, _nulls),
)
