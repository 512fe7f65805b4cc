"""Manifest lists and manifests as columns.

Called by `reader`, in this process or in a pool of its own for large tables. Decoding keeps only what health and planning ask
for; entries marked as deleted are dropped, and values that Iceberg lets a manifest inherit are filled in.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.avro.decoder import new_decoder

from neve.catalogs.avro import AvroHeader, read_blocks, read_header, record_reader
from neve.errors import CorruptMetadataError
from neve.table.files import (
    POSITION_DELETES,
    SCHEMA,
    UNKNOWN,
    FileColumns,
    Partition,
    bounds_schema,
    default_columns,
    spell_ids,
)
from neve.table.partition import TypedField, partition_path
from neve.table.state import Manifest, PartitionRange

_LIST_FIELDS = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "content",
    "sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "added_data_files_count",  # the same counts under their v1 names
    "existing_files_count",
    "existing_data_files_count",
    "first_row_id",
    "partitions",
)
_ENTRY_FIELDS = (
    "status",
    "snapshot_id",
    "sequence_number",
    "data_file.content",
    "data_file.file_path",
    "data_file.file_format",
    "data_file.partition",
    "data_file.record_count",
    "data_file.file_size_in_bytes",
    "data_file.split_offsets",
    "data_file.sort_order_id",
    "data_file.content_size_in_bytes",
)
_BOUNDS_FIELDS = ("data_file.lower_bounds", "data_file.upper_bounds")
_DELETE_FIELDS = (
    "data_file.equality_ids",
    "data_file.referenced_data_file",
    "data_file.content_offset",
    *_BOUNDS_FIELDS,
)
_PATH_FIELD_ID = 2147483546
"""The column of a position delete file that holds the data file's path."""

_DELETED = 2


def decode_manifest_list(data: bytes) -> tuple[Manifest, ...]:
    """Every line of a manifest list."""
    _, rows = _rows(data, _LIST_FIELDS, "manifest list")
    return tuple(_manifest(row) for row in rows)


def _rows(
    data: bytes, wanted: Collection[str], what: str, bounds: Sequence[int] = ()
) -> tuple[AvroHeader, list[dict[str, Any]]]:
    """All records of an Avro file; torn or foreign bytes fail in many ways, of which callers see one."""
    try:
        decoder = new_decoder(data)
        header = read_header(decoder)
        read = record_reader(header.schema, wanted)
        rows = (read(block) for count, block in read_blocks(decoder, header) for _ in range(count))
        return header, list(_with_bounds(rows, bounds) if bounds else rows)
    except Exception as error:
        raise CorruptMetadataError(
            f"Cannot decode {what}: {error or type(error).__name__}", hint="The file is damaged, or is not Iceberg metadata."
        ) from error


def _with_bounds(rows: Iterable[dict[str, Any]], bounds: Sequence[int]) -> Iterable[dict[str, Any]]:
    """Keeps the bounds of these columns, and lets the others go at once: those of a wide table would fill the memory."""
    for row in rows:
        lower, upper = (dict(row.pop(side, None) or ()) for side in _BOUNDS_FIELDS)
        row["bounds"] = [side.get(field_id) for field_id in bounds for side in (lower, upper)]
        yield row


def _manifest(row: dict[str, Any]) -> Manifest:
    added = row.get("added_files_count", row.get("added_data_files_count"))
    existing = row.get("existing_files_count", row.get("existing_data_files_count"))
    return Manifest(
        path=row["manifest_path"],
        length_bytes=row["manifest_length"],
        holds_deletes=row.get("content", 0) == 1,
        spec_id=row["partition_spec_id"],
        sequence_number=row.get("sequence_number") or 0,
        added_snapshot_id=row.get("added_snapshot_id"),
        live_files=None if added is None or existing is None else added + existing,
        first_row_id=row.get("first_row_id"),
        ranges=tuple(_range(summary) for summary in row.get("partitions") or ()),
    )


def _range(summary: Sequence[Any]) -> PartitionRange:
    """Of a field summary, whose last two fields are the bounds."""
    lower, upper = (None if bound is None else bytes(bound).hex() for bound in summary[-2:])
    return PartitionRange(lower=lower, upper=upper)


