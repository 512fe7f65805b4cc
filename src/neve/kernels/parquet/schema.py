"""A Parquet file's physical schema: which leaf columns it has, and whether two files agree about them.

Used by `footer` and `agreement`. Two schemas agree when order, names, types, logical types, field ids and repetition do; only
what the root says of itself (its name differs by writer) does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

from neve.kernels.faults import Objection
from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.format import SCHEMA_ELEMENT

_TYPE, _TYPE_LENGTH, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _FIELD_ID = 1, 2, 3, 4, 5, 6, 9
_TYPES = ("boolean", "int32", "int64", "int96", "float", "double", "binary", "fixed")
_REPETITIONS = ("required", "optional", "repeated")
_CHUNK_PATH = 3
INT96 = 3
BYTE_ARRAY, _FIXED = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, INT96: 12, 4: 4, 5: 8}
_OPTIONAL, _REPEATED = 1, 2

LINEAGE_IDS = {"_row_id": 2147483540, "_last_updated_sequence_number": 2147483539}
"""Field ids of the columns that hold the row lineage of format v3, which are a file's last."""
# Optional 64-bit integers: type, repetition, name, field id.
_LINEAGE_ELEMENTS = b"".join(
    b"".join((b"\x15\x04\x25\x02\x18", thrift.binary(name.encode()), b"\x55", thrift.integer(field_id), b"\0"))
    for name, field_id in LINEAGE_IDS.items()
)
_LINEAGE_RAW = thrift.list_head(1 + len(LINEAGE_IDS), thrift.STRUCT) + b"\x35\0\x18\x06schema\x15\x04\0" + _LINEAGE_ELEMENTS

Element = dict[int, bytes]


@dataclass(frozen=True, slots=True)
class ParquetLeaf:
    """One column that holds values."""

    name: str
    """Dotted, for messages."""
    path_bytes: bytes
    """As a column chunk spells its path."""
    path_field: bytes
    """The same with the head that the field has in nearly every footer."""
    type: int
    type_byte: bytes
    field_id: int | None
    is_repeated: bool
    """Under a list or a map: its values need not be as many as the rows."""
    repetition_levels: int
    definition_levels: int
    """How many different levels its values may have, 0 included."""
    width: int
    """Bytes of a value, 0 where values differ in length."""


@dataclass(frozen=True, eq=False)
class PhysicalSchema:
    """The schema as it stands in the footer, and what it means."""

    raw: bytes
    elements: tuple[Element, ...]
    leaves: tuple[ParquetLeaf, ...]
    unknown: str | None = None
    """A type or annotation of a later format, in words."""

    @cached_property
    def has_int96(self) -> bool:
        """Whether some timestamp is in the old form, whose reading depends on the writer's name."""
        return any(leaf.type == INT96 for leaf in self.leaves)

    @cached_property
    def odd_ids(self) -> str | None:
        """Why readers may disagree on which column has which field id, or None."""
        ids = [number for element in self.elements if (number := _int(element, _FIELD_ID)) is not None]
        if (least := min(ids, default=0)) < 0:
            return f"it has the field id {least}"
        twice = next((number for number, times in Counter(ids).items() if times > 1), None)
        return None if twice is None else f"it has the field id {twice} twice"

    def difference(self, other: PhysicalSchema) -> str | None:
        """What sets the other schema apart, or None."""
        if self is other or self.raw == other.raw:
            return None
        for mine, theirs in zip(self.elements, other.elements, strict=False):
            if mine != theirs:
                return f"{_describe(mine)} here, {_describe(theirs)} there"
        mine_count, their_count = len(self.elements), len(other.elements)
        return None if mine_count == their_count else f"{mine_count - 1} columns and groups here, {their_count - 1} there"


def parse_schema(raw: bytes) -> PhysicalSchema:
    """Reads the list of schema elements, which must make one tree."""
    count, kind, at = thrift.read_list_head(raw, 0)
    if not count or kind != thrift.STRUCT:
        raise ValueError("the schema is empty")
    unknown: list[str] = []
    strict.check_list(raw, 0, SCHEMA_ELEMENT, unknown)
    elements: list[Element] = []
    for _ in range(count):
        spans, at = thrift.spans(raw, at)
        elements.append({span.field: raw[span.start : span.end] for span in spans})
    rest = iter(elements[1:])
    leaves = tuple(_leaves(rest, _int(elements[0], _CHILDREN) or 0, _Above()))
    if next(rest, None) is not None:
        raise ValueError("the schema has elements outside its tree")
    # What the root is called, and which repetition it claims, differs by writer and means nothing.
    root = {_CHILDREN: elements[0].get(_CHILDREN, b"\0")}
    return PhysicalSchema(raw, (root, *elements[1:]), leaves, unknown[0] if unknown else None)


def has_lineage(schema: PhysicalSchema) -> bool:
    """Whether a file ends with the columns of row lineage, as Iceberg's writers leave them."""
    count = len(LINEAGE_IDS)
    named = [leaf.name for leaf in schema.leaves[-count:]] == list(LINEAGE_IDS)
    return named and schema.elements[-count:] == LINEAGE_ALONE.elements[-count:]


