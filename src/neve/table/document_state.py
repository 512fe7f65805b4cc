"""A table's state from its metadata file as plain JSON, of format v1 to v3. Pure; called by `catalogs.reader`.

Nothing is validated beyond what is used: a type, a transform or a key that we do not know does no harm to the rest. Raises
CorruptMetadataError for a document that breaks the specification, and NotUnderstoodError for one that says more than we know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from neve.table.document import KNOWN_VERSIONS, Document, is_known, newer_version, not_understood, require_valid
from neve.table.state import (
    MAIN,
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

_FIRST_PARTITION_FIELD = 1000
"""The field id of the first partition field of a format v1 table whose writer gave it none."""
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_OPERATIONS = frozenset({"append", "replace", "overwrite", "delete"})
_DEFAULT_NULL_ORDER = {"asc": "nulls-first", "desc": "nulls-last"}


def state_of(name: TableName, document: Document, metadata_location: str) -> TableState:
    """Depth SUMMARY, at the current snapshot."""
    require_valid(document, metadata_location)
    if document["format-version"] not in KNOWN_VERSIONS:
        raise newer_version(str(name), document)
    try:
        return _state(name, document, metadata_location)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise not_understood(str(name), error) from error


def _state(name: TableName, document: Document, metadata_location: str) -> TableState:
    schemas = document.get("schemas") or [document["schema"]]
    current_id = _current_schema_id(document, schemas)
    schema = next(one for one in schemas if one.get("schema-id", 0) == current_id)
    names = {field_id: text for field_id, text, _ in _walk(schema["fields"])}
    current = _snapshot_id(document.get("current-snapshot-id"))
    return TableState(
        name=name,
        uuid=document.get("table-uuid") or str(uuid5(NAMESPACE_URL, metadata_location)),
        format_version=document["format-version"],
        location=document["location"],
        metadata_location=metadata_location,
        metadata_bytes=None,
        metadata_log_entries=len(document.get("metadata-log") or ()),
        properties={key: str(value) for key, value in (document.get("properties") or {}).items() if value is not None},
        schema_id=current_id,
        columns=len(schema["fields"]),
        fields=tuple(_columns(schema["fields"])),
        nested={i: text for one in schemas for i, text in _nested(one["fields"])},
        specs=tuple(_specs(document)),
        default_spec_id=document.get("default-spec-id") or 0,
        sort_orders=tuple(_sort_order(order, names) for order in document.get("sort-orders") or ({"order-id": 0},)),
        default_sort_order_id=document.get("default-sort-order-id") or 0,
        snapshot_id=current,
        snapshots=tuple(snapshot_of(one) for one in document.get("snapshots") or ()),
        refs=tuple(_refs(document, current)),
        statistics_files=len(document.get("statistics") or ()) + len(document.get("partition-statistics") or ()),
        statistics=tuple(map(_statistics, document.get("statistics") or ())),
        partition_statistics=tuple(map(_statistics, document.get("partition-statistics") or ())),
        history=tuple((entry["timestamp-ms"], entry["snapshot-id"]) for entry in document.get("snapshot-log") or ()),
    )


def _current_schema_id(document: Mapping[str, Any], schemas: list[Document]) -> int:
    """Format v1 may have one schema without an id, or name it only in the schema itself."""
    found = document.get("current-schema-id")
    return int(schemas[-1].get("schema-id", 0) if found is None else found)


def _snapshot_id(found: int | None) -> int | None:
    """Early writers said -1 for none."""
    return None if found == -1 else found


def _columns(fields: list[Document], prefix: str = "") -> Iterator[Column]:
    """The columns that hold values, those inside structs included."""
    for field in fields:
        name, kind = prefix + field["name"], field["type"]
        if isinstance(kind, str):
            if is_known(kind):
                yield Column(field_id=field["id"], name=name, type=_DECIMAL.sub(r"decimal(\1, \2)", kind))
        elif kind.get("type") == "struct":
            yield from _columns(kind["fields"], name + ".")


def _nested(fields: list[Document], prefix: str = "") -> Iterator[tuple[int, str]]:
    """The columns inside structs, by field id."""
    for field in fields:
        name, kind = prefix + field["name"], field["type"]
        if prefix:
            yield field["id"], name
        if isinstance(kind, dict) and kind.get("type") == "struct":
            yield from _nested(kind["fields"], name + ".")


def _walk(fields: list[Document], prefix: str = "") -> Iterator[tuple[int, str, Any]]:
    """Every field with its full name, those inside structs, lists and maps included."""
    for field in fields:
        name = prefix + field["name"]
        yield field["id"], name, field["type"]
        yield from _inside(field["type"], name)


def _inside(kind: Any, name: str) -> Iterator[tuple[int, str, Any]]:
    if not isinstance(kind, dict):
        return
    if kind.get("type") == "struct":
        yield from _walk(kind["fields"], name + ".")
    for part in ("element", "key", "value"):
        if part in kind:
            yield kind[f"{part}-id"], f"{name}.{part}", kind[part]
            yield from _inside(kind[part], f"{name}.{part}")


def _specs(document: Mapping[str, Any]) -> Iterator[PartitionSpec]:
    only: Document = {"spec-id": 0, "fields": document.get("partition-spec") or []}
    for spec in document.get("partition-specs") or [only]:
        fields = (
            PartitionField(
                name=field["name"],
                transform=field["transform"],
                source_id=_source_id(field),
                field_id=field.get("field-id", _FIRST_PARTITION_FIELD + number),
            )
            for number, field in enumerate(spec["fields"])
        )
        yield PartitionSpec(spec_id=spec["spec-id"], fields=tuple(fields))


def _source_id(field: Mapping[str, Any]) -> int:
    if "source-id" in field:
        return int(field["source-id"])
    [source] = field["source-ids"]  # several are for a later version
    return int(source)


def _sort_order(order: Mapping[str, Any], names: Mapping[int, str]) -> SortOrder:
    return SortOrder(order_id=order["order-id"], fields=tuple(_sort_field(f, names) for f in order.get("fields") or ()))


def _sort_field(field: Mapping[str, Any], names: Mapping[int, str]) -> str:
    source, transform = _source_id(field), field.get("transform") or "identity"
    direction = field.get("direction") or "asc"
    column = names.get(source) or str(source)
    key = column if transform == "identity" else f"{transform}({column})"
    return f"{key} {direction} {field.get('null-order') or _DEFAULT_NULL_ORDER[direction]}"


def snapshot_of(snapshot: Mapping[str, Any]) -> Snapshot:
    """Returns one entry of `snapshots`. Raises KeyError, TypeError or ValueError for one that is malformed."""
    told = snapshot.get("summary")
    # A summary must say its operation; what has none may have removed rows.
    operation = "unknown" if told is None else told.get("operation") or "overwrite"
    if told is not None and operation not in _OPERATIONS:
        raise ValueError(f"{operation} is not an operation of a snapshot")
    return Snapshot(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=_snapshot_id(snapshot.get("parent-snapshot-id")),
        sequence_number=snapshot.get("sequence-number") or 0,
        timestamp_ms=snapshot["timestamp-ms"],
        operation=operation,
        summary={key: str(value) for key, value in (told or {}).items() if key != "operation"},
    )


def _refs(document: Mapping[str, Any], current: int | None) -> Iterator[Ref]:
    """Metadata from before there were branches has none, and then the current snapshot is that of main."""
    refs = dict(document.get("refs") or {})
    if current is not None:
        refs.setdefault(MAIN, {"snapshot-id": current, "type": RefKind.BRANCH})
    for name, ref in sorted(refs.items()):
        yield Ref(
            name=name,
            kind=RefKind(ref["type"]),
            snapshot_id=ref["snapshot-id"],
            min_snapshots_to_keep=ref.get("min-snapshots-to-keep"),
            max_snapshot_age_ms=ref.get("max-snapshot-age-ms"),
            max_ref_age_ms=ref.get("max-ref-age-ms"),
        )


def _statistics(file: Mapping[str, Any]) -> StatisticsFile:
    """Of columns, or of partitions: those have no blobs."""
    return StatisticsFile(
        snapshot_id=file["snapshot-id"],
        path=file["statistics-path"],
        size_bytes=file["file-size-in-bytes"],
        sketches=tuple(map(_sketch, file.get("blob-metadata") or ())),
    )


def _sketch(blob: Mapping[str, Any]) -> Sketch:
    told = (blob.get("properties") or {}).get("ndv", "")
    return Sketch(field_ids=tuple(blob["fields"]), kind=str(blob["type"]), distinct=whole_number(told))