def decode_manifest(data: bytes, manifest: Manifest, transforms: Sequence[str], bounds: Sequence[int] = ()) -> FileColumns:
    """The live files of one manifest; `transforms` are those of its spec, in order. Of the columns with the field ids
    `bounds`, the bounds come along; deletes tell none, since a filter on rows says nothing of them."""
    if len(data) != manifest.length_bytes:
        raise CorruptMetadataError(
            f"Cannot decode manifest {manifest.path}: it has {len(data):,} bytes, its list says {manifest.length_bytes:,}",
            hint="The file was cut short or replaced.",
        )
    told = () if manifest.holds_deletes else bounds
    header, rows = _rows(data, _wanted(manifest, told), f"manifest {manifest.path}", told)
    live = [row for row in rows if row["status"] != _DELETED]
    fields = [TypedField(*f) for f in _partition_fields(header.schema, transforms)]
    # Python takes 0.0 and -0.0 for equal, which Iceberg does not.
    key = repr if any(field.type in ("float", "double") for field in fields) else tuple
    partitions: dict[Any, int] = {}
    distinct: list[tuple[Any, ...]] = []
    for row in live:
        values = row["data_file.partition"]
        row["partition"] = partitions.setdefault(key(values), len(partitions))
        if len(partitions) > len(distinct):
            distinct.append(values)
    paths = tuple(Partition(manifest.spec_id, partition_path(fields, values)) for values in distinct)
    return FileColumns(table=_columns(live, manifest), partitions=paths, bounds=_bounds(live, bounds) if bounds else None)


def _wanted(manifest: Manifest, bounds: Sequence[int]) -> Collection[str]:
    """Only what a manifest of its kind can tell: most are of data files, and statistics take longest to read."""
    if manifest.holds_deletes:
        return (*_ENTRY_FIELDS, *_DELETE_FIELDS)
    wanted = (*_ENTRY_FIELDS, *_BOUNDS_FIELDS) if bounds else _ENTRY_FIELDS
    return wanted if manifest.first_row_id is None else (*wanted, "data_file.first_row_id")


def _columns(rows: list[dict[str, Any]], manifest: Manifest) -> pa.Table:
    def column(name: str, absent: Any) -> list[Any]:
        return [absent if (value := row.get(name)) is None else value for row in rows]

    sizes = column("data_file.file_size_in_bytes", 0)
    vectors = [row.get("data_file.content_size_in_bytes") for row in rows]
    return pa.table(
        {
            "path": column("data_file.file_path", ""),
            "content": column("data_file.content", 0),
            "format": [str(row["data_file.file_format"]).lower() for row in rows],
            "partition": column("partition", 0),
            "size_bytes": [size if vector is None else vector for size, vector in zip(sizes, vectors, strict=True)],
            "records": column("data_file.record_count", 0),
            "row_groups": [len(offsets) if (offsets := row.get("data_file.split_offsets")) else UNKNOWN for row in rows],
            "sort_order_id": column("data_file.sort_order_id", UNKNOWN),
            "sequence_number": column("sequence_number", manifest.sequence_number),
            "snapshot_id": column("snapshot_id", UNKNOWN if manifest.added_snapshot_id is None else manifest.added_snapshot_id),
            **default_columns(len(rows)),
            **(_told_of_deletes(rows) if manifest.holds_deletes else _first_row_ids(rows, manifest.first_row_id)),
        },
        schema=SCHEMA,
    )


def _bounds(rows: list[dict[str, Any]], bounds: Sequence[int]) -> pa.Table:
    schema = bounds_schema(bounds)
    silent = [None] * len(schema)
    return pa.table([[row.get("bounds", silent)[n] for row in rows] for n in range(len(schema))], schema=schema)


def _told_of_deletes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    offsets = [row.get("data_file.content_offset") for row in rows]
    return {
        "referenced": [_referenced(row) for row in rows],
        "content_offset": [UNKNOWN if offset is None else offset for offset in offsets],
        "equality_ids": [spell_ids(row.get("data_file.equality_ids") or ()) for row in rows],
    }


