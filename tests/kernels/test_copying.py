"""Copying row groups: equal content, working indexes, refusals with reasons, nothing left behind."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.errors import NeveError, StorageError
from neve.kernels.faults import CopyRefusedError, CorruptFileError
from neve.kernels.parquet import output, thrift
from neve.kernels.parquet.agreement import Agreement
from neve.kernels.parquet.copying import ColumnCounts, Copied, copy_row_groups, count_chunks, read_footers, refusal
from neve.kernels.parquet.footer import Footer, read_footer
from neve.kernels.parquet.footer_writing import MovedGroup, footer_bytes
from neve.kernels.parquet.writers import writer_of
from neve.kernels.streams import BytesSource, LocalSink, LocalSource, Source
from tests.builders.parquet_files import (
    FailingSource,
    MemorySink,
    RecordingSource,
    Struct,
    chunk,
    created_by,
    decode_footer,
    decode_struct,
    edited,
    group,
    key_value,
    make_file,
    meta,
    raw_footer,
    sample_table,
    with_footer,
)

BLOOM = {"bloom_filter_options": {"id": {"ndv": 1000, "fpp": 0.001}}}


def sources_of(*files: bytes) -> list[Source]:
    return [BytesSource(data, f"{number}.parquet") for number, data in enumerate(files)]


def copied(*files: bytes, **options: Any) -> tuple[bytes, Copied]:
    """The output of both ways to copy, which must be the same, and the account of it."""
    sources, sink, other = sources_of(*files), MemorySink(), MemorySink()
    result = copy_row_groups(sources, None, sink, **options)
    assert copy_row_groups(sources, read_footers(sources), other, **options) == result
    assert (sink.ends, other.ends) == (["closed"], ["closed"])
    assert sink.data == other.data
    assert result.bytes == len(sink.data)
    return sink.data, result


def read(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def footers_of(*files: bytes) -> list[Footer]:
    return [read_footer(source) for source in sources_of(*files)]


def duck_rows(path: Path, where: str = "true") -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM read_parquet('{path}') WHERE {where}").fetchall()


# Content


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Table]:
    """Tables of one schema."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=5))
    schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(types)])
    found = []
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(st.integers(0, 40))
        arrays = [pa.array(draw(st.lists(TYPES[kind], min_size=rows, max_size=rows)), kind) for kind in types]
        found.append(pa.table(arrays, schema=schema))
    return found


_TEXT = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
_INTS = st.none() | st.integers(-(2**31), 2**31 - 1)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): _INTS,
    pa.int64(): st.none() | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.none() | st.floats(allow_nan=False),
    pa.bool_(): st.none() | st.booleans(),
    pa.string(): _TEXT,
    pa.binary(): st.none() | st.binary(max_size=200),
    pa.decimal128(20, 4): st.none() | st.decimals(-(10**12), 10**12, places=4, allow_nan=False),
    pa.timestamp("us"): _INTS,
    pa.list_(pa.int32()): st.none() | st.lists(_INTS, max_size=5),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]): st.none()
    | st.fixed_dictionaries({"a": _TEXT, "b": st.none() | st.lists(_INTS, max_size=3)}),
    pa.map_(pa.string(), pa.int32()): st.none()
    | st.dictionaries(st.text("abc", min_size=1), _INTS, max_size=3).map(lambda d: list(d.items())),
}
WRITING = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "row_group_size": st.integers(1, 50),
        "write_page_index": st.booleans(),
        "write_statistics": st.booleans(),
        "data_page_size": st.sampled_from([64, 1024 * 1024]),
        "write_batch_size": st.sampled_from([4, 1024]),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(inputs=tables(), data=st.data())
def test_any_files_of_one_schema_read_the_same_after_copying(
    inputs: list[pa.Table], data: st.DataObject, tmp_path: Path
) -> None:
    files = [make_file(table, **data.draw(WRITING)) for table in inputs]
    output, result = copied(*files)
    expected = pa.concat_tables(inputs)
    assert read(output).equals(expected)
    assert result.rows == expected.num_rows
    assert_offset_indexes_point_at_pages(output)
    merged, parts = tmp_path / "merged.parquet", [tmp_path / f"part{number}.parquet" for number in range(len(files))]
    merged.write_bytes(output)
    for path, content in zip(parts, files, strict=True):
        path.write_bytes(content)
    assert duck_rows(merged) == [row for path in parts for row in duck_rows(path)]


