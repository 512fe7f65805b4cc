"""A Parquet file's footer, read as far as copying its row groups needs, with every offset checked against the file.

Used by `agreement`, `copying` and whoever plans a copy. A footer that contradicts its file raises CorruptFileError; one that
is right but cannot be moved by copying bytes is returned with its `objection`. What nobody changes stays as it stands in
`raw`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from neve.kernels.faults import CorruptFileError, Objection
from neve.kernels.parquet import strict, thrift
from neve.kernels.parquet.format import COLUMN_ORDER, FILE_META, KEY_VALUE
from neve.kernels.parquet.row_groups import RowGroup, parse_group
from neve.kernels.parquet.schema import ParquetLeaf, PhysicalSchema, parse_schema
from neve.kernels.streams import Source

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
END_BYTES = 8
"""The footer's length and the magic bytes, which close every file."""

_VERSION, _SCHEMA, _ROWS, _GROUPS, _KEY_VALUES, _CREATED_BY, _ORDERS, _ENCRYPTION, _SIGNATURE = range(1, 10)
_KINDS = {number: field.kind for number, field in FILE_META.fields.items()}
_NO_SCHEMA = PhysicalSchema(b"", (), ())
_SHORT_TAIL, _LONG_TAIL = 64 * 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Footer:
    """What one file says of itself. With an `objection` there is nothing in it but path, size and raw bytes."""

    path: str
    size_bytes: int
    raw: bytes
    objection: str | None = None
    version: int = 0
    rows: int = 0
    schema: PhysicalSchema = _NO_SCHEMA
    groups: tuple[RowGroup, ...] = ()
    """Those that have rows."""
    key_values: bytes | None = None
    created_by: str = ""
    column_orders: bytes | None = None

    @property
    def data_end(self) -> int:
        """Where the footer starts and all data has ended."""
        return self.size_bytes - END_BYTES - len(self.raw)


def tail_length(size_bytes: int) -> int:
    """How much of a file's end to ask for, so that the footer is nearly always inside."""
    return min(size_bytes, max(_SHORT_TAIL, min(size_bytes >> 6, _LONG_TAIL)))


def read_footer(source: Source, *, known: PhysicalSchema | None = None) -> Footer:
    """Reads a footer: one request, two when it is unusually long."""
    length = tail_length(source.size_bytes)
    return footer_in(source, source.read_at(source.size_bytes - length, length), known=known)


def footer_in(source: Source, tail: bytes, *, known: PhysicalSchema | None = None) -> Footer:
    """The footer in a file's last bytes; they are asked for again when they turn out too few.

    `known` is the schema to be expected: recognising it is far cheaper than parsing it once more.
    """
    path, size = source.path, source.size_bytes
    if len(tail) < END_BYTES or tail[-4:] not in (MAGIC, ENCRYPTED_MAGIC):
        raise CorruptFileError(path, "it does not end like a Parquet file")
    length = int.from_bytes(tail[-8:-4], "little")
    if len(MAGIC) + length + END_BYTES > size:
        raise CorruptFileError(path, f"its footer claims {length} bytes, the file has {size}")
    if tail[-4:] == ENCRYPTED_MAGIC:
        return Footer(path, size, b"", "its footer is encrypted")
    if length + END_BYTES > len(tail):
        tail = source.read_at(size - END_BYTES - length, length + END_BYTES)
    return parse_footer(path, size, tail[-END_BYTES - length : -END_BYTES], known=known)


def parse_footer(path: str, size_bytes: int, raw: bytes, *, known: PhysicalSchema | None = None) -> Footer:
    """Understands the bytes of a footer."""
    try:
        return _parse(path, size_bytes, raw, known)
    except Objection as objection:
        return Footer(path, size_bytes, raw, str(objection))
    except KeyError as error:
        raise CorruptFileError(path, f"its footer lacks the required field {error}") from error
    except (IndexError, ValueError, RecursionError) as error:
        raise CorruptFileError(path, f"its footer makes no sense, {error}") from error


