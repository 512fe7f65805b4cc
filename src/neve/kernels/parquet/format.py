"""The structs of Parquet's metadata as tables: which kind each field has, and which fields are required.

Used by `strict`, which checks footers, page headers and page indexes against them. Taken from parquet.thrift of format 2.12. A
field that is not in its table belongs to a later format: it may be anything that is well-formed.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property

from neve.kernels.parquet import thrift

BOOL = thrift.TRUE
"""Kind of a flag; on the wire TRUE and FALSE are kinds of their own."""


@dataclass(frozen=True, slots=True)
class Field:
    """What a field of a struct must be. `values` are those of an enum, which a later format may extend."""

    kind: int
    required: bool = False
    of: Struct = field(default_factory=lambda: Struct("no struct", {}))
    element: int = 0
    values: Container[int] | None = None


@dataclass(frozen=True, eq=False)
class Struct:
    """A struct, or a union, which has exactly one field."""

    name: str
    fields: dict[int, Field]
    is_union: bool = False

    @cached_property
    def required(self) -> frozenset[int]:
        """The ids of the fields that must be there."""
        return frozenset(number for number, each in self.fields.items() if each.required)


_NO_STRUCT = Struct("no struct", {})


def _int(kind: int = thrift.I32, *, values: Container[int] | None = None, optional: bool = False) -> Field:
    return Field(kind, required=not optional, values=values)


def _struct(of: Struct, *, optional: bool = False) -> Field:
    return Field(thrift.STRUCT, required=not optional, of=of)


def _list(element: int, of: Struct = _NO_STRUCT, *, optional: bool = False, values: Container[int] | None = None) -> Field:
    return Field(thrift.LIST, required=not optional, of=of, element=element, values=values)


def _union(name: str, fields: dict[int, Struct]) -> Struct:
    return Struct(name, {number: Field(thrift.STRUCT, of=of) for number, of in fields.items()}, is_union=True)


TYPES, REPETITIONS, CODECS, PAGE_TYPES = range(8), range(3), range(8), range(4)
ENCODINGS = frozenset(range(10)) - {1}
"""1 was reserved and never used: DuckDB cannot read a footer that has it."""
_I64, _FLAG = _int(thrift.I64), Field(BOOL, required=True)
_OPTIONAL_INT, _OPTIONAL_I64 = _int(optional=True), _int(thrift.I64, optional=True)
_BYTES, _OPTIONAL_BYTES, _OPTIONAL_FLAG = Field(thrift.BINARY, required=True), Field(thrift.BINARY), Field(BOOL)
_DOUBLE = Field(thrift.DOUBLE, required=True)
_OPTIONAL_LONGS = _list(thrift.I64, optional=True)

_EMPTY = Struct("an empty struct", {})
_TIME_UNIT = _union("TimeUnit", {1: _EMPTY, 2: _EMPTY, 3: _EMPTY})
_TIME = Struct("TimeType", {1: _FLAG, 2: _struct(_TIME_UNIT)})
_DECIMAL = Struct("DecimalType", {1: _int(), 2: _int()})
_INTEGER = Struct("IntType", {1: Field(thrift.BYTE, required=True), 2: _FLAG})
_VARIANT = Struct("VariantType", {1: Field(thrift.BYTE)})
_GEOMETRY = Struct("GeometryType", {1: _OPTIONAL_BYTES})
_GEOGRAPHY = Struct("GeographyType", {1: _OPTIONAL_BYTES, 2: _int(values=range(5), optional=True)})
LOGICAL_TYPE = _union(
    "LogicalType",
    {1: _EMPTY, 2: _EMPTY, 3: _EMPTY, 4: _EMPTY, 5: _DECIMAL, 6: _EMPTY, 7: _TIME, 8: _TIME, 10: _INTEGER, 11: _EMPTY}
    | {12: _EMPTY, 13: _EMPTY, 14: _EMPTY, 15: _EMPTY, 16: _VARIANT, 17: _GEOMETRY, 18: _GEOGRAPHY},
)
SCHEMA_ELEMENT = Struct(
    "SchemaElement",
    {
        1: _int(values=TYPES, optional=True),
        2: _OPTIONAL_INT,
        3: _int(values=REPETITIONS, optional=True),
        4: _BYTES,
        5: _OPTIONAL_INT,
        6: _int(values=range(22), optional=True),
        7: _OPTIONAL_INT,
        8: _OPTIONAL_INT,
        9: _OPTIONAL_INT,
        10: _struct(LOGICAL_TYPE, optional=True),
    },
)
KEY_VALUE = Struct("KeyValue", {1: _BYTES, 2: _OPTIONAL_BYTES})
COLUMN_ORDER = _union("ColumnOrder", {1: _EMPTY, 2: _EMPTY})
STATISTICS = Struct(
    "Statistics",
    {1: _OPTIONAL_BYTES, 2: _OPTIONAL_BYTES, 3: _OPTIONAL_I64, 4: _OPTIONAL_I64, 5: _OPTIONAL_BYTES, 6: _OPTIONAL_BYTES}
    | {7: _OPTIONAL_FLAG, 8: _OPTIONAL_FLAG, 9: _OPTIONAL_I64},
)
_ENCODING_STATISTICS = Struct("PageEncodingStats", {1: _int(values=PAGE_TYPES), 2: _int(values=ENCODINGS), 3: _int()})
SIZE_STATISTICS = Struct("SizeStatistics", {1: _OPTIONAL_I64, 2: _OPTIONAL_LONGS, 3: _OPTIONAL_LONGS})
_BOX = Struct("BoundingBox", dict.fromkeys(range(1, 5), _DOUBLE) | dict.fromkeys(range(5, 9), Field(thrift.DOUBLE)))
_GEOSPATIAL = Struct("GeospatialStatistics", {1: _struct(_BOX, optional=True), 2: _list(thrift.I32, optional=True)})
COLUMN_META = Struct(
    "ColumnMetaData",
    {
        1: _int(values=TYPES),
        2: _list(thrift.I32, values=ENCODINGS),
        3: _list(thrift.BINARY),
        4: _int(values=CODECS),
        5: _I64,
        6: _I64,
        7: _I64,
        8: _list(thrift.STRUCT, KEY_VALUE, optional=True),
        9: _I64,
        10: _OPTIONAL_I64,
        11: _OPTIONAL_I64,
        12: _struct(STATISTICS, optional=True),
        13: _list(thrift.STRUCT, _ENCODING_STATISTICS, optional=True),
        14: _OPTIONAL_I64,
        15: _OPTIONAL_INT,
        16: _struct(SIZE_STATISTICS, optional=True),
        17: _struct(_GEOSPATIAL, optional=True),
    },
)
_ANY = Struct("an encryption struct", {})
COLUMN_CHUNK = Struct(
    "ColumnChunk",
    {
        1: _OPTIONAL_BYTES,
        2: _I64,
        3: _struct(COLUMN_META, optional=True),
        4: _OPTIONAL_I64,
        5: _OPTIONAL_INT,
        6: _OPTIONAL_I64,
        7: _OPTIONAL_INT,
        8: _struct(_ANY, optional=True),
        9: _OPTIONAL_BYTES,
    },
)
SORTING_COLUMN = Struct("SortingColumn", {1: _int(), 2: _FLAG, 3: _FLAG})
ROW_GROUP = Struct(
    "RowGroup",
    {
        1: _list(thrift.STRUCT, COLUMN_CHUNK),
        2: _I64,
        3: _I64,
        4: _list(thrift.STRUCT, SORTING_COLUMN, optional=True),
        5: _OPTIONAL_I64,
        6: _OPTIONAL_I64,
        7: _int(thrift.I16, optional=True),
    },
)
FILE_META = Struct(
    "FileMetaData",
    {
        1: _int(),
        2: _list(thrift.STRUCT, SCHEMA_ELEMENT),
        3: _I64,
        4: _list(thrift.STRUCT, ROW_GROUP),
        5: _list(thrift.STRUCT, KEY_VALUE, optional=True),
        6: _OPTIONAL_BYTES,
        7: _list(thrift.STRUCT, COLUMN_ORDER, optional=True),
        8: _struct(_ANY, optional=True),
        9: _OPTIONAL_BYTES,
    },
)
_PAGE_LOCATION = Struct("PageLocation", {1: _I64, 2: _int(), 3: _I64})
OFFSET_INDEX = Struct("OffsetIndex", {1: _list(thrift.STRUCT, _PAGE_LOCATION), 2: _OPTIONAL_LONGS})
COLUMN_INDEX = Struct(
    "ColumnIndex",
    {1: _list(BOOL), 2: _list(thrift.BINARY), 3: _list(thrift.BINARY), 4: _int(values=range(3))}
    | {5: _OPTIONAL_LONGS, 6: _OPTIONAL_LONGS, 7: _OPTIONAL_LONGS, 8: _OPTIONAL_LONGS},
)
_ONE_WAY = _union("a union of one", {1: _EMPTY})
BLOOM_FILTER_HEADER = Struct("BloomFilterHeader", {1: _int(), 2: _struct(_ONE_WAY), 3: _struct(_ONE_WAY), 4: _struct(_ONE_WAY)})
_DATA_PAGE = Struct(
    "DataPageHeader",
    {1: _int(), 2: _int(values=ENCODINGS), 3: _int(values=ENCODINGS), 4: _int(values=ENCODINGS)}
    | {5: _struct(STATISTICS, optional=True)},
)
_DICTIONARY_PAGE = Struct("DictionaryPageHeader", {1: _int(), 2: _int(values=ENCODINGS), 3: _OPTIONAL_FLAG})
_DATA_PAGE_V2 = Struct(
    "DataPageHeaderV2",
    {1: _int(), 2: _int(), 3: _int(), 4: _int(values=ENCODINGS), 5: _int(), 6: _int()}
    | {7: _OPTIONAL_FLAG, 8: _struct(STATISTICS, optional=True)},
)
PAGE_HEADER = Struct(
    "PageHeader",
    {1: _int(values=PAGE_TYPES), 2: _int(), 3: _int(), 4: _OPTIONAL_INT, 5: _struct(_DATA_PAGE, optional=True)}
    | {
        6: _struct(_EMPTY, optional=True),
        7: _struct(_DICTIONARY_PAGE, optional=True),
        8: _struct(_DATA_PAGE_V2, optional=True),
    },
)
