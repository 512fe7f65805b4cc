"""The place of each row on a curve, as a column of a DataFrame, and the same of a sample. Called by `sorting`.

Executors that have our code compute it in Arrow. Others, and those of Spark 3.5, which has no such functions, compute it in SQL
from fewer boundaries: as good between files, coarser within them, and two or three times slower.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from neve.kernels.curves.hilbert import hilbert
from neve.kernels.curves.keys import curve_keys
from neve.kernels.curves.ranks import Boundaries
from neve.kernels.curves.sorting import comparable, sort_indices
from neve.kernels.curves.zorder import interleave
from neve.spark.runtime.task_python import python_function
from neve.spark.tasks.cuts import literal
from neve.table.layout import LayoutKind, SortField

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIGN = np.uint64(1 << 63)
_SQL_BITS = 8
"""For each column: a choice among 256 ranks is 255 comparisons in the text of the query."""
_SQL_CELL_BITS = 12
"""For all columns together: so many cells follow Hilbert's curve, and rows within a cell follow z-order."""


@dataclass(frozen=True)
class ArrowCurve:
    """Keys by the same functions that the arrow kernel uses."""

    kind: LayoutKind
    boundaries: Boundaries

    @classmethod
    def of(cls, kind: LayoutKind, sample: Sequence[pa.Array]) -> ArrowCurve:
        """The curve through rows of which this is a sample, a column for each of the layout's."""
        return cls(kind, Boundaries.of(sample))

    def keys(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Signed, since Spark has no other numbers: they ascend with the unsigned ones."""
        return pa.array((curve_keys(columns, self.boundaries, self.kind) ^ _SIGN).view(np.int64))

    def on(self, frame: DataFrame, terms: Sequence[str], name: str) -> DataFrame:
        """The frame with its keys under this name."""
        from pyspark.sql.functions import expr
        from pyspark.sql.udf import PythonEvalType

        def key(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            yield from map(self.keys, batches)

        kind = PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF
        return frame.withColumn(name, python_function(frame.sparkSession, key, "bigint", kind)(*map(expr, terms)))


@dataclass(frozen=True)
class SqlCurve:
    """Keys by nested comparisons with boundaries; `scales` has a column's boundaries, and a part of the key below and from
    each of them. `cells` are places on Hilbert's curve by place in z-order."""

    scales: tuple[tuple[pa.Array, list[int]], ...]
    cells: Any | None
    cell_shift: int

    @classmethod
    def of(cls, kind: LayoutKind, sample: Sequence[pa.Array]) -> SqlCurve:
        """As `ArrowCurve.of`."""
        count = len(sample)
        bits = min(_SQL_BITS, 63 // count)
        cell_bits = min(bits, max(1, _SQL_CELL_BITS // count))
        scales = tuple(_scale(column, at, count, bits) for at, column in enumerate(sample))
        return cls(scales, _cells(count, cell_bits) if kind is LayoutKind.HILBERT else None, count * (bits - cell_bits))

    def keys(self, columns: Sequence[pa.Array]) -> pa.Array:
        """As `ArrowCurve.keys`."""
        parts = [_found(column, *scale) for column, scale in zip(columns, self.scales, strict=True)]
        keys = reduce(np.bitwise_or, parts)
        if self.cells is not None:
            keys = self.cells[keys >> self.cell_shift] << self.cell_shift | keys & (1 << self.cell_shift) - 1
        return pa.array(keys)

    def z_order(self, terms: Sequence[str]) -> str:
        """SQL for a row's place in z-order."""
        return " | ".join(_chosen(term, *scale) for term, scale in zip(terms, self.scales, strict=True))

    def on(self, frame: DataFrame, terms: Sequence[str], name: str) -> DataFrame:
        """As `ArrowCurve.on`."""
        from pyspark.sql.functions import expr

        frame = frame.withColumn(name, expr(self.z_order(terms)))
        if self.cells is None:
            return frame
        cells = f"CAST(split('{','.join(map(str, self.cells.tolist()))}', ',') AS ARRAY<BIGINT>)"
        high = f"shiftleft({cells}[CAST(shiftright({name}, {self.cell_shift}) AS INT)], {self.cell_shift})"
        return frame.withColumn(name, expr(f"{high} | ({name} & {(1 << self.cell_shift) - 1})"))


def _scale(column: pa.Array, at: int, count: int, bits: int) -> tuple[pa.Array, list[int]]:
    """The values at which ranks change, and what ranks give to the key: that of null and all that is below, then of each."""
    values = column.drop_null().unique()
    values = values.take(sort_indices([values], [SortField(name="value")]))
    found = Boundaries.of([column], bits).ranks([values])[:, 0]
    changes = np.flatnonzero(np.diff(found, prepend=np.uint32(0)))
    ranks = np.zeros((len(changes) + 1, count), np.uint32)
    ranks[1:, at] = found[changes]
    return values.take(pa.array(changes)), interleave(ranks, bits).astype(np.int64).tolist()


def _found(column: pa.Array, boundaries: pa.Array, codes: list[int]) -> Any:
    ascending, values = (comparable(array).to_pylist() for array in (boundaries, column))
    return np.array([codes[0 if value is None else bisect_right(ascending, value)] for value in values], np.int64)


def _chosen(term: str, boundaries: pa.Array, codes: list[int]) -> str:
    if not len(boundaries):
        return str(codes[0])
    middle = len(boundaries) // 2
    low = _chosen(term, boundaries[:middle], codes[: middle + 1])
    high = _chosen(term, boundaries[middle + 1 :], codes[middle + 1 :])
    return f"IF({term} >= {literal(boundaries[middle])}, {high}, {low})"


def _cells(count: int, bits: int) -> Any:
    ranks = np.array(list(product(range(1 << bits), repeat=count)), np.uint32)
    cells = np.empty(len(ranks), np.int64)
    cells[interleave(ranks, bits).astype(np.int64)] = hilbert(ranks, bits)
    return cells
