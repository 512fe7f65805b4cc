"""Reads one loaded table in plain Python: no JVM, no data file, only the metadata that was asked for.

Every catalog family hands its tables over as a pyiceberg table; this is the one place that turns such a table into our values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve.catalogs.cache import MetadataCache
from neve.catalogs.errors import reading
from neve.catalogs.manifests import concatenate, decode_manifest_list, from_ipc, table_from_ipc, table_to_ipc, to_ipc
from neve.catalogs.pool import decode_all
from neve.errors import CorruptMetadataError
from neve.ports import Progress
from neve.table.files import FileColumns, bounds_schema
from neve.table.state import (
    Column,
    Manifest,
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

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_CONCURRENT_READS = 8


class MetadataReader:
    """One table at one metadata version (implements `ports.TableReader`)."""

    def __init__(self, name: TableName, table: Table, cache: MetadataCache | None, snapshot_id: int | None = None) -> None:
        self._name = name
        self._table = table
        self._cache = cache
        self._snapshot_id = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id

    def at(self, snapshot_id: int) -> MetadataReader:
        """The same table at another snapshot."""
        return MetadataReader(self._name, self._table, self._cache, snapshot_id)

    def state(self) -> TableState:
        """Depth SUMMARY."""
        return self._state

    @cached_property
    def _state(self) -> TableState:
        meta = self._table.metadata
        return TableState(
            name=self._name,
            uuid=str(meta.table_uuid),
            format_version=meta.format_version,
            location=meta.location,
            metadata_location=self._table.metadata_location,
            metadata_bytes=self._metadata_bytes(),
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
            snapshot_id=self._snapshot_id,
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

    def manifests(self) -> tuple[Manifest, ...]:
        """The snapshot's manifest list; none for a table without a snapshot."""
        snapshot = self._table.metadata.snapshot_by_id(self._snapshot_id) if self._snapshot_id is not None else None
        if snapshot is None:
            return ()
        if not snapshot.manifest_list:
            raise CorruptMetadataError(
                f"Cannot inspect {self._name}: snapshot {snapshot.snapshot_id} has no manifest list",
                hint="The snapshot was written by a format v1 writer of 2019 or before; any new commit adds the list.",
            )
        data = self._fetch("manifest-list", snapshot.manifest_list, lambda: self._read(snapshot.manifest_list))
        return decode_manifest_list(data)

    def files(
        self, manifests: tuple[Manifest, ...], progress: Progress | None = None, *, bounds: Collection[int] = ()
    ) -> FileColumns:
        """The live files, from the cache where it has a manifest, decoded otherwise."""
        ids = sorted(set(bounds))
        transforms = {s.spec_id: tuple(str(f.transform) for f in s.fields) for s in self._table.metadata.partition_specs}
        parts = {m.path: part for m in manifests if (part := self._cached(m, ids)) is not None}
        jobs = [(m, transforms[m.spec_id], ids) for m in manifests if m.path not in parts]
        for manifest, part in decode_all(jobs, self._read):
            parts[manifest.path] = part
            self._keep(manifest, part, ids)
            if progress:
                progress("inspect", len(parts), len(manifests))
        return concatenate([FileColumns.empty(ids), *(parts[m.path] for m in manifests)])

    def sample_row_groups(self, paths: Iterable[str]) -> Mapping[str, int]:
        """Row groups per Parquet file, from footers."""
        import pyarrow.parquet as pq

        def row_groups(path: str) -> int:
            with reading(path), self._table.io.new_input(path).open(seekable=True) as stream:
                return int(pq.ParquetFile(stream).metadata.num_row_groups)

        wanted = list(paths)
        with ThreadPoolExecutor(_CONCURRENT_READS) as threads:
            return dict(zip(wanted, threads.map(row_groups, wanted), strict=True))

    def _cached(self, manifest: Manifest, ids: Sequence[int]) -> FileColumns | None:
        if self._cache is None:
            return None
        found = [data for entry in _entries(manifest, ids) if (data := self._cache.find(*entry)) is not None]
        if len(found) < 1 + len(ids):
            return None
        columns = [column for data in found[1:] for column in table_from_ipc(data).columns]
        return replace(from_ipc(found[0]), bounds=pa.table(columns, schema=bounds_schema(ids)) if ids else None)

    def _keep(self, manifest: Manifest, part: FileColumns, ids: Sequence[int]) -> None:
        if self._cache is None:
            return
        sides = [] if part.bounds is None else [part.bounds.select(bounds_schema([field_id]).names) for field_id in ids]
        parts = [to_ipc(replace(part, bounds=None)), *map(table_to_ipc, sides)]
        for entry, data in zip(_entries(manifest, ids), parts, strict=True):
            self._cache.keep(*entry, data)

    def _metadata_bytes(self) -> int | None:
        location = self._table.metadata_location
        size = self._fetch("metadata-size", location, lambda: str(len(self._table.io.new_input(location))).encode())
        return int(size)

    def _read(self, location: str) -> bytes:
        with reading(location), self._table.io.new_input(location).open(seekable=False) as stream:
            return bytes(stream.read())

    def _fetch(self, kind: str, location: str, produce: Callable[[], bytes]) -> bytes:
        with reading(location):
            return self._cache.fetch(kind, location, produce) if self._cache else produce()


def _entries(manifest: Manifest, ids: Sequence[int]) -> list[tuple[str, str]]:
    """Where the cache has a manifest: its files, and the bounds of each column by themselves, so that any choice of columns
    finds what an earlier one left. A manifest from before the table went to v3 is given its first row id later, and by each
    branch another."""
    files = manifest.path if manifest.first_row_id is None else f"{manifest.path}#{manifest.first_row_id}"
    return [("manifest", files), *(("bounds", f"{manifest.path}#{field_id}") for field_id in ids)]


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
