"""Where one part of ordered rows ends and the next begins, found in a sample, and the SQL that tells a row's part.

Called by `sorting`. A greater row is never in an earlier part; rows that are equal in all fields may share several parts if
they are too many for one, and are told apart by their place in the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from neve.errors import BadRequestError
from neve.kernels.curves.sorting import comparable, sort_indices
from neve.table.layout import SortField

_NEAR = 0.2
"""The share of a part by which its beginning may be moved to a better row."""

_BY_PLACE = SortField(name="place")
_T = pa.types


@dataclass(frozen=True)
class Cut:
    """The first row of a part: its fields, and its place in the inputs if it is among equals, else -1."""

    values: tuple[pa.Scalar, ...]
    place: int = -1


def find_cuts(
    columns: Sequence[pa.Array], places: pa.Array, fields: Sequence[SortField], parts: int, *, is_curve: bool = False
) -> list[Cut]:
    """The cuts between so many parts with about equally many rows; none where the sample is empty.

    Of the rows near to where a part should begin, it begins with the one that is farthest from the row before: the first of a
    day rather than of an hour, the first in a large cell of a curve rather than in a small one.
    """
    rows = len(places)
    if not rows or parts < 2:
        return []
    order = sort_indices([*columns, places], [*fields, _BY_PLACE])
    columns, places = [column.take(order) for column in columns], places.take(order)
    steps = _along_curve(columns[0]) if is_curve else _by_importance(columns)
    cuts = []
    for wanted in np.arange(1, parts) * (rows / parts):
        at = min(round(wanted), rows - 1)
        first = max(1, math.ceil(wanted - _NEAR * rows / parts))
        near = steps[first : int(wanted + _NEAR * rows / parts) + 1]
        if near.any():
            best = first + np.flatnonzero(near == near.max())
            at = int(best[np.abs(best - wanted).argmin()])
        cuts.append(Cut(tuple(column[at] for column in columns), -1 if near.any() else places[at].as_py()))
    return cuts


def _by_importance(columns: Sequence[pa.Array]) -> Any:
    """For each row how important the first field is in which it differs from the row before; 0 where it does in none."""
    steps = np.zeros(len(columns[0]), np.int64)
    for importance, values in enumerate(map(comparable, reversed(columns)), 1):
        codes = values.dictionary_encode(null_encoding="encode").indices.to_numpy()
        steps[1:][codes[1:] != codes[:-1]] = importance
    return steps


def _along_curve(keys: pa.Array) -> Any:
    """For each row the size of the smallest cell that it shares with the row before, as a number of bits; 0 where they are in
    one place."""
    values = keys.to_numpy()
    crossed = np.concatenate([values[:1] ^ values[:1], values[1:] ^ values[:-1]]).view(np.uint64)
    return np.frexp(crossed.astype(np.float64))[1]


def choose(terms: Sequence[str], fields: Sequence[SortField], place: str, *, cuts: Sequence[Cut], parts: Sequence[int]) -> str:
    """SQL for a row's part, one of `parts`: `terms` are its fields, `place` its place in the inputs."""
    if not cuts:
        return str(parts[0])
    middle = len(cuts) // 2
    low = choose(terms, fields, place, cuts=cuts[:middle], parts=parts[: middle + 1])
    high = choose(terms, fields, place, cuts=cuts[middle + 1 :], parts=parts[middle + 1 :])
    return f"IF({_precedes(terms, fields, place, cuts[middle])}, {low}, {high})"


def _precedes(terms: Sequence[str], fields: Sequence[SortField], place: str, cut: Cut) -> str:
    """SQL for whether a row comes before a cut; never null."""
    told = f"{place} < {cut.place}" if cut.place >= 0 else "FALSE"
    for term, field, value in reversed(list(zip(terms, fields, cut.values, strict=True))):
        equal = f"{term} IS NULL" if not value.is_valid else f"{term} IS NOT DISTINCT FROM {literal(value)}"
        rest = "" if told == "FALSE" else f" OR ({equal} AND ({told}))"
        told = f"{_is_before(term, field, value)}{rest}"
    return told


def _is_before(term: str, field: SortField, value: pa.Scalar) -> str:
    if not value.is_valid:
        return "FALSE" if field.nulls_first else f"{term} IS NOT NULL"
    sign = ">" if field.descending else "<"
    return f"IFNULL({term} {sign} {literal(value)}, {str(field.nulls_first).upper()})"


def literal(value: pa.Scalar) -> str:
    """A value as Spark SQL that is exactly it: no time zone, no rounding, no quotes to escape."""
    kind = value.type
    if _T.is_boolean(kind):
        return str(value.as_py()).upper()
    if _T.is_integer(kind):
        return f"CAST({value.as_py()} AS BIGINT)"
    if _T.is_floating(kind):
        return f"CAST('{value.as_py()!r}' AS DOUBLE)"
    if _T.is_decimal(kind):
        return f"CAST('{value.as_py():f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if _T.is_date32(kind):
        return f"date_from_unix_date({value.value})"
    if _T.is_timestamp(kind):
        micros = value.cast(pa.timestamp("us", kind.tz)).value
        return f"timestamp_micros({micros})" if kind.tz else _without_zone(micros)
    if _T.is_binary(kind) or _T.is_large_binary(kind):
        return f"X'{value.as_py().hex()}'"
    if _T.is_string(kind) or _T.is_large_string(kind):
        return f"CAST(X'{_bytes_of(value).hex()}' AS STRING)"
    raise BadRequestError(f"Cannot order rows by a column of type {kind}: its values have no order")


def _bytes_of(text: pa.Scalar) -> bytes:
    """A text's bytes, which need not be UTF-8."""
    buffer = text.as_buffer()
    return buffer.to_pybytes() if buffer is not None else b""


def _without_zone(micros: int) -> str:
    seconds = f"CAST('{Decimal(micros).scaleb(-6):f}' AS DECIMAL(18, 6))"
    return f"(TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, {seconds}))"