def _referenced(row: dict[str, Any]) -> str:
    """The one data file that a delete of positions names. Bounds that are equal are whole: a cut upper bound is rounded up."""
    if row.get("data_file.content") != POSITION_DELETES:
        return ""
    if (named := row.get("data_file.referenced_data_file")) is not None:
        return str(named)
    lower, upper = (dict(row.get(f"data_file.{side}_bounds") or ()).get(_PATH_FIELD_ID) for side in ("lower", "upper"))
    return lower.decode("utf-8", "replace") if lower is not None and lower == upper else ""


def _first_row_ids(rows: list[dict[str, Any]], following: int | None) -> dict[str, Any]:
    """Each file's own, or else where the file before ended; a manifest that was given none passes none on."""
    if following is None:
        return {}
    found = []
    for row in rows:
        own = row.get("data_file.first_row_id")
        found.append(following if own is None else own)
        following += row["data_file.record_count"] if own is None else 0
    return {"first_row_id": found}


def _partition_fields(schema: dict[str, Any], transforms: Sequence[str]) -> list[tuple[str, str, str]]:
    data_file = next(f["type"] for f in schema["fields"] if f["name"] == "data_file")
    record = next(f["type"] for f in data_file["fields"] if f["name"] == "partition")
    names = [(field.get("iceberg-field-name") or field["name"], _iceberg_type(field["type"])) for field in record["fields"]]
    return [(name, transform, type_) for (name, type_), transform in zip(names, transforms, strict=True)]


def _iceberg_type(schema: Any) -> str:
    """The Iceberg type behind an Avro type, as far as spelling a value needs it."""
    if isinstance(schema, list):
        return _iceberg_type(next(branch for branch in schema if branch != "null"))
    if isinstance(schema, str):
        return {"bytes": "binary"}.get(schema, schema)
    zoned = "tz" if schema.get("adjust-to-utc") else ""
    match schema.get("logicalType"):
        case "timestamp-micros":
            return "timestamp" + zoned
        case "timestamp-nanos":
            return f"timestamp{zoned}_ns"
        case "time-micros":
            return "time"
        case "date" | "decimal" | "uuid" as name:
            return str(name)
    return _iceberg_type(schema["type"])


def concatenate(parts: Sequence[FileColumns]) -> FileColumns:
    """All parts as one, each partition listed once."""
    index: dict[Partition, int] = {}
    tables = []
    bounds = [part.bounds for part in parts if part.bounds is not None]
    for part in parts:
        remap = np.array([index.setdefault(p, len(index)) for p in part.partitions], dtype=np.int32)
        codes = remap[part.column("partition")] if len(part) else part.column("partition")
        tables.append(part.table.set_column(SCHEMA.get_field_index("partition"), SCHEMA.field("partition"), [codes]))
    if not tables:
        return FileColumns.empty()
    return FileColumns(
        table=pa.concat_tables(tables).combine_chunks(),
        partitions=tuple(index),
        bounds=pa.concat_tables(bounds).combine_chunks() if bounds else None,
    )


def to_ipc(files: FileColumns) -> bytes:
    """Arrow's file format with the partitions in its metadata: what the cache and worker processes hand around."""
    partitions = json.dumps([[p.spec_id, p.path] for p in files.partitions]).encode()
    both = (files.table,) if files.bounds is None else (files.table, files.bounds)
    schema = pa.schema([field for table in both for field in table.schema], {b"partitions": partitions})
    return table_to_ipc(pa.table([column for table in both for column in table.columns], schema=schema))


def from_ipc(data: bytes) -> FileColumns:
    """The inverse of `to_ipc`."""
    whole = table_from_ipc(data)
    partitions = tuple(Partition(spec_id, path) for spec_id, path in json.loads(whole.schema.metadata[b"partitions"]))
    whole = whole.replace_schema_metadata(None)
    bounds = whole.drop_columns(SCHEMA.names) if whole.num_columns > len(SCHEMA) else None
    return FileColumns(table=whole.select(SCHEMA.names), partitions=partitions, bounds=bounds)


def table_to_ipc(table: pa.Table) -> bytes:
    """Any table in the same format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_from_ipc(data: bytes) -> pa.Table:
    """The inverse of `table_to_ipc`."""
    return pa.ipc.open_file(pa.py_buffer(data)).read_all()