@lru_cache(maxsize=64)
def with_lineage(schema: PhysicalSchema) -> PhysicalSchema:
    """The schema that a file has once it holds its rows' lineage; raises Objection where it cannot."""
    if has_lineage(schema):
        if len(schema.leaves) == len(LINEAGE_IDS):
            raise Objection("it has no columns besides its row lineage")
        return schema
    if any(leaf.name in LINEAGE_IDS or leaf.field_id in LINEAGE_IDS.values() for leaf in schema.leaves):
        raise Objection("it has columns of row lineage in an unknown form")
    if not any(_FIELD_ID in element for element in schema.elements):
        # In a file where one column has an id, Iceberg looks for none by its name: the others would read as null.
        raise Objection("it has no field ids, and row lineage cannot do without")
    return parse_schema(_with_lineage(schema.raw))


def _with_lineage(raw: bytes) -> bytes:
    added = len(LINEAGE_IDS)
    count, kind, start = thrift.read_list_head(raw, 0)
    numbers, places, _ = thrift.scan(raw, start)
    at, end = places[_CHILDREN]
    root = raw[start:at] + thrift.integer(numbers[_CHILDREN] + added)
    return thrift.list_head(count + added, kind) + root + raw[end:] + _LINEAGE_ELEMENTS


def repeated_name(schema: PhysicalSchema) -> str | None:
    """The name of two columns or groups in the same place, None if every name is there once.

    Readers find column chunks by name, also if they choose columns by field id.
    """
    rest = iter(schema.elements[1:])
    return _repeated_name(rest, _int(schema.elements[0], _CHILDREN) or 0, "")


def _repeated_name(rest: Iterator[Element], children: int, prefix: str) -> str | None:
    names, found = set[str](), None
    for element in islice(rest, children):
        name = prefix + _text(element[_NAME])
        below = _repeated_name(rest, _int(element, _CHILDREN) or 0, f"{name}.")
        found = found or (name if name in names else below)
        names.add(name)
    return found


@dataclass(frozen=True, slots=True)
class _Above:
    """The groups that a column is in: their names, and the levels that they add."""

    path: tuple[bytes, ...] = ()
    repetition: int = 0
    definition: int = 0

    def below(self, element: Element) -> _Above:
        """The same with one more."""
        repetition = _int(element, _REPETITION)
        if repetition is None:
            raise ValueError("the schema has a column or group without repetition")
        if len(self.path) >= strict.MAX_DEPTH:
            raise ValueError(f"the schema is nested more than {strict.MAX_DEPTH} deep")
        is_repeated = repetition == _REPEATED
        levels = self.definition + (is_repeated or repetition == _OPTIONAL)
        return _Above((*self.path, element[_NAME]), self.repetition + is_repeated, levels)


def _leaves(rest: Iterator[Element], children: int, above: _Above) -> Iterator[ParquetLeaf]:
    for _ in range(children):
        element = next(rest, None)
        if element is None:
            raise ValueError("the schema ends in the middle of its tree")
        here, below = above.below(element), _int(element, _CHILDREN) or 0
        if _TYPE in element:
            if below:
                raise ValueError("the schema has a column with columns in it")
            yield _leaf(element, here)
        elif below < 1:
            raise ValueError("the schema has a group without columns")
        else:
            yield from _leaves(rest, below, here)


def _leaf(element: Element, here: _Above) -> ParquetLeaf:
    type_ = _int(element, _TYPE) or 0
    if type_ == _FIXED and (_int(element, _TYPE_LENGTH) or 0) < 1:
        raise ValueError("the schema has a column of fixed length without the length")
    path_bytes = thrift.list_head(len(here.path), thrift.BINARY) + b"".join(here.path)
    return ParquetLeaf(
        name=".".join(_text(part) for part in here.path),
        path_bytes=path_bytes,
        path_field=thrift.field_head(_CHUNK_PATH, thrift.LIST, _CHUNK_PATH - 1) + path_bytes,
        type=type_,
        type_byte=element[_TYPE],
        field_id=_int(element, _FIELD_ID),
        is_repeated=here.repetition > 0,
        repetition_levels=here.repetition + 1,
        definition_levels=here.definition + 1,
        width=_WIDTHS.get(type_, 0),
    )


def _int(element: Element, field: int) -> int | None:
    return thrift.read_int(element[field], 0)[0] if field in element else None


def _text(raw: bytes) -> str:
    return thrift.read_binary(raw, 0).decode("utf-8", "replace")


def _describe(element: Element) -> str:
    name = _text(element[_NAME]) if _NAME in element else "the root"
    words = [_word(_REPETITIONS, _int(element, _REPETITION)), _word(_TYPES, _int(element, _TYPE))]
    if (length := _int(element, _TYPE_LENGTH)) is not None:
        words.append(f"of {length} bytes")
    if (children := _int(element, _CHILDREN)) is not None:
        words.append(f"group of {children}")
    if (field_id := _int(element, _FIELD_ID)) is not None:
        words.append(f"with field id {field_id}")
    logical = {field: value for field, value in element.items() if field >= _CONVERTED and field != _FIELD_ID}
    if logical:
        words.append("annotated " + " ".join(f"{field}:{value.hex()}" for field, value in logical.items()))
    return f"{name} is " + " ".join(word for word in words if word)


def _word(words: tuple[str, ...], number: int | None) -> str:
    if number is None:
        return ""
    return words[number] if 0 <= number < len(words) else f"kind {number}"


LINEAGE_ALONE = parse_schema(_LINEAGE_RAW)
"""The schema of a file that holds nothing else, in the very bytes that pyarrow writes: it is recognised, not parsed again."""