def test_writers_options_may_differ_from_file_to_file() -> None:
    options: list[dict[str, Any]] = [
        {"compression": "gzip"},
        {"compression": "zstd", "write_page_index": True, "row_group_size": 30},
        {"data_page_version": "2.0", "use_dictionary": False},
        {"write_page_index": True, "data_page_version": "2.0", **BLOOM},
        {"write_statistics": False},
    ]
    inputs = [sample_table(start=100 * number) for number in range(5)]
    output, result = copied(*(make_file(table, **how) for table, how in zip(inputs, options, strict=True)))
    assert read(output).equals(pa.concat_tables(inputs))
    codecs = [pq.read_metadata(io.BytesIO(output)).row_group(number).column(0).compression for number in range(8)]
    assert codecs == ["GZIP", "ZSTD", "ZSTD", "ZSTD", "ZSTD", "SNAPPY", "SNAPPY", "SNAPPY"]
    assert result.row_groups == 8


def test_a_copy_can_be_copied_again() -> None:
    files = [make_file(sample_table(start=start), write_page_index=True, row_group_size=40, **BLOOM) for start in (0, 100, 200)]
    at_once, _ = copied(*files)
    in_steps, _ = copied(copied(files[0], files[1])[0], files[2])
    assert read(in_steps).equals(read(at_once))
    assert_offset_indexes_point_at_pages(in_steps)


def test_int96_timestamps_are_copied() -> None:
    table = pa.table({"at": pa.array([0, 1_700_000_000_000_000, None], pa.timestamp("us"))})
    output, _ = copied(*[make_file(table, use_deprecated_int96_timestamps=True)] * 2)
    assert read(output)["at"].cast(pa.timestamp("us")).to_pylist() == table["at"].to_pylist() * 2


def test_unused_bytes_between_chunks_are_copied_along() -> None:
    data = make_file()
    start = footers_of(data)[0].groups[0].chunks[2].start

    def shift(footer: Struct) -> None:
        for field in (9, 11):
            meta(footer, 2)[field] = (thrift.I64, meta(footer, 2)[field][1] + 50)

    spread = edited(data[:start] + b"?" * 50 + data[start:], shift)
    output, _ = copied(spread, data)
    assert read(output).equals(pa.concat_tables([sample_table()] * 2))


# The account


def test_the_account_tells_rows_sizes_and_counts() -> None:
    first, second = make_file(row_group_size=50), make_file(sample_table(30))
    output, result = copied(first, second)
    metadata = pq.read_metadata(io.BytesIO(output))
    sizes = [sum(metadata.row_group(g).column(c).total_compressed_size for g in range(3)) for c in range(3)]
    assert (result.rows, result.row_groups, result.footer_bytes) == (130, 3, metadata.serialized_size + 8)
    assert result.column_bytes == dict(zip((1, 2, 3), sizes, strict=True))
    assert result.counts == {1: ColumnCounts(130, 0), 2: ColumnCounts(130, 15 + 5), 3: ColumnCounts(130, 0)}
    assert [column.name for column in result.columns] == ["id", "name", "amount"]


def test_nulls_are_unknown_when_one_file_has_no_statistics() -> None:
    _, result = copied(make_file(), make_file(write_statistics=False))
    assert result.counts[2] == ColumnCounts(200, None)


def test_split_offsets_are_row_group_starts_far_enough_apart() -> None:
    files = [make_file(sample_table(1000), compression="none", use_dictionary=False)] * 6
    output, close = copied(*files, split_min_bytes=0)
    starts = [described.start for described in footers_of(output)[0].groups]
    assert close.split_offsets == tuple(starts)
    step = starts[1] - starts[0]
    assert copied(*files, split_min_bytes=step + 1)[1].split_offsets == tuple(starts[::2])
    assert copied(*files)[1].split_offsets == (4,)


