"""A PyIceberg table as our readers take it, and its state as PyIceberg's own models have it, to compare ours with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from neve.catalogs.reader import LoadedTable
from neve.table.state import (
    Column,
    PartitionField,
    PartitionSpec,
    Ref,
    RefKind,
    Sketch,
    Snapshot,
    SortOrder,
    StatisticsFile,
    TableName,
    TableState,
)
from neve.table.units import whole_number


def loaded_table(table: Table) -> LoadedTable:
    """As a catalog of ours would hand it over."""
    document = json.loads(table.metadata.model_dump_json())
    return LoadedTable(document, table.metadata_location, table.io, is_stored=False)


def state_by_pyiceberg(name: TableName, table: Table) -> TableState:
    """What PyIceberg's models say of the table."""
    meta = table.metadata
    return TableState(
        name=name,
        uuid=str(meta.table_uuid),
        format_version=meta.format_version,
        location=meta.location,
        metadata_location=table.metadata_location,
        metadata_bytes=None,
        metadata_log_entries=len(meta.metadata_log),
        properties=dict(meta.properties),
        schema_id=meta.current_schema_id,
        columns=len(meta.schema().fields),
        fields=tuple(_columns(meta.schema().fields)),
        nested={i: name for schema in meta.schemas for i, name in _nested(schema.fields)},
        specs=tuple(_spec(spec) for spec in meta.partition_specs),
        default_spec_id=meta.default_spec_id,
        sort_orders=tuple(_sort_order(order, meta) for order in meta.sort_orders),
        default_sort_order_id=meta.default_sort_order_id,
        snapshot_id=meta.current_snapshot_id,
        snapshots=tuple(_snapshot(snapshot) for snapshot in meta.snapshots),
        refs=tuple(
            Ref(
                name=name,
                kind=RefKind(ref.snapshot_ref_type.value),
                snapshot_id=ref.snapshot_id,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                max_ref_age_ms=ref.max_ref_age_ms,
            )
            for name, ref in sorted(meta.refs.items())
        ),
        statistics_files=len(meta.statistics) + len(getattr(meta, "partition_statistics", None) or ()),
        statistics=tuple(_statistics(file) for file in meta.statistics),
        partition_statistics=tuple(_statistics(file) for file in getattr(meta, "partition_statistics", None) or ()),
        history=tuple((entry.timestamp_ms, entry.snapshot_id) for entry in meta.snapshot_log),
    )


def _columns(fields: Iterable[Any], prefix: str = "") -> Iterator[Column]:
    """The columns that hold values, those inside structs included."""
    for field in fields:
        name = prefix + field.name
        if field.field_type.is_struct:
            yield from _columns(field.field_type.fields, name + ".")
        elif field.field_type.is_primitive:
            yield Column(field_id=field.field_id, name=name, type=str(field.field_type))


def _nested(fields: Iterable[Any], prefix: str = "") -> Iterator[tuple[int, str]]:
    """The columns inside structs, by field id."""
    for field in fields:
        name = prefix + field.name
        if prefix:
            yield field.field_id, name
        if field.field_type.is_struct:
            yield from _nested(field.field_type.fields, name + ".")


def _spec(spec: Any) -> PartitionSpec:
    fields = tuple(
        PartitionField(name=f.name, transform=str(f.transform), source_id=f.source_id, field_id=f.field_id) for f in spec.fields
    )
    return PartitionSpec(spec_id=spec.spec_id, fields=fields)


def _sort_order(order: Any, meta: TableMetadata) -> SortOrder:
    names = {f.source_id: meta.schema().find_column_name(f.source_id) for f in order.fields}
    fields = tuple(
        f"{names.get(f.source_id) or f.source_id} {f.direction.value} {f.null_order.value}"
        if str(f.transform) == "identity"
        else f"{f.transform}({names.get(f.source_id) or f.source_id}) {f.direction.value} {f.null_order.value}"
        for f in order.fields
    )
    return SortOrder(order_id=order.order_id, fields=fields)


def _statistics(file: Any) -> StatisticsFile:
    """Of columns, or of partitions: those have no blobs."""
    blobs = getattr(file, "blob_metadata", None) or ()
    return StatisticsFile(
        snapshot_id=file.snapshot_id,
        path=file.statistics_path,
        size_bytes=file.file_size_in_bytes,
        sketches=tuple(_sketch(blob) for blob in blobs),
    )


def _sketch(blob: Any) -> Sketch:
    told = (blob.properties or {}).get("ndv", "")
    return Sketch(field_ids=tuple(blob.fields), kind=str(blob.type), distinct=whole_number(told))


def _snapshot(snapshot: Any) -> Snapshot:
    summary = snapshot.summary
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        timestamp_ms=snapshot.timestamp_ms,
        operation=summary.operation.value if summary else "unknown",
        summary=dict(summary.additional_properties) if summary else {},
    )
