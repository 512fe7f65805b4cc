"""Damaged Parquet footers: seeds of many kinds, mutations by number, and what every kernel must make of them.

A mutation is named by its seed file and a number, so that a failure replays alone. The rule that `Trial` checks: a kernel that
accepts a file writes exactly the rows that pyarrow reads from it, in a file that opens; everything else is refused with an
error of ours that names a file.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import NeveError
from neve.kernels.arrow import WriteOptions, rewrite
from neve.kernels.arrow.model import ArrowInput
from neve.kernels.opening import open_parquet
from neve.kernels.parquet import thrift
from neve.kernels.parquet.copying import copy_row_groups
from neve.kernels.streams import BytesSource, Source
from tests.builders.arrow_files import field as column
from tests.builders.arrow_files import list_of, map_of, parquet, schema, struct
from tests.builders.parquet_files import MemorySink, raw_footer, with_footer

FLAT = schema(
    column(1, "id", "long", required=True),
    column(2, "name", "string"),
    column(3, "amount", "double"),
    column(4, "price", "decimal(9, 2)"),
    column(5, "day", "date"),
    column(6, "at", "timestamp"),
    column(7, "flag", "boolean"),
    column(8, "data", "binary"),
)
NESTED = schema(
    column(1, "id", "int"),
    column(2, "tags", list_of(3, "string")),
    column(4, "prices", map_of(5, "string", 6, "long")),
    column(7, "place", struct(column(8, "x", "float"), column(9, "deep", list_of(10, struct(column(11, "y", "int")))))),
)
_LOOSE = {"bloom_filter_options": {"id": {"ndv": 50, "fpp": 0.1}}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "dictionary-snappy": {"compression": "snappy"},
    "page-index-groups": {"row_group_size": 13, "write_page_index": True, "compression": "zstd"},
    "bloom": {**_LOOSE, "compression": "none", "write_page_index": True},
    "plain-v2": {"use_dictionary": False, "data_page_version": "2.0", "compression": "gzip"},
    "arrow-schema": {"store_schema": True, "compression": "none"},
    "small-pages": {"data_page_size": 64, "write_batch_size": 8, "write_page_checksum": True, "compression": "zstd"},
    "no-statistics": {"write_statistics": False, "compression": "lz4"},
    "sorted": {"sorting_columns": [pq.SortingColumn(0)], "compression": "none"},
}


@dataclass(frozen=True)
class Seed:
    """A good file, another good file that may be joined with it, and the table's schema."""

    name: str
    data: bytes
    partner: bytes
    table_schema: dict[str, Any]


def flat_rows(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "name": None if i % 7 == 0 else f"name-{i % 5}",
            "amount": i / 4,
            "price": Decimal(i) / 100,
            "day": date(2024, 1, 1 + i % 28),
            "at": datetime(2024, 1, 1 + i % 28, i % 24),  # noqa: DTZ001 - a timestamp without a zone
            "flag": i % 3 == 0,
            "data": bytes([i % 256]) * (i % 5),
        }
        for i in range(start, start + count)
    ]


def nested_rows(start: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i,
            "tags": None if i % 5 == 0 else [f"t{i % 3}"] * (i % 4),
            "prices": [(f"k{j}", j * i) for j in range(i % 3)],
            "place": None if i % 6 == 0 else {"x": i / 2, "deep": [{"y": i}, {"y": None}][: i % 3]},
        }
        for i in range(start, start + count)
    ]


def seeds() -> list[Seed]:
    """Files of every kind that pyarrow and DuckDB write."""
    found = []
    for name, options in _OPTIONS.items():
        for kind, rows, of in (("flat", flat_rows, FLAT), ("nested", nested_rows, NESTED)):
            if kind == "flat" or name in ("dictionary-snappy", "page-index-groups", "small-pages", "no-statistics"):
                found.append(
                    Seed(f"{kind}-{name}", parquet(rows(0, 40), of, **options), parquet(rows(40, 20), of, **options), of)
                )
    return [*found, _duckdb_seed()]