def test_row_groups_get_offset_size_and_ordinal() -> None:
    output, _ = copied(*[make_file(row_group_size=50, sorting_columns=[pq.SortingColumn(0)])] * 2)
    footer, described = decode_footer(output), footers_of(output)[0].groups
    for ordinal in range(4):
        assert group(footer, ordinal)[5] == (thrift.I64, described[ordinal].start)
        assert group(footer, ordinal)[6][1] == sum(part.size_bytes for part in described[ordinal].chunks)
        assert group(footer, ordinal)[7] == (thrift.I16, ordinal)
        assert chunk(footer, 0, ordinal)[2] == (thrift.I64, 0)
    assert pq.read_metadata(io.BytesIO(output)).row_group(3).sorting_columns == (pq.SortingColumn(0),)


def test_chunks_are_counted_without_reading_them() -> None:
    files = [make_file(row_group_size=50), make_file()]
    count = count_chunks(footers_of(*files))
    _, result = copied(*files)
    assert count.chunks == 9
    assert count.data_bytes == sum(result.column_bytes.values())
    assert count.average_bytes == count.data_bytes / 9
    assert abs(count.footer_bytes - result.footer_bytes) < 2000


# Indexes


def assert_offset_indexes_point_at_pages(output: bytes) -> None:
    """Every page location is the start of a data page header whose size it tells."""
    for described in footers_of(output)[0].groups:
        for part in described.chunks:
            if part.offset_index is None:
                continue
            index, _ = decode_struct(output[part.offset_index.offset :][: part.offset_index.size_bytes])
            for location in index[1][1][1]:
                at, length = location[1][1], location[2][1]
                assert part.start <= at < at + length <= part.end
                header, end = decode_struct(output, at)
                assert header[1][1] in (0, 3), "not a data page"
                assert end - at + header[3][1] == length


def test_page_indexes_and_bloom_filters_survive(tmp_path: Path) -> None:
    how: dict[str, Any] = {"write_page_index": True, "data_page_size": 256, "write_batch_size": 16, **BLOOM}
    files = [make_file(sample_table(400, start), **how) for start in (0, 1000)]
    output, _ = copied(make_file(sample_table(10, 5000)), *files)
    assert_offset_indexes_point_at_pages(output)
    before, after = footers_of(*files), footers_of(output)[0]
    assert [part.offset_index is None for part in after.groups[0].chunks] == [True] * 3
    for data, footer, moved in zip(files, before, after.groups[1:], strict=True):
        for old, new in zip(footer.groups[0].chunks, moved.chunks, strict=True):
            assert old.column_index is not None
            assert new.column_index is not None
            assert region(data, old.column_index) == region(output, new.column_index)
            assert (old.bloom is None) == (new.bloom is None)
            if old.bloom is not None and new.bloom is not None:
                assert region(data, old.bloom) == region(output, new.bloom)
                assert decode_struct(output, new.bloom.offset)[0][1][1] > 0
    path = tmp_path / "output.parquet"
    path.write_bytes(output)
    with duckdb.connect() as connection:
        probe = connection.sql(f"SELECT bloom_filter_excludes FROM parquet_bloom_probe('{path}', 'id', 1007)").fetchall()
    assert probe == [(False,), (True,), (False,)]
    assert duck_rows(path, "id = 1007") == [(1007, "name-6", 251.75)]


def region(data: bytes, place: tuple[int, int]) -> bytes:
    assert place[1] > 0
    return data[place[0] : place[0] + place[1]]


def test_page_indexes_stand_together_before_the_footer() -> None:
    output, result = copied(*[make_file(write_page_index=True)] * 3)
    parts = [part for described in footers_of(output)[0].groups for part in described.chunks]
    places = [part.column_index for part in parts] + [part.offset_index for part in parts]
    at = max(part.end for part in parts)
    for place in places:
        assert place is not None
        assert place.offset == at
        at += place.size_bytes
    assert at == len(output) - result.footer_bytes


def test_a_bloom_filter_of_untold_length_is_measured() -> None:
    data = make_file(**BLOOM)
    old = footers_of(data)[0].groups[0].chunks[0].bloom
    untold = edited(data, lambda footer: meta(footer).pop(15))
    output, _ = copied(data, untold)
    new = [described.chunks[0].bloom for described in footers_of(output)[0].groups]
    assert old is not None
    assert (new[0], new[1]) != (None, None)
    assert new[1] is not None
    assert output[new[1].offset :][: old.size_bytes] == region(data, old)


