"""The order of values and of rows, as Iceberg and Spark have it. Called by `keys`, and by the arrow kernel's merge.

Nulls stand where their field says, whatever its direction; NaN is greater than every number; -0.0 and 0.0 tie; text compares
by its UTF-8 bytes. Rows that tie keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import NeveError
from neve.table.layout import SortField

Column: TypeAlias = "pa.Array | pa.ChunkedArray"

_T = pa.types
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_NAN = np.iinfo(np.int64).max
_NUMBER_BITS = np.int64(_NAN)


def sort_indices(columns: Sequence[Column], fields: Sequence[SortField]) -> pa.UInt64Array:
    """Where each row of the sorted whole comes from. One column per field, its transform already applied."""
    keys: list[tuple[pa.Array, str]] = []
    for column, field in zip(columns, fields, strict=True):
        values = comparable(column)
        # Arrow puts nulls last in either direction; how to ask for another place differs from release to release.
        if values.null_count and field.nulls_first:
            keys.append((values.is_valid().cast(pa.uint8()), "ascending"))
        keys.append((values, "descending" if field.descending else "ascending"))
    batch = pa.record_batch([values for values, _ in keys], names=[str(i) for i in range(len(keys))])
    return pc.sort_indices(batch, sort_keys=[(str(i), direction) for i, (_, direction) in enumerate(keys)])


def comparable(column: Column) -> pa.Array:
    """The same rows as int64, decimal128 or large_binary, which Arrow compares and sorts in the order of the values.

    Columns of one Iceberg type become columns of one Arrow type. Raises RefusedError for a type that has no order.
    """
    array = plain(column)
    kind = array.type
    if _T.is_null(kind) or _T.is_integer(kind) or _T.is_boolean(kind):
        return array.cast(pa.int64())
    if _T.is_floating(kind):
        return _comparable_floats(array)
    if _T.is_temporal(kind) and kind.bit_width in (32, 64):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    if _T.is_decimal(kind):
        return array.cast(pa.decimal128(38, kind.scale))
    if _is_text_or_bytes(kind):
        return array.cast(pa.large_binary())
    raise refused(f"Cannot order rows by a column of type {kind}: its values have no order", hint="Name other columns.")


def refused(message: str, *, hint: str) -> NeveError:
    """The refusal that hands an order over to the next kernel."""
    from neve.kernels.arrow.model import RefusedError  # late, since the arrow kernel imports this module

    return RefusedError(message, hint=hint)


def _is_text_or_bytes(kind: pa.DataType) -> bool:
    variable = (_T.is_string, _T.is_large_string, _T.is_string_view, _T.is_binary, _T.is_large_binary, _T.is_binary_view)
    return any(check(kind) for check in (*variable, _T.is_fixed_size_binary))


def plain(column: Column) -> pa.Array:
    """One array of the values themselves: no chunks, no dictionary, no extension type."""
    kind = column.type.value_type if _T.is_dictionary(column.type) else column.type
    # All chunks together may be longer than 32-bit offsets reach.
    kind = _LARGE.get(kind, kind)
    column = column if kind == column.type else column.cast(kind)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def with_nulls_of(column: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    """Values that were computed from a column, null where the column is."""
    return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None)


def _comparable_floats(array: pa.Array) -> pa.Array:
    """The bits of a double, with those below the sign turned round for negative numbers, ascend with it."""
    values = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0
    bits = values.view(np.int64)
    bits = bits ^ ((bits >> 63) & _NUMBER_BITS)
    bits[np.isnan(values)] = _NAN
    return with_nulls_of(array, bits)
