"""Files as columns: a million files are a handful of arrays, not a million objects.

Built by `catalogs` (plain Python) or `engines.spark` (large tables), read by health, selection and packing. Both builders
must give equal columns for the same table. One row is one live data or delete file of one snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2

UNKNOWN = -1
"""Stands for a number that the metadata does not tell (row groups, sort order)."""

DEFAULTS = {"referenced": "", "content_offset": UNKNOWN, "equality_ids": "", "first_row_id": UNKNOWN}
"""Columns that say something of few files only, with the value that the others have."""

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("content", pa.int8(), nullable=False),  # DATA, POSITION_DELETES, EQUALITY_DELETES
        pa.field("format", pa.string(), nullable=False),  # parquet, orc, avro, puffin (a deletion vector)
        pa.field("partition", pa.int32(), nullable=False),  # index into FileColumns.partitions
        pa.field("size_bytes", pa.int64(), nullable=False),  # of the content: a vector's own bytes, not its Puffin file's
        pa.field("records", pa.int64(), nullable=False),
        pa.field("row_groups", pa.int32(), nullable=False),  # from split_offsets; UNKNOWN where absent
        pa.field("sort_order_id", pa.int32(), nullable=False),  # UNKNOWN where absent
        pa.field("sequence_number", pa.int64(), nullable=False),  # data sequence number; 0 in v1
        pa.field("snapshot_id", pa.int64(), nullable=False),  # that added the file; UNKNOWN where absent
        pa.field("referenced", pa.string(), nullable=False),  # the one data file that a delete names; "" for none
        pa.field("content_offset", pa.int64(), nullable=False),  # where a vector begins in its Puffin file; else UNKNOWN
        pa.field("equality_ids", pa.string(), nullable=False),  # as `spell_ids` writes them; "" but for equality deletes
        pa.field("first_row_id", pa.int64(), nullable=False),  # of a data file in v3; UNKNOWN where absent
    ]
)


def spell_ids(ids: Iterable[int]) -> str:
    """A set of field ids as text, such as `1,3`: equal sets are equal texts, and files without any cost next to nothing."""
    return ",".join(map(str, sorted(set(ids))))


def read_ids(text: str) -> tuple[int, ...]:
    """The inverse of `spell_ids`."""
    return tuple(int(part) for part in text.split(",")) if text else ()


def default_columns(rows: int, names: Iterable[str] = tuple(DEFAULTS)) -> dict[str, pa.Array]:
    """These columns of as many files that have nothing to say in them; made without a look at any file."""
    return {name: pa.repeat(pa.scalar(DEFAULTS[name], SCHEMA.field(name).type), rows) for name in names}


def bounds_schema(field_ids: Iterable[int]) -> pa.Schema:
    """The columns in which `FileColumns.bounds` holds what these columns' smallest and largest values are."""
    return pa.schema([(f"{field_id}.{side}", pa.binary()) for field_id in field_ids for side in ("lower", "upper")])


@dataclass(frozen=True)
class Partition:
    """A partition under one spec. `path` is Iceberg's own spelling, such as `day=2025-01-17/region=eu`."""

    spec_id: int
    path: str

    def __str__(self) -> str:
        return self.path or "(unpartitioned)"


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The live files of a snapshot: a table with `SCHEMA`, and the partitions its `partition` column points into."""

    table: pa.Table
    partitions: tuple[Partition, ...]
    bounds: pa.Table | None = None
    """For each column that was asked for, `<field id>.lower` and `<field id>.upper` as Iceberg's bytes, null where a file does
    not tell; a row for each file. Not part of the JSON: plans do not need it once they are made."""

    def __post_init__(self) -> None:
        if not self.table.schema.equals(SCHEMA):
            raise ValueError(f"Cannot hold files: columns are {self.table.schema.names}, not {SCHEMA.names}")
        if self.bounds is not None and self.bounds.num_rows != len(self):
            raise ValueError(f"Cannot hold files: there are {len(self):,}, and bounds of {self.bounds.num_rows:,}")

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileColumns):
            return False
        return self.partitions == other.partitions and self.table == other.table and self.bounds == other.bounds

    def column(self, name: str) -> npt.NDArray[Any]:
        """One numeric column as an array, without a copy where Arrow allows it."""
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        numeric = [field.name for field in SCHEMA if not pa.types.is_string(field.type)]
        return {name: self.table.column(name).to_numpy() for name in numeric}

    @cached_property
    def is_vector(self) -> npt.NDArray[np.bool_]:
        """Rows that are deletion vectors."""
        return self._has_format("puffin")

    @cached_property
    def is_parquet(self) -> npt.NDArray[np.bool_]:
        """Rows in the format that our kernels read."""
        return self._has_format("parquet")

    def _has_format(self, name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.equal(self.table.column("format"), name).to_numpy())

    @classmethod
    def empty(cls, bounds: Collection[int] = ()) -> Self:
        """No files, as in a table without a snapshot."""
        return cls(SCHEMA.empty_table(), (), bounds_schema(bounds).empty_table() if bounds else None)

    def to_json(self) -> dict[str, Any]:
        """Column lists, ready for JSON; columns in which no file says anything are left out."""
        silent = [name for name, value in DEFAULTS.items() if pc.all(pc.equal(self.table.column(name), value)).as_py()]
        columns = self.table.drop_columns(silent).to_pydict()
        return {"partitions": [[p.spec_id, p.path] for p in self.partitions], "columns": columns}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The inverse of `to_json`."""
        if isinstance(value, cls):
            return value
        partitions = tuple(Partition(spec_id, path) for spec_id, path in value["partitions"])
        columns = value["columns"]
        silent = default_columns(len(columns["path"]), DEFAULTS.keys() - columns.keys())
        return cls(table=pa.table(columns | silent, schema=SCHEMA), partitions=partitions)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.from_json, serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v.to_json())
        )