def broken_at(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


def test_an_offset_index_that_lies_is_called_corrupt() -> None:
    data = make_file(write_page_index=True)
    place = footers_of(data)[0].groups[0].chunks[1].offset_index
    assert place is not None
    # list of one location, whose offset starts at the fourth byte
    lying = broken_at(data, place.offset + 3, b"\x02")
    sink = MemorySink()
    with pytest.raises(CorruptFileError, match=r"^Cannot read 1.parquet: the offset index at byte \d+ makes no sense, .*"):
        copy_row_groups(sources_of(data, lying), None, sink)
    assert sink.ends == ["aborted"]


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda f: chunk(f).update({7: (thrift.I32, chunk(f)[7][1] - 1)}), "the column index at byte .*"),
        (lambda f: chunk(f).update({5: (thrift.I32, chunk(f)[5][1] - 1)}), "the offset index at byte .*"),
        (
            lambda f: meta(f).update({15: (thrift.I32, meta(f)[15][1] - 1)}),
            r"the bloom filter at byte \d+ makes no sense, 272 bytes do not fit into 271",
        ),
        (lambda f: chunk(f).update({7: (thrift.I32, chunk(f)[7][1] + 1)}), "parts of it overlap at byte .*"),
        (lambda f: chunk(f).update({6: (thrift.I64, 10)}), "parts of it overlap at byte .*"),
    ],
)
def test_an_index_of_another_length_than_the_footer_says_is_called_corrupt(
    edit: Callable[[Struct], object], reason: str
) -> None:
    lying = edited(make_file(write_page_index=True, **BLOOM), edit)
    sink = MemorySink()
    with pytest.raises(CorruptFileError, match=f"^Cannot read 0.parquet: {reason}"):
        copy_row_groups(sources_of(lying), None, sink)
    assert sink.ends == ["aborted"]


# Refusals


def refused(*files: bytes) -> str:
    """The reason, given alike before, and during, the copy."""
    reason = refusal(footers_of(*files))
    assert reason is not None
    for footers in (None, footers_of(*files)):
        sink = MemorySink()
        with pytest.raises(CopyRefusedError) as caught:
            copy_row_groups(sources_of(*files), footers, sink)
        assert caught.value.reason == reason
        assert str(caught.value) == f"Cannot copy row groups: {reason}"
        assert caught.value.hint == "Files that cannot be copied can be re-encoded: use the arrow or the spark kernel."
        assert sink.ends == ["aborted"]
    return reason


def with_field(field: pa.Field) -> bytes:
    """The sample with another second column."""
    table = sample_table()
    values = pa.nulls(100, field.type) if field.nullable else pa.array(["x"] * 100, field.type)
    columns = [table["id"], values, table["amount"]]
    return make_file(pa.table(columns, schema=table.schema.set(1, field)), store_schema=False)


def plain_file() -> bytes:
    return make_file(store_schema=False)


