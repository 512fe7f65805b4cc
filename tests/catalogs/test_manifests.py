"""Our decoder against pyiceberg's own: the same manifests, the same entries, every partition type and every codec."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, IdentityTransform, MonthTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from neve.catalogs.manifests import concatenate, decode_manifest, decode_manifest_list, from_ipc, to_ipc
from neve.errors import CorruptMetadataError
from neve.table.files import UNKNOWN, FileColumns
from neve.table.state import Manifest, PartitionRange

SCHEMA = Schema(
    NestedField(1, "ts", TimestampType(), required=False),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "n", LongType(), required=False),
)
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "day"), spec_id=0)
SNAPSHOT = 77


def data_file(path: str, partition: Record, **extra: Any) -> DataFile:
    content = extra.pop("content", DataFileContent.DATA)
    fields = {
        "file_format": FileFormat.PARQUET,
        "record_count": 10,
        "file_size_in_bytes": 1000,
        "column_sizes": {1: 3, 2: 400},
        "value_counts": {1: 10, 2: 10},
        "null_value_counts": {1: 0},
        "nan_value_counts": {},
        "lower_bounds": {1: b"\0" * 8, 2: b"a"},
        "upper_bounds": {1: b"\xff" * 8, 2: b"zzzz"},
        "split_offsets": [4],
        "sort_order_id": 0,
    }
    return DataFile.from_args(content=content, file_path=path, partition=partition, **fields | extra)


def write(
    path: Path,
    files: list[DataFile],
    spec: PartitionSpec = BY_DAY,
    *,
    schema: Schema = SCHEMA,
    version: Any = 2,
    codec: Any = "deflate",
    status: ManifestEntryStatus = ManifestEntryStatus.ADDED,
) -> bytes:
    with write_manifest(version, spec, schema, PyArrowFileIO().new_output(str(path)), SNAPSHOT, codec) as writer:
        number = None if status is ManifestEntryStatus.ADDED else 3
        for file in files:
            entry = ManifestEntry.from_args(
                status=status, snapshot_id=SNAPSHOT, sequence_number=number, file_sequence_number=number, data_file=file
            )
            if status is ManifestEntryStatus.ADDED:
                writer.add(entry)
            elif status is ManifestEntryStatus.EXISTING:
                writer.existing(entry)
            else:
                writer.delete(entry)
    return path.read_bytes()


def line(data: bytes, **extra: Any) -> Manifest:
    plain = {"holds_deletes": False, "spec_id": 0, "sequence_number": 9, "added_snapshot_id": 5, "live_files": 1}
    return Manifest(path="m", **{"length_bytes": len(data), **plain} | extra)


def decode(data: bytes, transforms: list[str] | None = None, bounds: tuple[int, ...] = (), **extra: Any) -> FileColumns:
    return decode_manifest(data, line(data, **extra), transforms or ["day"], bounds)


def test_reads_what_was_written(tmp_path: Path) -> None:
    data = write(tmp_path / "m", [data_file("a", Record(20105)), data_file("b", Record(None), split_offsets=[4, 900])])
    files = decode(data)
    assert [p.path for p in files.partitions] == ["day=2025-01-17", "day=null"]
    assert files.table.to_pylist() == [
        {
            "path": path,
            "content": 0,
            "format": "parquet",
            "partition": partition,
            "size_bytes": 1000,
            "records": 10,
            "row_groups": groups,
            "sort_order_id": 0,
            "sequence_number": 9,
            "snapshot_id": SNAPSHOT,
            "referenced": "",
            "content_offset": UNKNOWN,
            "equality_ids": "",
            "first_row_id": UNKNOWN,
        }
        for path, partition, groups in (("a", 0, 1), ("b", 1, 2))
    ]


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "bzip2"])
def test_reads_every_codec(tmp_path: Path, codec: str) -> None:
    data = write(tmp_path / "m", [data_file(f"f{i}", Record(i)) for i in range(50)], codec=codec)
    assert decode(data).table.column("path").to_pylist() == [f"f{i}" for i in range(50)]


def test_an_added_file_inherits_the_manifests_sequence_number_and_an_existing_one_keeps_its_own(tmp_path: Path) -> None:
    added = decode(write(tmp_path / "a", [data_file("a", Record(1))]))
    existing = decode(write(tmp_path / "b", [data_file("a", Record(1))], status=ManifestEntryStatus.EXISTING))
    assert [f.column("sequence_number").tolist() for f in (added, existing)] == [[9], [3]]


def test_a_deleted_entry_is_not_a_live_file(tmp_path: Path) -> None:
    data = write(tmp_path / "m", [data_file("a", Record(1))], status=ManifestEntryStatus.DELETED)
    files = decode(data)
    assert (len(files), files.partitions) == (0, ())


def test_reads_v1_manifests_which_have_neither_content_nor_sequence_numbers(tmp_path: Path) -> None:
    files = decode(write(tmp_path / "m", [data_file("a", Record(1))], version=1), sequence_number=0)
    assert files.table.select(["content", "sequence_number", "snapshot_id"]).to_pylist() == [
        {"content": 0, "sequence_number": 0, "snapshot_id": SNAPSHOT}
    ]


def test_absent_split_offsets_and_sort_order_are_unknown(tmp_path: Path) -> None:
    files = decode(write(tmp_path / "m", [data_file("a", Record(1), split_offsets=None, sort_order_id=None)]))
    assert (files.column("row_groups")[0], files.column("sort_order_id")[0]) == (UNKNOWN, UNKNOWN)


PATH_FIELD_ID = 2147483546
BOTH_PATHS = {"lower_bounds": {PATH_FIELD_ID: b"s3://a"}, "upper_bounds": {PATH_FIELD_ID: b"s3://b"}}
ONE_PATH = {"lower_bounds": {1: b"a", PATH_FIELD_ID: b"s3://a"}, "upper_bounds": {1: b"b", PATH_FIELD_ID: b"s3://a"}}
POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES


@pytest.mark.parametrize(
    ("described", "referenced", "ids"),
    [
        ({"content": POSITIONS, **BOTH_PATHS}, "", ""),
        ({"content": POSITIONS, **ONE_PATH}, "s3://a", ""),
        ({"content": POSITIONS, "lower_bounds": {PATH_FIELD_ID: b"s3://a"}, "upper_bounds": {}}, "", ""),
        ({"content": POSITIONS, "lower_bounds": None, "upper_bounds": None}, "", ""),
        ({"content": EQUALITY, "equality_ids": [3, 1], **ONE_PATH}, "", "1,3"),
    ],
    ids=["paths from a to b", "one path", "half a bound", "no bounds", "equality"],
)
def test_reads_what_a_delete_names(tmp_path: Path, described: dict[str, Any], referenced: str, ids: str) -> None:
    files = decode(write(tmp_path / "m", [data_file("d", Record(1), **described)]), holds_deletes=True)
    assert files.table.select(["referenced", "equality_ids", "content_offset", "first_row_id"]).to_pylist() == [
        {"referenced": referenced, "equality_ids": ids, "content_offset": UNKNOWN, "first_row_id": UNKNOWN}
    ]


def test_a_file_without_a_row_id_of_its_own_is_counted_on_from_the_manifests(tmp_path: Path) -> None:
    data = write(
        tmp_path / "m", [data_file(name, Record(1), record_count=count) for name, count in (("a", 10), ("b", 5), ("c", 1))]
    )
    assert decode(data, first_row_id=100).column("first_row_id").tolist() == [100, 110, 115]
    assert decode(data).column("first_row_id").tolist() == [UNKNOWN] * 3


def test_spells_every_partition_type(tmp_path: Path) -> None:
    moment = dt.datetime(2025, 1, 17, 12, 30, tzinfo=dt.UTC)
    micros = int(moment.timestamp() * 1_000_000)
    cases = [
        (StringType(), IdentityTransform(), "x/y", "x%2Fy"),
        (BooleanType(), IdentityTransform(), False, "false"),
        (DateType(), IdentityTransform(), 20105, "2025-01-17"),
        (TimestampType(), IdentityTransform(), micros, "2025-01-17T12%3A30%3A00"),
        (TimestamptzType(), IdentityTransform(), micros, "2025-01-17T12%3A30%3A00%2B00%3A00"),
        (DecimalType(9, 2), IdentityTransform(), Decimal("-3.05"), "-3.05"),
        (UUIDType(), IdentityTransform(), UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (BinaryType(), IdentityTransform(), b"\xff", "%2Fw%3D%3D"),
        (DoubleType(), IdentityTransform(), 1.5, "1.5"),
        (LongType(), BucketTransform(8), 3, "3"),
        (TimestampType(), MonthTransform(), 660, "2025-01"),
        (TimestampType(), HourTransform(), 482_532, "2025-01-17-12"),
    ]
    schema = Schema(*[NestedField(i, f"c{i}", case[0], required=False) for i, case in enumerate(cases, 1)])
    spec = PartitionSpec(*[PartitionField(i, 1000 + i, case[1], f"p{i}") for i, case in enumerate(cases, 1)], spec_id=4)
    file = data_file("a", Record(*[case[2] for case in cases]))
    files = decode(write(tmp_path / "m", [file], spec, schema=schema), [str(case[1]) for case in cases], spec_id=4)
    assert files.partitions[0].spec_id == 4
    assert files.partitions[0].path == "/".join(f"p{i}={case[3]}" for i, case in enumerate(cases, 1))


def test_partitions_that_iceberg_keeps_apart_stay_apart(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "d", DoubleType(), required=False), NestedField(2, "s", StringType(), required=False))
    for source, values, expected in (
        (1, [0.0, -0.0, None, float("nan"), float("nan"), 0.0], ["0.0", "-0.0", "null", "nan"]),
        (2, [None, "null", None, "NULL"], ["null", "%6Eull", "NULL"]),
    ):
        spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "p"), spec_id=0)
        written = write(tmp_path / f"m{source}", [data_file(f"{v}", Record(v)) for v in values], spec, schema=schema)
        assert [p.path for p in concatenate([decode(written, ["identity"])]).partitions] == [f"p={e}" for e in expected]


def test_decimals_of_38_digits_are_read_to_the_last_digit(tmp_path: Path) -> None:
    values = [Decimal(f"1234567890123456789012345678.901234567{digit}") for digit in (8, 9)]
    schema = Schema(NestedField(1, "d", DecimalType(38, 10), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=0)
    written = write(tmp_path / "m", [data_file(f"{v}", Record(v)) for v in values], spec, schema=schema)
    assert [p.path for p in decode(written, ["identity"]).partitions] == [f"p={value}" for value in values]


def test_a_dropped_partition_field_is_left_out_of_the_path(tmp_path: Path) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, VoidTransform(), "region"), PartitionField(1, 1001, DayTransform(), "day"), spec_id=2
    )
    files = decode(write(tmp_path / "m", [data_file("a", Record(None, 20105))], spec), ["void", "day"], spec_id=2)
    assert files.partitions[0].path == "day=2025-01-17"


def test_reads_manifest_lists(tmp_path: Path) -> None:
    io = PyArrowFileIO()
    with write_manifest(2, BY_DAY, SCHEMA, io.new_output(str(tmp_path / "m")), SNAPSHOT, "deflate") as writer:
        for path in ("a", "b"):
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=SNAPSHOT,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=data_file(path, Record(1)),
                )
            )
    manifest = writer.to_manifest_file()
    with write_manifest_list(2, io.new_output(str(tmp_path / "list")), SNAPSHOT, None, 12, "deflate") as lines:
        lines.add_manifests([manifest])
    assert decode_manifest_list((tmp_path / "list").read_bytes()) == (
        Manifest(
            path=str(tmp_path / "m"),
            length_bytes=manifest.manifest_length,
            holds_deletes=False,
            spec_id=0,
            sequence_number=12,
            added_snapshot_id=SNAPSHOT,
            live_files=2,
            ranges=(PartitionRange(lower="01000000", upper="01000000"),),
        ),
    )


def told(files: FileColumns) -> dict[str, list[bytes | None]]:
    assert files.bounds is not None
    assert set(files.bounds.schema.types) == {pa.binary()}
    return dict(files.bounds.to_pydict())


def test_bounds_come_with_the_columns_that_were_asked_for_and_with_no_others(tmp_path: Path) -> None:
    half = {"lower_bounds": {2: b"b"}, "upper_bounds": None}
    data = write(tmp_path / "m", [data_file("a", Record(1)), data_file("b", Record(1), **half)])
    assert told(decode(data, bounds=(2, 7))) == {
        "2.lower": [b"a", b"b"],
        "2.upper": [b"zzzz", None],
        "7.lower": [None, None],
        "7.upper": [None, None],
    }
    assert decode(data).bounds is None


def test_bounds_stand_beside_the_live_files_of_any_version(tmp_path: Path) -> None:
    dead = decode(write(tmp_path / "d", [data_file("a", Record(1))], status=ManifestEntryStatus.DELETED), bounds=(2,))
    assert told(dead) == {"2.lower": [], "2.upper": []}
    first = decode(write(tmp_path / "v1", [data_file("a", Record(1))], version=1), bounds=(2,))
    assert told(first) == {"2.lower": [b"a"], "2.upper": [b"zzzz"]}


def test_a_delete_tells_no_bounds_and_still_what_it_names(tmp_path: Path) -> None:
    data = write(tmp_path / "m", [data_file("d", Record(1), content=POSITIONS, **ONE_PATH)])
    files = decode(data, bounds=(1,), holds_deletes=True)
    assert told(files) == {"1.lower": [None], "1.upper": [None]}
    assert files.table.column("referenced").to_pylist() == ["s3://a"]


def test_a_file_that_is_not_avro_is_refused() -> None:
    with pytest.raises(CorruptMetadataError, match="Cannot decode manifest m: it does not start with"):
        decode(b"PAR1 not avro, but long enough")


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "m", [data_file("a", Record(1))])
    for length in range(5, len(data) - 1, 7):
        with pytest.raises(CorruptMetadataError, match="Cannot decode manifest m"):
            decode(data[:length], length_bytes=len(data))


def test_parts_join_with_each_partition_listed_once(tmp_path: Path) -> None:
    one = decode(write(tmp_path / "a", [data_file("a", Record(1)), data_file("b", Record(2))]))
    two = decode(write(tmp_path / "b", [data_file("c", Record(2)), data_file("d", Record(3))]))
    joined = concatenate([one, two])
    assert [p.path for p in joined.partitions] == ["day=1970-01-02", "day=1970-01-03", "day=1970-01-04"]
    assert joined.column("partition").tolist() == [0, 1, 1, 2]
    assert concatenate([]) == FileColumns.empty()


def test_bounds_join_in_the_order_of_the_parts(tmp_path: Path) -> None:
    parts = [
        decode(write(tmp_path / name, [data_file(name, Record(1), lower_bounds={2: name.encode()})]), bounds=(2,))
        for name in "ba"
    ]
    joined = concatenate([FileColumns.empty([2]), *parts])
    assert told(joined) == {"2.lower": [b"b", b"a"], "2.upper": [b"zzzz", b"zzzz"]}
    assert joined.table.column("path").to_pylist() == ["b", "a"]


@pytest.mark.parametrize("bounds", [(), (2,), (1, 2, 7)])
def test_columns_survive_the_cache_format(tmp_path: Path, bounds: tuple[int, ...]) -> None:
    files = decode(write(tmp_path / "m", [data_file("a", Record(1)), data_file("b", Record(None))]), bounds=bounds)
    assert from_ipc(to_ipc(files)) == files
    assert from_ipc(to_ipc(FileColumns.empty(bounds))) == FileColumns.empty(bounds)


statistics = st.dictionaries(st.integers(1, 2000), st.integers(0, 2**62), max_size=20)
bounds = st.dictionaries(st.integers(1, 2000), st.binary(max_size=40), max_size=20)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    entries=st.lists(
        st.tuples(st.text(max_size=50), st.none() | st.integers(-40_000, 40_000), statistics, bounds, st.integers(0, 2**62)),
        min_size=1,
        max_size=8,
    )
)
def test_steps_over_any_statistics_and_finds_any_bounds(tmp_path: Path, entries: list[Any]) -> None:
    files = [
        data_file(path, Record(day), column_sizes=counts, value_counts=counts, lower_bounds=limits, file_size_in_bytes=size)
        for path, day, counts, limits, size in entries
    ]
    data = write(tmp_path / "m", files)
    assert decode(data).table.column("path").to_pylist() == [path for path, *_ in entries]
    ids = tuple(sorted({1, *(field_id for *_, limits, _ in entries for field_id in limits)}))
    decoded = decode(data, bounds=ids)
    assert decoded.column("size_bytes").tolist() == [size for *_, size in entries]
    assert decoded.bounds is not None
    for field_id in ids:
        found = decoded.bounds.column(f"{field_id}.lower").to_pylist()
        assert found == [limits.get(field_id) for *_, limits, _ in entries]
