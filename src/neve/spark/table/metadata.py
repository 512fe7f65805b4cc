"""The metadata of very large tables, read by Spark: the same columns that plain Python gives, without its ceiling.

`context.connection` puts this reader around the plain one; it starts Spark only when a table has more live files than one
process should decode. Everything but the list of files still comes from the plain reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.ports import Progress, TableReader
from neve.spark.quoting import quoted
from neve.table.files import (
    DATA,
    DEFAULTS,
    EQUALITY_DELETES,
    POSITION_DELETES,
    SCHEMA,
    UNKNOWN,
    FileColumns,
    Partition,
    bounds_schema,
)
from neve.table.partition import TypedField, partition_path
from neve.table.state import Manifest, PartitionSpec, TableState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = {
    "path": "data_file.file_path",
    "content": "CAST(data_file.content AS TINYINT)",
    "format": "lower(data_file.file_format)",
    "size_bytes": "data_file.file_size_in_bytes",
    "records": "data_file.record_count",
    "row_groups": f"coalesce(size(data_file.split_offsets), {UNKNOWN})",
    "sort_order_id": f"coalesce(data_file.sort_order_id, {UNKNOWN})",
    "sequence_number": "coalesce(sequence_number, 0L)",
    "snapshot_id": f"coalesce(snapshot_id, {UNKNOWN}L)",
    "spec_id": "data_file.spec_id",
}
_DEFAULTS = {name: f"'{value}'" if isinstance(value, str) else f"{value}L" for name, value in DEFAULTS.items()}
_OF_DATA = {"first_row_id": f"coalesce(data_file.first_row_id, {UNKNOWN}L)"}
_OF_DELETES = {
    "size_bytes": "coalesce(data_file.content_size_in_bytes, data_file.file_size_in_bytes)",
    "content_offset": f"coalesce(data_file.content_offset, {UNKNOWN}L)",
    "equality_ids": "coalesce(array_join(transform(array_sort(array_distinct(data_file.equality_ids)),"
    " id -> CAST(id AS STRING)), ','), '')",
    "referenced": f"CASE WHEN data_file.content = {POSITION_DELETES} THEN coalesce(data_file.referenced_data_file,"
    " CASE WHEN data_file.lower_bounds[2147483546] = data_file.upper_bounds[2147483546]"
    " THEN CAST(data_file.lower_bounds[2147483546] AS STRING) END, '') ELSE '' END",
}
_NEWER = {"content_size_in_bytes", "content_offset", "referenced_data_file", "first_row_id"}
"""Fields that the Iceberg of a caller's own session may not know yet."""


@dataclass
class _Reads:
    """What was read of a table and its other snapshots."""

    by_spark: bool = False


class LargeTableReader:
    """Delegates to another reader, except for the files of a table beyond the limit (implements `ports.TableReader`)."""

    def __init__(self, inner: TableReader, spark: Callable[[], SparkSession], *, python_max_files: int) -> None:
        self._inner = inner
        self._spark = spark
        self._limit = python_max_files
        self._reads = _Reads()

    def at(self, snapshot_id: int) -> LargeTableReader:
        """The same table at another snapshot."""
        other = copy(self)
        other._inner = self._inner.at(snapshot_id)
        return other

    def state(self) -> TableState:
        """From the plain reader."""
        return self._inner.state()

    def manifests(self) -> tuple[Manifest, ...]:
        """From the plain reader."""
        return self._inner.manifests()

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        """From the plain reader."""
        return self._inner.sample_row_groups(paths)

    def from_cache(self) -> bool:
        """Spark reads from storage."""
        return not self._reads.by_spark and self._inner.from_cache()

    def files(
        self, manifests: tuple[Manifest, ...], progress: Progress | None = None, *, bounds: Collection[int] = ()
    ) -> FileColumns:
        """From Spark where there are too many."""
        if sum(manifest.live_files or 0 for manifest in manifests) <= self._limit:
            return self._inner.files(manifests, progress, bounds=bounds)
        if progress:
            progress("inspect", 0, None)
        self._reads.by_spark = True
        return read_files(self._spark(), self._inner.state(), bounds)