_ID = {"PARQUET:field_id": "2"}
SCHEMAS = {
    "name": (pa.field("nom", pa.string(), metadata=_ID), "name is .* here, nom is .* there"),
    "type": (pa.field("name", pa.int64(), metadata=_ID), "name is optional binary .* here, name is optional int64 .* there"),
    "logical type": (
        pa.field("name", pa.binary(), metadata=_ID),
        "name is .* annotated 6:00 10:1c0000 here, name is .* id 2 there",
    ),
    "field id": (
        pa.field("name", pa.string(), metadata={"PARQUET:field_id": "9"}),
        "name is .* with field id 2 .* here, name is .* with field id 9 .* there",
    ),
    "requiredness": (pa.field("name", pa.string(), nullable=False, metadata=_ID), "name is optional .*, name is required .*"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_files_of_different_schemas_are_refused(name: str) -> None:
    field, difference = SCHEMAS[name]
    reason = refused(plain_file(), with_field(field))
    assert re.fullmatch(f"the schemas of 0.parquet and 1.parquet differ: {difference}", reason)


def test_files_with_more_or_reordered_columns_are_refused() -> None:
    table = sample_table()
    more = make_file(table.append_column("more", table["id"]), store_schema=False)
    reordered = make_file(table.select(["name", "id", "amount"]), store_schema=False)
    assert refused(plain_file(), more) == (
        "the schemas of 0.parquet and 1.parquet differ: the root is group of 3 here, the root is group of 4 there"
    )
    assert refused(plain_file(), reordered).startswith("the schemas of 0.parquet and 1.parquet differ: id is required int64")


def test_the_root_of_the_schema_may_be_called_and_marked_anything() -> None:
    def rename(footer: Struct) -> None:
        root = footer[2][1][1][0]
        root[4] = (thrift.BINARY, b"spark_schema")
        root.pop(3)

    output, result = copied(plain_file(), edited(plain_file(), rename))
    assert result.rows == 200
    assert read(output).num_rows == 200


def test_nothing_to_copy_is_refused() -> None:
    assert refused() == "there are no files"


def test_encrypted_files_are_refused() -> None:
    assert refused(make_file(), make_file()[:-4] + b"PARE") == "1.parquet: its footer is encrypted"
    column = edited(make_file(), lambda f: chunk(f).update({8: (thrift.STRUCT, {})}))
    assert refused(column) == "0.parquet: column id is encrypted"


def test_different_column_orders_are_refused() -> None:
    without = edited(make_file(), lambda footer: footer.pop(7))
    assert refused(make_file(), without) == "0.parquet and 1.parquet differ in how their columns' bounds are ordered"
    assert 7 not in decode_footer(copied(without, without)[0])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("org.apache.spark.legacyDateTime", ""),
        ("org.apache.spark.timeZone", "Europe/Rome"),
        ("writer.time.zone", "UTC"),
    ],
)
def test_metadata_that_steers_readers_must_be_equal(key: str, value: str) -> None:
    plain, told = plain_file(), key_value(plain_file(), key, value)
    reason = f"0.parquet and 1.parquet differ in the metadata key {key}"
    assert refused(plain, told) == refused(told, plain) == reason
    assert refused(told, key_value(plain_file(), key, value + "!")) == reason
    output, _ = copied(told, told)
    assert pq.read_metadata(io.BytesIO(output)).metadata[key.encode()] == value.encode()


def test_arrow_schemas_must_be_equal() -> None:
    table = sample_table()
    large = table.cast(table.schema.set(1, table.schema.field(1).with_type(pa.large_string())))
    for other in (plain_file(), make_file(large)):
        assert refused(make_file(), other) == "0.parquet and 1.parquet differ in the metadata key ARROW:schema"
    assert read(copied(make_file(large), make_file(large))[0]).schema.field(1).type == pa.large_string()


def test_the_table_schema_is_kept_when_equal_and_dropped_when_not() -> None:
    one, two = (key_value(key_value(plain_file(), "iceberg.schema", f'{{"schema-id":{n}}}'), "kept", "yes") for n in (1, 2))
    same, _ = copied(one, one, one)
    mixed, _ = copied(one, two, one)
    alone, _ = copied(*(key_value(plain_file(), "iceberg.schema", str(n)) for n in (1, 2)))
    assert pq.read_metadata(io.BytesIO(same)).metadata == {b"iceberg.schema": b'{"schema-id":1}', b"kept": b"yes"}
    assert pq.read_metadata(io.BytesIO(mixed)).metadata == {b"kept": b"yes"}
    assert 5 not in decode_footer(alone)


def test_more_row_groups_than_can_be_numbered_are_refused() -> None:
    footer = footers_of(make_file(sample_table(64), row_group_size=1))[0]
    assert len(footer.groups) == 64
    assert refusal([footer] * 511) is None
    assert refusal([footer] * 512) == "32768 row groups are more than the 32767 that one file can number"


WRITERS = {
    "parquet-mr version 1.16.0 (build 73d6b9f7)": True,
    "parquet-mr version 1.10.0 (build 031a6654)": True,
    "parquet-mr version 1.10.99.7.1.7.0-551 (build 1)": True,
    "parquet-mr version 1.9.0 (build 1)": False,
    "parquet-mr version 1.5.0-cdh5.16.2 (build ${buildNumber})": False,
    "parquet-mr (build 1)": False,
    "parquet-cpp-arrow version 26.0.1": True,
    "parquet-cpp-arrow version 2.0.0": False,
    "parquet-cpp version 1.5.1-SNAPSHOT": False,
    "parquet-rs version 57.0.0": True,
    "parquet-rs version 9.1.0": False,
    "parquet-mr-trino version 470 (build n/a)": True,
    "DuckDB version v1.5.5 (build abc)": True,
    "DuckDB": False,
    "impala version 3.4.0-RELEASE (build 1)": False,
    "a new program": False,
    "": False,
}


