"""A column as a footer has it: found as readers find it, in the type that was written, with statistics of all row groups."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.kernels.faults import CorruptFileError
from neve.kernels.stored_column import stored_column
from neve.kernels.streams import BytesSource
from neve.maintenance.ttl_proof import FooterFinding, StoredColumn
from tests.builders.parquet_files import Struct, edited

TIME = datetime(2020, 1, 1, tzinfo=UTC)
SECONDS = int(TIME.timestamp())
MAPPING = [
    {"field-id": 7, "names": ["made", "ts"]},
    {"field-id": 8, "names": ["s"], "fields": [{"field-id": 9, "names": ["t"]}]},
]


class Stored:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def stored(self, location: str) -> BytesSource:
        return BytesSource(self.data, location)


def written(columns: dict[str, Any], ids: dict[str, int] | None = None, **how: Any) -> Stored:
    table = pa.table(columns)
    if ids:
        fields = [f.with_metadata({"PARQUET:field_id": str(ids[f.name])}) if f.name in ids else f for f in table.schema]
        table = table.cast(pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **how)
    return Stored(sink.getvalue().to_pybytes())


def test_a_field_id_that_only_the_arrow_schema_has_is_none() -> None:
    """pyarrow finds the column by it, and Iceberg does not."""

    def without_id(footer: Struct) -> None:
        footer[2][1][1][1].pop(9)

    file = written({"ts": times("us"), "id": [1]}, {"ts": 7, "id": 1})
    assert stored_column(file, "f", 1, 7, None).column is not None
    assert stored_column(Stored(edited(file.data, without_id)), "f", 1, 7, None) == FooterFinding()


@pytest.mark.parametrize("mapping", [None, MAPPING])
def test_a_column_is_not_found_by_name_where_ids_are_negative(mapping: Any) -> None:
    """To Iceberg such a file has ids, so that it reads null."""

    def negative(footer: Struct) -> None:
        footer[2][1][1][1][9] = (5, -7)

    file = written({"ts": times("us")}, {"ts": 7})
    assert stored_column(Stored(edited(file.data, negative)), "f", 1, 7, mapping).unknown == "it has the field id -7"


def times(unit: str, zone: str | None = "UTC") -> pa.Array:
    return pa.array([TIME if zone else TIME.replace(tzinfo=None)], pa.timestamp(unit, tz=zone))


@pytest.mark.parametrize(
    ("values", "kind", "bound"),
    [
        (times("us"), "timestamptz", SECONDS * 10**6),
        (times("us", None), "timestamp", SECONDS * 10**6),
        (times("ms"), "timestamp in milliseconds", SECONDS * 1000),
        (times("ns"), "timestamptz_ns", SECONDS * 10**9),
        (pa.array([date(1970, 1, 3)]), "date", 2),
        (pa.array([5], pa.int32()), "int", 5),
        (pa.array([5], pa.int16()), "int", 5),
        (pa.array([5], pa.int64()), "long", 5),
        (pa.array(["a"]), "string", "a"),
        (pa.array([5], pa.uint32()), "INT32 (Int)", 5),
    ],
)
def test_the_type_is_the_one_that_was_written(values: pa.Array, kind: str, bound: Any) -> None:
    found = stored_column(written({"id": pa.array([1]), "ts": values}, {"id": 1, "ts": 2}), "f", 1, 2, None)
    assert found == FooterFinding(StoredColumn(kind, 0, bound, bound))


def test_statistics_cover_all_row_groups() -> None:
    file = written({"n": pa.array([3, None, 1, 7])}, {"n": 2}, row_group_size=2)
    assert stored_column(file, "f", 4, 2, None) == FooterFinding(StoredColumn("long", 1, 1, 7))
    silent = written({"n": pa.array([3, 4, None, None])}, {"n": 2}, row_group_size=2)
    assert stored_column(silent, "f", 4, 2, None) == FooterFinding(StoredColumn("long"))
    none = written({"n": pa.array([3])}, {"n": 2}, write_statistics=False)
    assert stored_column(none, "f", 1, 2, None) == FooterFinding(StoredColumn("long"))


def test_a_file_without_ids_is_read_by_the_name_mapping() -> None:
    file = written({"s": pa.array([{"a": 1, "t": 2}]), "l": pa.array([[1]]), "ts": pa.array([3])})
    assert stored_column(file, "f", 1, 7, MAPPING) == FooterFinding(StoredColumn("long", 0, 3, 3))
    assert stored_column(file, "f", 1, 9, MAPPING) == FooterFinding(StoredColumn("long", 0, 2, 2))
    assert stored_column(file, "f", 1, 1, MAPPING) == FooterFinding()
    assert stored_column(file, "f", 1, 7, None).unknown == "it has no field ids and the table no name mapping"


def test_in_a_file_with_one_id_no_column_is_found_by_name() -> None:
    file = written({"id": pa.array([1]), "ts": pa.array([3])}, {"id": 1})
    assert stored_column(file, "f", 1, 7, MAPPING) == FooterFinding()


def test_a_file_that_does_not_open_or_has_other_rows_is_damaged() -> None:
    file = written({"n": pa.array([3])}, {"n": 2})
    assert stored_column(file, "f", 2, 2, None) == FooterFinding(unknown="it holds 1 rows, the table says 2", is_damaged=True)
    broken = stored_column(Stored(b"PAR1 and no footer"), "f", 1, 2, None)
    assert broken == FooterFinding(unknown=str(CorruptFileError("f", "it does not end like a Parquet file")), is_damaged=True)