def read_files(spark: SparkSession, state: TableState, bounds: Collection[int] = ()) -> FileColumns:
    """The live files of the state's snapshot, from Iceberg's `entries` metadata table; with the bounds of these columns."""
    table = quoted(state.name.catalog, *state.name.identifier)
    frame = spark.sql(f"SELECT * FROM {table}.entries VERSION AS OF {state.snapshot_id} WHERE status < 2")  # noqa: S608 - our own names
    # Apart, so that the statistics of data files, which are most of the metadata, need not be read for the deletes' sake;
    # both conditions are such that Iceberg chooses manifests by them.
    sides = bounds_schema(sorted(set(bounds)))
    data = frame.where(f"data_file.content = {DATA}").selectExpr(*_expressions(frame, _OF_DATA | _bounds(sides)))
    deletes = frame.where(f"data_file.content IN ({POSITION_DELETES}, {EQUALITY_DELETES})")
    silent = dict.fromkeys(sides.names, "CAST(NULL AS BINARY)")
    deletes = deletes.selectExpr(*_expressions(frame, _OF_DELETES | silent))
    return _file_columns(_collect(data.unionAll(deletes)), state.specs, sides)


def _bounds(sides: pa.Schema) -> dict[str, str]:
    named = {name: name.split(".") for name in sides.names}
    return {name: f"data_file.{side}_bounds[{field_id}]" for name, (field_id, side) in named.items()}


def _expressions(frame: Any, special: Mapping[str, str]) -> list[str]:
    fields = {field.name for field in frame.schema["data_file"].dataType.fields}
    partition = "data_file.partition" if "partition" in fields else "NULL"
    columns = {**_COLUMNS, **_DEFAULTS, **special, "partition": partition}
    for absent in _NEWER - fields:
        columns = {name: expression.replace(f"data_file.{absent}", "NULL") for name, expression in columns.items()}
    return [f"{expression} AS `{name}`" for name, expression in columns.items()]


def _collect(frame: Any) -> pa.Table:
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    batches = frame._collect_as_arrow()  # Spark 3.5 has only the private name
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in frame.columns})


def _file_columns(table: pa.Table, specs: tuple[PartitionSpec, ...], sides: pa.Schema) -> FileColumns:
    table = table.combine_chunks()
    codes, partitions = _partitions(table, {spec.spec_id: spec for spec in specs})
    plain = {field.name: table.column(field.name) for field in SCHEMA if field.name != "partition"}
    ordered = {field.name: codes if field.name == "partition" else plain[field.name] for field in SCHEMA}
    bounds = pa.table([table.column(name) for name in sides.names], schema=sides) if sides.names else None
    return FileColumns(table=pa.table(ordered).cast(SCHEMA), partitions=partitions, bounds=bounds)


def _partitions(table: pa.Table, specs: Mapping[int, PartitionSpec]) -> tuple[pa.Array, tuple[Partition, ...]]:
    """Each row's partition as an index, by way of the few distinct values: spelling a million rows would take long."""
    values = table.column("partition").combine_chunks()
    children = values.flatten() if pa.types.is_struct(values.type) else []
    names = [values.type.field(i).name for i in range(len(children))]
    key = np.zeros(table.num_rows, dtype=np.int64)
    for column in (table.column("spec_id").combine_chunks(), *children):
        encoded = column.dictionary_encode(null_encoding="encode")
        key = key * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy(zero_copy_only=False)
    _, first, codes = np.unique(key, return_index=True, return_inverse=True)
    stored = [_as_stored(child) for child in children]
    rows = [{name: child[int(i)].as_py() for name, child in zip(names, stored, strict=True)} for i in first]
    spec_ids = pc.take(table.column("spec_id"), pa.array(first)).to_pylist()
    types = {name: _iceberg_type(child.type) for name, child in zip(names, children, strict=True)}
    names_by_id = _names_by_id(specs)
    paths = [_partition(specs[spec_id], row, types, names_by_id) for spec_id, row in zip(spec_ids, rows, strict=True)]
    return pa.array(codes.astype(np.int32)), tuple(paths)


def _as_stored(values: pa.Array) -> pa.Array:
    """Dates and times as Iceberg counts them: Python has no value for years beyond 9999."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def _names_by_id(specs: Mapping[int, PartitionSpec]) -> dict[int, str]:
    """A field's column in the unified partition struct is named as in the newest spec that has it."""
    newest_first = sorted(specs.values(), key=lambda spec: -spec.spec_id)
    return {f.field_id: f.name for spec in reversed(newest_first) for f in spec.fields}


def _partition(
    spec: PartitionSpec, row: Mapping[str, Any], types: Mapping[str, str], names_by_id: Mapping[int, str]
) -> Partition:
    columns = [names_by_id[f.field_id] for f in spec.fields]
    fields = [TypedField(f.name, f.transform, types.get(c, "string")) for f, c in zip(spec.fields, columns, strict=True)]
    return Partition(spec.spec_id, partition_path(fields, [row.get(column) for column in columns]))


def _iceberg_type(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return "timestamptz" if type_.tz else "timestamp"
    return {"date32[day]": "date", "bool": "boolean"}.get(str(type_), str(type_))
