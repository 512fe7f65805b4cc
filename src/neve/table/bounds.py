"""Bounds of files as numbers that compare: Iceberg's bytes become ranks among all bounds of a column. Pure.

Read by overlap, clustering and skipping, which never see a value again. Ranks keep the order of the values exactly; a bound
that is not known never hides a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import BadRequestError
from neve.table.files import FileColumns
from neve.table.metrics import truncate_upper
from neve.table.state import Column

Ranks = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CUT = 16
"""Characters or bytes that Iceberg keeps of a text's bounds unless told otherwise."""

_DAY = {"timestamp": 86_400 * 10**6, "timestamptz": 86_400 * 10**6} | dict.fromkeys(
    ("timestamp_ns", "timestamptz_ns"), 86_400 * 10**9
)
_INTEGERS = frozenset({"int", "long", "date", "time"}) | _DAY.keys()
_SIGN = 1 << 127
_TEXTS = frozenset({"string", "binary"})


@dataclass(frozen=True, eq=False)
class Ranges:
    """The range of each column in each file: arrays of `[files, columns]` with ranks into the column's sorted distinct bounds.

    A bound that is not known is -1 below and the number of `keys` above, outside every rank that there is. `single` marks
    ranges that no rewrite can make narrower, as far as bounds can tell: one value, one prefix that was cut, or nothing known,
    which is mostly a file with nothing but nulls.
    """

    columns: tuple[Column, ...]
    lower: Ranks
    upper: Ranks
    single: Mask
    keys: tuple[pa.Array, ...]

    def __len__(self) -> int:
        return len(self.lower)

    @classmethod
    def of(cls, files: FileColumns, columns: Sequence[Column]) -> Self:
        """The ranges of all files, in their order. The files must have been read with the bounds of these columns."""
        held = set(files.bounds.column_names) if files.bounds is not None else set()
        missing = [column.name for column in columns if f"{column.field_id}.lower" not in held]
        if missing:
            raise BadRequestError(
                f"Cannot measure {', '.join(missing)}: the files were read without the bounds of these columns",
                hint="Ask for bounds where files are read.",
            )
        parts = [ranked(files.bounds, column) for column in columns]
        return cls(
            columns=tuple(columns),
            lower=_beside([part[0] for part in parts], len(files)),
            upper=_beside([part[1] for part in parts], len(files)),
            single=_beside([part[2] for part in parts], len(files)).astype(np.bool_),
            keys=tuple(part[3] for part in parts),
        )

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """The same ranks for some of the files, by mask or index."""
        return replace(self, lower=self.lower[rows], upper=self.upper[rows], single=self.single[rows])

    def as_told_apart(self) -> Self:
        """Ranges as clustering sees them: what no rewrite can narrow is a point, and unknown ranges are a point of their own.

        Otherwise files full of nulls would overlap everything, after every rewrite again.
        """
        beyond = np.array([len(keys) + 1 for keys in self.keys], dtype=np.int64)
        unknown = (self.lower < 0) | (self.upper == beyond - 1)
        lower = np.where(unknown, beyond, self.lower)
        upper = np.where(unknown, beyond, np.where(self.single, self.lower, self.upper))
        return replace(self, lower=lower, upper=upper, single=lower == upper)

    def coarsened(self, transforms: Sequence[str]) -> Self:
        """Ranges of the columns under these transforms, which keep the order: values that become equal get one rank."""
        lower, upper, keys = self.lower.copy(), self.upper.copy(), list(self.keys)
        for i, transform in zip(range(len(keys)), transforms, strict=False):
            if transform == "identity" or not len(keys[i]):
                continue
            keys[i] = _transformed(keys[i], self.columns[i].type, transform)
            ranks = np.concatenate(([0], np.cumsum(np.asarray(pc.not_equal(keys[i][1:], keys[i][:-1]))))).astype(np.int64)
            table = np.concatenate((ranks, [ranks[-1] + 1, -1]))  # the last two: not known above, not known below
            lower[:, i], upper[:, i] = table[lower[:, i]], table[upper[:, i]]
            keys[i] = pc.unique(keys[i])
        return replace(self, lower=lower, upper=upper, single=self.single | (lower == upper), keys=tuple(keys))

    def key_of(self, column: int, data: bytes) -> pa.Scalar:
        """A value, given as Iceberg's bytes, as it compares with the column's keys."""
        value, known = _keys_of(pa.array([data], pa.binary()), self.columns[column].type)
        if not known[0]:
            raise BadRequestError(
                f"Cannot compare {self.columns[column].name} with {data!r}: not a value of type {self.columns[column].type}"
            )
        return value[0]


def _beside(parts: Sequence[npt.NDArray[Any]], rows: int) -> npt.NDArray[np.int64]:
    return np.stack(parts, axis=1).astype(np.int64) if parts else np.empty((rows, 0), dtype=np.int64)


def ranked(bounds: pa.Table, column: Column) -> tuple[Ranks, Ranks, Mask, pa.Array]:
    """A column's bounds as ranks, below and above, which of them are a point, and the values that the ranks stand for."""
    raw = [bounds.column(f"{column.field_id}.{side}").combine_chunks().cast(pa.large_binary()) for side in ("lower", "upper")]
    (low, low_known), (high, high_known) = (_keys_of(side, column.type) for side in raw)
    known = np.concatenate((low_known, high_known))
    found = pc.dictionary_encode(pa.concat_arrays([low, high]).filter(pa.array(known)))
    order = pc.sort_indices(found.dictionary).to_numpy()
    rank_of = np.empty(len(order), dtype=np.int64)
    rank_of[order] = np.arange(len(order))
    ranks = np.full(len(known), -1, dtype=np.int64)
    ranks[known] = rank_of[found.indices.to_numpy()]
    lower, upper = ranks[: len(low)], np.where(high_known, ranks[len(low) :], len(order))
    single = (lower == upper) | ~low_known | ~high_known
    if column.type in _TEXTS:
        single |= _cut_alike(raw[0], raw[1], column.type)
    return lower, upper, single, found.dictionary.take(pa.array(order))


