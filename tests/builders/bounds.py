"""Files with column bounds, and the value ranges that are read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.table.bounds import Ranges
from neve.table.files import FileColumns
from neve.table.metrics import to_bytes
from neve.table.state import Column
from tests.builders.files import make_files

Pairs = Sequence[tuple[Any, Any]]


def make_column(kind: str = "long", name: str = "a", field_id: int = 1) -> Column:
    return Column(field_id=field_id, name=name, type=kind)


def bounded(files: FileColumns, bounds: Mapping[int, Sequence[tuple[bytes | None, bytes | None]]]) -> FileColumns:
    """The same files with the lower and upper bytes of some columns."""
    columns = {
        f"{field_id}.{side}": pa.array([pair[place] for pair in pairs], pa.binary())
        for field_id, pairs in bounds.items()
        for place, side in enumerate(("lower", "upper"))
    }
    return replace(files, bounds=pa.table(columns))


def ranges_of(kind: str, pairs: Pairs) -> Ranges:
    """One column of this type, a file for each pair of values; None is not known."""
    raw = [tuple(None if value is None else to_bytes(kind, value) for value in pair) for pair in pairs]
    return Ranges.of(bounded(make_files([{} for _ in pairs]), {1: raw}), [make_column(kind)])  # type: ignore[dict-item]


def long_ranges(lower: npt.NDArray[Any], upper: npt.NDArray[Any]) -> Ranges:
    """Many files at once: arrays of `[files, columns]` with whole numbers, columns c0, c1 and so on."""

    def raw(values: npt.NDArray[Any]) -> pa.Array:
        data = pa.py_buffer(np.ascontiguousarray(values, dtype="<i8").tobytes())
        return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(values), [None, data]).cast(pa.binary())

    columns = [make_column(name=f"c{i}", field_id=i + 1) for i in range(lower.shape[1])]
    table = {f"{i + 1}.{side}": raw(v[:, i]) for i in range(len(columns)) for side, v in (("lower", lower), ("upper", upper))}
    return Ranges.of(replace(make_files([{} for _ in lower]), bounds=pa.table(table)), columns)


Box = list[tuple[int, int]]


def grid(side: int) -> list[Box]:
    """Squares that lie side by side, with a gap of one between them."""
    return [[(10 * x, 10 * x + 9), (10 * y, 10 * y + 9)] for x in range(side) for y in range(side)]
