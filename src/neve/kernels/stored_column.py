"""One column as a Parquet file's footer has it: found as readers find it, with the type that was written and its statistics.

Used by `spark.table.opening`. Readers find a column by its field id, and in a file without ids by the table's name mapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.errors import MissingFileError
from neve.kernels.arrow.naming import NameMapping, assign_ids, children, field_id, has_ids
from neve.kernels.faults import CorruptFileError
from neve.kernels.opening import FooterSource, check_footer, open_footer, read_tail, without_arrow_schema
from neve.kernels.parquet.footer import ENCRYPTED_MAGIC
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TIMESTAMPS = {
    ("microseconds", False): "timestamp",
    ("microseconds", True): "timestamptz",
    ("nanoseconds", False): "timestamp_ns",
    ("nanoseconds", True): "timestamptz_ns",
}
_INTEGERS = {"INT32": "int", "INT64": "long"}


def stored_column(storage: FooterSource, path: str, records: int, wanted: int, mapping: NameMapping | None) -> FooterFinding:
    """Opens a file of so many rows and returns what its footer says of the column with the field id `wanted`.

    Raises a NeveError if the storage does not answer; a file that is gone or damaged is described as such.
    """
    try:
        source = storage.stored(path)
        tail = read_tail(source)
        if tail[-4:] == ENCRYPTED_MAGIC:
            return FooterFinding(unknown="its footer is encrypted")
        schema = check_footer(path, source.size_bytes, tail)
        metadata = open_footer(path, without_arrow_schema(tail))
    except (CorruptFileError, MissingFileError) as error:
        return FooterFinding(unknown=str(error), is_damaged=True)
    if schema.odd_ids is not None:
        return FooterFinding(unknown=schema.odd_ids)
    if metadata is None:
        return FooterFinding(unknown="it has a column of a type that pyarrow does not know")
    if metadata.num_rows != records:
        return FooterFinding(unknown=f"it holds {metadata.num_rows} rows, the table says {records}", is_damaged=True)
    return _described(metadata, wanted, mapping)


def _described(metadata: pq.FileMetaData, wanted: int, mapping: NameMapping | None) -> FooterFinding:
    schema = metadata.schema.to_arrow_schema()
    if not has_ids(schema):
        if mapping is None:
            return FooterFinding(unknown="it has no field ids and the table no name mapping")
        schema = assign_ids(schema, mapping)
    leaves = [leaf for field in schema for leaf in _leaves(field, ())]
    found = [i for i, (number, _) in enumerate(leaves) if number == wanted]
    if len(leaves) != metadata.num_columns or len(found) > 1:
        return FooterFinding(unknown="its columns cannot be told apart")
    if not found:
        return FooterFinding()
    index = found[0]
    if metadata.schema.column(index).path != ".".join(leaves[index][1]):
        return FooterFinding(unknown="its columns cannot be told apart")
    return FooterFinding(_statistics(metadata, index))


def _leaves(field: pa.Field, above: tuple[str, ...]) -> Iterator[tuple[int | None, tuple[str, ...]]]:
    """The columns that hold values, in the file's order. One below a list or a map never has a time for the row."""
    path, below = (*above, field.name), children(field.type)
    if not below:
        yield field_id(field), path
    elif pa.types.is_struct(field.type):
        for child in below:
            yield from _leaves(child, path)
    else:
        yield from ((None, ()) for child in below for _ in _leaves(child, path))


def _statistics(metadata: pq.FileMetaData, index: int) -> StoredColumn:
    kind = _kind(metadata.schema.column(index))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    found = [group.column(index).statistics for group in groups if group.num_rows]
    if not found or not all(s is not None and s.has_null_count and s.has_min_max for s in found):
        return StoredColumn(kind)
    nulls = sum(s.null_count for s in found)
    lower, upper = _plain(min(s.min_raw for s in found)), _plain(max(s.max_raw for s in found))
    return StoredColumn(kind, nulls, lower, upper)


def _plain(raw: Any) -> int | str | None:
    if isinstance(raw, bytes):
        return raw.decode(errors="replace")
    return raw if isinstance(raw, int) else None


def _kind(column: Any) -> str:
    """The Iceberg type that stores its values in this way, otherwise the file's own words."""
    logical: dict[str, Any] = json.loads(column.logical_type.to_json())
    physical, name = column.physical_type, logical["Type"]
    if physical == "INT64" and name == "Timestamp":
        unit, zoned = logical["timeUnit"], bool(logical["isAdjustedToUTC"])
        return _TIMESTAMPS.get((unit, zoned), f"timestamp in {unit}")
    if physical in _INTEGERS and (name == "None" or (name == "Int" and logical["isSigned"])):
        return _INTEGERS[physical]
    if (physical, name) == ("INT32", "Date"):
        return "date"
    if (physical, name) == ("BYTE_ARRAY", "String"):
        return "string"
    return f"{physical} ({name})" if name != "None" else str(physical)
