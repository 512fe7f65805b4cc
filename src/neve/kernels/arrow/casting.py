"""From a type that a file has to the type that the table has: promotions, and other spellings of the same values.

A pair that is none of these is refused by name, never cast on the chance that it fits.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Convert = Callable[[pa.Array], pa.Array]
_T = pa.types


def leaf_cast(source: pa.DataType, target: pa.DataType) -> Convert | None:
    """What turns values of the file's type into the table's; None where they are equal already. Raises TypeError."""
    if source.equals(target):
        return None
    if isinstance(source, pa.BaseExtensionType):
        inner = leaf_cast(source.storage_type, target)
        return lambda array: inner(array.storage) if inner else array.storage
    if _T.is_timestamp(source) and _T.is_timestamp(target):
        return lambda array: _timestamps(array, target)
    if not _fits(source, target):
        raise TypeError(f"{source} in the file, {target} in the table")
    return lambda array: array.cast(target)


def _timestamps(array: pa.Array, target: pa.DataType) -> pa.Array:
    # The zone is a label: values are UTC either way (INT96 too), and a cast between labels would move them.
    unlabelled = array.view(pa.timestamp(array.type.unit)).cast(pa.timestamp(target.unit))
    return unlabelled.view(target)


def _fits(source: pa.DataType, target: pa.DataType) -> bool:
    if _T.is_dictionary(source):
        return _fits_or_equals(source.value_type, target)
    if _T.is_dictionary(target):
        return _fits_or_equals(source, target.value_type)
    return any(source_is(source) and target_is(target) for source_is, target_is in _PAIRS) or _widens(source, target)


def _fits_or_equals(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(source.equals(target)) or _fits(source, target)


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    if _T.is_decimal(source) and _T.is_decimal(target):
        return bool(source.scale == target.scale and source.precision <= target.precision)
    if _T.is_integer(source) and _T.is_integer(target):
        return bool(source.bit_width <= target.bit_width)
    return False


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    variable = (_T.is_string, _T.is_large_string, _T.is_string_view, _T.is_binary, _T.is_large_binary, _T.is_binary_view)
    return any(check(kind) for check in (*variable, _T.is_fixed_size_binary))


_PAIRS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (_T.is_float32, _T.is_float64),
    (_T.is_float16, _T.is_floating),
    (_is_text_or_bytes, lambda kind: _T.is_string(kind) or _T.is_binary(kind)),
    (_is_text_or_bytes, _T.is_fixed_size_binary),
    (_T.is_time, _T.is_time),
    (_T.is_date, _T.is_date),
    (_T.is_date, _T.is_timestamp),
)