def _parse(path: str, size_bytes: int, raw: bytes, known: PhysicalSchema | None) -> Footer:
    places: dict[int, tuple[int, int]] = {}
    schema, field, at = _NO_SCHEMA, 0, 0
    groups: tuple[RowGroup, ...] = ()
    while True:
        field, kind, start = thrift.read_field_head(raw, at, field)
        if not field:
            break
        if kind != _KINDS.get(field, kind):
            raise ValueError(f"its field {field} is of kind {kind}")
        if field == _SCHEMA:
            schema, at = _parse_schema(raw, start, known)
        elif field == _GROUPS:
            groups, at = _parse_groups(raw, start, schema.leaves, size_bytes - END_BYTES - len(raw))
        elif field in _LISTS:
            at = thrift.skip(raw, start, kind)
            _check_list(field, raw[start:at])
        else:
            at = strict.skip_unknown(raw, start, kind)
        places[field] = (start, at)
    _check_fields(places)
    if start != len(raw):
        raise ValueError(f"{len(raw) - start} bytes follow its end")
    _check_orders(raw, places.get(_ORDERS), len(schema.leaves))
    if schema.unknown is not None:
        raise Objection(f"{schema.unknown}, which this version does not know")
    footer = Footer(
        path=path,
        size_bytes=size_bytes,
        raw=raw,
        version=thrift.read_int(raw, places[_VERSION][0])[0],
        rows=thrift.read_int(raw, places[_ROWS][0])[0],
        schema=schema,
        groups=groups,
        key_values=_slice(raw, places.get(_KEY_VALUES)),
        created_by=thrift.read_binary(_slice(raw, places.get(_CREATED_BY)) or b"\0", 0).decode("utf-8", "replace"),
        column_orders=_slice(raw, places.get(_ORDERS)),
    )
    _check_groups(footer)
    return footer


def _parse_schema(raw: bytes, at: int, known: PhysicalSchema | None) -> tuple[PhysicalSchema, int]:
    # An encoded list says itself where it ends, so the same bytes at its start are the same list.
    if known is not None and known.raw and raw.startswith(known.raw, at):
        return known, at + len(known.raw)
    end = thrift.skip(raw, at, thrift.LIST)
    return parse_schema(raw[at:end]), end


def _parse_groups(raw: bytes, at: int, leaves: tuple[ParquetLeaf, ...], data_end: int) -> tuple[tuple[RowGroup, ...], int]:
    if not leaves:
        raise ValueError("it has no schema before its row groups")
    count, kind, at = thrift.read_list_head(raw, at)
    if count and kind != thrift.STRUCT:
        raise ValueError(f"its row groups are of kind {kind}")
    if count > len(raw):
        raise ValueError(f"it claims {count} row groups")
    groups = []
    for _ in range(count):
        group, at = parse_group(raw, at, leaves, data_end)
        if group is not None:
            groups.append(group)
    return tuple(groups), at


_LISTS = {_KEY_VALUES: KEY_VALUE, _ORDERS: COLUMN_ORDER}


@lru_cache(maxsize=256)
def _check_list(field: int, raw: bytes) -> None:
    """The same metadata stands in most files of a table, and is checked once."""
    unknown: list[str] = []
    strict.check_list(raw, 0, _LISTS[field], unknown)
    if unknown:
        raise Objection(f"{unknown[0]}, which this version does not know")


def _check_orders(raw: bytes, place: tuple[int, int] | None, leaves: int) -> None:
    if place is not None and (count := thrift.read_list_head(raw, place[0])[0]) != leaves:
        raise ValueError(f"it has an order for {count} columns of {leaves}")


def _check_fields(places: dict[int, tuple[int, int]]) -> None:
    if absent := FILE_META.required - places.keys():
        raise ValueError(f"it lacks field {min(absent)}")
    if _ENCRYPTION in places or _SIGNATURE in places:
        raise Objection("it is encrypted or signed")
    if max(places) > _SIGNATURE:
        raise Objection(f"its footer has field {max(places)}, which this version does not know")


def _check_groups(footer: Footer) -> None:
    if (rows := sum(group.rows for group in footer.groups)) != footer.rows:
        raise ValueError(f"it claims {footer.rows} rows and its row groups {rows}")
    end = len(MAGIC)
    for group in footer.groups:
        if group.start < end:
            raise Objection("its row groups overlap or are not in ascending order")
        end = group.end


def _slice(raw: bytes, place: tuple[int, int] | None) -> bytes | None:
    return None if place is None else raw[place[0] : place[1]]