def _cut_alike(lower: pa.Array, upper: pa.Array, kind: str) -> Mask:
    """Ranges whose values all begin with the same characters, as many as bounds keep."""
    # Not validated: bytes that are no UTF-8 are counted somehow, and then found not to be cut.
    length = pc.utf8_length(lower.cast(pa.large_string(), safe=False)) if kind == "string" else pc.binary_length(lower)
    candidates = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(length, CUT), False)))
    found = pc.dictionary_encode(lower.take(pa.array(candidates)))
    cut = pa.array([truncate_upper(kind, prefix + b"\x00", CUT) for prefix in found.dictionary.to_pylist()], pa.large_binary())
    alike = np.zeros(len(lower), dtype=np.bool_)
    alike[candidates] = pc.fill_null(pc.equal(cut.take(found.indices), upper.take(pa.array(candidates))), False)
    return alike


def _keys_of(data: pa.Array, kind: str) -> tuple[pa.Array, Mask]:
    """Values that compare as the type's do, and which of them are known: a NaN or a wrong number of bytes is not."""
    known = np.asarray(data.is_valid())
    if kind in _TEXTS or kind == "uuid" or kind == "boolean" or kind.startswith("fixed"):
        return data.cast(pa.large_binary()), known
    data = data.cast(pa.large_binary())
    lengths = np.asarray(pc.fill_null(pc.binary_length(data), 0)).astype(np.int64)
    if kind.startswith("decimal"):
        return _decimals(data, lengths), known & (lengths > 0) & (lengths <= 16)
    if kind in _INTEGERS:
        numbers = _fixed_width(data, lengths, {4: "<i4", 8: "<i8"}, np.dtype(np.int64))
        if kind in _DAY:  # dates before the column became a timestamp
            numbers = np.where(lengths == 4, numbers * _DAY[kind], numbers)
    elif kind in {"float", "double"}:
        numbers = _fixed_width(data, lengths, {4: "<f4", 8: "<f8"}, np.dtype(np.float64)) + 0.0  # -0.0 equals 0.0
        known = known & ~np.isnan(numbers)
    else:
        return pa.array(np.zeros(len(data), dtype=np.int64)), np.zeros(len(data), dtype=np.bool_)
    return pa.array(numbers), known & ((lengths == 4) | (lengths == 8))


def _fixed_width(data: pa.Array, lengths: Ranks, formats: dict[int, str], to: np.dtype[Any]) -> npt.NDArray[Any]:
    values = np.zeros(len(data), dtype=to)
    for length, layout in formats.items():
        chosen = lengths == length
        values[chosen] = _bytes_of(data, chosen, length).view(layout)[:, 0] if chosen.any() else 0
    return values


def _decimals(data: pa.Array, lengths: Ranks) -> pa.Array:
    """Sixteen bytes each with the sign turned over, so that they compare as the numbers do."""
    wide = np.zeros((len(data), 16), dtype=np.uint8)
    for length in range(1, 17):
        chosen = lengths == length
        if chosen.any():
            digits = _bytes_of(data, chosen, length)
            sign = np.where(digits[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
            wide[chosen] = np.concatenate((np.repeat(sign, 16 - length, axis=1), digits), axis=1)
    wide[:, 0] ^= 0x80
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(data), [None, pa.py_buffer(wide.tobytes())]).cast(
        pa.binary()
    )


def _bytes_of(data: pa.Array, chosen: Mask, length: int) -> npt.NDArray[np.uint8]:
    _, offsets, content = data.buffers()
    starts = np.frombuffer(offsets, dtype=np.int64)[data.offset : data.offset + len(data)][chosen]
    found: npt.NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8)[starts[:, None] + np.arange(length)]
    return found


def _first_characters(keys: pa.Array, width: int) -> pa.Array:
    """Texts cut to so many characters; a byte that is not UTF-8 counts as one."""
    try:
        return pc.utf8_slice_codeunits(keys.cast(pa.large_string()), 0, width).cast(pa.large_binary())
    except pa.ArrowInvalid:
        texts = (key.decode("utf-8", "surrogateescape")[:width] for key in keys.to_pylist())
        return pa.array([text.encode("utf-8", "surrogateescape") for text in texts], pa.large_binary())


def _transformed(keys: pa.Array, kind: str, transform: str) -> pa.Array:
    name, _, width = transform.rstrip("]").partition("[")
    if name == "truncate" and kind == "string":
        return _first_characters(keys, int(width))
    if name == "truncate" and kind in _TEXTS:
        return pc.binary_slice(keys, 0, int(width))
    if name == "truncate" and kind in _INTEGERS:
        numbers = keys.to_numpy()
        return pa.array(numbers - numbers % int(width))
    if name == "truncate" and kind.startswith("decimal"):
        unscaled = (int.from_bytes(key, "big") - _SIGN for key in keys.to_pylist())
        return pa.array([(number - number % int(width) + _SIGN).to_bytes(16, "big") for number in unscaled], pa.binary())
    units = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
    if name in units and kind in _INTEGERS:
        unit = "D" if kind == "date" else "ns" if kind.endswith("_ns") else "us"
        return pa.array(keys.to_numpy().astype(f"datetime64[{unit}]").astype(f"datetime64[{units[name]}]").astype(np.int64))
    return keys
