"""Columns of a file as the table's current schema wants them, found by field id and never by name.

A missing column is filled in the specification's order: identity partition value, (name mapping, which gave the ids), initial
default, null. A plan is made once per physical schema and applied to every batch. Nested values are relabelled, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from neve.kernels.arrow.casting import Convert, leaf_cast
from neve.kernels.arrow.constants import default_scalar, partition_scalar
from neve.kernels.arrow.model import RefusedError
from neve.kernels.arrow.naming import field_id
from neve.kernels.arrow.schema import arrow_type, element_field, entry_fields

Fill = Callable[[int], pa.Array]


class Mismatch(ValueError):  # noqa: N818 - a reason, which the caller turns into an error with the file's name
    """Why a file does not fit the table's schema."""


@dataclass(frozen=True)
class ProjectedColumn:
    """One column of the result: taken from the file and converted, or filled."""

    source: int | None
    convert: Convert | None = None
    fill: Fill | None = None

    def build(self, arrays: Sequence[pa.Array], rows: int) -> pa.Array:
        """The column for one batch."""
        if self.source is None:
            assert self.fill is not None  # noqa: S101 - a column without a source is made with one
            return self.fill(rows)
        array = arrays[self.source]
        return self.convert(array) if self.convert else array


@dataclass(frozen=True)
class Projection:
    """How batches of one physical schema become batches of the table's schema."""

    columns: tuple[ProjectedColumn, ...]

    def apply(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The table's columns of a batch that was read."""
        arrays = batch.columns  # pyarrow wraps every column anew each time that it is asked
        return [column.build(arrays, batch.num_rows) for column in self.columns]


def project(
    schema: Mapping[str, Any],
    physical: pa.Schema,
    constants: Mapping[int, Any],
    dictionaries: frozenset[int] = frozenset(),
    *,
    tops: Sequence[int] | None = None,
) -> Projection:
    """Plans the way from a file's schema (with ids) to the table's. Columns in `dictionaries` are kept as dictionaries.

    `tops` are the file's top-level fields that are read, in its order; without it, those that the table has.
    """
    found = source_columns(schema, physical)
    read = tops if tops is not None else sorted(found.values())
    index = {top: i for i, top in enumerate(read)}
    columns = []
    for field in schema["fields"]:
        top = found.get(field["id"])
        if top is None:
            columns.append(ProjectedColumn(None, fill=filling(field, constants, dictionary=field["id"] in dictionaries)))
        else:
            convert = _top_level(field, physical.field(top), dictionary=field["id"] in dictionaries)
            columns.append(ProjectedColumn(index[top], convert=convert))
    return Projection(tuple(columns))


def source_columns(schema: Mapping[str, Any], physical: pa.Schema) -> dict[int, int]:
    """Where a file has the table's columns, by field id; those that it lacks are left out."""
    found = {field_id(physical.field(i)): i for i in range(len(physical))}
    return {field["id"]: found[field["id"]] for field in schema["fields"] if field["id"] in found}


def _top_level(field: Mapping[str, Any], source: pa.Field, *, dictionary: bool) -> Convert | None:
    name = field["name"]
    convert = _kept(name, field["type"], source.type) if dictionary else _convert(name, field["type"], source)
    return convert if not field["required"] else _checked(name, convert)


def dictionary_of(kind: str) -> pa.DataType:
    """The type of a text column that is kept as a dictionary."""
    return pa.dictionary(pa.int32(), arrow_type(kind))


def _kept(name: str, kind: str, source: pa.DataType) -> Convert:
    """Text that was read as a dictionary already, whatever the file's own schema calls it."""
    target = dictionary_of(kind)
    convert = _leaf(name, source, target)
    return lambda array: array if array.type.equals(target) or convert is None else convert(array)


def _checked(name: str, convert: Convert | None) -> Convert:
    def check(array: pa.Array) -> pa.Array:
        if array.null_count:
            raise Mismatch(f"column {name} is required and holds nulls")
        return convert(array) if convert else array

    return check


def filling(field: Mapping[str, Any], constants: Mapping[int, Any], *, dictionary: bool = False) -> Fill:
    """What stands for a column that a file lacks."""
    kind = dictionary_of(field["type"]) if dictionary else arrow_type(field["type"])
    scalar = None
    if constants.get(field["id"]) is not None:
        scalar = partition_scalar(field["type"], constants[field["id"]])
    elif field["id"] not in constants and field.get("initial-default") is not None:
        scalar = default_scalar(field["type"], field["initial-default"])
    if scalar is None and field["required"]:
        raise Mismatch(f"column {field['name']} is required, has no default and is not in the file")
    return lambda rows: pa.nulls(rows, kind) if scalar is None else _repeat(scalar, rows, kind)


def _repeat(scalar: pa.Scalar, rows: int, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, kind.index_type), rows), pa.repeat(scalar, 1))
    return pa.repeat(scalar, rows)


