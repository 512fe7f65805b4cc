"""What the arrow kernel is given and what it gives back. Paths are the caller's: outputs are numbered from 0."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import NeveError
from neve.kernels.streams import Source
from neve.table.metrics import ColumnMetrics
from neve.table.positions import PositionMap
from neve.table.units import MIB

if TYPE_CHECKING:
    from neve.kernels.arrow.layout import ReadLayout

Positions = npt.NDArray[np.int64]
Find = Callable[[pa.RecordBatch], Positions]
"""Places of rows of a batch, as it was read, ascending."""


class SchemaMismatchError(NeveError):
    """A data file holds what the table's schema does not allow; reading it again will not help."""

    code = "schema-mismatch"


class RefusedError(NeveError):
    """The kernel was asked for what it cannot do right; another kernel can."""

    code = "kernel-refused"


class UnsortedError(NeveError):
    """An input does not have the order that it was said to have; the kernel can sort it."""

    code = "unsorted-input"


class DeletedRows(Protocol):
    """Positions of rows to leave out that are unpacked when their file is opened."""

    @property
    def count(self) -> int:
        """How many they are, at most."""
        ...

    def positions(self) -> Positions:
        """The positions, ascending, each once."""
        ...


class DeletedKeys(Protocol):
    """Rows to leave out by the values of some columns, which files may have and the table may not have any more."""

    @property
    def field_ids(self) -> Collection[int]:
        """The columns that are compared."""
        ...

    @property
    def size_bytes(self) -> int:
        """What the keys take in memory."""
        ...

    def finder(self, given: ArrowInput, layout: ReadLayout) -> Find | None:
        """What finds the rows of a file that are deleted, None if no row of it can be."""
        ...


@dataclass(frozen=True)
class ArrowInput:
    """One Parquet file to rewrite.

    `constants` are identity partition values by field id, used where the file lacks the column; `deleted` are the positions of
    rows to leave out, ascending and each once; the last two are the file's row lineage (format v3), and the number decides
    which deletes by key concern it.
    """

    source: Source
    records: int
    constants: Mapping[int, Any] = field(default_factory=dict)
    deleted: Positions | DeletedRows | None = None
    first_row_id: int | None = None
    sequence_number: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.deleted, np.ndarray) and np.any(np.diff(self.deleted) <= 0):
            raise ValueError(f"Cannot drop rows of {self.source.path}: positions must ascend, each once")

    @property
    def deleted_count(self) -> int:
        """Rows that are deleted by position, at most."""
        if self.deleted is None:
            return 0
        return len(self.deleted) if isinstance(self.deleted, np.ndarray) else self.deleted.count

    def deleted_positions(self) -> Positions:
        """Rows that are deleted by position."""
        if self.deleted is None:
            return np.zeros(0, np.int64)
        return self.deleted if isinstance(self.deleted, np.ndarray) else self.deleted.positions()


@dataclass(frozen=True)
class BloomFilter:
    """A column's bloom filter: false-positive rate, and distinct values per row group where the table tells."""

    fpp: float = 0.01
    ndv: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    """How outputs are written; defaults are Iceberg's, save the memory budget.

    `delta_integers` packs integers by their differences where that is smaller. It is off because Iceberg's vectorized Spark
    reader cannot read it before release 1.10; columns that have it in the inputs keep it either way.
    """

    codec: str = "zstd"
    level: int | None = 3
    target_bytes: int = 512 * MIB
    row_group_bytes: int = 128 * MIB
    row_group_rows: int | None = None
    page_bytes: int = MIB
    page_rows: int = 20_000
    dictionary: bool = True
    dictionary_bytes: int = 2 * MIB
    delta_integers: bool = False
    bloom_filters: Mapping[int, BloomFilter] = field(default_factory=dict)  # by field id
    bloom_filter_max_bytes: int = MIB
    row_lineage: bool = False
    memory_bytes: int = 512 * MIB


@dataclass(frozen=True)
class Counts:
    """Entries of one leaf column as Parquet counts them: an empty or missing list is one null entry."""

    values: int
    nulls: int
    nans: int | None  # None for types without NaN


@dataclass(frozen=True)
class ArrowOutput:
    """One file that was written, with exact metrics from its own footer (NaN counted as rows went in)."""

    rows: int
    size_bytes: int
    row_groups: int
    split_offsets: tuple[int, ...]
    metrics: Mapping[int, ColumnMetrics]


@dataclass(frozen=True)
class Rewritten:
    """The outputs, and what was counted while streaming, by field id; where each input row went, unless rows were reordered."""

    outputs: tuple[ArrowOutput, ...]
    rows_read: int
    rows_dropped: int
    kept: Mapping[int, Counts]
    dropped: Mapping[int, Counts]
    positions: PositionMap | None