def _duckdb_seed() -> Seed:
    of = schema(column(1, "id", "long"), column(2, "name", "string"), column(3, "tags", list_of(4, "int")))
    query = "SELECT i AS id, CASE WHEN i % 7 > 0 THEN 'n' || i % 5 END AS name, [i::INT, 3] AS tags FROM range({}, {}) t(i)"
    ids = "FIELD_IDS {id: 1, name: 2, tags: {__duckdb_field_id: 3, element: 4}}"
    files = []
    with duckdb.connect() as connection, TemporaryDirectory() as directory:
        for start in (0, 40):
            path = Path(directory, "seed.parquet")
            connection.execute(f"COPY ({query.format(start, start + 40)}) TO '{path}' (FORMAT parquet, {ids})")
            files.append(path.read_bytes())
    return Seed("duckdb", files[0], files[1], of)


def mutation(data: bytes, number: int) -> bytes:
    """The file with its footer damaged in one of many ways; the same for the same number."""
    choice = random.Random(number)
    raw = bytearray(raw_footer(data))
    return _WAYS[number % len(_WAYS)](data, raw, choice)


def _flip(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    for _ in range(choice.choice((1, 1, 1, 2, 4))):
        raw[choice.randrange(len(raw))] ^= 1 << choice.randrange(8)
    return with_footer(data, bytes(raw))


def _byte(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    raw[choice.randrange(len(raw))] = choice.choice((0, 0xFF, 0x80, 0x7F, choice.randrange(256)))
    return with_footer(data, bytes(raw))


def _kind(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    """A field of another kind."""
    at = choice.choice(field_heads(bytes(raw)))
    raw[at] = raw[at] & 0xF0 | choice.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13))
    return with_footer(data, bytes(raw))


def _number(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    """A field of another number."""
    at = choice.choice(field_heads(bytes(raw)))
    raw[at] = raw[at] & 0x0F | choice.randrange(16) << 4
    return with_footer(data, bytes(raw))


def _insert(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    at = choice.randrange(len(raw))
    raw[at:at] = bytes(choice.randrange(256) for _ in range(choice.choice((1, 1, 2, 5))))
    return with_footer(data, bytes(raw))


def _remove(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    at = choice.randrange(len(raw))
    del raw[at : at + choice.choice((1, 1, 2, 5, 40))]
    return with_footer(data, bytes(raw))


def _repeat(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    at, length = choice.randrange(len(raw)), choice.randrange(1, 30)
    raw[at:at] = raw[at : at + length]
    return with_footer(data, bytes(raw))


def _huge(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    """A number or a length far beyond what the file has."""
    at = choice.randrange(len(raw))
    raw[at : at + 1] = b"\xff" * choice.randrange(1, 10) + b"\x7f"
    return with_footer(data, bytes(raw))


def _cut(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    """A footer that ends early, with a length that says so, or that does not."""
    shorter = with_footer(data, bytes(raw[: choice.randrange(len(raw))]))
    return shorter if choice.random() < 0.5 else shorter[:-8] + data[-8:]


def _length(data: bytes, raw: bytearray, choice: random.Random) -> bytes:
    """Another footer length, or other last bytes."""
    if choice.random() < 0.2:
        return data[: -choice.randrange(1, 12)]
    length = len(raw) + choice.choice((-1, 1, choice.randrange(-len(raw), 5000), 2**31 - len(raw) - 1))
    return data[:-8] + length.to_bytes(4, "little") + data[-4:]


_WAYS: tuple[Callable[[bytes, bytearray, random.Random], bytes], ...] = (
    _flip,
    _kind,
    _byte,
    _kind,
    _number,
    _insert,
    _remove,
    _repeat,
    _huge,
    _cut,
    _length,
    _flip,
)


@cache
def field_heads(raw: bytes) -> list[int]:
    """Where the heads of all fields stand, at any depth."""
    found: list[int] = []
    _collect(raw, 0, found)
    return found


def _collect(raw: bytes, at: int, found: list[int]) -> int:
    last = 0
    while True:
        head = at
        last, kind, start = thrift.read_field_head(raw, at, last)
        if not last:
            return start
        found.append(head)
        at = _collect_value(raw, start, kind, found)


def _collect_value(raw: bytes, at: int, kind: int, found: list[int]) -> int:
    if kind == thrift.STRUCT:
        return _collect(raw, at, found)
    if kind != thrift.LIST:
        return thrift.skip(raw, at, kind)
    count, element, at = thrift.read_list_head(raw, at)
    for _ in range(count):
        at = at + 1 if element in (thrift.TRUE, thrift.FALSE) else _collect_value(raw, at, element, found)
    return at


@dataclass
class Trial:
    """Gives damaged files to kernels and keeps count of what became of them."""

    seed: Seed
    counts: Counter[str] = field(default_factory=Counter)
    look: Callable[[bytes], object] = len
    """Opens an output with one more reader."""

    def __post_init__(self) -> None:
        self.partner_rows = read(self.seed.partner)
        self.good_rows: Any = read(self.seed.data)
        assert self.partner_rows is not None
        assert self.good_rows is not None

    def run(self, numbers: Iterator[int] | range, kernels: str = "copy arrow") -> None:
        """One mutation for each number."""
        for number in numbers:
            data = mutation(self.seed.data, number)
            if data == self.seed.data:
                continue
            name, rows = f"{self.seed.name} #{number}", read(data)
            self.counts["mutations"] += 1
            self.counts["equal" if _same(rows, self.good_rows) else "unreadable" if rows is None else "other rows"] += 1
            if "copy" in kernels:
                self._copy(name, [data], rows)
                self._copy(name, [self.seed.partner, data], _joined(self.partner_rows, rows))
            if "arrow" in kernels:
                self._arrow(name, data, rows)

    def _copy(self, name: str, files: list[bytes], rows: pa.Table | None) -> None:
        sink, sources = MemorySink(), [BytesSource(data, f"{i}.parquet") for i, data in enumerate(files)]
        if self._refuses("copy", lambda: copy_row_groups(sources, None, sink)):
            assert sink.ends == ["aborted"], name
            return
        if len(files) == 1 and rows is None:
            # Its footer opens, its pages do not decode, and a copy decodes none. No row of another file is in it.
            assert read(sink.data) is None, f"{name}: the copy of a file that cannot be read can be read"
            self.counts["copied, as unreadable as before"] += 1
            return
        self._check("copy", name, sink.data, rows)

    def _arrow(self, name: str, data: bytes, rows: pa.Table | None) -> None:
        sinks: list[MemorySink] = []

        def open_sink(_: int) -> MemorySink:
            sinks.append(MemorySink())
            return sinks[-1]

        source: Source = BytesSource(data, "0.parquet")
        given = ArrowInput(source, self.good_rows.num_rows)
        if self._refuses("arrow", lambda: rewrite([given], self.seed.table_schema, WriteOptions(), open_sink)):
            return
        # Iceberg finds columns by id: one that has another id is null, whatever pyarrow finds by name.
        by_id = rows_by_id(data, self.good_rows.schema)
        if by_id is not None and not (rows is not None and _same_values(by_id, rows)):
            self.counts["other field ids"] += 1
        output = sinks[0].data
        if by_id is not None and by_id.num_columns < self.good_rows.num_columns:
            output = _chosen(output, by_id.schema.names)
        self._check("arrow", name, output, by_id)

    def _refuses(self, kernel: str, work: Callable[[], object]) -> bool:
        try:
            work()
        except NeveError as error:
            refused = str(error)
        else:
            return False
        assert ".parquet" in refused, f"the reason names no file: {refused}"
        self.counts[f"{kernel} refused"] += 1
        return True

    def _check(self, kernel: str, name: str, output: bytes, rows: pa.Table | None) -> None:
        self.counts[f"{kernel} accepted"] += 1
        open_parquet(BytesSource(output, name))
        found = read(output)
        assert rows is not None, f"{name}: {kernel} accepted a file that pyarrow cannot read"
        assert found is not None, f"{name}: {kernel} wrote a file that pyarrow cannot read"
        assert _same_values(found, rows), f"{name}: {kernel} wrote other rows"
        self.look(output)


def field_ids(of: pa.Schema) -> list[Any]:
    """Field ids by name, at any depth."""

    def below(each: pa.Field) -> list[Any]:
        kind = each.type
        children = [kind.field(i) for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
        return [each.name, (each.metadata or {}).get(b"PARQUET:field_id"), [below(child) for child in children]]

    return [below(each) for each in of]


def _chosen(data: bytes, names: list[str]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(data), columns=names), out)
    return out.getvalue()


MOST_ROWS = 1_000_000
"""Seeds have 40 rows. For a footer that claims 10^12, pyarrow asks for all of the machine's memory before it reads a page."""


def read(data: bytes) -> pa.Table | None:
    """What pyarrow reads, None when it cannot."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        groups = (file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups))
        return file.read(use_threads=False) if max(groups, default=0) <= MOST_ROWS else None
    except (OSError, ValueError, pa.ArrowException, NotImplementedError, MemoryError):
        return None


def rows_by_id(data: bytes, good: pa.Schema) -> pa.Table | None:
    """What pyarrow reads, with columns found by field id, as Iceberg finds them, and in the types of a good file.

    A column that is found by no id is null. Left out is what nobody can tell: an id that is there twice, or other ids below it.
    """
    # pyarrow prefers the ids of an Arrow schema that a writer added, and Iceberg knows of none.
    rows = read(data.replace(b"ARROW:schema", b"other:schema"))
    if rows is None:
        return None
    found: dict[str, Any] = {}
    for each in good:
        same = [i for i, other in enumerate(rows.schema) if _id_of(other) == _id_of(each)]
        if not same:
            found[each.name] = pa.nulls(rows.num_rows, each.type)
        elif len(same) == 1 and _ids_below(rows.schema.field(same[0])) == _ids_below(each):
            found[each.name] = _cast(rows.column(same[0]), each.type)
    return pa.table(found)


def _id_of(each: pa.Field) -> bytes | None:
    return (each.metadata or {}).get(b"PARQUET:field_id")


def _ids_below(each: pa.Field) -> list[Any]:
    return field_ids(pa.schema([each]))[0][2]


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A damaged annotation may give a type that holds the same values, such as a time zone or another unit."""
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return column


def _joined(first: pa.Table, second: pa.Table | None) -> pa.Table | None:
    if second is None or first.schema.names != second.schema.names or first.schema.types != second.schema.types:
        return None
    return pa.concat_tables([first, second.cast(first.schema) if second.schema != first.schema else second])


def _same(one: pa.Table | None, other: pa.Table | None) -> bool:
    return one is not None and other is not None and one.schema == other.schema and _same_values(one, other)


def _same_values(one: pa.Table, other: pa.Table) -> bool:
    if one.num_columns != other.num_columns:
        return False
    if _equal_columns(one, other):
        return True
    try:  # a damaged annotation may give a type that holds the same values, such as a time zone or another unit
        columns = [column.cast(kind) for column, kind in zip(other.columns, one.schema.types, strict=True)]
    except pa.ArrowException:
        return False
    other = pa.table(columns, one.schema.names)
    if _equal_columns(one, other):
        return True
    try:
        return repr(_values(one)) == repr(_values(other))  # NaN
    except (OverflowError, ValueError):  # values that Python has no type for
        return False


def _equal_columns(one: pa.Table, other: pa.Table) -> bool:
    return all(a.equals(b) for a, b in zip(one.columns, other.columns, strict=True))


def _values(table: pa.Table) -> list[Any]:
    return [each.to_pylist() for each in table.columns]


def as_duckdb(directory: Path) -> Callable[[bytes], None]:
    """A look that DuckDB takes."""

    def look(data: bytes) -> None:
        path = directory / "output.parquet"
        path.write_bytes(data)
        counted = duckdb.sql(f"SELECT count(*) FROM read_parquet('{path}')").fetchone()
        assert counted == (pq.read_metadata(io.BytesIO(data)).num_rows,)

    return look