def _convert(name: str, kind: Any, source: pa.Field) -> Convert | None:
    if isinstance(kind, str):
        return _leaf(name, source.type, arrow_type(kind))
    if kind["type"] == "struct" and pa.types.is_struct(source.type):
        return _struct(name, kind, source.type)
    if kind["type"] == "list" and (pa.types.is_list(source.type) or pa.types.is_large_list(source.type)):
        return _list(name, kind, source.type)
    if kind["type"] == "map" and pa.types.is_map(source.type):
        return _map(name, kind, source.type)
    raise Mismatch(f"column {name} is {source.type} in the file, {kind['type']} in the table")


def _leaf(name: str, source: pa.DataType, target: pa.DataType) -> Convert | None:
    try:
        return leaf_cast(source, target)
    except TypeError as error:
        raise Mismatch(f"column {name} is {error}") from error


def _struct(name: str, kind: Mapping[str, Any], source: pa.DataType) -> Convert:
    found = {field_id(source.field(i)): i for i in range(source.num_fields)}
    if not any(child["id"] in found for child in kind["fields"]):
        # Iceberg's reader in Spark takes such a struct for null in every row, and others do not.
        raise RefusedError(f"it has no field of the struct {name}")
    columns = []
    for child in kind["fields"]:
        at = found.get(child["id"])
        convert = None if at is None else _convert(f"{name}.{child['name']}", child["type"], source.field(at))
        # A null struct hides what its children lack, so only rows that have the struct could miss a required child.
        fill = filling({**child, "required": False}, {}) if at is None else None
        columns.append(ProjectedColumn(at, convert, fill))
    fields = list(arrow_type(kind))
    required = [i for i, child in enumerate(kind["fields"]) if child["required"]]

    def convert_struct(array: pa.Array) -> pa.Array:
        parts = [array.field(i) for i in range(source.num_fields)]
        built = [column.build(parts, len(array)) for column in columns]
        missing = pc.is_null(array) if array.null_count else None
        for i in required:
            built[i] = _require(f"{name}.{kind['fields'][i]['name']}", built[i], missing)
        return pa.StructArray.from_arrays(built, fields=fields, mask=missing)

    return convert_struct


def _require(name: str, child: pa.Array, missing: pa.Array | None) -> pa.Array:
    """A required child; nulls where its struct is missing are nobody's, and the writer would object to them."""
    if not child.null_count:
        return child
    if missing is None or pc.any(pc.and_not(pc.is_null(child), missing)).as_py():
        raise Mismatch(f"column {name} is required and holds nulls")
    return _without_nulls(child)


def _without_nulls(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(i) for i in range(kind.num_fields)], fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], null_count=0, offset=array.offset)


def _list(name: str, kind: Mapping[str, Any], source: pa.DataType) -> Convert:
    element = element_field(kind)
    convert = _convert(f"{name}.element", kind["element"], source.value_field)
    target = arrow_type(kind)

    def convert_list(array: pa.Array) -> pa.Array:
        whole = _from_the_start(array)
        values = convert(whole.values) if convert else whole.values
        if element["required"]:
            _require(f"{name}.element", whole.flatten(), None)
            values = _without_nulls(values) if values.null_count else values
        offsets = whole.offsets if whole.offsets.type == pa.int32() else whole.offsets.cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_nulls(whole))

    return convert_list


def _map(name: str, kind: Mapping[str, Any], source: pa.DataType) -> Convert:
    _, value = entry_fields(kind)
    convert_key = _convert(f"{name}.key", kind["key"], source.key_field)
    convert_value = _convert(f"{name}.value", kind["value"], source.item_field)
    target = arrow_type(kind)

    def convert_map(array: pa.Array) -> pa.Array:
        whole = _from_the_start(array)
        keys = convert_key(whole.keys) if convert_key else whole.keys
        values = convert_value(whole.items) if convert_value else whole.items
        if value["required"]:
            _require(f"{name}.value", values, None)
        return pa.MapArray.from_arrays(whole.offsets, keys, values, type=target, mask=_nulls(whole))

    return convert_map


def _from_the_start(array: pa.Array) -> pa.Array:
    # Arrow builds lists with a null mask only from offsets that are not a slice of others.
    return array if array.offset == 0 else pa.concat_arrays([array])


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None
