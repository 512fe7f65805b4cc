"""Field ids for files that have none, from the table's name mapping (`schema.name-mapping.default`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from neve.kernels.arrow.schema import FIELD_ID

NameMapping = Sequence[Mapping[str, Any]]


def has_ids(schema: pa.Schema) -> bool:
    """Whether any field of the file, at any depth, carries an id."""
    return any(_has_ids(field) for field in schema)


def _has_ids(field: pa.Field) -> bool:
    if field_id(field) is not None:
        return True
    return any(_has_ids(child) for child in children(field.type))


def field_id(field: pa.Field) -> int | None:
    """The id that the file gives this field."""
    text = (field.metadata or {}).get(FIELD_ID)
    return int(text) if text is not None and int(text) >= 0 else None


def children(kind: pa.DataType) -> list[pa.Field]:
    """The fields right below a nested type."""
    if pa.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    return []


def assign_ids(schema: pa.Schema, mapping: NameMapping) -> pa.Schema:
    """The file's schema with ids by name; fields that the mapping does not know get none and are not read."""
    return pa.schema([_assign(field, field.name, mapping) for field in schema], metadata=schema.metadata)


def _assign(field: pa.Field, name: str, mapping: NameMapping) -> pa.Field:
    entry: Mapping[str, Any] = next((e for e in mapping if name in e.get("names", ())), {})
    below = entry.get("fields", ())
    number = entry.get("field-id")
    metadata = {} if number is None else {FIELD_ID: str(number).encode()}
    return pa.field(field.name, _assign_below(field.type, below), nullable=field.nullable, metadata=metadata)


def _assign_below(kind: pa.DataType, mapping: NameMapping) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_assign(child, child.name, mapping) for child in children(kind)])
    if pa.types.is_map(kind):
        # A mapping knows these by the names of the specification, whatever the writer called them.
        return pa.map_(_assign(kind.key_field, "key", mapping), _assign(kind.item_field, "value", mapping))
    if pa.types.is_list(kind):
        return pa.list_(_assign(kind.value_field, "element", mapping))
    if pa.types.is_large_list(kind):
        return pa.large_list(_assign(kind.value_field, "element", mapping))
    return kind