@pytest.mark.parametrize("name", WRITERS)
def test_only_known_good_writers_are_copied(name: str) -> None:
    assert (writer_of(name) is not None) == WRITERS[name]
    if not WRITERS[name]:
        known = name or "an unnamed program"
        assert refused(created_by(make_file(), name)) == f"0.parquet was written by {known}, which is no known-good writer"


def test_the_oldest_writer_stands_for_all() -> None:
    names = [f"parquet-mr version {version} (build 1)" for version in ("1.13.1", "1.9.9", "1.12.3", "1.16.0")]
    old, older, new = (created_by(make_file(), names[number]) for number in (0, 2, 3))
    arrow = created_by(make_file(), "parquet-cpp-arrow version 4.0.0")
    for files in ((old, older, new), (new, older, old), (arrow, new, older), (older, arrow)):
        output, _ = copied(*files)
        assert pq.read_metadata(io.BytesIO(output)).created_by == names[2]


def test_int96_of_two_programs_is_refused() -> None:
    arrow = make_file(pa.table({"at": pa.array([1], pa.timestamp("us"))}), use_deprecated_int96_timestamps=True)
    java = created_by(arrow, "parquet-mr version 1.13.1 (build 1)")
    assert refused(arrow, java) == (
        "parquet-cpp-arrow and parquet-mr both wrote INT96 timestamps, which readers tell apart by the writer"
    )
    assert copied(java, java)[1].rows == 2


# Failures


def test_a_refused_file_in_the_middle_aborts_the_output() -> None:
    sink = MemorySink()
    with pytest.raises(CopyRefusedError, match=r"the schemas of 0.parquet and 2.parquet differ"):
        copy_row_groups(sources_of(plain_file(), plain_file(), make_file(pa.table({"x": [1]}), store_schema=False)), None, sink)
    assert sink.ends == ["aborted"]
    assert sink.written


@pytest.mark.parametrize("known", [True, False])
def test_a_source_that_fails_aborts_the_output(known: bool) -> None:
    sources = [*sources_of(make_file()), FailingSource(make_file(), "cut.parquet")]
    footers = footers_of(make_file(), make_file()) if known else None
    sink = MemorySink()
    with pytest.raises(StorageError, match=r"^Cannot read cut.parquet: the connection was cut$"):
        copy_row_groups(sources, footers, sink)
    assert sink.ends == ["aborted"]


def test_a_sink_that_fails_is_aborted() -> None:
    length = len(copied(make_file())[0])
    for limit in (0, 100, length - 1):
        sink = MemorySink(fails_after_bytes=limit)
        with pytest.raises(StorageError, match=r"^Cannot write memory: it is full$"):
            copy_row_groups(sources_of(make_file()), None, sink)
        assert sink.ends == ["aborted"]


def test_a_local_output_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(make_file())
    source, out = LocalSource(tmp_path / "in.parquet"), tmp_path / "out.parquet"
    with pytest.raises(CopyRefusedError):
        copy_row_groups([source, BytesSource(make_file(pa.table({"x": [1]})))], None, LocalSink(out))
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]
    copy_row_groups([source, source], None, LocalSink(out))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]
    assert pq.read_table(out).num_rows == 200


def test_a_file_that_changed_since_its_footer_was_read_is_not_copied() -> None:
    footers = footers_of(make_file(sample_table(500)))
    sink = MemorySink()
    with pytest.raises(
        CorruptFileError, match=r"^Cannot read 0.parquet: it had \d+ bytes when its footer was read and has \d+ now$"
    ):
        copy_row_groups(sources_of(make_file(sample_table(5))), footers, sink)
    assert sink.ends == ["aborted"]


# Damage


def outcome(data: bytes) -> pa.Table | None:
    """What pyarrow reads, or None when it cannot."""
    try:
        return read(data)
    except (OSError, ValueError, pa.ArrowException, NotImplementedError):
        return None


