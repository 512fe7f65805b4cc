"""From an Iceberg schema (its JSON) to the Arrow schema that makes pyarrow write what Iceberg's Java writer would.

Field ids stand everywhere, nested ones too; names are spelled as Java spells them in Parquet. Used by every other module here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from neve.kernels.parquet.schema import LINEAGE_IDS

FIELD_ID = b"PARQUET:field_id"
ROW_ID, LAST_UPDATED = LINEAGE_IDS.values()
UUID_STORAGE = pa.binary(16)

LINEAGE_FIELDS = tuple({"id": i, "name": name, "required": False, "type": "long"} for name, i in LINEAGE_IDS.items())

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": UUID_STORAGE,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]")


@dataclass(frozen=True)
class ArrowLeaf:
    """A column that holds values. `path` is its name in Parquet; bounds exist only where nothing above repeats."""

    field_id: int
    kind: str
    path: str
    top: str  # the top-level column that it belongs to
    repeated: bool


def primitive(kind: str) -> pa.DataType | None:
    """The Arrow type of a primitive, None where this kernel has none. A uuid is its 16 bytes until it is written."""
    if match := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _FIXED.fullmatch(kind):
        return pa.binary(int(match[1]))
    return PRIMITIVES.get(kind)


def arrow_type(kind: Any, *, written: bool = False) -> pa.DataType:
    """The Arrow type of any Iceberg type; `written` gives uuids the extension type that marks them in the file."""
    if isinstance(kind, str):
        return pa.uuid() if written and kind == "uuid" else primitive(kind)
    if kind["type"] == "struct":
        return pa.struct([arrow_field(child, written=written) for child in kind["fields"]])
    if kind["type"] == "list":
        return pa.list_(arrow_field(element_field(kind), written=written))
    key, value = entry_fields(kind)
    return pa.map_(arrow_field(key, written=written), arrow_field(value, written=written))


def arrow_field(field: Mapping[str, Any], *, written: bool = False) -> pa.Field:
    """A field with its id, requiredness and Parquet name."""
    kind = arrow_type(field["type"], written=written)
    metadata = {FIELD_ID: str(field["id"]).encode()}
    return pa.field(parquet_name(field["name"]), kind, nullable=not field["required"], metadata=metadata)


def arrow_schema(schema: Mapping[str, Any], *, written: bool = False) -> pa.Schema:
    """The whole schema."""
    return pa.schema([arrow_field(field, written=written) for field in schema["fields"]])


def element_field(kind: Mapping[str, Any]) -> dict[str, Any]:
    """A list's element, spelled like a field."""
    return {"id": kind["element-id"], "name": "element", "required": kind["element-required"], "type": kind["element"]}


def entry_fields(kind: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A map's key and value, spelled like fields."""
    return (
        {"id": kind["key-id"], "name": "key", "required": True, "type": kind["key"]},
        {"id": kind["value-id"], "name": "value", "required": kind["value-required"], "type": kind["value"]},
    )


def with_lineage(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with format v3's two lineage columns at its end."""
    return {**schema, "fields": [*schema["fields"], *LINEAGE_FIELDS]}


def leaves(schema: Mapping[str, Any]) -> tuple[ArrowLeaf, ...]:
    """Every column that holds values, in the order of the file."""
    return tuple(leaf for f in schema["fields"] for leaf in _leaves(f, "", parquet_name(f["name"]), repeated=False))


def _leaves(field: Mapping[str, Any], prefix: str, top: str, *, repeated: bool) -> Iterator[ArrowLeaf]:
    kind, path = field["type"], prefix + parquet_name(field["name"])
    if isinstance(kind, str):
        yield ArrowLeaf(field["id"], kind, path, top, repeated)
    elif kind["type"] == "struct":
        for child in kind["fields"]:
            yield from _leaves(child, f"{path}.", top, repeated=repeated)
    elif kind["type"] == "list":
        yield from _leaves(element_field(kind), f"{path}.list.", top, repeated=True)
    else:
        for child in entry_fields(kind):
            yield from _leaves(child, f"{path}.key_value.", top, repeated=True)


def unsupported(schema: Mapping[str, Any]) -> str | None:
    """Why this schema is not for this kernel."""
    problems = (problem for field in schema["fields"] if (problem := _unsupported(field["name"], field)))
    return next(problems, None) if schema["fields"] else "the schema has no columns"


def _unsupported(name: str, field: Mapping[str, Any]) -> str | None:
    kind = field["type"]
    if isinstance(kind, str):
        return None if primitive(kind) is not None else f"column {name} has type {kind}"
    if field.get("initial-default") is not None:
        return f"column {name} has a default for a {kind['type']}"
    if not (children := _children(kind)):
        return f"column {name} is a struct without fields"
    found = (_unsupported(f"{name}.{child['name']}", child) for child in children)
    return next((problem for problem in found if problem), None)


def repeated_names(schema: Mapping[str, Any]) -> str | None:
    """Why a file cannot have columns with these names: two different ones may be spelled alike in Parquet."""
    return _repeated("", schema["fields"])


def _repeated(prefix: str, fields: Iterable[Mapping[str, Any]]) -> str | None:
    names = dict[str, str]()
    for field in fields:
        name, spelled = prefix + field["name"], parquet_name(field["name"])
        if spelled in names:
            return f"columns {names[spelled]} and {name} have the same name in Parquet, {spelled}"
        names[spelled] = name
        if (problem := _repeated(f"{name}.", _children(field["type"]))) is not None:
            return problem
    return None


def _children(kind: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(kind, str):
        return ()
    if kind["type"] == "struct":
        return tuple(kind["fields"])
    return [element_field(kind)] if kind["type"] == "list" else entry_fields(kind)


def parquet_name(name: str) -> str:
    """A column's name in Parquet: what Avro does not allow in a name is escaped, as Iceberg's Java writer does."""
    if name and _starts_well(name[0]) and all(_goes_on_well(character) for character in name):
        return name
    first = name[:1] if _starts_well(name[:1]) else _escaped(name[:1])
    return first + "".join(c if _goes_on_well(c) else _escaped(c) for c in name[1:])


def _starts_well(character: str) -> bool:
    return character.isalpha() or character == "_"


def _goes_on_well(character: str) -> bool:
    return character.isalpha() or character.isdecimal() or character == "_"


def _escaped(character: str) -> str:
    if character.isdecimal():
        return f"_{character}"
    # Java counts in UTF-16: a character beyond it is two.
    units = character.encode("utf-16-be")
    return "".join(f"_x{int.from_bytes(units[i : i + 2]):X}" for i in range(0, len(units), 2))