def assert_never_silently_wrong(*files: bytes) -> bool:
    """Copies, or not; a copy reads as its inputs do. Tells whether there was one."""
    sink = MemorySink()
    try:
        copy_row_groups(sources_of(*files), None, sink)
    except NeveError:
        assert sink.ends == ["aborted"]
        return False
    parts = [outcome(data) for data in files]
    whole = outcome(sink.data)
    assert all(part is not None for part in parts), "a file that pyarrow cannot read was copied"
    assert whole is not None
    expected = [row for part in parts if part is not None for row in part.to_pylist()]
    assert repr(whole.to_pylist()) == repr(expected)
    return True


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_in_a_footer_never_give_a_wrong_copy(seed: int) -> None:
    random_ = random.Random(seed)
    variants: list[dict[str, Any]] = [{}, {"write_page_index": True, **BLOOM}, {"row_group_size": 40}]
    options = variants[seed % 3]
    good = make_file(store_schema=seed > 2, **options)
    raw = raw_footer(good)
    accepted = 0
    for _ in range(150):
        flipped = bytearray(raw)
        for _ in range(random_.choice([1, 1, 1, 2, 5])):
            flipped[random_.randrange(len(raw))] ^= 1 << random_.randrange(8)
        bad = with_footer(good, bytes(flipped))
        accepted += assert_never_silently_wrong(bad, bad)
        accepted += assert_never_silently_wrong(good, bad)
    assert 0 < accepted < 300


@pytest.mark.parametrize("seed", range(2))
def test_flipped_bits_in_page_indexes_never_give_a_wrong_copy(seed: int) -> None:
    random_ = random.Random(seed)
    good = make_file(write_page_index=True, data_page_size=64, write_batch_size=8, **BLOOM)
    described = footers_of(good)[0]
    start, end = described.groups[0].end, described.data_end
    for _ in range(100):
        flipped = bytearray(good)
        flipped[random_.randrange(start, end)] ^= 1 << random_.randrange(8)
        assert_never_silently_wrong(bytes(flipped), good)


# Requests


def test_a_small_file_takes_one_request_and_one_more_when_its_footer_was_read_first() -> None:
    data = make_file(sample_table(60_000), write_page_index=True, row_group_size=20_000)
    assert len(data) > 4 * 65_536
    blind, known = [RecordingSource(data) for _ in range(5)], [RecordingSource(data) for _ in range(5)]
    copy_row_groups(blind, None, MemorySink())
    copy_row_groups(known, read_footers(known), MemorySink())
    assert [len(source.requests) for source in blind] == [1] * 5
    assert [len(source.requests) for source in known] == [2] * 5


def large_file(mebibytes: int) -> bytes:
    """A file of about this size, of rows that do not compress."""
    values = random.Random(1).randbytes(mebibytes * 1024 * 1024 - 300_000)
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(1024), len(values) // 1024, [None, pa.py_buffer(values)])
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False, "row_group_size": 8192}
    return make_file(pa.table({"payload": column}), write_page_index=True, **options)


@pytest.mark.parametrize("mebibytes", [17, 63])
def test_a_file_of_up_to_64_mib_takes_at_most_three_requests(mebibytes: int) -> None:
    data = large_file(mebibytes)
    assert len(data) < mebibytes * 2**20
    for know in (lambda _: None, read_footers):
        source, sink = RecordingSource(data), MemorySink()
        copy_row_groups([source], know([source]), sink)
        assert len(source.requests) <= 3
        assert max(length for _, length in source.requests) <= 32 * 2**20
        assert sink.largest_write <= 32 * 2**20
        assert read(sink.data).equals(read(data))


def test_what_was_written_is_counted_in_the_footer_of_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_the_last(agreement: Agreement, groups: list[MovedGroup]) -> bytes:
        return footer_bytes(agreement, groups[:-1])

    monkeypatch.setattr(output, "footer_bytes", without_the_last)
    account = copy_row_groups(sources_of(make_file(), make_file()), None, MemorySink())
    assert (account.rows, account.rows_written) == (200, 100)
    assert account.counts == {1: ColumnCounts(200, 0), 2: ColumnCounts(200, 30), 3: ColumnCounts(200, 0)}
    assert account.written == {1: ColumnCounts(100, 0), 2: ColumnCounts(100, 15), 3: ColumnCounts(100, 0)}
